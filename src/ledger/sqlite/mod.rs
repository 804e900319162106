//! The ledger in one SQLite file: WAL, `synchronous=FULL`, one writer, a pool of readers.
//!
//! - `engine.rs` implements the trait. `open.rs` prepares the file and its schema.
//! - `writer.rs` groups commits. `recovery.rs` retries after failures,
//!   and `reclaim.rs` keeps the file below its bound (`file_space.rs`).
//! - `batch.rs` defines the content of one commit. `script.rs` holds its statements, and
//!   `batch_connection.rs` runs them, with the settings of the connections that write.
//! - `keys.rs` claims idempotency keys. `quota.rs` and `batch_counters.rs` are the
//!   counters of limits, and `set_aside.rs` counts their units ahead.
//! - `change.rs` has the operations of the queue, makes rare changes and deletes by age, `trim.rs` deletes for space.
//! - `hours.rs` keeps the counts of hours.
//! - `fetch.rs` runs the queries of both engines, `list.rs` lists calls, and `backup.rs` makes a copy.
//! - `processes.rs` notices processes that have ended; `change.rs` settles their calls.
//! - `fault.rs` classifies errors, and `wal.rs` copies the log into the database.
//! - `commit_marker.rs` detects missing commits.

mod backup;
mod batch;
mod batch_connection;
mod batch_counters;
mod change;
mod commit_marker;
mod engine;
mod fault;
#[cfg(test)]
mod fault_tests;
mod fetch;
mod file_space;
mod hours;
mod keys;
mod list;
mod open;
mod processes;
mod quota;
mod reclaim;
mod recovery;
mod script;
mod set_aside;
#[cfg(test)]
mod tests;
mod trim;
mod wal;
mod writer;

pub(super) use engine::SqliteLedger;
pub(super) use open::open_alone;
