//! This engine as one side of a move: `source.rs` reads a database, `target.rs` writes an empty one.
//! `exclusive.rs` keeps replicas out, and `sums.rs` counts.

mod exclusive;
mod source;
mod sums;
mod target;

pub(in crate::ledger) use source::PostgresSource;
pub(in crate::ledger) use target::PostgresTarget;
