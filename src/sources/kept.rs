//! One worker or connection that is replaced whenever it ends.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::source::SourceStatus;
use crate::call::ToolError;
use crate::runtime::backoff::Backoff;

/// The current worker or connection, and the history of those before it.
pub(in crate::sources) struct Kept<T> {
    stage: watch::Sender<Stage<T>>,
    pub(in crate::sources) history: Mutex<RestartHistory>,
}

enum Stage<T> {
    /// The next one is being started.
    Starting,
    Ready(Arc<T>),
    /// They keep failing, so no call should wait for the next one.
    Unavailable,
}

impl<T> Kept<T> {
    /// Keeps this one; without one, the first one is being started.
    pub(in crate::sources) fn new(first: Option<Arc<T>>) -> Self {
        Self {
            stage: watch::Sender::new(first.map_or(Stage::Starting, Stage::Ready)),
            history: Mutex::default(),
        }
    }

    /// The current one, as soon as it is ready. Skips `previous`, which takes no more calls. `None`:
    /// they keep failing.
    pub(in crate::sources) async fn next(&self, previous: Option<&Arc<T>>) -> Option<Arc<T>> {
        let mut stage = self.stage.subscribe();
        let is_another = |stage: &Stage<T>| match stage {
            Stage::Starting => false,
            Stage::Ready(now) => previous.is_none_or(|previous| !Arc::ptr_eq(previous, now)),
            Stage::Unavailable => true,
        };
        match stage.wait_for(is_another).await.as_deref() {
            Ok(Stage::Ready(now)) => Some(now.clone()),
            Ok(Stage::Unavailable | Stage::Starting) | Err(_) => None,
        }
    }

    /// The current one, if it is ready.
    pub(in crate::sources) fn current(&self) -> Option<Arc<T>> {
        match &*self.stage.borrow() {
            Stage::Ready(now) => Some(now.clone()),
            Stage::Starting | Stage::Unavailable => None,
        }
    }

    /// Whether they keep failing.
    pub(in crate::sources) fn is_unavailable(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Unavailable)
    }

    /// The state of a source that has this one, with this number of processes.
    pub(in crate::sources) fn status(&self, workers: usize) -> SourceStatus {
        self.history.lock().status(!self.is_unavailable(), workers)
    }

    /// Offers a started one to calls.
    pub(in crate::sources) fn set_ready(&self, started: Arc<T>) {
        self.history.lock().record_start();
        self.stage.send_replace(Stage::Ready(started));
    }

    /// Lets calls wait for the next one.
    pub(in crate::sources) fn set_starting(&self) {
        self.stage.send_replace(Stage::Starting);
    }

    /// Notes that the current one has ended by itself: when it had started, and whether it ever
    /// answered a call.
    pub(in crate::sources) fn record_death(&self, started: Instant, answered: bool, reason: &str) {
        self.history.lock().record_death(started, answered, reason);
        self.replace();
    }

    /// Notes that the current one was ended on purpose.
    pub(in crate::sources) fn record_end(&self) {
        self.history.lock().reset_early_deaths();
        self.replace();
    }

    fn replace(&self) {
        self.history.lock().replaced += 1;
        self.set_starting();
        self.give_up_if_failing();
    }

    fn give_up_if_failing(&self) {
        if self.history.lock().is_failing() {
            self.stage.send_replace(Stage::Unavailable);
        }
    }

    /// Starts until one is up, with pauses after failures. `log` is told each failure.
    pub(in crate::sources) async fn start_until_up<S, F>(
        &self,
        start: impl Fn() -> F + Send + Sync,
        log: impl Fn(&str) + Send + Sync,
    ) -> S
    where
        S: Send,
        F: Future<Output = Result<S, String>> + Send,
    {
        loop {
            let pause = self.history.lock().next_pause(fastrand::f64());
            sleep(pause).await;
            let began = Instant::now();
            match start().await {
                Ok(started) => return started,
                Err(fault) => {
                    log(&fault);
                    self.history.lock().record_failed_start(began, &fault);
                    self.give_up_if_failing();
                }
            }
        }
    }
}

/// After this many early deaths in a row, there is a pause before the next start.
const EARLY_DEATHS_BEFORE_PAUSE: u32 = 3;
/// A worker that lived this long did not die of its start.
const MIN_HEALTHY_LIFETIME: Duration = Duration::from_secs(10);
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(30),
};

/// The history of the workers of one role, or of the connections to one server. It decides when one
/// that died is replaced: after several early deaths there is a pause before the next start.
#[derive(Default)]
pub(in crate::sources) struct RestartHistory {
    /// Early deaths and failed starts since the last worker that lived.
    early_deaths: u32,
    /// The time when the last of them was counted.
    last_counted_at: Option<Instant>,
    /// The time of the next start, if there is a pause.
    next_start: Option<Instant>,
    /// The last failure since the last good start.
    pub fault: Option<String>,
    /// The time of that failure.
    fault_at: Option<Instant>,
    /// The number of workers that were replaced.
    pub replaced: u64,
}

impl RestartHistory {
    /// Records that a worker has ended by itself. `has_answered` is whether it ever answered a
    /// call.
    pub(in crate::sources) fn record_death(
        &mut self,
        started_at: Instant,
        has_answered: bool,
        reason: &str,
    ) {
        if has_answered || started_at.elapsed() >= MIN_HEALTHY_LIFETIME {
            self.reset_early_deaths();
        } else {
            self.count_early_death(started_at);
        }
        self.set_fault(reason);
    }

    /// Records that a worker could not be started. `attempted_at` is the time when the start was
    /// attempted.
    pub(in crate::sources) fn record_failed_start(&mut self, attempted_at: Instant, reason: &str) {
        self.count_early_death(attempted_at);
        self.set_fault(reason);
    }

    /// Records that a worker has started: earlier failures are over.
    pub(in crate::sources) fn record_start(&mut self) {
        (self.fault, self.fault_at) = (None, None);
    }

    fn set_fault(&mut self, reason: &str) {
        (self.fault, self.fault_at) = (Some(reason.to_owned()), Some(Instant::now()));
    }

    /// Records the end of a worker that did not die of its start: it had worked, or it was ended on
    /// purpose.
    pub(in crate::sources) fn reset_early_deaths(&mut self) {
        self.early_deaths = 0;
    }

    /// Counts an early death. Workers that were already running, or starting, at the last counted
    /// death share its cause and are not counted. So eight workers that die at once count as one.
    fn count_early_death(&mut self, attempted_at: Instant) {
        if self
            .last_counted_at
            .is_none_or(|counted| attempted_at >= counted)
        {
            self.early_deaths = self.early_deaths.saturating_add(1);
            self.last_counted_at = Some(Instant::now());
        }
    }

    /// How long to wait before the next start. `random` is from 0 to 1.
    pub(in crate::sources) fn next_pause(&mut self, random: f64) -> Duration {
        if !self.is_failing() {
            self.next_start = None;
            return Duration::ZERO;
        }
        let pause = BACKOFF.wait_after(self.early_deaths - EARLY_DEATHS_BEFORE_PAUSE + 1, random);
        self.next_start = Some(Instant::now() + pause);
        pause
    }

    /// Whether the next worker is unlikely to live, so that no call should wait for it.
    pub(in crate::sources) fn is_failing(&self) -> bool {
        self.early_deaths >= EARLY_DEATHS_BEFORE_PAUSE
    }

    /// Why no call can be made now. `subject` is what keeps failing, and `unknown` the reason if
    /// none is recorded.
    pub(in crate::sources) fn unavailable_error(&self, subject: &str, unknown: &str) -> ToolError {
        let reason = self.fault.as_deref().unwrap_or(unknown);
        let message = format!("{subject} is unavailable: {reason}");
        ToolError::unavailable_before_start(message, Some(self.retry_after()))
    }

    /// The state of a source with this history.
    pub(in crate::sources) fn status(&self, is_up: bool, workers: usize) -> SourceStatus {
        SourceStatus {
            is_up,
            workers,
            replaced: self.replaced,
            fault: self.fault.clone(),
            fault_at: self.fault_at,
            ..SourceStatus::default()
        }
    }

    /// The time until the next start, at least one second, for the caller's `Retry-After`.
    fn retry_after(&self) -> Duration {
        let remaining = self
            .next_start
            .map(|next| next.saturating_duration_since(Instant::now()))
            .unwrap_or_default();
        remaining.max(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_from_third_early_death() {
        let mut restart_history = RestartHistory::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            restart_history.record_failed_start(Instant::now(), "no");
            pauses.push(restart_history.next_pause(1.0).as_millis());
        }
        assert_eq!(
            pauses,
            [
                0, 0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000
            ]
        );
        assert_eq!(restart_history.retry_after(), BACKOFF.longest);
        assert_eq!(
            restart_history.next_pause(0.25),
            BACKOFF.longest / 4,
            "full jitter"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn healthy_worker_is_replaced_without_pause() {
        let mut restart_history = RestartHistory::default();
        let early = |restart_history: &mut RestartHistory| {
            (0..5).for_each(|_| restart_history.record_death(Instant::now(), false, "early"));
        };
        early(&mut restart_history);
        assert!(restart_history.is_failing());
        let started_at = Instant::now();
        tokio::time::advance(MIN_HEALTHY_LIFETIME).await;
        restart_history.record_death(started_at, false, "late");
        assert_eq!(
            (
                restart_history.is_failing(),
                restart_history.next_pause(1.0)
            ),
            (false, Duration::ZERO)
        );
        early(&mut restart_history);
        restart_history.record_death(Instant::now(), true, "in its second call");
        assert_eq!(
            (
                restart_history.is_failing(),
                restart_history.next_pause(1.0)
            ),
            (false, Duration::ZERO)
        );
        early(&mut restart_history);
        restart_history.reset_early_deaths();
        assert!(!restart_history.is_failing());
    }

    #[tokio::test(start_paused = true)]
    async fn simultaneous_deaths_count_once() {
        let (mut restart_history, started_at) = (RestartHistory::default(), Instant::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        (0..8)
            .for_each(|_| restart_history.record_death(started_at, false, "the database is gone"));
        assert!(!restart_history.is_failing());
        for _ in 0..2 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let attempted_at = Instant::now();
            tokio::time::advance(Duration::from_secs(1)).await;
            (0..8).for_each(|_| restart_history.record_failed_start(attempted_at, "it still is"));
        }
        assert!(restart_history.is_failing());
        assert_eq!(restart_history.next_pause(1.0), BACKOFF.first);
    }
}
