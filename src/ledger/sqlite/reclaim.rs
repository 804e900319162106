//! Keeps the file below `ledger.max_bytes`.
//!
//! SQLite itself refuses to extend the file beyond the bound (`max_page_count`), whatever is
//! written. Long before that, rows that no guarantee covers are deleted (`trim.rs`), a few after
//! each commit and after its replies. If that is not enough, reservations are refused while there
//! is still room for running calls to end (`file_space.rs`).

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Row as _, SqliteConnection};
use tokio::time::Instant;

use super::super::{Error, Size};
use super::file_space::FileSpace;
use super::trim::{self, Cursor, TrimStep};
use super::writer::WriterTask;

/// Maximum number of rows deleted in one step.
const ROWS_PER_STEP: u32 = 256;
/// Time for deletion after a commit while little room is left. The next commit waits for it.
const TRIM_TIME: Duration = Duration::from_millis(50);

/// Whether deletion continues right after this step: it has found nothing yet, or room is urgently
/// needed.
fn should_continue(step: TrimStep, used: u64, urgent: u64) -> bool {
    match step {
        TrimStep::Exhausted => false,
        TrimStep::Nothing => true,
        TrimStep::Deleted { .. } => used > urgent,
    }
}

/// Measures the file and its free pages.
async fn measure_size(
    connection: &mut SqliteConnection,
    log: u64,
    max: Option<u64>,
) -> Result<Size, sqlx::Error> {
    let sql = "select page_count, freelist_count, page_size from pragma_page_count, pragma_freelist_count, pragma_page_size";
    let row = sqlx::query(sql).fetch_one(connection).await?;
    let value = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
    let (pages, free, page) = (value(0)?, value(1)?, value(2)?);
    Ok(Size {
        file: pages * page,
        log,
        used: pages.saturating_sub(free) * page,
        max,
    })
}

impl WriterTask {
    async fn measure_space(&mut self) -> Result<(), sqlx::Error> {
        let log = std::fs::metadata(&self.wal_path).map_or(0, |found| found.len());
        let size = measure_size(&mut self.connection, log, self.space.max).await?;
        self.space.set_size(size);
        self.observer.on_size(size);
        Ok(())
    }

    /// At the start, and while reservations are refused: checks whether there is room.
    pub(super) async fn check_space(&mut self) {
        if let Err(error) = self.make_space(0, TRIM_TIME).await {
            self.handle_failure(error).await;
        }
        self.refuse_if_full();
    }

    /// After a commit of about this many bytes: makes room if needed.
    pub(super) async fn keep_free_space(&mut self, written: usize, now: Option<Timestamp>) {
        self.space.newest_start = now.or(self.space.newest_start);
        if self.has_stopped() || !self.space.is_measurement_due(written as u64) {
            return;
        }
        if let Err(error) = self.make_space(0, TRIM_TIME).await {
            self.handle_failure(error).await;
        }
        self.refuse_if_full();
    }

    /// Makes room after a commit of about this many bytes that had none, if the bound was the
    /// reason.
    pub(super) async fn make_space_for(&mut self, bytes: usize) -> Result<(), sqlx::Error> {
        // Indexes need room too.
        let bytes = bytes as u64;
        self.make_space(bytes + bytes / 4, Duration::from_secs(1))
            .await
    }

    /// Deletes rows until there is room for `bytes`, the time is over, or no more rows may be
    /// deleted. With 0 bytes, it makes at least one step if the file is nearly full, and further
    /// steps while room is urgently needed.
    async fn make_space(&mut self, bytes: u64, time: Duration) -> Result<(), sqlx::Error> {
        self.measure_space().await?;
        let Some(max) = self.space.max else {
            return Ok(());
        };
        let (trim_at, urgent) = FileSpace::trim_thresholds(max, bytes);
        let started = Instant::now();
        while self.space.size.used > trim_at {
            let step = trim::trim_step(
                &mut self.connection,
                &mut self.space.cursor,
                self.space.newest_start,
                ROWS_PER_STEP,
            )
            .await?;
            self.space.is_exhausted = step == TrimStep::Exhausted;
            if let TrimStep::Deleted { rows, commits } = step {
                self.head.record_commits(commits);
                self.observer.on_trim(rows);
            }
            self.measure_space().await?;
            if !should_continue(step, self.space.size.used, urgent) || started.elapsed() > time {
                break;
            }
        }
        Ok(())
    }

    fn refuse_if_full(&mut self) {
        if self.space.is_full() && self.health.is_healthy() {
            let reason = self.space.full_reason();
            tracing::error!(%reason, "calls are refused until the ledger has room");
            self.health.fail(reason);
        }
    }

    /// Deletes up to `at_most` rows or stored results that no guarantee covers, whatever the size
    /// of the file.
    pub(super) async fn trim(&mut self, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        let mut cursor = Cursor::default();
        loop {
            let step = match self.check_files_present() {
                Ok(()) => {
                    trim::trim_step(&mut self.connection, &mut cursor, Some(now), at_most).await
                }
                Err(error) => Err(error),
            };
            match step {
                Ok(TrimStep::Deleted { rows, commits }) => {
                    self.head.record_commits(commits);
                    return Ok(rows);
                }
                Ok(TrimStep::Nothing) => {}
                Ok(TrimStep::Exhausted) => return Ok(0),
                Err(error) => return Err(self.handle_failure(error).await),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletion_stops_when_not_urgent() {
        let deleted = TrimStep::Deleted {
            rows: 1,
            commits: 1,
        };
        for (step, used, expected) in [
            (deleted, 8, false),
            (deleted, 9, true),
            (TrimStep::Nothing, 1, true),
            (TrimStep::Exhausted, 9, false),
        ] {
            assert_eq!(should_continue(step, used, 8), expected, "{step:?} {used}");
        }
    }
}
