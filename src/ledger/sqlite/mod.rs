//! The ledger in one SQLite file: WAL, `synchronous=FULL`, one writer, a pool of readers.
//!
//! `engine.rs` is the trait, `open.rs` gets the file ready, `writer.rs` groups commits, `batch.rs` says what one commit
//! writes and `script.rs` takes it to SQLite, `keys.rs` claims idempotency keys, `quota.rs` and `totals.rs` count, `prune.rs` deletes what is too old, `read.rs` and
//! `list.rs` answer questions, `backup.rs` copies the whole.

mod backup;
mod batch;
mod engine;
mod keys;
mod list;
#[cfg(test)]
mod machine;
mod open;
mod prune;
mod quota;
mod read;
mod script;
#[cfg(test)]
mod tests;
mod totals;
mod writer;

pub(super) use engine::Sqlite;
