//! SQLite. Each connection has a thread of its own, which a dropped call stops through SQLite's progress handler.
//!
//! rusqlite, not sqlx: it reaches SQLite's limits, its authorizer and `sqlite3_stmt_readonly`, and a whole call is one message to
//! the thread. Both are linked with one and the same SQLite.

mod faults;
mod guard;
mod prepared;
mod session;
mod values;

use std::path::PathBuf;

pub(super) use self::prepared::Prepared;
use self::session::{Place, Session};
use super::pool::Pool;

/// A file and its connections.
pub(super) struct Database {
    place: Place,
    pool: Pool<Session>,
}

impl Database {
    pub(super) fn new(file: PathBuf, writes: bool) -> Self {
        Self { place: Place { file, writes }, pool: Pool::new() }
    }
}
