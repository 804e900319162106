//! Opens the file: sets its mode, takes its lock, migrates its schema, and settles calls that the
//! last process left open.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind as IoErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection, SqlitePool};

use super::super::sql::{Fetch, Sql};
use super::super::transfer::End;
use super::super::{Error, Settings, migrations};
use super::batch_connection::{self, BUSY_TIMEOUT, BatchConnection, writer_options};
use super::commit_marker::{self, CommitMarker, HeadFile, StoredMarker, with_suffix};
use super::fault::{error_reason, statement_error};
use super::processes::{self, ProcessLock};
use super::quota::{FIND_LOST_UNITS, LOSE_UNITS, SUM_DRIFT};
use super::{change, wal};
use crate::call::InvocationId;

/// Number of reading connections. A read takes microseconds; more connections would only hold file
/// handles.
const READER_CONNECTIONS: u32 = 3;
/// Files up to this size are checked page by page at the start, which takes up to about 150 ms.
const QUICK_CHECK_BYTES: u64 = 64 << 20;
/// Up to this size the check also compares indexes with their rows, which takes four times as long.
/// It matters because a call would run again if an index has lost its idempotency key.
const FULL_CHECK_BYTES: u64 = 16 << 20;
/// "TCRB", as the first migration writes it.
const APPLICATION_ID: i64 = 0x5443_5242;
pub(super) struct OpenedLedger {
    pub(super) connection: SqliteConnection,
    pub(super) batches: BatchConnection,
    pub(super) head: HeadFile,
    pub(super) readers: SqlitePool,
    pub(super) lock: File,
    pub(super) process: ProcessLock,
}

pub(super) async fn open_file(
    path: &Path,
    now: Timestamp,
    settings: &Settings,
) -> Result<OpenedLedger, Error> {
    let (lock, is_alone) = lock_new_or_existing(path, settings)?;
    if !is_alone {
        // Waits only while another process prepares the file, or moves it.
        share_lock(&lock, path)?;
    }
    let prepared = prepare_file(path, now, settings, is_alone).await?;
    let mut connection = prepared.connection;
    let process =
        ProcessLock::create(path).map_err(|error| Error::unusable(path.display(), error))?;
    let head = open_head(&mut connection, path, prepared.is_marked).await?;
    let batches = BatchConnection::open(path, process.number(), settings.max_bytes)
        .await
        .map_err(|error| unusable(path, &error))?;
    // From here on, other processes may open the file too.
    share_lock(&lock, path)?;
    Ok(OpenedLedger {
        connection,
        batches,
        head,
        readers: open_readers(path).await?,
        lock,
        process,
    })
}

/// A file that no other process can use before the lock is dropped.
pub(in crate::ledger) struct FileOfOne {
    path: PathBuf,
    connection: SqliteConnection,
    head: HeadFile,
    _lock: File,
}

#[async_trait]
impl End for FileOfOne {
    fn connection(&mut self) -> &mut dyn Fetch {
        &mut self.connection
    }

    fn explain(&self) -> fn(&sqlx::Error) -> Error {
        statement_error
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn describe(&self) -> String {
        format!("sqlite {}", self.place())
    }

    async fn begin(&mut self, _: Option<InvocationId>, _: Timestamp) -> sqlx::Result<()> {
        // Hours that were counted without calls.
        for sql in ["begin immediate", "delete from usage_hour"] {
            self.connection.execute(Sql::new(sql)).await?;
        }
        Ok(())
    }

    fn drift(&self) -> &'static str {
        SUM_DRIFT
    }

    async fn commit(&mut self) -> sqlx::Result<()> {
        let commits = commit_marker::commit(&mut self.connection).await?;
        self.head.record_commits(commits);
        wal::truncate_log(&mut self.connection).await
    }

    async fn close(self: Box<Self>) {
        let _ = self.connection.close().await;
    }
}

/// Opens the file as [`open_file`] does, and keeps all other processes out. Refuses a file that one of
/// them uses.
pub(in crate::ledger) async fn open_alone(
    path: &Path,
    now: Timestamp,
    settings: &Settings,
) -> Result<FileOfOne, Error> {
    let (lock, is_alone) = lock_new_or_existing(path, settings)?;
    if !is_alone {
        return Err(Error::InUse {
            place: path.display().to_string(),
            by: "a running process".into(),
        });
    }
    let prepared = prepare_file(path, now, settings, true).await?;
    let mut connection = prepared.connection;
    let head = open_head(&mut connection, path, prepared.is_marked).await?;
    Ok(FileOfOne {
        path: path.to_owned(),
        connection,
        head,
        _lock: lock,
    })
}

fn unusable(path: &Path, error: &sqlx::Error) -> Error {
    Error::unusable(path.display(), error_reason(error))
}

/// Takes the lock of the file, which is created if it does not exist. Returns whether no other process
/// uses the file.
fn lock_new_or_existing(path: &Path, settings: &Settings) -> Result<(File, bool), Error> {
    if !settings.accept_loss {
        check_orphaned_log(path)?;
    }
    create_file(path).map_err(|error| Error::unusable(path.display(), error))?;
    lock_file(path)
}

/// A file with the current schema.
struct PreparedFile {
    connection: SqliteConnection,
    /// Whether the ledger had its commit marker before.
    is_marked: bool,
}

/// Checks the file, migrates its schema and, if this process `is_alone`, settles the calls of ended
/// processes.
async fn prepare_file(
    path: &Path,
    now: Timestamp,
    settings: &Settings,
    is_alone: bool,
) -> Result<PreparedFile, Error> {
    // The order matters. All checks come first and change nothing in an existing file. A writing
    // connection opens only after them, because its closing could copy a damaged log into the
    // database. Rows of ended processes are settled before other processes may open the file.
    let explain = |error: sqlx::Error| unusable(path, &error);
    let is_marked =
        inspect_file(path, settings.accept_loss)
            .await
            .map_err(|error| match error {
                Error::Failed(reason) => Error::unusable(path.display(), reason),
                other => other,
            })?;
    let mut connection = SqliteConnection::connect_with(&writer_options(path))
        .await
        .map_err(explain)?;
    migrate_schema(&mut connection, path).await?;
    set_size_bound(&mut connection, settings.max_bytes)
        .await
        .map_err(explain)?;
    if is_alone {
        settle_interrupted(&mut connection, now)
            .await
            .map_err(explain)?;
        // The calls of all ended processes are settled.
        processes::find_ended(path)
            .iter()
            .for_each(ProcessLock::remove);
    }
    Ok(PreparedFile {
        connection,
        is_marked,
    })
}

/// Brings the schema up to date.
async fn migrate_schema(connection: &mut SqliteConnection, path: &Path) -> Result<(), Error> {
    let place = path.display().to_string();
    let known = migrations::newest_version(&migrations::sqlite());
    match Migrator::with_migrations(migrations::sqlite())
        .run_direct(None, connection, false)
        .await
    {
        Ok(()) => Ok(()),
        Err(MigrateError::VersionMissing(found)) => Err(Error::NewerSchema {
            place,
            found,
            known,
        }),
        Err(MigrateError::Execute(error)) => Err(Error::unusable(&place, error_reason(&error))),
        Err(error) => Err(Error::unusable(&place, error)),
    }
}

/// Opens the head file beside the database.
async fn open_head(
    connection: &mut SqliteConnection,
    path: &Path,
    is_marked: bool,
) -> Result<HeadFile, Error> {
    let explain = |error: sqlx::Error| unusable(path, &error);
    if !is_marked {
        // The new id must be in the database file itself. In the log only, it would be lost
        // together with the log, and the loss would go unnoticed.
        wal::truncate_log(connection).await.map_err(explain)?;
    }
    let marker = CommitMarker::read_from(connection).await.map_err(explain)?;
    let marker = marker
        .ok_or_else(|| Error::unusable(path.display(), "the table ledger_head is missing"))?;
    Ok(HeadFile::open(path, marker))
}

/// Refuses to start with a log whose database is missing. The log holds commits that a new database
/// would discard.
fn check_orphaned_log(path: &Path) -> Result<(), Error> {
    let log = with_suffix(path, "-wal");
    let has_log = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    if path.exists() || !has_log {
        return Ok(());
    }
    let log = log.display();
    let reason = format!(
        "the file is missing, but its write-ahead log {log} exists: put the file back, or remove the log too"
    );
    Err(Error::unusable(path.display(), reason))
}

/// Checks the file before any operation can change it. A writing connection would, when it closes,
/// copy a damaged log into the database and remove it. Returns whether the ledger has its commit
/// marker already.
async fn inspect_file(path: &Path, accept_loss: bool) -> Result<bool, Error> {
    // The head file is read before the database. In the opposite order, another process could
    // commit in between, and commits would seem to be missing.
    let stored_marker = StoredMarker::read(path);
    let mut connection = SqliteConnection::connect_with(&read_only_options(path))
        .await
        .map_err(|error| statement_error(&error))?;
    check_pages(&mut connection, path).await?;
    let is_empty = check_owner(&mut connection, path).await?;
    let marker = CommitMarker::read_from(&mut connection)
        .await
        .map_err(|error| statement_error(&error))?;
    let _ = connection.close().await;
    stored_marker.check(marker, is_empty, path, accept_loss)?;
    Ok(marker.is_some())
}

/// How an existing ledger is opened for reading. The journal mode is not set, because setting it
/// would be a write.
pub(super) fn read_only_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging()
}

/// A pool of connections that read an existing ledger.
pub(super) async fn open_readers(path: &Path) -> Result<SqlitePool, Error> {
    let pool = SqlitePoolOptions::new()
        .max_connections(READER_CONNECTIONS)
        .connect_with(read_only_options(path))
        .await;
    pool.map_err(|error| Error::unusable(path.display(), error_reason(&error)))
}

/// Checks that a file opened for reading is a ledger that this version understands.
pub(super) async fn check_readable(readers: &SqlitePool, path: &Path) -> Result<(), Error> {
    let place = || path.display().to_string();
    let mut connection = readers
        .acquire()
        .await
        .map_err(|e| Error::unusable(place(), error_reason(&e)))?;
    check_owner(&mut connection, path).await?;
    let newest = "select coalesce(max(version), 0) from _sqlx_migrations";
    let found: i64 = sqlx::query_scalar(newest)
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| Error::unusable(place(), error_reason(&error)))?;
    let known = migrations::newest_version(&migrations::sqlite());
    if found > known {
        Err(Error::NewerSchema {
            place: place(),
            found,
            known,
        })
    } else {
        Ok(())
    }
}

/// Creates the file so that only its owner can read it. SQLite gives its side files the same mode.
fn create_file(path: &Path) -> std::io::Result<()> {
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Err(error) if error.kind() != IoErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Every writing process holds a shared lock on a file beside the database. A process that gets the
/// lock exclusively knows that all rows still `reserved` belong to processes that have ended. It
/// keeps the exclusive lock until the file is ready, so that two processes that start together do
/// not both prepare it. (The lock needs a file of its own: closing any handle on the database
/// itself would drop SQLite's POSIX locks.)
fn lock_file(path: &Path) -> Result<(File, bool), Error> {
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(with_suffix(path, ".lock"));
    let file = open.map_err(|error| Error::unusable(path.display(), error))?;
    let is_alone = file.try_lock().is_ok();
    Ok((file, is_alone))
}

fn share_lock(lock: &File, path: &Path) -> Result<(), Error> {
    lock.lock_shared()
        .map_err(|error| Error::unusable(path.display(), error))
}

async fn check_pages(connection: &mut SqliteConnection, path: &Path) -> Result<(), Error> {
    let check = match std::fs::metadata(path).map_or(0, |meta| meta.len()) {
        bytes if bytes <= FULL_CHECK_BYTES => "pragma integrity_check(1)",
        bytes if bytes <= QUICK_CHECK_BYTES => "pragma quick_check(1)",
        _ => return Ok(()),
    };
    let place = path.display().to_string();
    let damaged = |what: String| {
        Error::unusable(
            &place,
            format!(
                "the file is damaged ({what}); it was left as it is: restore a backup or name another file"
            ),
        )
    };
    match sqlx::query_scalar::<_, String>(check)
        .fetch_one(connection)
        .await
    {
        Ok(verdict) if verdict == "ok" => Ok(()),
        Ok(verdict) => Err(damaged(
            verdict.lines().last().unwrap_or_default().to_owned(),
        )),
        Err(error) => Err(Error::unusable(&place, error_reason(&error))),
    }
}

/// Checks that a copy that was just written is a complete ledger. The error is the reason.
pub(super) async fn check_copy(connection: &mut SqliteConnection) -> Result<(), String> {
    let explain = |error: sqlx::Error| error_reason(&error);
    let id: i64 = sqlx::query_scalar("pragma application_id")
        .fetch_one(&mut *connection)
        .await
        .map_err(explain)?;
    let verdict: String = sqlx::query_scalar("pragma quick_check(1)")
        .fetch_one(connection)
        .await
        .map_err(explain)?;
    match (id, verdict.as_str()) {
        (APPLICATION_ID, "ok") => Ok(()),
        (APPLICATION_ID, found) => Err(format!("the copy is damaged ({found}) and was removed")),
        _ => Err("the copy is not a ledger and was removed".into()),
    }
}

/// Refuses a database that is not empty and not a ledger: it belongs to another program. Returns
/// whether it is empty.
async fn check_owner(connection: &mut SqliteConnection, path: &Path) -> Result<bool, Error> {
    let id: i64 = sqlx::query_scalar("pragma application_id")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| statement_error(&error))?;
    let tables = "select count(*) from sqlite_schema where name not like 'sqlite_%'";
    let tables: i64 = sqlx::query_scalar(tables)
        .fetch_one(connection)
        .await
        .map_err(|error| statement_error(&error))?;
    if id == APPLICATION_ID || tables == 0 {
        return Ok(tables == 0);
    }
    let reason = "the file is another program's database; it was left as it is: name another file";
    Err(Error::unusable(path.display(), reason))
}

/// Sets the bound that SQLite itself enforces from here on. A file that is already longer keeps its
/// length.
async fn set_size_bound(
    connection: &mut SqliteConnection,
    max_bytes: Option<u64>,
) -> Result<(), sqlx::Error> {
    let Some(max) = max_bytes else { return Ok(()) };
    let page: i64 = sqlx::query_scalar("pragma page_size")
        .fetch_one(&mut *connection)
        .await?;
    sqlx::query(AssertSqlSafe(batch_connection::bound_size(max, page)))
        .execute(connection)
        .await
        .map(drop)
}

/// Settles calls that an ended process left reserved. Whether they had an effect is unknown, so
/// they stay charged. A write keeps its idempotency key, so it never runs again with that key.
/// Other calls release their keys. Units that the process had set aside stay used as well.
async fn settle_interrupted(
    connection: &mut SqliteConnection,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let mut change = connection.begin_with("begin immediate").await?;
    let found = change::settle_calls(&mut change, None, now).await?;
    let lost = sqlx::query_as::<_, (String, String, String, i64)>(FIND_LOST_UNITS)
        .fetch_all(&mut *change)
        .await?;
    sqlx::query(LOSE_UNITS).execute(&mut *change).await?;
    change.commit().await?;
    for (tool, caller, per, lost_units) in lost {
        tracing::warn!(
            tool,
            caller,
            per,
            lost_units,
            "units of a limit that an ended process had set aside stay used"
        );
    }
    if found > 0 {
        tracing::warn!(
            calls = found,
            "calls that were interrupted are now `unknown`"
        );
    }
    let expired = sqlx::query("delete from stored_result where expires_at <= ?")
        .bind(now.as_millisecond())
        .execute(connection)
        .await?
        .rows_affected();
    tracing::debug!(results = expired, "expired results deleted");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn size_bound_is_set_in_pages() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let pages = async |connection: &mut SqliteConnection| {
            sqlx::query_scalar::<_, i64>("pragma max_page_count")
                .fetch_one(connection)
                .await
                .unwrap()
        };
        let unbounded = pages(&mut connection).await;
        set_size_bound(&mut connection, None).await.unwrap();
        assert_eq!(pages(&mut connection).await, unbounded);
        set_size_bound(&mut connection, Some(4 << 20))
            .await
            .unwrap();
        assert_eq!(pages(&mut connection).await, 1024);
    }
}
