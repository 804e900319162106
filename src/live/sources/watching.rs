//! Lists a served source again when it reports changed tools. The source is not restarted for that.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::change::ApplyOutcome;
use super::source_task::backoff;
use super::status_board::SourceStatusBoard;
use crate::live::Live;
use crate::tools::{Source, SourceFault};

/// Pause before the second listing in a row.
const FIRST_GAP: Duration = Duration::from_secs(1);
/// Longest pause. After a quiet time of this length, the next listing starts without a pause.
const LONGEST_GAP: Duration = Duration::from_secs(60);

/// A task that waits for changes of one source. Dropping it ends the task.
pub(super) struct Watching {
    source: Arc<dyn Source>,
    is_listing: Arc<AtomicBool>,
    task: AbortOnDropHandle<()>,
}

impl Watching {
    pub(super) fn new(live: &Arc<Live>, board: &Arc<SourceStatusBoard>, source: &Arc<dyn Source>) -> Self {
        let is_listing = Arc::new(AtomicBool::new(false));
        let watch = Watch { live: Arc::downgrade(live), board: board.clone(), is_listing: is_listing.clone() };
        let task = tokio::spawn(watch.run(source.clone(), fastrand::f64));
        Self { source: source.clone(), is_listing, task: AbortOnDropHandle::new(task) }
    }

    /// Whether this is the source that is watched.
    pub(super) fn is_of(&self, source: &Arc<dyn Source>) -> bool {
        Arc::ptr_eq(&self.source, source)
    }

    /// Whether it is being listed again, or waits after a failed listing.
    pub(super) fn is_listing(&self) -> bool {
        self.is_listing.load(Ordering::Relaxed)
    }

    /// Ends the task. When this returns, nothing here holds the source any more.
    pub(super) async fn end(self) {
        let Self { source, task, .. } = self;
        task.abort();
        let _ = task.await;
        drop(source);
    }
}

struct Watch {
    live: Weak<Live>,
    board: Arc<SourceStatusBoard>,
    is_listing: Arc<AtomicBool>,
}

impl Watch {
    /// `random` returns a number from 0 to 1.
    async fn run(self, source: Arc<dyn Source>, random: fn() -> f64) {
        let mut gaps = Gaps::default();
        loop {
            source.changed().await;
            sleep(gaps.next()).await;
            self.is_listing.store(true, Ordering::Relaxed);
            if !self.list(&source, random).await {
                return;
            }
            self.is_listing.store(false, Ordering::Relaxed);
            gaps.listed();
        }
    }

    /// Lists the source until the listing is served. False if the source itself is not served any more.
    async fn list(&self, source: &Arc<dyn Source>, random: fn() -> f64) -> bool {
        let mut failed = 0_u32;
        loop {
            let told = {
                let name = self.board.name.clone();
                move |what: String| tracing::debug!(source = &*name, doing = what, "a source is listed again")
            };
            let listing = AssertUnwindSafe(source.list(&told)).catch_unwind().await;
            let listing = listing.unwrap_or_else(|_| Err(SourceFault("it panicked".into())));
            let Some(live) = self.live.upgrade() else { return false };
            let came = match listing {
                Ok(listed) => live.listed_again(&self.board.name, source, listed).await,
                Err(fault) => ApplyOutcome::Refused(fault.to_string()),
            };
            let why = match came {
                ApplyOutcome::Served => return true,
                ApplyOutcome::Stale => return false,
                ApplyOutcome::Refused(why) | ApplyOutcome::Unusable(why) => why,
            };
            failed = failed.saturating_add(1);
            let pause = backoff(failed, random());
            live.failed_again(&self.board, &why, pause);
            // Hold no strong reference while waiting, so that the service can end.
            drop(live);
            sleep(pause).await;
        }
    }
}

/// The pauses between listings, so that a source that reports changes all the time is not listed all the time. The
/// first listing starts at once, and each further pause is twice as long.
#[derive(Default)]
struct Gaps {
    in_a_row: u32,
    last: Option<Instant>,
}

impl Gaps {
    fn next(&mut self) -> Duration {
        if self.last.is_none_or(|last| last.elapsed() >= LONGEST_GAP) {
            self.in_a_row = 0;
        }
        let gap = match self.in_a_row {
            0 => Duration::ZERO,
            many => FIRST_GAP.saturating_mul(1 << (many - 1).min(16)).min(LONGEST_GAP),
        };
        self.in_a_row = self.in_a_row.saturating_add(1);
        gap
    }

    fn listed(&mut self) {
        self.last = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_source_that_changes_all_the_time_is_listed_at_most_once_a_minute() {
        let mut gaps = Gaps::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(gaps.next().as_secs());
            gaps.listed();
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        sleep(LONGEST_GAP).await;
        assert_eq!(gaps.next(), Duration::ZERO, "it was quiet");
    }
}
