//! The ledger in one SQLite file: WAL, `synchronous=FULL`, one writer, a pool of readers.
//!
//! `engine.rs` is the trait, `open.rs` gets the file ready, `queue.rs` hands over to `writer.rs`, which groups commits.
//! `batch.rs` says what one commit writes and `script.rs` takes it to SQLite, `keys.rs` claims idempotency keys,
//! `change.rs` does what is rare, `quota.rs` and `totals.rs` count, `prune.rs` deletes what is too old and `trim.rs` what
//! has no room, `read.rs` and `list.rs` answer questions, `backup.rs`
//! copies the whole. `fault.rs` says what an error means, `wal.rs` copies the log into the database, and `head.rs`
//! notices when commits are missing, `sum.rs` when a row says something else than was written. `recovery.rs` is what the
//! writer does when it cannot write, `room.rs` how it keeps the file below its bound.

mod backup;
mod batch;
mod change;
mod engine;
mod fault;
mod head;
mod keys;
mod list;
#[cfg(test)]
mod machine;
mod open;
mod prune;
mod queue;
mod quota;
mod read;
mod recovery;
mod room;
mod script;
mod sum;
#[cfg(test)]
mod tests;
mod totals;
mod trim;
#[cfg(test)]
mod trouble;
mod wal;
mod writer;

pub(super) use engine::Sqlite;
