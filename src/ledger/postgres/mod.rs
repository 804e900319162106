//! The ledger in a PostgreSQL database that several replicas share.
//!
//! - `engine.rs` implements the trait. `address.rs` reads the URL, `servers.rs` finds the primary among its
//!   servers, `session.rs` connects to one, and `open.rs` prepares the schema.
//! - `writer.rs` groups commits: one batch, one statement, one round trip.
//!   `batch.rs` is the content of one commit, and `commit.rs` sends it. The function in the database
//!   decides limits and keys, so the decisions of all replicas are made in one place.
//! - `units.rs` has the units of limits that this replica has set aside.
//! - `replica.rs` registers this process. `lease.rs` tells how long it may run calls, and `settle.rs`
//!   settles the calls of processes that have ended.
//! - `fetch.rs` runs the queries of both engines, `list.rs` lists calls, `change.rs` makes rare changes,
//!   and `retention.rs` deletes.
//! - `exclusive.rs` keeps replicas out while a whole ledger is moved.
//! - `hours.rs` keeps the counts of hours.
//! - `running.rs` shows running calls to other replicas.
//! - `announce.rs` tells other replicas of changes and of the last answered calls of runs, and follows
//!   theirs.
//! - `backlog.rs` keeps what a failed commit leaves to write.
//! - `fault.rs` classifies errors.

mod address;
mod announce;
mod backlog;
mod batch;
mod change;
mod commit;
mod engine;
mod exclusive;
mod fault;
mod fetch;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod hours;
mod lease;
mod list;
mod open;
mod replica;
mod retention;
mod running;
mod servers;
#[cfg(test)]
mod servers_tests;
mod session;
mod settle;
#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;
mod units;
mod writer;

pub(super) use address::check_url;
pub(crate) use address::split_hosts;
pub(super) use engine::PostgresLedger;
pub(super) use exclusive::Exclusive;
