//! Metrics of the ledger's commits.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Error, Histogram, IntCounter, IntGauge};

use super::families::Families;
use crate::ledger::{LedgerObserver, Size};

/// Buckets for rows in one commit. The writer's queue bounds them at about a thousand.
const ROWS: [f64; 11] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
];
/// Buckets in seconds, from a commit without fsync to a failing disk.
const SECONDS: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

/// Metrics of the ledger's commits. The ledger updates them.
pub struct CommitMetrics {
    succeeded: IntCounter,
    failed: IntCounter,
    rows: Histogram,
    duration_seconds: Histogram,
    backlog: IntGauge,
    drift: IntGauge,
    clock_jumps: IntCounter,
    size_bytes: IntGauge,
    used_bytes: IntGauge,
    max_bytes: IntGauge,
    trimmed: IntCounter,
    /// The number of calls under way.
    running: Mutex<Box<dyn Fn() -> usize + Send + Sync>>,
}

impl CommitMetrics {
    /// Sets how running calls are counted. Without it, their number is 0.
    pub fn count_running_with(&self, count: impl Fn() -> usize + Send + Sync + 'static) {
        *self.running.lock() = Box::new(count);
    }

    pub(super) fn new(families: &Families) -> Result<Self, Error> {
        let commits = families.counter_vec(
            "toolcrib_ledger_commits_total",
            "Commits, by outcome.",
            &["outcome"],
        )?;
        let jumps = families.counter_vec(
            "toolcrib_clock_jumps_total",
            "Times that the wall clock was moved by more than five minutes at once.",
            &[],
        )?;
        let trimmed = families.counter_vec(
            "toolcrib_ledger_trimmed_total",
            "Calls and stored results that were deleted to keep below ledger.max_bytes.",
            &[],
        )?;
        Ok(Self {
            running: Mutex::new(Box::new(|| 0)),
            trimmed: trimmed.with_label_values::<&str>(&[]),
            size_bytes: families.gauge(
                "toolcrib_ledger_bytes",
                "Size of the ledger's database file and its write-ahead log, as of the last commits.",
            )?,
            used_bytes: families.gauge(
                "toolcrib_ledger_used_bytes",
                "Used part of the ledger's database file. The rest is free for reuse.",
            )?,
            max_bytes: families.gauge("toolcrib_ledger_max_bytes", "ledger.max_bytes; 0 if there is no bound.")?,
            clock_jumps: jumps.with_label_values::<&str>(&[]),
            succeeded: commits.with_label_values(&["ok"]),
            failed: commits.with_label_values(&["failed"]),
            rows: families.histogram("toolcrib_ledger_batch_rows", "Rows written by one commit.", &ROWS)?,
            duration_seconds: families.histogram(
                "toolcrib_ledger_commit_seconds",
                "Time that a commit took.",
                &SECONDS,
            )?,
            backlog: families.gauge(
                "toolcrib_ledger_backlog_rows",
                "Rows of ended calls that could not be written yet. The write is repeated.",
            )?,
            drift: families.gauge(
                "toolcrib_quota_drift",
                "Units by which the counters of usage limits differ from the ledger's rows; checked every minute. \
                 Any value but 0 is a fault.",
            )?,
        })
    }
}

impl LedgerObserver for CommitMetrics {
    fn running_calls(&self) -> u32 {
        let running = (self.running.lock())();
        u32::try_from(running).unwrap_or(u32::MAX)
    }

    fn on_commit(&self, rows: usize, took: Duration) {
        self.succeeded.inc();
        self.rows.observe(rows as f64);
        self.duration_seconds.observe(took.as_secs_f64());
    }

    fn on_commit_failure(&self) {
        self.failed.inc();
    }

    fn on_backlog(&self, rows: usize) {
        self.backlog.set(i64::try_from(rows).unwrap_or(i64::MAX));
    }

    fn on_drift(&self, units: u64) {
        self.drift.set(i64::try_from(units).unwrap_or(i64::MAX));
    }

    fn on_clock_jump(&self) {
        self.clock_jumps.inc();
    }

    fn on_size(&self, size: Size) {
        let level = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.size_bytes.set(level(size.file + size.log));
        self.used_bytes.set(level(size.used));
        self.max_bytes.set(level(size.max.unwrap_or(0)));
    }

    fn on_trim(&self, rows: u64) {
        self.trimmed.inc_by(rows);
    }
}
