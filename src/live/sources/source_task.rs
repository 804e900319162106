//! Starts a source, and repeats that until it was listed.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::change::ApplyOutcome;
use super::status_board::SourceStatusBoard;
use crate::live::Live;
use crate::tools::{Source, SourceFault, SourceSettings};

/// Longest wait before the second attempt.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait before any attempt.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A source that is being started, or waits for the next attempt. Dropping it stops what was started.
pub(super) struct Start {
    pub(super) number: u64,
    /// Ends a wait.
    now: Arc<Notify>,
    task: AbortOnDropHandle<()>,
}

impl Start {
    /// Starts the source. `wait`: pause first, because it has just failed.
    pub(super) fn new(live: &Arc<Live>, board: &Arc<SourceStatusBoard>, settings: &SourceSettings, wait: bool) -> Self {
        let random: fn() -> f64 = fastrand::f64;
        let pause = wait.then(|| backoff(1, random()));
        let (number, now) = (board.begin(pause), Arc::new(Notify::new()));
        let source = settings.build(&live.surroundings);
        let bring = Bring { live: Arc::downgrade(live), board: board.clone(), number, random };
        let task = tokio::spawn(bring.until_listed(source, now.clone(), pause));
        Self { number, now, task: AbortOnDropHandle::new(task) }
    }

    /// Whether the task still runs.
    pub(super) fn is_under_way(&self) -> bool {
        !self.task.is_finished()
    }

    /// Ends the wait before the next attempt.
    pub(super) fn try_now(&self) {
        self.now.notify_waiters();
    }
}

struct Bring {
    live: Weak<Live>,
    board: Arc<SourceStatusBoard>,
    number: u64,
    /// Returns a number from 0 to 1. A parameter, so that waits can be tested.
    random: fn() -> f64,
}

impl Bring {
    async fn until_listed(self, source: Arc<dyn Source>, now: Arc<Notify>, pause: Option<Duration>) {
        let Self { live, board, number, random } = &self;
        let mut failed = u32::from(pause.is_some());
        if let Some(pause) = pause {
            wait(&now, pause).await;
        }
        loop {
            let told = {
                let (board, live, number) = (board.clone(), live.clone(), *number);
                move |what: String| {
                    let what = live.upgrade().map_or(what.clone(), |live| live.clean(&what));
                    tracing::info!(source = &*board.name, doing = what, "a source is loading");
                    board.is_doing(number, &what);
                }
            };
            board.is_doing(*number, "starting");
            // Register for the wake-up before the listing starts. `notify_waiters` wakes only tasks that are registered
            // already. So a request that comes while the source is being listed is not lost.
            let mut asked = pin!(now.notified());
            asked.as_mut().enable();
            let listing = AssertUnwindSafe(source.list(&told)).catch_unwind().await;
            let listing = listing.unwrap_or_else(|_| Err(SourceFault("it panicked".into())));
            let Some(live) = live.upgrade() else { return };
            let came = match listing {
                Ok(listed) => live.listed(&board.name, *number, source.clone(), listed).await,
                Err(fault) => ApplyOutcome::Refused(fault.to_string()),
            };
            let (why, is_lasting) = match came {
                ApplyOutcome::Refused(why) => (why, false),
                ApplyOutcome::Unusable(why) => (why, true),
                ApplyOutcome::Served | ApplyOutcome::Stale => return,
            };
            failed = failed.saturating_add(1);
            let pause = (!is_lasting).then(|| backoff(failed, random()));
            live.failed(board, *number, &why, pause);
            // Hold no strong reference while waiting, so that the service can end.
            drop(live);
            match pause {
                Some(pause) => wait(&now, pause).await,
                None => asked.await,
            }
        }
    }
}

async fn wait(now: &Notify, pause: Duration) {
    tokio::select! {
        () = sleep(pause) => {}
        () = now.notified() => {}
    }
}

/// "Full jitter": a random wait up to a bound that doubles with each failure.
pub(super) fn backoff(failed: u32, random: f64) -> Duration {
    FIRST_WAIT.saturating_mul(1 << (failed.max(1) - 1).min(16)).min(LONGEST_WAIT).mul_f64(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_minute() {
        let bounds: Vec<u64> = [1, 2, 3, 6, 7, 8, 1000].map(|failed| backoff(failed, 1.0).as_secs()).to_vec();
        assert_eq!(bounds, [1, 2, 4, 32, 60, 60, 60]);
        assert_eq!(backoff(3, 0.25), Duration::from_secs(1));
        assert_eq!(backoff(0, 0.0), Duration::ZERO);
    }
}
