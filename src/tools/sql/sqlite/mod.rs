//! SQLite. Each connection has a thread of its own (sqlx's), which a dropped call stops through SQLite's progress handler.

mod faults;
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
