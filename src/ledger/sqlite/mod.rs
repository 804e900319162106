//! The ledger in one SQLite file: WAL, `synchronous=FULL`, one writer, a pool of readers.
//!
//! `engine.rs` is the trait, `open.rs` gets the file ready, `writer.rs` groups commits, `batch.rs` is one commit's SQL, `read.rs` answers
//! questions, `backup.rs` copies the whole.

mod backup;
mod batch;
mod engine;
mod open;
mod read;
mod writer;

pub(super) use engine::Sqlite;
