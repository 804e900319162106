//! The record of administration. Each entry has a hash over itself and the hash of the entry before, so a
//! later change of the record shows.
//!
//! - `entry.rs`: an entry, and its hash
//! - `chain.rs`: verifies a chain of entries
//!
//! `ledger/audit.rs` stores the entries, `http/api/audit.rs` and `cli/audit.rs` show them.

mod chain;
mod entry;

pub use chain::{Broken, Fault, Verdict, verify};
pub use entry::{Action, Entry, NewEntry, OPERATOR, first_hash};
