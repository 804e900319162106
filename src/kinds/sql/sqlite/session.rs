//! A connection to a SQLite file.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::limits::Limit;
use rusqlite::{CachedStatement, Connection, OpenFlags};

use super::faults::AttemptError;
use super::guard::ConnectionCommandGuard;

/// After this many of its operations, SQLite checks whether to stop the statement. They take a few
/// microseconds.
const PROGRESS_STEPS: i32 = 100;
/// How long SQLite itself waits for a lock. The longer wait is outside of SQLite, where the call
/// can be cancelled: see `prepared.rs`.
const BUSY_TIMEOUT: Duration = Duration::from_millis(20);
/// The number of statements that stay prepared on a connection.
const CACHED_STATEMENTS: usize = 100;

/// An open connection. One call uses it at a time, on any thread.
///
/// Closing a connection that may write can take long: in WAL mode the last one writes the log back
/// into the file. So it is closed on blocking threads.
pub(super) struct Session {
    pub(super) connection: Connection,
    guard: ConnectionCommandGuard,
    /// Device and inode. If another file replaces the file, it is another database.
    file: Option<(u64, u64)>,
    /// SQLite's own limit for the length of a value or row.
    max_length: i32,
}

/// The path of the file, and whether it may be written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct DatabaseFile {
    pub(super) path: PathBuf,
    pub(super) writes: bool,
}

impl Session {
    /// Opens the file, which must exist. This blocks.
    pub(super) fn open(database: &DatabaseFile) -> Result<Self, rusqlite::Error> {
        let mode = if database.writes {
            OpenFlags::SQLITE_OPEN_READ_WRITE
        } else {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        };
        let file = file_identity(&database.path);
        let connection =
            Connection::open_with_flags(&database.path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
        connection.pragma_update(None, "foreign_keys", "on")?;
        if !database.writes {
            connection.pragma_update(None, "query_only", "on")?;
        }
        // The first access to the file: it fails if the file is not a database or is locked.
        connection.query_row("pragma schema_version", [], |row| row.get::<_, i64>(0))?;
        let guard = ConnectionCommandGuard::install(&connection)?;
        let max_length = connection.limit(Limit::SQLITE_LIMIT_LENGTH)?;
        Ok(Self {
            connection,
            guard,
            file,
            max_length,
        })
    }

    /// Whether the file's path still leads to the open file.
    pub(super) fn is_current(&self, database: &DatabaseFile) -> bool {
        self.file.is_some() && self.file == file_identity(&database.path)
    }

    /// Prepares a tool's statement, or takes it from the cache of the connection. Refuses commands
    /// to the connection.
    pub(super) fn prepare(&self, sql: &str) -> Result<CachedStatement<'_>, AttemptError> {
        self.guard
            .prepare_guarded(|| self.connection.prepare_cached(sql))
    }

    /// Prepares for a statement on a worker of tokio: it waits for no lock, and stops after about
    /// `steps` operations, or at `end`.
    pub(super) fn stop_after(&self, steps: i32, end: Instant) -> Result<(), rusqlite::Error> {
        let mut checks_left = steps / PROGRESS_STEPS;
        self.prepare_run(Duration::ZERO, move || {
            checks_left -= 1;
            checks_left <= 0 || Instant::now() >= end
        })
    }

    /// Prepares for a statement on a blocking thread: it stops when `stop` becomes true.
    pub(super) fn stop_when(&self, stop: Arc<AtomicBool>) -> Result<(), rusqlite::Error> {
        self.prepare_run(BUSY_TIMEOUT, move || stop.load(Ordering::Relaxed))
    }

    fn prepare_run(
        &self,
        lock_wait: Duration,
        must_stop: impl FnMut() -> bool + Send + 'static,
    ) -> Result<(), rusqlite::Error> {
        self.connection.busy_timeout(lock_wait)?;
        self.connection
            .progress_handler(PROGRESS_STEPS, Some(must_stop))
    }

    /// Limits the length of each value and row of the next statement, in bytes. SQLite fails the
    /// statement before it allocates more. `None` sets SQLite's own limit.
    pub(super) fn limit_length(&self, bytes: Option<usize>) -> Result<(), rusqlite::Error> {
        let limit = bytes
            .and_then(|bytes| i32::try_from(bytes).ok())
            .unwrap_or(self.max_length);
        self.connection
            .set_limit(Limit::SQLITE_LIMIT_LENGTH, limit.min(self.max_length))?;
        Ok(())
    }
}

fn file_identity(file: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(file)
        .ok()
        .map(|file| (file.dev(), file.ino()))
}
