//! Metrics of the process, under the names that every Prometheus client uses.
//!
//! The `process` feature of the library is not used: it counts processor time in whole seconds and
//! needs a second version of rustix.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{Counter, Error, IntGauge};
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::families::Families;

pub(super) struct ProcessMetrics {
    cpu_seconds: Counter,
    /// Only on Linux, from `/proc`. Absent elsewhere.
    resident_bytes: Option<IntGauge>,
    open_fds: Option<IntGauge>,
}

impl ProcessMetrics {
    pub(super) fn new(families: &Families) -> Result<Self, Error> {
        let started_at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let start = families.gauge(
            "process_start_time_seconds",
            "When the service started, in Unix seconds.",
        )?;
        start.set(i64::try_from(started_at).unwrap_or_default());
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            let max_fds = families.gauge("process_max_fds", "File handles that may be open.")?;
            max_fds.set(i64::try_from(limit).unwrap_or(i64::MAX));
        }
        let gauge =
            |known: Option<i64>, name, help| known.map(|_| families.gauge(name, help)).transpose();
        Ok(Self {
            cpu_seconds: families.seconds_counter(
                "process_cpu_seconds_total",
                "Processor time used, user and system.",
            )?,
            resident_bytes: gauge(
                resident_bytes(),
                "process_resident_memory_bytes",
                "Memory in use.",
            )?,
            open_fds: gauge(
                open_fds(),
                "process_open_fds",
                "File handles that are open.",
            )?,
        })
    }

    /// Updates the numbers.
    pub(super) fn update(&self) {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        self.cpu_seconds
            .inc_by((used - self.cpu_seconds.get()).max(0.0));
        if let (Some(gauge), Some(bytes)) = (&self.resident_bytes, resident_bytes()) {
            gauge.set(bytes);
        }
        if let (Some(gauge), Some(count)) = (&self.open_fds, open_fds()) {
            gauge.set(count);
        }
    }
}

/// Reads resident memory. proc_pid_statm(5): it is the second number, in pages.
fn resident_bytes() -> Option<i64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: i64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(i64::try_from(page_size()).ok()?))
}

/// Counts open files. Each has one entry, and one entry belongs to this reading of the folder.
fn open_fds() -> Option<i64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    i64::try_from(open.saturating_sub(1)).ok()
}
