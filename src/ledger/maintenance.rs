//! Periodic tasks beside the calls:
//! - deletion of calls that are older than the retention,
//! - counts of the hours that have ended,
//! - comparison of the counters of limits with the rows that they count,
//! - detection of jumps of the wall clock.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep};

use super::{Error, Ledger, LedgerObserver};
use crate::call::Clock;

/// Rows deleted in one commit. The next commit waits about a millisecond for it.
const PRUNE_ROWS: u32 = 200;
/// Pause after such a commit, as a multiple of its duration. So even after a long backlog,
/// retention uses only a fifth of the writer's time.
const PAUSE_FACTOR: u32 = 4;
/// Minimum and maximum pause when no row is left to delete. Between them, the pause is a tenth of
/// the retention.
const IDLE_PAUSE_LIMITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Time between two looks for hours that have ended.
const HOURS_INTERVAL: Duration = Duration::from_secs(60);
/// Most hours of one count.
const MAX_HOURS: u32 = 48;
/// The next count has more hours if one took less time than this, and fewer if it took more.
const COUNT_TIME: Duration = Duration::from_millis(250);

/// Larger jumps of the wall clock are reported.
const MIN_CLOCK_JUMP: Duration = Duration::from_secs(300);
/// Time between two checks of the clock.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two comparisons of the counters. Each reads the calls since the last one.
const VERIFY_INTERVAL: Duration = Duration::from_secs(60);

/// Deletes calls that started longer than `retention` ago, a few at a time, until the ledger is
/// closed.
pub async fn run_retention(ledger: Arc<dyn Ledger>, clock: Clock, retention: Duration) {
    let pause = (retention / 10).clamp(IDLE_PAUSE_LIMITS[0], IDLE_PAUSE_LIMITS[1]);
    loop {
        let commit_started = Instant::now();
        // If `retention` reaches back beyond the earliest timestamp, no call is too old.
        let now = clock.now();
        let pruned = match now.checked_sub(retention) {
            Ok(before) => ledger.prune(before, now, PRUNE_ROWS).await,
            Err(_) => Ok(0),
        };
        match pruned {
            Ok(rows) if rows >= u64::from(PRUNE_ROWS) => {
                sleep(commit_started.elapsed() * PAUSE_FACTOR).await;
            }
            Err(Error::Closed | Error::Stopped(_)) => return,
            // The ledger reports its own failures.
            Ok(_) | Err(_) => sleep(pause).await,
        }
    }
}

/// Counts hours that have ended, the newest first, until the ledger is closed. With a `retention`, hours
/// from which calls are being deleted are not counted.
pub async fn count_ended_hours(ledger: Arc<dyn Ledger>, clock: Clock, retention: Option<Duration>) {
    let mut at_most = 1;
    loop {
        let now = clock.now();
        let kept = retention.and_then(|retention| now.checked_sub(retention).ok());
        let oldest = kept.and_then(|kept| kept.checked_add(SignedDuration::from_hours(1)).ok());
        let started = Instant::now();
        let counted = ledger
            .count_hours(now, oldest.unwrap_or(Timestamp::UNIX_EPOCH), at_most)
            .await;
        let took = started.elapsed();
        match counted {
            Ok(hours) if hours > 0 => {
                at_most = match took < COUNT_TIME {
                    true => (at_most * 2).min(MAX_HOURS),
                    false => (at_most / 2).max(1),
                };
                sleep(took * PAUSE_FACTOR).await;
                continue;
            }
            Ok(_) => {}
            Err(Error::Closed | Error::Stopped(_)) => return,
            // Answers take longer, but stay right.
            Err(error) => tracing::debug!(%error, "an hour cannot be counted"),
        }
        at_most = 1;
        sleep(HOURS_INTERVAL).await;
    }
}

/// Reports to `observer` by how many units the counters differ from the rows, at the start and
/// every minute. A difference is a fault of this program, or another program changed the file. It
/// is not corrected, because either side may be wrong.
pub async fn verify_counters(ledger: Arc<dyn Ledger>, observer: Arc<dyn LedgerObserver>) {
    let mut last_units = 0;
    loop {
        match ledger.counter_drift().await {
            Ok(units) => {
                observer.on_drift(units);
                if units != last_units && units > 0 {
                    tracing::error!(
                        units,
                        "counters of usage limits differ from the rows of the ledger"
                    );
                }
                last_units = units;
            }
            Err(error) => tracing::warn!(%error, "the counters of usage limits cannot be checked"),
        }
        sleep(VERIFY_INTERVAL).await;
    }
}

/// Reports to `observer` when the wall clock jumps by more than some minutes against the monotonic
/// clock. Nothing needs correction: windows of limits never go back, and durations use the
/// monotonic clock. But the operator should know about a window that started early.
pub async fn watch_clock(clock: Clock, observer: Arc<dyn LedgerObserver>) {
    let mut last = (clock.now(), Instant::now());
    loop {
        sleep(CLOCK_CHECK_INTERVAL).await;
        let now = (clock.now(), Instant::now());
        let (wall, passed) = (now.0.duration_since(last.0), now.1 - last.1);
        let jump =
            wall.saturating_sub(SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX));
        if jump.unsigned_abs() > MIN_CLOCK_JUMP {
            observer.on_clock_jump();
            let seconds = jump.as_secs();
            tracing::warn!(
                seconds,
                "the clock jumped; windows of usage limits never go back, but may have started early"
            );
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::memory::MemoryLedger;
    use super::super::{Query, contract};
    use super::*;
    use crate::log::captured_log::capture_log;

    /// Counts the comparisons of counters and the clock jumps.
    #[derive(Default)]
    struct Counts {
        comparisons: AtomicU32,
        jumps: AtomicU32,
    }

    impl LedgerObserver for Counts {
        fn on_commit(&self, _: usize, _: Duration) {}
        fn on_commit_failure(&self) {}
        fn on_backlog(&self, _: usize) {}
        fn on_drift(&self, _: u64) {
            self.comparisons.fetch_add(1, Ordering::SeqCst);
        }
        fn on_clock_jump(&self) {
            self.jumps.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn counters_are_verified_at_start_and_periodically() {
        let counts = Arc::new(Counts::default());
        tokio::spawn(verify_counters(
            Arc::new(MemoryLedger::default()),
            counts.clone(),
        ));
        for (seconds, comparisons) in [(1, 1), (58, 1), (2, 2), (60, 3)] {
            sleep(Duration::from_secs(seconds)).await;
            assert_eq!(counts.comparisons.load(Ordering::SeqCst), comparisons);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_new_drift_is_logged() {
        let (ledger, log) = (Arc::new(MemoryLedger::default()), capture_log());
        tokio::spawn(verify_counters(ledger.clone(), Arc::new(())));
        sleep(VERIFY_INTERVAL / 2).await;
        for (units, logged) in [(0, 0), (2, 1), (2, 1), (5, 2), (0, 2), (1, 3)] {
            ledger.set_drift(units);
            sleep(VERIFY_INTERVAL).await;
            assert_eq!(
                log.count_lines("counters of usage limits differ"),
                logged,
                "{units}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn short_retention_prunes_more_often() {
        let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::default());
        contract::record_call_at(&*ledger, "2026-06-15T12:00:00Z".parse().unwrap()).await;
        let (clock, hand) = Clock::manual("2026-06-15T12:00:00Z".parse().unwrap());
        tokio::spawn(run_retention(
            ledger.clone(),
            clock,
            Duration::from_secs(100),
        ));
        sleep(Duration::from_secs(1)).await;
        hand.fetch_add(101_000, Ordering::SeqCst);
        sleep(Duration::from_secs(10)).await;
        assert!(
            ledger
                .list_calls(&Query {
                    limit: 9,
                    ..Query::default()
                })
                .await
                .unwrap()
                .is_empty()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn clock_jumps_over_five_minutes_are_reported() {
        let (clock, hand) = Clock::manual("2026-06-15T12:00:00Z".parse().unwrap());
        let counts = Arc::new(Counts::default());
        tokio::spawn(watch_clock(clock, counts.clone()));
        for (moved_ms, jumps) in [
            (10_000, 0),
            (3_600_000, 1),
            (10_000, 1),
            (-60_000, 1),
            (-86_400_000, 2),
            (10_000, 2),
            (310_000, 2),
            (310_001, 3),
        ] {
            sleep(CLOCK_CHECK_INTERVAL / 2).await;
            hand.fetch_add(moved_ms, Ordering::SeqCst);
            sleep(CLOCK_CHECK_INTERVAL / 2).await;
            tokio::task::yield_now().await;
            assert_eq!(counts.jumps.load(Ordering::SeqCst), jumps, "{moved_ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retention_deletes_only_old_calls() {
        let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::default());
        for _ in 0..500 {
            contract::record_call_at(&*ledger, "2026-06-15T12:00:00Z".parse().unwrap()).await;
        }
        contract::record_call_at(&*ledger, "2026-06-15T13:00:00Z".parse().unwrap()).await;
        let (clock, hand) = Clock::manual("2026-06-15T12:59:00Z".parse().unwrap());
        tokio::spawn(run_retention(
            ledger.clone(),
            clock,
            Duration::from_secs(3600),
        ));
        let remaining = async || {
            ledger
                .list_calls(&Query {
                    limit: 1000,
                    ..Query::default()
                })
                .await
                .unwrap()
                .len()
        };
        sleep(Duration::from_secs(300)).await;
        assert_eq!(remaining().await, 501);
        hand.fetch_add(120_000, Ordering::SeqCst);
        sleep(Duration::from_secs(61)).await;
        assert_eq!(remaining().await, 1);
        assert_eq!(
            ledger.usage_totals(None).await.unwrap()[0].calls,
            501,
            "totals stay"
        );
    }
}
