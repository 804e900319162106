//! Decides where a read runs: on the worker of tokio that serves its call, or on a blocking thread.
//!
//! The way to a thread and back costs many times what a brief statement costs. But a statement must
//! not hold up a worker, which serves other calls too. So a statement runs on a worker only while
//! its last runs were brief, and within narrow bounds. A read that exceeds them has had no effect,
//! and starts again on a thread.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The most steps of SQLite's virtual machine for a statement on a worker. They take some dozens of
/// microseconds, and give about 200 rows. Steps are counted, not time, because they are the same on
/// every run, however busy the machine is.
pub(super) const WORKER_STEPS: i32 = 1000;
/// The longest time of a statement on a worker. Few steps can take long if the disk is slow.
pub(super) const WORKER_TIME: Duration = Duration::from_millis(2);
/// A run of this time leads back to threads, although it was within the limits. It is longer than
/// the pauses that a busy machine gives a thread.
pub(super) const LONG_WORKER_TIME: Duration = Duration::from_millis(10);
/// The longest value or row that a statement handles on a worker. A single operation of SQLite
/// cannot be stopped. With two values of this length, each takes at most some milliseconds.
pub(super) const WORKER_BYTES: usize = 4 << 10;
/// How many brief runs on a thread come before the next run on a worker, if a run was not brief.
/// So a statement that is seldom brief loses at most a few percent of its time.
const THREAD_RUNS: u32 = 20;

/// The place of the next run of one statement.
pub(super) struct Placement {
    /// How many more runs on a thread have to be brief.
    thread_runs: AtomicU32,
}

impl Placement {
    /// The first run of a statement is on a thread.
    pub(super) fn new() -> Self {
        Self {
            thread_runs: AtomicU32::new(1),
        }
    }

    /// Whether the next run may be on a worker.
    pub(super) fn is_on_worker(&self) -> bool {
        self.thread_runs.load(Ordering::Relaxed) == 0
    }

    /// Records the steps and the time of a run on a thread.
    pub(super) fn record_thread_run(&self, steps: i32, time: Duration) {
        if steps >= WORKER_STEPS || time >= WORKER_TIME {
            self.record_overrun();
        } else {
            // Calls at the same time may lose a count, which does no harm.
            let left = self.thread_runs.load(Ordering::Relaxed);
            self.thread_runs
                .store(left.saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// Records a run that was too long for a worker.
    pub(super) fn record_overrun(&self) {
        self.thread_runs.store(THREAD_RUNS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps and time of a brief run.
    const BRIEF: (i32, Duration) = (10, Duration::from_micros(10));

    impl Placement {
        fn record(&self, (steps, time): (i32, Duration)) {
            self.record_thread_run(steps, time);
        }
    }

    #[test]
    fn brief_runs_lead_to_a_worker() {
        let placement = Placement::new();
        assert!(!placement.is_on_worker(), "nothing is known yet");
        placement.record(BRIEF);
        assert!(placement.is_on_worker());
    }

    #[test]
    fn long_run_leads_back_to_threads() {
        let long_runs: [fn(&Placement); 3] = [
            Placement::record_overrun,
            |placement| placement.record((WORKER_STEPS, BRIEF.1)),
            |placement| placement.record((BRIEF.0, WORKER_TIME)),
        ];
        for record_long_run in long_runs {
            let placement = Placement::new();
            placement.record(BRIEF);
            record_long_run(&placement);
            for _ in 0..THREAD_RUNS {
                assert!(!placement.is_on_worker());
                placement.record(BRIEF);
            }
            assert!(placement.is_on_worker());
        }
    }
}
