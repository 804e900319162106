//! The durable record: calls, failed attempts, counted usage, stored results, switches.
//!
//! `engine.rs` has the trait. Every engine passes the tests in `contract.rs`. `model_test/`
//! compares engines with a model. `transfer/` moves a whole ledger to another engine.
//! `sql.rs` has statements and rows that no engine owns. With them, both engines run the same queries
//! (`read.rs`, `list.rs`, `buckets.rs`, `approval.rs`), changes (`engine.rs`) and imports (`import.rs`).
//! `audit.rs` has the record of administration.
//! `count_by_time.rs` puts counts together from calls and from counted hours. `units.rs` has the units of
//! limits that both engines hand out from memory.

mod approval;
mod audit;
mod buckets;
mod checksum;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod contract_audit;
#[cfg(test)]
mod contract_hours;
mod count_by_time;
mod counted_hour;
mod counts;
mod end;
mod engine;
mod error;
mod import;
mod latency;
mod list;
mod maintenance;
#[cfg(test)]
pub(crate) mod memory;
mod migrations;
#[cfg(test)]
mod model_test;
mod observer;
mod open;
mod operation;
mod postgres;
mod read;
mod record;
mod refusals;
mod settings;
mod sql;
mod sqlite;
#[cfg(test)]
mod states_tests;
mod transfer;
mod units;
mod writer_queue;

pub use approval::{
    ApprovalChange, ApprovalDecision, ApprovalMark, ApprovalQuery, ApprovalRow, ApprovalState,
};
pub use audit::AuditQuery;
pub use end::{End, UnreadableRow};
pub use engine::Ledger;
pub use error::Error;
pub use maintenance::{count_ended_hours, run_retention, verify_counters, watch_clock};
pub use observer::{LedgerObserver, Size};
pub use open::{
    check_url, is_in_memory_url, is_shared_url, ledger_file, ledger_folder, open, open_read_only,
    open_temporary, open_with_observer,
};
pub use operation::HeldUntilCommit;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use postgres::fuzzing;
pub(crate) use postgres::split_hosts;
#[cfg(test)]
pub(crate) use postgres::test_server;
pub use record::{
    AnsweredCall, AttemptRow, BucketQuery, BucketRow, EndedQuery, ExportQuery, LISTED_ARGUMENTS,
    Query, RecordedCall, RegisteredTool, ReplicaRow, Reservation, ReserveError, Row, SharedChange,
    State, StoredResult, Switch, TokenRow, TokenSums, UsageBy, UsageRow,
};
pub use settings::{Durability, MIN_SIZE_BOUND, Settings, WhenDown};
pub use transfer::{Moved, TableSums, migrate};
