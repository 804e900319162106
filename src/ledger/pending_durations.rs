//! Durations of ended calls, collected in memory and written within a second, because they only serve
//! quantiles. A crash loses at most one second of durations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::latency::Latencies;
use super::{Row, State};

/// Collected durations are written with the first commit after this time.
const LATENCY_WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Caller and tool.
type CallerAndTool = (Arc<str>, Arc<str>);

/// A line for the table `usage_latency`.
#[derive(Serialize)]
pub(super) struct LatencyRow {
    pub(super) caller: Arc<str>,
    pub(super) tool: Arc<str>,
    pub(super) bucket: i64,
    pub(super) calls: u64,
}

/// Durations that are not written yet.
pub(super) struct PendingDurations {
    pending: BTreeMap<CallerAndTool, Latencies>,
    last_written: Instant,
}

impl Default for PendingDurations {
    fn default() -> Self {
        Self {
            pending: BTreeMap::new(),
            last_written: Instant::now(),
        }
    }
}

impl PendingDurations {
    /// Adds the durations of ended calls. Refused calls have none.
    pub(super) fn add<'a>(&mut self, rows: impl IntoIterator<Item = &'a Row>) {
        for row in rows {
            if let Some(us) = row.duration_us.filter(|_| row.state != State::Refused) {
                let of = (row.caller.clone(), row.tool.clone());
                self.pending.entry(of).or_default().add(us);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn is_due(&self) -> bool {
        !self.is_empty() && self.last_written.elapsed() >= LATENCY_WRITE_INTERVAL
    }

    /// The lines for the table `usage_latency`.
    pub(super) fn to_rows(&self) -> Vec<LatencyRow> {
        let all = self
            .pending
            .iter()
            .flat_map(|(of, all)| all.buckets().map(move |counted| (of, counted)));
        let row = |((caller, tool), (bucket, calls)): (&CallerAndTool, _)| LatencyRow {
            caller: caller.clone(),
            tool: tool.clone(),
            bucket,
            calls,
        };
        all.map(row).collect()
    }

    /// Forgets the durations, because they are written.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.last_written = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::{ended_row, now, row};
    use super::*;

    fn ended_call(state: State) -> Row {
        Row::clone(&ended_row(&row("t", "a", now()), state))
    }

    #[tokio::test(start_paused = true)]
    async fn durations_are_due_after_one_second() {
        let mut durations = PendingDurations::default();
        durations.add([&ended_call(State::Refused)]);
        tokio::time::advance(LATENCY_WRITE_INTERVAL).await;
        assert!(
            durations.is_empty() && !durations.is_due(),
            "a refused call took no time"
        );
        for turn in 0..2 {
            durations.add([&ended_call(State::Succeeded)]);
            assert_eq!(
                (durations.is_empty(), durations.to_rows().len()),
                (false, 1)
            );
            assert_eq!(durations.is_due(), turn == 0);
            tokio::time::advance(LATENCY_WRITE_INTERVAL).await;
            assert!(durations.is_due());
            durations.clear();
            assert!(durations.is_empty() && !durations.is_due());
        }
    }
}
