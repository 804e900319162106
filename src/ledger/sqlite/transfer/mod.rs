//! This engine as one side of a move: `source.rs` reads a file, `target.rs` writes a new one. `sums.rs`
//! counts.

mod source;
mod sums;
mod target;

pub(in crate::ledger) use source::SqliteSource;
pub(in crate::ledger) use target::SqliteTarget;
