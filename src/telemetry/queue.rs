//! The bounded queue of a signal, and the task that sends what it holds.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::exporter::{Exporter, Failure};
use super::signal::{Batching, Signal};
use crate::metrics::ExportOutcome;

/// While something waits, the task looks at the queue so often. So under load a call does not wake
/// the task: an idle queue costs nothing, and a busy one a fixed number of wake-ups.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Requests for one batch, before it is given up.
const MAX_REQUESTS: u32 = 5;
/// The wait before the second request. It doubles each time.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait that a collector may ask for.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Makes the message of a batch. Also returns the number of records in it.
pub(super) type Encode<T> = fn(Vec<T>, Resource) -> (Vec<u8>, u64);

/// What can be queued.
pub(super) trait Record: Send + 'static {
    const SIGNAL: Signal;
}

/// The sending side of a queue.
pub(super) struct Queue<T> {
    sender: mpsc::Sender<T>,
    exporter: Arc<Exporter>,
}

impl<T: Record> Queue<T> {
    /// Makes a queue and starts its task, which ends when `stop` is cancelled.
    pub(super) fn start(
        exporter: &Arc<Exporter>,
        stop: &CancellationToken,
        batching: Batching,
        encode: Encode<T>,
    ) -> (Self, JoinHandle<()>) {
        let (sender, records) = mpsc::channel(batching.waiting);
        let sending = Sending {
            records,
            exporter: exporter.clone(),
            stop: stop.clone(),
            batching,
            encode,
        };
        let queue = Self {
            sender,
            exporter: exporter.clone(),
        };
        (queue, tokio::spawn(sending.run().boxed()))
    }

    /// Puts a record into the queue. Never waits: a record that does not fit is dropped.
    pub(super) fn push(&self, record: T) {
        if self.sender.try_send(record).is_err() {
            self.exporter.count(T::SIGNAL, ExportOutcome::Dropped, 1);
        }
    }
}

/// The task of a queue.
struct Sending<T> {
    records: mpsc::Receiver<T>,
    exporter: Arc<Exporter>,
    stop: CancellationToken,
    batching: Batching,
    encode: Encode<T>,
}

impl<T: Record> Sending<T> {
    async fn run(mut self) {
        loop {
            let first = tokio::select! {
                biased;
                () = self.stop.cancelled() => None,
                first = self.records.recv() => first,
            };
            let Some(first) = first else { break };
            let batch = self.collect(first).await;
            self.send(batch).await;
        }
        // Records that come from now on are dropped and counted.
        self.records.close();
        loop {
            let mut batch = Vec::new();
            self.take_waiting(&mut batch);
            if batch.is_empty() {
                return;
            }
            self.send(batch).await;
        }
    }

    /// Collects until there are enough records, or the first one has waited long enough.
    async fn collect(&mut self, first: T) -> Vec<T> {
        let (mut batch, end) = (vec![first], Instant::now() + self.batching.delay);
        loop {
            self.take_waiting(&mut batch);
            let rest = end.saturating_duration_since(Instant::now());
            if batch.len() >= self.batching.together || rest.is_zero() {
                return batch;
            }
            tokio::select! {
                () = sleep(POLL_INTERVAL.min(rest)) => {}
                () = self.stop.cancelled() => return batch,
            }
        }
    }

    fn take_waiting(&mut self, batch: &mut Vec<T>) {
        while batch.len() < self.batching.together {
            match self.records.try_recv() {
                Ok(record) => batch.push(record),
                Err(_) => return,
            }
        }
    }

    async fn send(&self, batch: Vec<T>) {
        let (message, count) = (self.encode)(batch, self.exporter.resource());
        send_with_retries(&self.exporter, T::SIGNAL, message, count, &self.stop).await;
    }
}

/// Sends a message, again if the failure permits it. While the service stops, it is sent once.
pub(super) async fn send_with_retries(
    exporter: &Exporter,
    signal: Signal,
    message: Vec<u8>,
    count: u64,
    stop: &CancellationToken,
) {
    let mut wait = FIRST_WAIT;
    for request in 1..=MAX_REQUESTS {
        let Err(Failure {
            is_retryable,
            retry_after,
            ..
        }) = exporter.send(signal, message.clone(), count).await
        else {
            return;
        };
        if !is_retryable || request == MAX_REQUESTS || stop.is_cancelled() {
            break;
        }
        // Replicas that lost the same collector do not come back at the same moment.
        let jittered = wait.mul_f64(0.5 + fastrand::f64() / 2.0);
        let pause = retry_after.map_or(jittered, |after| after.min(MAX_WAIT));
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => {}
        }
        wait *= 2;
    }
    exporter.count(signal, ExportOutcome::Failed, count);
}
