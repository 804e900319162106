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
use super::status_tracker::StatusTracker;
use crate::live::LiveTools;
use crate::runtime::backoff::Backoff;
use crate::tools::{Source, SourceFault, SourceSettings};

pub(super) const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};

/// A source that is being started, or waits for the next attempt. Dropping it stops what was
/// started.
pub(super) struct SourceTask {
    pub(super) number: u64,
    /// Ends a wait.
    wake_up: Arc<Notify>,
    task: AbortOnDropHandle<()>,
}

impl SourceTask {
    /// Starts the source. `wait`: pause first, because it has just failed.
    pub(super) fn new(
        live: &Arc<LiveTools>,
        status: &Arc<StatusTracker>,
        settings: &SourceSettings,
        wait: bool,
    ) -> Self {
        let random: fn() -> f64 = fastrand::f64;
        let pause = wait.then(|| BACKOFF.wait_after(1, random()));
        let (number, wake_up) = (status.record_start(pause), Arc::new(Notify::new()));
        let source = settings.build(&live.process_env);
        let listing_loop = ListingLoop {
            live: Arc::downgrade(live),
            status: status.clone(),
            number,
            random,
        };
        let task = tokio::spawn(listing_loop.run_until_listed(source, wake_up.clone(), pause));
        Self {
            number,
            wake_up,
            task: AbortOnDropHandle::new(task),
        }
    }

    /// Whether the task still runs.
    pub(super) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// Ends the wait before the next attempt.
    pub(super) fn attempt_now(&self) {
        self.wake_up.notify_waiters();
    }
}

struct ListingLoop {
    live: Weak<LiveTools>,
    status: Arc<StatusTracker>,
    number: u64,
    /// Returns a number from 0 to 1. A parameter, so that waits can be tested.
    random: fn() -> f64,
}

impl ListingLoop {
    async fn run_until_listed(
        self,
        source: Arc<dyn Source>,
        wake_up: Arc<Notify>,
        pause: Option<Duration>,
    ) {
        let Self {
            live,
            status,
            number,
            random,
        } = &self;
        let mut failures = u32::from(pause.is_some());
        if let Some(pause) = pause {
            wait_or_wake(&wake_up, pause).await;
        }
        loop {
            let on_progress = {
                let (status, live, number) = (status.clone(), live.clone(), *number);
                move |what: String| {
                    let what = live
                        .upgrade()
                        .map_or(what.clone(), |live| live.sanitize_text(&what));
                    tracing::info!(source = &*status.name, doing = what, "a source is loading");
                    status.record_activity(number, &what);
                }
            };
            status.record_activity(*number, "starting");
            // Register for the wake-up before the listing starts. `notify_waiters` wakes only tasks
            // that are registered already. So a request that comes while the source is being listed
            // is not lost.
            let mut wake_request = pin!(wake_up.notified());
            wake_request.as_mut().enable();
            let listing = AssertUnwindSafe(source.list(&on_progress))
                .catch_unwind()
                .await;
            let listing = listing.unwrap_or_else(|_| Err(SourceFault("it panicked".into())));
            let Some(live) = live.upgrade() else { return };
            let outcome = match listing {
                Ok(listed) => {
                    live.apply_listing(&status.name, *number, source.clone(), listed)
                        .await
                }
                Err(fault) => ApplyOutcome::Refused(fault.to_string()),
            };
            let (why, is_lasting) = match outcome {
                ApplyOutcome::Refused(why) => (why, false),
                ApplyOutcome::Unusable(why) => (why, true),
                ApplyOutcome::Served | ApplyOutcome::Stale => return,
            };
            failures = failures.saturating_add(1);
            let pause = (!is_lasting).then(|| BACKOFF.wait_after(failures, random()));
            live.record_start_failure(status, *number, &why, pause);
            // Hold no strong reference while waiting, so that the service can end.
            drop(live);
            match pause {
                Some(pause) => wait_or_wake(&wake_up, pause).await,
                None => wake_request.await,
            }
        }
    }
}

async fn wait_or_wake(wake_up: &Notify, pause: Duration) {
    tokio::select! {
        () = sleep(pause) => {}
        () = wake_up.notified() => {}
    }
}
