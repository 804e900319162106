//! The durable record: calls, failed attempts, counted usage, stored results, switches.
//!
//! `engine.rs` has the trait. Every engine passes the tests in `contract.rs`.

#[cfg(test)]
mod contract;
mod end;
mod engine;
mod latency;
#[cfg(test)]
pub(crate) mod memory;
mod open;
mod record;
mod refusals;
mod sqlite;
mod upkeep;
mod watch;

pub use end::{End, Unreadable};
pub use engine::{HeldUntilCommit, Ledger};
pub use open::{
    Durability, Error, SMALLEST, Settings, folder, is_in_memory, open, open_temporary, open_to_read, open_watched,
};
pub use record::{
    AttemptRow, LISTED_ARGUMENTS, Query, RecordedCall, Registered, Reservation, ReserveError, Row, State, StoredResult,
    Switch, UsageRow,
};
pub use upkeep::{mind_the_clock, retain, verify};
pub use watch::{Size, Watch};
