//! How much room the ledger's file has below `ledger.max_bytes`. `reclaim.rs` acts on it.

use jiff::Timestamp;

use super::super::Size;
use super::trim::Cursor;
use super::wal::CHECK_INTERVAL_COMMITS;

/// Length of the write-ahead log that does not count toward the bound. The log is normally copied
/// at about 4 MiB, between two commits.
const NORMAL_LOG_BYTES: u64 = 16 << 20;
/// Commits between two measurements of a file without a bound. They serve only the metric.
const UNBOUNDED_MEASURE_COMMITS: u32 = 8 * CHECK_INTERVAL_COMMITS;
/// Room that is reserved for running calls to end: a sixteenth of the bound, between these limits.
const RESERVE_LIMITS: [u64; 2] = [1 << 20, 16 << 20];

/// The bound, and the last measurement of the file.
#[derive(Default)]
pub(super) struct FileSpace {
    pub(super) max: Option<u64>,
    pub(super) size: Size,
    /// When the newest call started that was written.
    pub(super) newest_start: Option<Timestamp>,
    pub(super) cursor: Cursor,
    /// Whether no more rows may be deleted.
    pub(super) is_exhausted: bool,
    is_full: bool,
    has_warned: bool,
    /// Commits and bytes since the last measurement.
    commits: u32,
    bytes: u64,
}

impl FileSpace {
    pub(super) fn new(max: Option<u64>) -> Self {
        let size = Size {
            max,
            ..Size::default()
        };
        Self {
            max,
            size,
            ..Self::default()
        }
    }

    /// Whether reservations are refused, because little room is left and no more rows may be
    /// deleted.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether a commit without room failed at the bound of the ledger, and not because the disk is
    /// full.
    pub(super) fn is_at_bound(&self) -> bool {
        self.max.is_some_and(|max| self.size.file > max / 4 * 3)
    }

    /// Why reservations are refused, and what would help.
    pub(super) fn full_reason(&self) -> String {
        let max = bytesize::ByteSize(self.max.unwrap_or_default());
        format!(
            "the ledger has reached ledger.max_bytes ({max}), and no more rows may be deleted: set \
             ledger.retention, or raise the bound"
        )
    }

    fn reserve_bytes(max: u64) -> u64 {
        (max / 16).clamp(RESERVE_LIMITS[0], RESERVE_LIMITS[1])
    }

    /// Size above which rows are deleted: nine tenths of the bound, or the bound less two reserves,
    /// whichever is lower.
    fn trim_threshold(max: u64) -> u64 {
        (max / 10 * 9).min(max.saturating_sub(2 * Self::reserve_bytes(max)))
    }

    /// Two sizes: above the first one, deletion continues until there is room for `bytes`; above
    /// the second one, it is urgent. With 0 bytes, it is urgent within one and a half reserves of
    /// the bound.
    pub(super) fn trim_thresholds(max: u64, bytes: u64) -> (u64, u64) {
        let trim_at = Self::trim_threshold(max).min(max.saturating_sub(bytes));
        let urgent = if bytes == 0 {
            max - Self::reserve_bytes(max) - Self::reserve_bytes(max) / 2
        } else {
            trim_at
        };
        (trim_at, urgent)
    }

    /// Counts written bytes. Returns whether to measure the file: every few commits, and always
    /// when little room is left.
    pub(super) fn is_measurement_due(&mut self, written: u64) -> bool {
        self.commits += 1;
        self.bytes += written;
        let is_near = self
            .max
            .is_some_and(|max| self.size.used + 2 * self.bytes > max / 4 * 3);
        is_near
            || self.commits
                >= if self.max.is_some() {
                    CHECK_INTERVAL_COMMITS
                } else {
                    UNBOUNDED_MEASURE_COMMITS
                }
    }

    /// Stores a new measurement and decides whether reservations are refused.
    pub(super) fn set_size(&mut self, size: Size) {
        self.size = size;
        (self.commits, self.bytes) = (0, 0);
        let Some(max) = self.max else { return };
        let log = size.log.saturating_sub(NORMAL_LOG_BYTES);
        self.is_full = self.is_exhausted && size.used + log + Self::reserve_bytes(max) > max;
        // Warned once, until the size is clearly lower again.
        let is_nearly_full = size.used > max / 5 * 4;
        if is_nearly_full && !self.has_warned {
            let (used, max) = (bytesize::ByteSize(size.used), bytesize::ByteSize(max));
            tracing::warn!(
                %used, %max,
                "the ledger is over 80 % of ledger.max_bytes: from 90 % on, the oldest calls that no guarantee covers \
                 are deleted; ledger.retention deletes the others"
            );
        }
        self.has_warned = is_nearly_full || (self.has_warned && size.used > max / 4 * 3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::captured_log::capture_log;

    #[test]
    fn trim_threshold_is_below_the_reserve() {
        for max in [16 << 20, 100 << 20, 2 << 30, 1 << 50] {
            let (trim_at, reserve) = (
                FileSpace::trim_threshold(max),
                FileSpace::reserve_bytes(max),
            );
            assert!(
                trim_at > max / 5 * 4 && trim_at + 2 * reserve <= max,
                "{max}: {trim_at} {reserve}"
            );
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn reserve_is_a_sixteenth_within_limits() {
        for (max, reserve, trim_at) in [
            (16 * MIB, MIB, 14 * MIB),
            (160 * MIB, 10 * MIB, 140 * MIB),
            (2000 * MIB, 16 * MIB, 1800 * MIB),
            (8000 * MIB, 16 * MIB, 7200 * MIB),
        ] {
            assert_eq!(
                (
                    FileSpace::reserve_bytes(max),
                    FileSpace::trim_threshold(max)
                ),
                (reserve, trim_at),
                "{max}"
            );
        }
    }

    fn measure(room: &mut FileSpace, used: u64, log: u64) -> (bool, bool) {
        room.set_size(Size {
            file: used,
            log,
            used,
            max: room.max,
        });
        (room.is_full(), room.has_warned)
    }

    #[test]
    fn file_space_is_full_within_the_reserve() {
        let mut room = FileSpace::new(Some(160 * MIB));
        assert_eq!(
            measure(&mut room, 160 * MIB, 0),
            (false, true),
            "something may still be deleted"
        );
        room.is_exhausted = true;
        for (used, log, is_full) in [
            (150 * MIB, 0, false),
            (150 * MIB + 1, 0, true),
            (150 * MIB, 16 * MIB, false),
            (150 * MIB, 16 * MIB + 1, true),
            (130 * MIB, 36 * MIB, false),
            (130 * MIB, 36 * MIB + 1, true),
        ] {
            assert_eq!(measure(&mut room, used, log).0, is_full, "{used} {log}");
        }
        let mut boundless = FileSpace::new(None);
        boundless.is_exhausted = true;
        assert_eq!(measure(&mut boundless, 1 << 40, 1 << 40), (false, false));
    }

    #[test]
    fn bounded_files_are_measured_more_often() {
        let due_after = |max, used, written| {
            let mut room = FileSpace::new(max);
            measure(&mut room, used, 0);
            (1..=100).find(|_| room.is_measurement_due(written))
        };
        assert_eq!(due_after(None, 1 << 40, 1 << 40), Some(64));
        assert_eq!(due_after(Some(100), 0, 0), Some(8));
        assert_eq!(
            (due_after(Some(100), 75, 0), due_after(Some(100), 76, 0)),
            (Some(8), Some(1))
        );
        assert_eq!(
            (due_after(Some(100), 55, 10), due_after(Some(100), 54, 11)),
            (Some(2), Some(1))
        );
        assert_eq!(due_after(Some(100), 0, 10), Some(4));
    }

    #[test]
    fn trim_thresholds_depend_on_needed_bytes() {
        assert_eq!(
            FileSpace::trim_thresholds(16 * MIB, 0),
            (14 * MIB, 14 * MIB + MIB / 2)
        );
        assert_eq!(
            FileSpace::trim_thresholds(160 * MIB, 0),
            (140 * MIB, 145 * MIB)
        );
        assert_eq!(
            FileSpace::trim_thresholds(160 * MIB, 10 * MIB),
            (140 * MIB, 140 * MIB)
        );
        assert_eq!(
            FileSpace::trim_thresholds(160 * MIB, 50 * MIB),
            (110 * MIB, 110 * MIB)
        );
        assert_eq!(FileSpace::trim_thresholds(16 * MIB, 20 * MIB), (0, 0));
    }

    #[test]
    fn low_space_is_logged_once() {
        let log = capture_log();
        let mut room = FileSpace::new(Some(100));
        for (used, is_warned) in [
            (80, false),
            (81, true),
            (76, true),
            (75, false),
            (76, false),
            (81, true),
        ] {
            assert_eq!(measure(&mut room, used, 0).1, is_warned, "{used}");
        }
        assert_eq!(log.count_lines("over 80 % of ledger.max_bytes"), 2);
    }

    #[test]
    fn full_file_differs_from_full_disk() {
        let mut room = FileSpace::new(Some(100));
        for (file, is_at_its_bound) in [(75, false), (76, true)] {
            room.set_size(Size {
                file,
                ..Size::default()
            });
            assert_eq!(room.is_at_bound(), is_at_its_bound, "{file}");
        }
        assert!(!FileSpace::new(None).is_at_bound());
        assert!(
            room.full_reason().contains("(100 B)"),
            "{}",
            room.full_reason()
        );
    }
}
