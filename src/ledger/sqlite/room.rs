//! Keeps the file below `ledger.max_bytes`.
//!
//! SQLite itself refuses to extend the file beyond the bound (`max_page_count`), whatever is written. Long before that,
//! rows that no guarantee covers are deleted (`trim.rs`), a few after each commit and after its replies. If that is not
//! enough, reservations are refused while there is still room for running calls to end.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Row as _, SqliteConnection};
use tokio::time::Instant;

use super::super::{Error, Size};
use super::trim::{self, Cursor, Step};
use super::writer::{LOOK, Task};

/// Maximum number of rows deleted in one step.
const A_FEW: u32 = 256;
/// Time for deletion after a commit while little room is left. The next commit waits for it.
const TRIM_TIME: Duration = Duration::from_millis(50);
/// Length of the write-ahead log that does not count toward the bound. The log is normally copied at about 4 MiB,
/// between two commits.
const USUAL_LOG: u64 = 16 << 20;
/// Commits between two measurements of a file without a bound. They serve only the metric.
const LOOK_UNBOUNDED: u32 = 8 * LOOK;
/// Room that is reserved for running calls to end: a sixteenth of the bound, between these limits.
const RESERVE: [u64; 2] = [1 << 20, 16 << 20];

/// The bound, and the last measurement of the file.
pub(super) struct Room {
    max: Option<u64>,
    size: Size,
    /// When the newest call started that was written.
    now: Option<Timestamp>,
    cursor: Cursor,
    /// Whether no more rows may be deleted.
    is_exhausted: bool,
    is_full: bool,
    is_warned: bool,
    /// Commits and bytes since the last measurement.
    commits: u32,
    bytes: u64,
}

impl Room {
    pub(super) fn new(max: Option<u64>) -> Self {
        let size = Size { max, ..Size::default() };
        Self {
            max,
            size,
            now: None,
            cursor: Cursor::default(),
            is_exhausted: false,
            is_full: false,
            is_warned: false,
            commits: 0,
            bytes: 0,
        }
    }

    /// Whether reservations are refused, because little room is left and no more rows may be deleted.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether a commit without room failed at the bound of the ledger, and not because the disk is full.
    pub(super) fn is_at_its_bound(&self) -> bool {
        self.max.is_some_and(|max| self.size.file > max / 4 * 3)
    }

    /// Why reservations are refused, and what would help.
    pub(super) fn reason(&self) -> String {
        let max = bytesize::ByteSize(self.max.unwrap_or_default());
        format!(
            "the ledger has reached ledger.max_bytes ({max}) and holds nothing more that may be deleted: set \
             ledger.retention, or raise the bound"
        )
    }

    fn reserve(max: u64) -> u64 {
        (max / 16).clamp(RESERVE[0], RESERVE[1])
    }

    /// Size above which rows are deleted: nine tenths of the bound, or the bound less two reserves, whichever is lower.
    fn trim_at(max: u64) -> u64 {
        (max / 10 * 9).min(max.saturating_sub(2 * Self::reserve(max)))
    }

    /// Two sizes: above the first one, deletion continues until there is room for `bytes`; above the second one, it is
    /// urgent. With 0 bytes, it is urgent within one and a half reserves of the bound.
    fn goals(max: u64, bytes: u64) -> (u64, u64) {
        let trim_at = Self::trim_at(max).min(max.saturating_sub(bytes));
        let urgent = if bytes == 0 { max - Self::reserve(max) - Self::reserve(max) / 2 } else { trim_at };
        (trim_at, urgent)
    }

    /// Counts written bytes. Returns whether to measure the file: every few commits, and always when little room is
    /// left.
    fn is_due(&mut self, written: u64) -> bool {
        self.commits += 1;
        self.bytes += written;
        let is_near = self.max.is_some_and(|max| self.size.used + 2 * self.bytes > max / 4 * 3);
        is_near || self.commits >= if self.max.is_some() { LOOK } else { LOOK_UNBOUNDED }
    }

    /// Stores a new measurement and decides whether reservations are refused.
    fn measured(&mut self, size: Size) {
        self.size = size;
        (self.commits, self.bytes) = (0, 0);
        let Some(max) = self.max else { return };
        let log = size.log.saturating_sub(USUAL_LOG);
        self.is_full = self.is_exhausted && size.used + log + Self::reserve(max) > max;
        // Warned once, until the size is clearly lower again.
        let is_much = size.used > max / 5 * 4;
        if is_much && !self.is_warned {
            let (used, max) = (bytesize::ByteSize(size.used), bytesize::ByteSize(max));
            tracing::warn!(
                %used, %max,
                "the ledger is over 80 % of ledger.max_bytes: the oldest calls that nothing promises are deleted from 90 % \
                 on; ledger.retention deletes the others"
            );
        }
        self.is_warned = is_much || (self.is_warned && size.used > max / 4 * 3);
    }
}

/// Whether deletion continues right after this step: it has found nothing yet, or room is urgently needed.
fn goes_on(step: Step, used: u64, urgent: u64) -> bool {
    match step {
        Step::Exhausted => false,
        Step::Nothing => true,
        Step::Deleted { .. } => used > urgent,
    }
}

/// Measures the file and its free pages.
async fn measure(connection: &mut SqliteConnection, log: u64, max: Option<u64>) -> Result<Size, sqlx::Error> {
    let sql =
        "select page_count, freelist_count, page_size from pragma_page_count, pragma_freelist_count, pragma_page_size";
    let row = sqlx::query(sql).fetch_one(connection).await?;
    let value = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
    let (pages, free, page) = (value(0)?, value(1)?, value(2)?);
    Ok(Size { file: pages * page, log, used: pages.saturating_sub(free) * page, max })
}

impl Task {
    async fn measure_room(&mut self) -> Result<(), sqlx::Error> {
        let log = std::fs::metadata(&self.log).map_or(0, |found| found.len());
        let size = measure(&mut self.connection, log, self.room.max).await?;
        self.room.measured(size);
        self.watch.size(size);
        Ok(())
    }

    /// At the start, and while reservations are refused: checks whether there is room.
    pub(super) async fn look_for_room(&mut self) {
        if let Err(error) = self.make_room(0, TRIM_TIME).await {
            self.failed(error).await;
        }
        self.refuse_if_full();
    }

    /// After a commit of about this many bytes: makes room if needed.
    pub(super) async fn keep_room(&mut self, written: usize, now: Option<Timestamp>) {
        self.room.now = now.or(self.room.now);
        if !self.room.is_due(written as u64) {
            return;
        }
        if let Err(error) = self.make_room(0, TRIM_TIME).await {
            self.failed(error).await;
        }
        self.refuse_if_full();
    }

    /// Makes room after a commit of about this many bytes that had none, if the bound was the reason.
    pub(super) async fn make_room_for(&mut self, bytes: usize) -> Result<(), sqlx::Error> {
        // Indexes need room too.
        let bytes = bytes as u64;
        self.make_room(bytes + bytes / 4, Duration::from_secs(1)).await
    }

    /// Deletes rows until there is room for `bytes`, the time is over, or no more rows may be deleted. With 0 bytes, it
    /// makes at least one step if the file is nearly full, and further steps while room is urgently needed.
    async fn make_room(&mut self, bytes: u64, time: Duration) -> Result<(), sqlx::Error> {
        self.measure_room().await?;
        let Some(max) = self.room.max else { return Ok(()) };
        let (trim_at, urgent) = Room::goals(max, bytes);
        let began = Instant::now();
        while self.room.size.used > trim_at {
            let step = trim::step(&mut self.connection, &mut self.room.cursor, self.room.now, A_FEW).await?;
            self.room.is_exhausted = step == Step::Exhausted;
            if let Step::Deleted { rows, commits } = step {
                self.head.acknowledge(commits);
                self.watch.trimmed(rows);
            }
            self.measure_room().await?;
            if !goes_on(step, self.room.size.used, urgent) || began.elapsed() > time {
                break;
            }
        }
        Ok(())
    }

    fn refuse_if_full(&mut self) {
        if self.room.is_full && self.health.trouble.load().is_none() {
            let reason = self.room.reason();
            tracing::error!(%reason, "calls are refused until the ledger has room");
            self.health.trouble.store(Some(reason.into()));
        }
    }

    /// Deletes up to `at_most` rows or stored results that no guarantee covers, whatever the size of the file.
    pub(super) async fn trim(&mut self, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        let mut cursor = Cursor::default();
        loop {
            let step = match self.present() {
                Ok(()) => trim::step(&mut self.connection, &mut cursor, Some(now), at_most).await,
                Err(error) => Err(error),
            };
            match step {
                Ok(Step::Deleted { rows, commits }) => {
                    self.head.acknowledge(commits);
                    return Ok(rows);
                }
                Ok(Step::Nothing) => {}
                Ok(Step::Exhausted) => return Ok(0),
                Err(error) => return Err(self.failed(error).await),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::captured::capture;

    #[test]
    fn rows_go_before_calls_are_refused() {
        for max in [16 << 20, 100 << 20, 2 << 30, 1 << 50] {
            let (trim_at, reserve) = (Room::trim_at(max), Room::reserve(max));
            assert!(trim_at > max / 5 * 4 && trim_at + 2 * reserve <= max, "{max}: {trim_at} {reserve}");
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn reserves_are_a_sixteenth_within_limits() {
        for (max, reserve, trim_at) in [
            (16 * MIB, MIB, 14 * MIB),
            (160 * MIB, 10 * MIB, 140 * MIB),
            (2000 * MIB, 16 * MIB, 1800 * MIB),
            (8000 * MIB, 16 * MIB, 7200 * MIB),
        ] {
            assert_eq!((Room::reserve(max), Room::trim_at(max)), (reserve, trim_at), "{max}");
        }
    }

    fn measured(room: &mut Room, used: u64, log: u64) -> (bool, bool) {
        room.measured(Size { file: used, log, used, max: room.max });
        (room.is_full(), room.is_warned)
    }

    #[test]
    fn calls_are_refused_within_the_reserve() {
        let mut room = Room::new(Some(160 * MIB));
        assert_eq!(measured(&mut room, 160 * MIB, 0), (false, true), "something may still be deleted");
        room.is_exhausted = true;
        for (used, log, is_full) in [
            (150 * MIB, 0, false),
            (150 * MIB + 1, 0, true),
            (150 * MIB, 16 * MIB, false),
            (150 * MIB, 16 * MIB + 1, true),
            (130 * MIB, 36 * MIB, false),
            (130 * MIB, 36 * MIB + 1, true),
        ] {
            assert_eq!(measured(&mut room, used, log).0, is_full, "{used} {log}");
        }
        let mut boundless = Room::new(None);
        boundless.is_exhausted = true;
        assert_eq!(measured(&mut boundless, 1 << 40, 1 << 40), (false, false));
    }

    #[test]
    fn bounded_files_are_looked_at_more_often() {
        let due_after = |max, used, written| {
            let mut room = Room::new(max);
            measured(&mut room, used, 0);
            (1..=100).find(|_| room.is_due(written))
        };
        assert_eq!(due_after(None, 1 << 40, 1 << 40), Some(64));
        assert_eq!(due_after(Some(100), 0, 0), Some(8));
        assert_eq!((due_after(Some(100), 75, 0), due_after(Some(100), 76, 0)), (Some(8), Some(1)));
        assert_eq!((due_after(Some(100), 55, 10), due_after(Some(100), 54, 11)), (Some(2), Some(1)));
        assert_eq!(due_after(Some(100), 0, 10), Some(4));
    }

    #[test]
    fn deleting_ends_when_it_is_not_urgent() {
        let deleted = Step::Deleted { rows: 1, commits: 1 };
        for (step, used, expected) in
            [(deleted, 8, false), (deleted, 9, true), (Step::Nothing, 1, true), (Step::Exhausted, 9, false)]
        {
            assert_eq!(goes_on(step, used, 8), expected, "{step:?} {used}");
        }
    }

    #[test]
    fn little_room_is_urgent() {
        assert_eq!(Room::goals(16 * MIB, 0), (14 * MIB, 14 * MIB + MIB / 2));
        assert_eq!(Room::goals(160 * MIB, 0), (140 * MIB, 145 * MIB));
        assert_eq!(Room::goals(160 * MIB, 10 * MIB), (140 * MIB, 140 * MIB));
        assert_eq!(Room::goals(160 * MIB, 50 * MIB), (110 * MIB, 110 * MIB));
        assert_eq!(Room::goals(16 * MIB, 20 * MIB), (0, 0));
    }

    #[test]
    fn little_room_is_told_once() {
        let log = capture();
        let mut room = Room::new(Some(100));
        for (used, is_warned) in [(80, false), (81, true), (76, true), (75, false), (76, false), (81, true)] {
            assert_eq!(measured(&mut room, used, 0).1, is_warned, "{used}");
        }
        assert_eq!(log.count("over 80 % of ledger.max_bytes"), 2);
    }

    #[test]
    fn full_files_are_told_from_full_disks() {
        let mut room = Room::new(Some(100));
        for (file, is_at_its_bound) in [(75, false), (76, true)] {
            room.measured(Size { file, ..Size::default() });
            assert_eq!(room.is_at_its_bound(), is_at_its_bound, "{file}");
        }
        assert!(!Room::new(None).is_at_its_bound());
        assert!(room.reason().contains("(100 B)"), "{}", room.reason());
    }
}
