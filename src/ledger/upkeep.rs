//! Periodic tasks beside the calls:
//! - deletion of calls that are older than the retention,
//! - comparison of the counters of limits with the rows that they count,
//! - detection of jumps of the wall clock.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::{Instant, sleep};

use super::{Error, Ledger, Watch};
use crate::call::Clock;

/// Rows deleted in one commit. The next commit waits about a millisecond for it.
const A_FEW: u32 = 200;
/// Pause after such a commit, as a multiple of its duration. So even after a long backlog, retention uses only a fifth
/// of the writer's time.
const REST: u32 = 4;
/// Minimum and maximum pause when no row is left to delete. Between them, the pause is a tenth of the retention.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Larger jumps of the wall clock are reported. The second constant is the time between two checks.
const JUMP: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Time between two comparisons of the counters. Each reads an index, not the rows.
const VERIFY_EVERY: Duration = Duration::from_secs(60);

/// Deletes calls that started longer than `keep` ago, a few at a time, until the ledger is closed.
pub async fn retain(ledger: Arc<dyn Ledger>, clock: Clock, keep: Duration) {
    let pause = (keep / 10).clamp(PAUSE[0], PAUSE[1]);
    loop {
        let began = Instant::now();
        // If `keep` reaches back beyond the earliest timestamp, no call is too old.
        let now = clock.now();
        let pruned = match now.checked_sub(keep) {
            Ok(before) => ledger.prune(before, now, A_FEW).await,
            Err(_) => Ok(0),
        };
        match pruned {
            Ok(rows) if rows >= u64::from(A_FEW) => sleep(began.elapsed() * REST).await,
            Err(Error::Closed | Error::Stopped(_)) => return,
            // The ledger reports its own failures.
            Ok(_) | Err(_) => sleep(pause).await,
        }
    }
}

/// Reports to `watch` by how many units the counters differ from the rows, at the start and every minute. A difference
/// is a fault of this program, or another program changed the file. It is not corrected, because either side may be
/// wrong.
pub async fn verify(ledger: Arc<dyn Ledger>, watch: Arc<dyn Watch>) {
    let mut before = 0;
    loop {
        match ledger.drift().await {
            Ok(units) => {
                watch.drift(units);
                if units != before && units > 0 {
                    tracing::error!(units, "counters of usage limits are not what the ledger's rows say");
                }
                before = units;
            }
            Err(error) => tracing::warn!(%error, "the counters of usage limits cannot be checked"),
        }
        sleep(VERIFY_EVERY).await;
    }
}

/// Reports to `watch` when the wall clock jumps by more than some minutes against the monotonic clock. Nothing needs
/// correction: windows of limits never go back, and durations use the monotonic clock. But the operator should know
/// about a window that started early.
pub async fn mind_the_clock(clock: Clock, watch: Arc<dyn Watch>) {
    let mut before = (clock.now(), Instant::now());
    loop {
        sleep(LOOK_EVERY).await;
        let now = (clock.now(), Instant::now());
        let (wall, passed) = (now.0.duration_since(before.0), now.1 - before.1);
        let jump = wall.saturating_sub(SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX));
        if jump.unsigned_abs() > JUMP {
            watch.clock_jumped();
            let seconds = jump.as_secs();
            tracing::warn!(
                seconds,
                "the clock jumped; windows of usage limits never go back, but may have begun early"
            );
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::memory::Memory;
    use super::super::{Query, contract};
    use super::*;
    use crate::log::captured::capture;

    /// Counts the comparisons of counters and the clock jumps.
    #[derive(Default)]
    struct Counts {
        comparisons: AtomicU32,
        jumps: AtomicU32,
    }

    impl Watch for Counts {
        fn committed(&self, _: usize, _: Duration) {}
        fn failed(&self) {}
        fn backlog(&self, _: usize) {}
        fn drift(&self, _: u64) {
            self.comparisons.fetch_add(1, Ordering::SeqCst);
        }
        fn clock_jumped(&self) {
            self.jumps.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn counters_are_compared_at_once_and_every_minute() {
        let counts = Arc::new(Counts::default());
        tokio::spawn(verify(Arc::new(Memory::default()), counts.clone()));
        for (seconds, told) in [(1, 1), (58, 1), (2, 2), (60, 3)] {
            sleep(Duration::from_secs(seconds)).await;
            assert_eq!(counts.comparisons.load(Ordering::SeqCst), told);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_new_difference_is_told_of() {
        let (ledger, log) = (Arc::new(Memory::default()), capture());
        tokio::spawn(verify(ledger.clone(), Arc::new(())));
        sleep(VERIFY_EVERY / 2).await;
        for (units, told) in [(0, 0), (2, 1), (2, 1), (5, 2), (0, 2), (1, 3)] {
            ledger.set_drift(units);
            sleep(VERIFY_EVERY).await;
            assert_eq!(log.count("counters of usage limits are not what"), told, "{units}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn short_retention_is_looked_at_more_often() {
        let ledger: Arc<dyn Ledger> = Arc::new(Memory::default());
        contract::record_at(&*ledger, "2026-06-15T12:00:00Z".parse().unwrap()).await;
        let (clock, hand) = Clock::manual("2026-06-15T12:00:00Z".parse().unwrap());
        tokio::spawn(retain(ledger.clone(), clock, Duration::from_secs(100)));
        sleep(Duration::from_secs(1)).await;
        hand.fetch_add(101_000, Ordering::SeqCst);
        sleep(Duration::from_secs(10)).await;
        assert!(ledger.list(&Query { limit: 9, ..Query::default() }).await.unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_is_told_of_and_one_that_is_set_right_is_not() {
        let (clock, hand) = Clock::manual("2026-06-15T12:00:00Z".parse().unwrap());
        let counts = Arc::new(Counts::default());
        tokio::spawn(mind_the_clock(clock, counts.clone()));
        for (moved, told) in [
            (10_000, 0),
            (3_600_000, 1),
            (10_000, 1),
            (-60_000, 1),
            (-86_400_000, 2),
            (10_000, 2),
            (310_000, 2),
            (310_001, 3),
        ] {
            sleep(LOOK_EVERY / 2).await;
            hand.fetch_add(moved, Ordering::SeqCst);
            sleep(LOOK_EVERY / 2).await;
            tokio::task::yield_now().await;
            assert_eq!(counts.jumps.load(Ordering::SeqCst), told, "{moved}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_old_goes_and_nothing_else() {
        let ledger: Arc<dyn Ledger> = Arc::new(Memory::default());
        for _ in 0..500 {
            contract::record_at(&*ledger, "2026-06-15T12:00:00Z".parse().unwrap()).await;
        }
        contract::record_at(&*ledger, "2026-06-15T13:00:00Z".parse().unwrap()).await;
        let (clock, hand) = Clock::manual("2026-06-15T12:59:00Z".parse().unwrap());
        tokio::spawn(retain(ledger.clone(), clock, Duration::from_secs(3600)));
        let left = async || ledger.list(&Query { limit: 1000, ..Query::default() }).await.unwrap().len();
        sleep(Duration::from_secs(300)).await;
        assert_eq!(left().await, 501);
        hand.fetch_add(120_000, Ordering::SeqCst);
        sleep(Duration::from_secs(61)).await;
        assert_eq!(left().await, 1);
        assert_eq!(ledger.usage(None).await.unwrap()[0].calls, 501, "totals stay");
    }
}
