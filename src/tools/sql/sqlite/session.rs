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

use super::faults::Trouble;
use super::guard::Guard;

/// After this many of its operations, SQLite checks whether to stop the statement. They take some microseconds.
const OPERATIONS: i32 = 1000;
/// How long SQLite itself waits for a lock. The longer wait is outside of SQLite, where the call can be canceled: see
/// `prepared.rs`.
const BUSY: Duration = Duration::from_millis(20);
/// The number of statements that stay prepared on a connection.
const PREPARED: usize = 100;

/// A job for the connection's thread.
type Job = Box<dyn FnOnce(&Link) + Send>;

/// A handle to a connection. Dropping it stops the running statement and closes the connection.
pub(super) struct Session {
    jobs: SyncSender<Job>,
    stop: Arc<AtomicBool>,
}

/// The connection itself, which never leaves its thread.
pub(super) struct Link {
    pub(super) connection: Connection,
    guard: Guard,
    /// Device and inode. If another file replaces the file, it is another database.
    file: Option<(u64, u64)>,
    /// SQLite's own limit for the length of a value or row.
    longest: i32,
}

/// The path of the file, and whether it may be written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct DatabaseFile {
    pub(super) file: PathBuf,
    pub(super) writes: bool,
}

impl Session {
    /// Opens the file, which must exist.
    pub(super) async fn open(place: &DatabaseFile) -> Result<Self, Trouble> {
        let (jobs, queue) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let (opened, is_open) = oneshot::channel();
        let (place, stopped) = (place.clone(), stop.clone());
        let work = move || match Link::open(&place, stopped) {
            Ok(link) => {
                // If the send fails, the caller is gone. Its end of the queue is closed too, so `serve` returns at
                // once.
                let _ = opened.send(Ok(()));
                serve(&link, &queue);
            }
            Err(error) => drop(opened.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name("sql".into()).spawn(work);
        thread.map_err(|error| Trouble::lost(format!("no thread for a connection: {error}")))?;
        is_open.await.map_err(|_| Trouble::lost("a connection's thread ended"))??;
        Ok(Self { jobs, stop })
    }

    /// Runs a job on the connection's thread, and waits for its result.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Link) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let (done, is_done) = oneshot::channel();
        let job: Job = Box::new(move |link| drop(done.send(job(link))));
        // A session runs one job at a time, so the slot in the queue is free.
        self.jobs.try_send(job).map_err(|_| Trouble::lost("a connection's thread is gone"))?;
        is_done.await.map_err(|_| Trouble::lost("a connection's thread ended while its statement ran"))?
    }
}

/// Stops the running statement. Otherwise the thread would go on with it although the call has ended.
impl Drop for Session {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Runs jobs until the session is dropped.
fn serve(link: &Link, queue: &Receiver<Job>) {
    for job in queue {
        job(link);
    }
}

impl Link {
    fn open(place: &DatabaseFile, stop: Arc<AtomicBool>) -> Result<Self, rusqlite::Error> {
        let mode = if place.writes { OpenFlags::SQLITE_OPEN_READ_WRITE } else { OpenFlags::SQLITE_OPEN_READ_ONLY };
        let file = identity(&place.file);
        let connection = Connection::open_with_flags(&place.file, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(BUSY)?;
        connection.set_prepared_statement_cache_capacity(PREPARED);
        connection.progress_handler(OPERATIONS, Some(move || stop.load(Ordering::Relaxed)))?;
        connection.pragma_update(None, "foreign_keys", "on")?;
        if !place.writes {
            connection.pragma_update(None, "query_only", "on")?;
        }
        // The first access to the file: it fails if the file is not a database or is locked.
        connection.query_row("pragma schema_version", [], |row| row.get::<_, i64>(0))?;
        let guard = Guard::on(&connection)?;
        let longest = connection.limit(Limit::SQLITE_LIMIT_LENGTH)?;
        Ok(Self { connection, guard, file, longest })
    }

    /// Whether the file's path still leads to the open file.
    pub(super) fn is_current(&self, place: &DatabaseFile) -> bool {
        self.file.is_some() && self.file == identity(&place.file)
    }

    /// Prepares a tool's statement, or takes it from the cache of the connection. Refuses commands to the connection.
    pub(super) fn prepare(&self, sql: &str) -> Result<CachedStatement<'_>, Trouble> {
        self.guard.watch(|| self.connection.prepare_cached(sql))
    }

    /// Limits the length of each value and row of the next statement, in bytes. SQLite fails the statement before it
    /// allocates more. `None` sets SQLite's own limit.
    pub(super) fn limit_length(&self, bytes: Option<usize>) -> Result<(), rusqlite::Error> {
        let most = bytes.and_then(|bytes| i32::try_from(bytes).ok()).unwrap_or(self.longest);
        self.connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, most.min(self.longest))?;
        Ok(())
    }
}

fn identity(file: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(file).ok().map(|file| (file.dev(), file.ino()))
}
