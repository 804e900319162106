//! Lists a served source again when it reports changed tools. The source is not restarted for that.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::change::ApplyOutcome;
use super::source_task::BACKOFF;
use super::status_tracker::StatusTracker;
use crate::live::LiveTools;
use crate::tools::{Source, SourceFault};

/// Pause before the second listing in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause. After a quiet time of this length, the next listing starts without a pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A task that waits for changes of one source. Dropping it ends the task.
pub(super) struct SourceWatch {
    source: Arc<dyn Source>,
    is_listing: Arc<AtomicBool>,
    task: AbortOnDropHandle<()>,
}

impl SourceWatch {
    pub(super) fn new(
        live: &Arc<LiveTools>,
        status: &Arc<StatusTracker>,
        source: &Arc<dyn Source>,
    ) -> Self {
        let is_listing = Arc::new(AtomicBool::new(false));
        let watch_loop = WatchLoop {
            live: Arc::downgrade(live),
            status: status.clone(),
            is_listing: is_listing.clone(),
        };
        let task = tokio::spawn(watch_loop.run(source.clone(), fastrand::f64));
        Self {
            source: source.clone(),
            is_listing,
            task: AbortOnDropHandle::new(task),
        }
    }

    /// Whether this is the source that is watched.
    pub(super) fn is_for(&self, source: &Arc<dyn Source>) -> bool {
        Arc::ptr_eq(&self.source, source)
    }

    /// Whether it is being listed again, or waits after a failed listing.
    pub(super) fn is_listing(&self) -> bool {
        self.is_listing.load(Ordering::Relaxed)
    }

    /// Ends the task. When this returns, nothing here holds the source any more.
    pub(super) async fn stop(self) {
        let Self { source, task, .. } = self;
        task.abort();
        let _ = task.await;
        drop(source);
    }
}

struct WatchLoop {
    live: Weak<LiveTools>,
    status: Arc<StatusTracker>,
    is_listing: Arc<AtomicBool>,
}

impl WatchLoop {
    /// `random` returns a number from 0 to 1.
    async fn run(self, source: Arc<dyn Source>, random: fn() -> f64) {
        let mut pauses = ListingPauses::default();
        loop {
            source.changed().await;
            sleep(pauses.next_pause()).await;
            self.is_listing.store(true, Ordering::Relaxed);
            if !self.list_until_served(&source, random).await {
                return;
            }
            self.is_listing.store(false, Ordering::Relaxed);
            pauses.record_listing();
        }
    }

    /// Lists the source until the listing is served. False if the source itself is not served any
    /// more.
    async fn list_until_served(&self, source: &Arc<dyn Source>, random: fn() -> f64) -> bool {
        let mut failures = 0_u32;
        loop {
            let on_progress = {
                let name = self.status.name.clone();
                move |what: String| {
                    tracing::debug!(source = &*name, doing = what, "a source is listed again");
                }
            };
            let listing = AssertUnwindSafe(source.list(&on_progress))
                .catch_unwind()
                .await;
            let listing = listing.unwrap_or_else(|_| Err(SourceFault("it panicked".into())));
            let Some(live) = self.live.upgrade() else {
                return false;
            };
            let outcome = match listing {
                Ok(listed) => {
                    live.apply_relisting(&self.status.name, source, listed)
                        .await
                }
                Err(fault) => ApplyOutcome::Refused(fault.to_string()),
            };
            let why = match outcome {
                ApplyOutcome::Served => return true,
                ApplyOutcome::Stale => return false,
                ApplyOutcome::Refused(why) | ApplyOutcome::Unusable(why) => why,
            };
            failures = failures.saturating_add(1);
            let pause = BACKOFF.wait_after(failures, random());
            live.record_relist_failure(&self.status, &why, pause);
            // Hold no strong reference while waiting, so that the service can end.
            drop(live);
            sleep(pause).await;
        }
    }
}

/// The pauses between listings, so that a source that reports changes all the time is not listed
/// all the time. The first listing starts at once, and each further pause is twice as long.
#[derive(Default)]
struct ListingPauses {
    consecutive: u32,
    last_listing: Option<Instant>,
}

impl ListingPauses {
    fn next_pause(&mut self) -> Duration {
        if self
            .last_listing
            .is_none_or(|last| last.elapsed() >= LONGEST_PAUSE)
        {
            self.consecutive = 0;
        }
        let pause = match self.consecutive {
            0 => Duration::ZERO,
            many => FIRST_PAUSE
                .saturating_mul(1 << (many - 1).min(16))
                .min(LONGEST_PAUSE),
        };
        self.consecutive = self.consecutive.saturating_add(1);
        pause
    }

    fn record_listing(&mut self) {
        self.last_listing = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_between_listings_grow_to_one_minute() {
        let mut pauses = ListingPauses::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(pauses.next_pause().as_secs());
            pauses.record_listing();
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        sleep(LONGEST_PAUSE).await;
        assert_eq!(pauses.next_pause(), Duration::ZERO, "it was quiet");
    }
}
