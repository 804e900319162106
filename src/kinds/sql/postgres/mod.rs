//! Runs statements on PostgreSQL.
//!
//! - The database describes a statement once: the types of its parameters and columns
//!   (`parameter_types`, `plan`).
//! - Values are sent as texts, which the database casts (`arguments`).
//! - Results are decoded from the binary form (`decode`). If only the database
//!   knows the type, it sends text.
//! - A condition around the statement makes the server refuse a row that is too long (`plan`).
//! - If a call is dropped, its statement is cancelled. What a call leaves on a connection is
//!   removed before the next call gets the connection (`session`).
//! - `prepared` runs the statement of a call; `address` parses the URL; `faults`
//!   explains errors.

mod address;
mod arguments;
mod decode;
mod faults;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod parameter_types;
mod plan;
mod prepared;
mod session;

use tokio::sync::OnceCell;

pub(super) use self::address::{Defaults, ServerAddress};
pub(super) use self::prepared::Prepared;
use self::session::Session;
use super::faults::Finding;
use super::pool::Pool;

/// A database and its connections.
pub(super) struct Database {
    server: ServerAddress,
    pool: Pool<Session>,
    /// Set if the database could not be reached at the start, so that the next tool does not wait
    /// for it again.
    start_failure: OnceCell<Finding>,
}

impl Database {
    pub(super) fn new(server: ServerAddress) -> Self {
        Self {
            server,
            pool: Pool::new(),
            start_failure: OnceCell::new(),
        }
    }
}

#[cfg(test)]
mod tests;
