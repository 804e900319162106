//! A connection to a SQLite file, on a thread of its own, and the way to stop its statement.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rusqlite::limits::Limit;
use rusqlite::{CachedStatement, Connection, OpenFlags};
use tokio::sync::oneshot;

use super::faults::AttemptError;
use super::guard::ConnectionCommandGuard;

/// After this many of its operations, SQLite checks whether to stop the statement. They take some
/// microseconds.
const PROGRESS_STEPS: i32 = 1000;
/// How long SQLite itself waits for a lock. The longer wait is outside of SQLite, where the call
/// can be cancelled: see `prepared.rs`.
const BUSY_TIMEOUT: Duration = Duration::from_millis(20);
/// The number of statements that stay prepared on a connection.
const CACHED_STATEMENTS: usize = 100;

/// A job for the connection's thread.
type Job = Box<dyn FnOnce(&ThreadConnection) + Send>;

/// A handle to a connection. Dropping it stops the running statement and closes the connection.
pub(super) struct Session {
    jobs: SyncSender<Job>,
    stop: Arc<AtomicBool>,
}

/// The connection itself, which never leaves its thread.
pub(super) struct ThreadConnection {
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
    /// Opens the file, which must exist.
    pub(super) async fn open(database: &DatabaseFile) -> Result<Self, AttemptError> {
        let (jobs, queue) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let (opened, is_open) = oneshot::channel();
        let (database, stopped) = (database.clone(), stop.clone());
        let work = move || match ThreadConnection::open(&database, stopped) {
            Ok(link) => {
                // If the send fails, the caller is gone. Its end of the queue is closed too, so
                // `run_jobs` returns at once.
                let _ = opened.send(Ok(()));
                run_jobs(&link, &queue);
            }
            Err(error) => drop(opened.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name("sql".into()).spawn(work);
        thread.map_err(|error| {
            AttemptError::connection_lost(format!("no thread for a connection: {error}"))
        })?;
        is_open
            .await
            .map_err(|_| AttemptError::connection_lost("a connection's thread ended"))??;
        Ok(Self { jobs, stop })
    }

    /// Runs a job on the connection's thread, and waits for its result.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&ThreadConnection) -> Result<T, AttemptError> + Send + 'static,
    ) -> Result<T, AttemptError> {
        let (done, is_done) = oneshot::channel();
        let job: Job = Box::new(move |link| drop(done.send(job(link))));
        // A session runs one job at a time, so the slot in the queue is free.
        self.jobs
            .try_send(job)
            .map_err(|_| AttemptError::connection_lost("a connection's thread has ended"))?;
        is_done.await.map_err(|_| {
            AttemptError::connection_lost("a connection's thread ended while its statement ran")
        })?
    }
}

/// Stops the running statement. Otherwise the thread would go on with it although the call has
/// ended.
impl Drop for Session {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Runs jobs until the session is dropped.
fn run_jobs(link: &ThreadConnection, queue: &Receiver<Job>) {
    for job in queue {
        job(link);
    }
}

impl ThreadConnection {
    fn open(database: &DatabaseFile, stop: Arc<AtomicBool>) -> Result<Self, rusqlite::Error> {
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
        connection.progress_handler(PROGRESS_STEPS, Some(move || stop.load(Ordering::Relaxed)))?;
        connection.pragma_update(None, "foreign_keys", "on")?;
        if !database.writes {
            connection.pragma_update(None, "query_only", "on")?;
        }
        // The first access to the file: it fails if the file is not a database or is locked.
        connection.query_row("pragma schema_version", [], |row| row.get::<_, i64>(0))?;
        let guard = ConnectionCommandGuard::install(&connection)?;
        let longest = connection.limit(Limit::SQLITE_LIMIT_LENGTH)?;
        Ok(Self {
            connection,
            guard,
            file,
            max_length: longest,
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
