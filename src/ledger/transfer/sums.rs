//! What both sides of a move count. Equal numbers mean that nothing was lost, and nothing was counted
//! twice.

use std::fmt;

/// The tables, and what is counted in each besides its rows. The engines count in this order.
const TABLES: [(&str, &[&str]); 10] = [
    ("calls", &["counted", "microseconds", "bytes", "protected"]),
    ("held keys", &[]),
    ("failed attempts", &["microseconds"]),
    ("counters of limits", &["used", "lost"]),
    ("stored results", &["bytes"]),
    ("switches", &["enabled"]),
    ("registered tools", &["bytes"]),
    (
        "totals",
        &["calls", "succeeded", "failed", "refused", "cache_hits"],
    ),
    ("durations", &["calls"]),
    ("approvals", &["waiting", "done"]),
];

/// The sums of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSums {
    /// What the rows are, for people.
    pub table: &'static str,
    /// Number of rows.
    pub rows: i64,
    /// Names and sums of columns.
    pub sums: Vec<(&'static str, i64)>,
}

impl TableSums {
    /// The sums of all tables, from the numbers of each: rows, then the sums in their order.
    pub(in crate::ledger) fn from_numbers(numbers: Vec<Vec<i64>>) -> Vec<Self> {
        let tables = TABLES.into_iter().zip(numbers);
        let sums = tables.map(|((table, names), numbers)| {
            let mut numbers = numbers.into_iter();
            Self {
                table,
                rows: numbers.next().unwrap_or_default(),
                sums: names.iter().copied().zip(numbers).collect(),
            }
        });
        sums.collect()
    }
}

impl fmt::Display for TableSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.rows, self.table)?;
        for (at, (name, sum)) in self.sums.iter().enumerate() {
            let before = if at == 0 { " (" } else { ", " };
            write!(f, "{before}{name} {sum}")?;
        }
        f.write_str(if self.sums.is_empty() { "" } else { ")" })
    }
}
