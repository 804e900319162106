//! Runs statements on SQLite. A brief read runs at once on the worker of tokio that serves its call,
//! any other statement on a blocking thread (`prepared`). If a call is dropped, SQLite's progress
//! handler stops its statement.
//!
//! This uses rusqlite instead of sqlx. It gives access to SQLite's limits, its authorizer and
//! `sqlite3_stmt_readonly`, and a connection can be used on any thread. Both libraries are linked
//! with the same SQLite.

mod faults;
mod guard;
mod prepared;
mod session;
mod values;

use std::path::PathBuf;

pub(super) use self::prepared::Prepared;
use self::session::{DatabaseFile, Session};
use super::pool::Pool;

/// A file and its connections.
pub(super) struct Database {
    file: DatabaseFile,
    pool: Pool<Session>,
}

impl Database {
    pub(super) fn new(file: PathBuf, writes: bool) -> Self {
        Self {
            file: DatabaseFile { path: file, writes },
            pool: Pool::new(),
        }
    }
}
