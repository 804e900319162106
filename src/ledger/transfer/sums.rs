//! What both sides of a move count. Equal numbers mean that nothing was lost, and nothing was counted
//! twice.

use std::fmt;

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
