//! The bounded queue that leads to the one task of an engine that writes.

use std::sync::Arc;
use std::time::{Duration, Instant as SystemInstant};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::operation::{Operation, Reply, ReservedCall, Starting, Write};
use super::{Error, Reservation, ReserveError, Row, WhenDown};
use crate::call::Charge;

/// Maximum number of waiting operations. Senders wait for a free slot, so the queue bounds memory.
const QUEUE_CAPACITY: usize = 1024;

/// Maximum number of operations in one batch. It is large enough to make the cost of a commit small
/// for each row, and small enough to keep a commit short.
pub(super) const MAX_BATCH: usize = 256;
/// A batch for which no caller waits starts this long after the commit before it. The answers have
/// left, so only a crash shows the difference.
pub(super) const COLLECT_TIME: Duration = Duration::from_millis(5);
/// Waits from this time on use a timer of tokio, whose resolution is 1 ms. Most commits on a local disk
/// are too short for it.
const MIN_TIMED_WAIT: Duration = Duration::from_micros(500);
/// Such a wait is for at most this many callers. The rows of more of them take longer than the rest of a
/// commit, so one commit for all would save nothing.
const MAX_TIMED_CALLERS: usize = 32;
/// Longest wait without a timer. It bounds the CPU time that the wait costs.
const MAX_SPIN: Duration = Duration::from_micros(250);

/// The queue of any engine.
#[async_trait]
pub trait WriterHandle: Send + Sync {
    /// Reserves a call; see the trait.
    async fn reserve(&self, row: Row, charges: Vec<Charge>) -> Result<Reservation, ReserveError>;

    /// Sends an operation.
    async fn send_write(&self, write: Write) -> Result<(), Error>;

    /// Sends without waiting for a free slot. The memory of such rows is bounded by `in_flight.rs`.
    fn send_in_background(&self, write: Write);

    /// Why nothing can be written now.
    fn health(&self) -> Result<(), String>;

    /// Whether calls are accepted; see the trait.
    fn accepts_calls(&self, when_down: WhenDown) -> Result<(), String>;

    /// Why the writer accepts no operation any more.
    fn closed_error(&self) -> Error;

    /// Waits until the writer has stopped for good. Returns the reason.
    async fn wait_for_stop(&self) -> Error;
}

/// Sends an operation and waits for its commit.
pub(super) async fn commit(
    writer: &dyn WriterHandle,
    write: impl FnOnce(Reply<()>) -> Write + Send,
) -> Result<(), Error> {
    let (reply, answer) = oneshot::channel();
    writer.send_write(write(reply)).await?;
    answer.await.map_err(|_| writer.closed_error())?
}

/// The handle of a writer's task.
pub(super) struct WriterQueue<End, Rare> {
    queue: mpsc::Sender<Operation<End, Rare>>,
    health: Arc<WriterHealth>,
}

impl<End, Rare> Clone for WriterQueue<End, Rare> {
    fn clone(&self) -> Self {
        let (queue, health) = (self.queue.clone(), self.health.clone());
        Self { queue, health }
    }
}

/// The state of a writer.
#[derive(Default)]
pub(super) struct WriterHealth {
    /// Why nothing can be written now; `None` if the writer works.
    failure: ArcSwapOption<String>,
    /// Why the writer has stopped for good.
    stop_reason: ArcSwapOption<String>,
    /// Cancelled when the writer has stopped for good.
    pub(super) stopped: CancellationToken,
    /// Notified when an operation is in the queue for which a caller waits.
    pub(super) awaited: Notify,
}

impl WriterHealth {
    pub(super) fn check(&self) -> Result<(), Error> {
        if let Some(reason) = self.stop_reason.load_full() {
            return Err(Error::Stopped(reason.to_string()));
        }
        match self.failure.load_full() {
            None => Ok(()),
            Some(reason) => Err(Error::Failed(reason.to_string())),
        }
    }

    /// Whether something can be written.
    pub(super) fn is_healthy(&self) -> bool {
        self.check().is_ok()
    }

    /// Notes a failure after which the writer goes on. Returns whether it worked before.
    pub(super) fn fail(&self, reason: String) -> bool {
        self.failure.swap(Some(Arc::new(reason))).is_none()
    }

    /// Notes that the writer works again. Returns whether it did not before.
    pub(super) fn recover(&self) -> bool {
        self.failure.swap(None).is_some()
    }

    /// Notes that the writer stops for good. The first reason stays.
    pub(super) fn stop(&self, reason: String) {
        let reason = Some(Arc::new(reason));
        self.stop_reason
            .compare_and_swap(&None::<Arc<String>>, reason);
        self.stopped.cancel();
    }

    /// Starts the writer's task. After a panic, the service must not go on without a writer.
    pub(super) fn spawn_writer(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let health = self.clone();
        let task = async move {
            let ended = tokio::spawn(task).await;
            if ended.is_err_and(|error| error.is_panic()) {
                health.stop("the writer has failed, which is a bug of this program".into());
            }
        };
        tokio::spawn(task.boxed());
    }

    /// Waits a moment for the callers of the last commit. Most of them come back at once, and one
    /// commit for all costs less than two. PostgreSQL does the same with `commit_delay`, and recommends
    /// half the time of a flush; a commit here is a flush and about as much other work. After a short
    /// commit, it waits only if others wait already.
    pub(super) async fn wait_for_callers<E, R>(
        &self,
        answered: usize,
        commit_time: Duration,
        operations: &mpsc::Receiver<Operation<E, R>>,
    ) {
        let waiting = operations.len();
        let expected = answered + waiting;
        if answered == 0 || expected == 1 {
            return;
        }
        let is_complete = || operations.len() >= expected;
        let wait = COLLECT_TIME.min(commit_time / 4);
        if wait >= MIN_TIMED_WAIT {
            let end = Instant::now() + wait;
            while expected <= MAX_TIMED_CALLERS && !is_complete() && Instant::now() < end {
                tokio::select! {
                    () = self.awaited.notified() => {}
                    () = tokio::time::sleep_until(end) => {}
                }
            }
        } else if waiting > 0 {
            let end = SystemInstant::now() + wait.min(MAX_SPIN);
            while !is_complete() && SystemInstant::now() < end {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Adds the operations that arrive until this time, or until a caller waits for one of them.
    pub(super) async fn collect_until<E, R>(
        &self,
        end: Instant,
        operations: &mut mpsc::Receiver<Operation<E, R>>,
        buffer: &mut Vec<Operation<E, R>>,
    ) {
        let mut is_awaited = false;
        while !is_awaited && buffer.len() < MAX_BATCH && Instant::now() < end {
            // The queue collects them meanwhile: a receiver here would wake up for each of them. A
            // notification may belong to an operation of an earlier batch.
            tokio::select! {
                () = self.awaited.notified() => {}
                () = tokio::time::sleep_until(end) => {}
            }
            while buffer.len() < MAX_BATCH
                && let Ok(op) = operations.try_recv()
            {
                is_awaited |= op.is_awaited();
                buffer.push(op);
            }
        }
    }
}

impl<End: Send + 'static, Rare: Send + 'static> WriterQueue<End, Rare> {
    /// A queue, with the end from which the writer receives.
    pub(super) fn new(health: Arc<WriterHealth>) -> (Self, mpsc::Receiver<Operation<End, Rare>>) {
        let (queue, operations) = mpsc::channel(QUEUE_CAPACITY);
        (Self { queue, health }, operations)
    }

    /// A queue that accepts no operation.
    pub(super) fn new_closed() -> Self {
        Self::new(Arc::default()).0
    }

    pub(super) async fn send(&self, op: Operation<End, Rare>) -> Result<(), Error> {
        let is_awaited = op.is_awaited();
        let sent = self.queue.send(op).await;
        if is_awaited {
            self.health.awaited.notify_one();
        }
        sent.map_err(|_| self.closed_error())
    }

    /// Sends an operation and waits for its commit.
    pub(super) async fn send_and_wait<T, E: From<Error>>(
        &self,
        op: impl FnOnce(oneshot::Sender<Result<T, E>>) -> Operation<End, Rare>,
    ) -> Result<T, E> {
        let (reply, answer) = oneshot::channel();
        self.send(op(reply)).await?;
        answer.await.map_err(|_| self.closed_error())?
    }

    /// Stops the writer for good.
    pub(super) fn stop(&self, reason: String) {
        if !self.health.stopped.is_cancelled() {
            tracing::error!(%reason, "the ledger stops, and the service must stop too: its file cannot be read");
            self.health.stop(reason);
        }
    }
}

#[async_trait]
impl<End: Send + 'static, Rare: Send + 'static> WriterHandle for WriterQueue<End, Rare> {
    async fn reserve(&self, row: Row, charges: Vec<Charge>) -> Result<Reservation, ReserveError> {
        let call = ReservedCall { row, charges };
        self.send_and_wait(|reply| Operation::Reserve(Starting::new(call, reply)))
            .await
    }

    async fn send_write(&self, write: Write) -> Result<(), Error> {
        self.send(write.into()).await
    }

    fn send_in_background(&self, write: Write) {
        match self.queue.try_send(write.into()) {
            Ok(()) => {}
            Err(TrySendError::Full(op)) => {
                let queue = self.queue.clone();
                let task = async move {
                    queue
                        .send(op)
                        .await
                        .inspect_err(|unsent| unsent.0.log_lost_row())
                };
                tokio::spawn(task.boxed());
            }
            Err(TrySendError::Closed(op)) => op.log_lost_row(),
        }
    }

    fn health(&self) -> Result<(), String> {
        self.health.check().map_err(|error| match error {
            Error::Failed(reason) => reason,
            stopped => stopped.to_string(),
        })
    }

    fn accepts_calls(&self, when_down: WhenDown) -> Result<(), String> {
        match self.health.check() {
            Err(Error::Failed(_)) if when_down == WhenDown::ServeReads => Ok(()),
            _ => self.health(),
        }
    }

    fn closed_error(&self) -> Error {
        self.health.check().err().unwrap_or(Error::Closed)
    }

    async fn wait_for_stop(&self) -> Error {
        self.health.stopped.cancelled().await;
        self.closed_error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_distinguishes_failed_from_stopped() {
        let health = WriterHealth::default();
        assert!(health.check().is_ok());
        assert!(health.fail("full".into()) && !health.fail("full".into()));
        assert!(matches!(health.check(), Err(Error::Failed(reason)) if reason == "full"));
        assert!(health.recover() && !health.recover() && health.is_healthy());
    }

    #[tokio::test]
    async fn writer_that_panics_has_stopped() {
        let health = Arc::<WriterHealth>::default();
        health.spawn_writer(async { panic!("a bug") });
        health.stopped.cancelled().await;
        assert!(matches!(health.check(), Err(Error::Stopped(_))));
    }

    #[test]
    fn stopped_writer_never_recovers() {
        let health = WriterHealth::default();
        health.stop("fsync failed".into());
        health.fail("full".into());
        health.recover();
        health.stop("another reason".into());
        assert!(matches!(health.check(), Err(Error::Stopped(reason)) if reason == "fsync failed"));
    }

    #[tokio::test(start_paused = true)]
    async fn busy_writer_waits_for_the_callers_that_it_has_answered() {
        let health = Arc::<WriterHealth>::default();
        let (queue, operations) = WriterQueue::<(), ()>::new(health.clone());
        let send = || queue.send(Operation::Write(Write::Flush(oneshot::channel().0)));
        let wait = async |answered, commit_ms| {
            let (began, commit_time) = (Instant::now(), Duration::from_millis(commit_ms));
            health
                .wait_for_callers(answered, commit_time, &operations)
                .await;
            began.elapsed().as_millis()
        };
        assert_eq!(wait(1, 16).await, 0, "a lone call");
        assert_eq!(wait(2, 16).await, 4, "a quarter of a commit");
        assert_eq!(wait(2, 1).await, 0, "no wait after a short commit");
        assert_eq!(wait(33, 16).await, 0, "it would save nothing");
        send().await.unwrap();
        assert_eq!(wait(0, 16).await, 0, "no caller has an answer");
        assert_eq!(wait(1, 16).await, 4);
        assert_eq!(wait(1, 4000).await, 5);
        let comes_back = async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            send().await.unwrap();
        };
        assert_eq!(tokio::join!(wait(1, 16), comes_back).0, 2);
    }
}
