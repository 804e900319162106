//! The connection that commits batches. It runs a whole script on a thread of its own, and answers
//! once.
//!
//! It is a connection of rusqlite. A connection of sqlx answers after each statement and wakes its
//! caller each time. These switches of threads cost more time than the statements of a commit. Rare
//! work stays on the writer's connection of sqlx. The writer never uses both at the same time.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::iter;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, Row, ToSql, params_from_iter};
use sqlx::ConnectOptions;
use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::sync::oneshot;

use super::super::sql::{SqlRow, SqlValue};
use super::script::{Script, Statement};

/// Maximum number of prepared statements. Each of the four statements with bound rows has one for
/// each power of two up to the longest batch, the rest is about 15 more.
const MAX_PREPARED: usize = 64;
/// Changes when another connection has changed the file (SQLite, "PRAGMA data_version").
const READ_VERSION: &str = "pragma data_version";

/// How a script starts.
#[derive(Clone, Copy, Default)]
pub(super) enum Start {
    /// In the transaction that is open.
    #[default]
    Continue,
    /// With a new transaction.
    Begin,
    /// With a new transaction. Fails and leaves it open if another connection has changed the file
    /// since the last one began.
    BeginUnchanged,
}

/// Another connection has changed the file, so what is known of its content may be wrong.
#[derive(Debug, thiserror::Error)]
#[error("another connection has changed the ledger")]
struct ChangedFile;

/// Whether a [`Start::BeginUnchanged`] has failed.
pub(super) fn is_changed_file(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::AnyDriverError(error) if error.is::<ChangedFile>())
}

type Reply = oneshot::Sender<Result<Vec<SqlRow>, sqlx::Error>>;
type Work = (Start, Script, Reply);

/// The handle of the connection. The connection closes when it is dropped.
pub(super) struct BatchConnection {
    work: mpsc::SyncSender<Work>,
    closed: oneshot::Receiver<()>,
    /// The number of this process.
    pub(super) process: i64,
}

impl BatchConnection {
    /// Opens an existing file for the process with this number.
    pub(super) async fn open(
        path: &Path,
        process: i64,
        max_bytes: Option<u64>,
    ) -> Result<Self, sqlx::Error> {
        let path = path.to_owned();
        // The writer sends the next script after the answer, so it never waits for room.
        let (work, waiting) = mpsc::sync_channel::<Work>(1);
        let (opened, is_open) = oneshot::channel();
        let (close, closed) = oneshot::channel();
        let serve = move || {
            let connection = match connect(&path, max_bytes) {
                Ok(connection) => connection,
                Err(error) => return drop(opened.send(Err(to_sqlx(error)))),
            };
            if opened.send(Ok(())).is_err() {
                return;
            }
            let mut version = 0;
            let next = || match waiting.recv_timeout(CACHE_TIME) {
                Err(RecvTimeoutError::Timeout) => {
                    let _ = connection.release_memory();
                    waiting.recv().ok()
                }
                received => received.ok(),
            };
            for (start, script, reply) in iter::from_fn(next) {
                let answer = begin(&connection, start, &mut version).and_then(|()| {
                    let rows = run(&connection, &script.statements);
                    rows.map_err(to_sqlx)
                });
                let _ = reply.send(answer);
            }
            drop(connection);
            let _ = close.send(());
        };
        let thread = thread::Builder::new().name("ledger-writer".into());
        thread.spawn(serve).map_err(sqlx::Error::Io)?;
        is_open.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))?;
        Ok(Self {
            work,
            closed,
            process,
        })
    }

    /// Runs all statements. Returns the rows of all of them, in order. After an error the caller
    /// rolls back.
    pub(super) async fn run(
        &self,
        start: Start,
        script: Script,
    ) -> Result<Vec<SqlRow>, sqlx::Error> {
        let (reply, answer) = oneshot::channel();
        self.work
            .send((start, script, reply))
            .map_err(|_| sqlx::Error::WorkerCrashed)?;
        answer.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    /// Ends the transaction, if one is open.
    pub(super) async fn roll_back(&self) {
        let mut script = Script::default();
        script.add_statement("rollback");
        // Without a transaction, SQLite reports an error.
        let _ = self.run(Start::Continue, script).await;
    }

    /// Closes the connection, and waits until it is closed.
    pub(super) async fn close(self) {
        drop(self.work);
        let _ = self.closed.await;
    }
}

fn connect(path: &Path, max_bytes: Option<u64>) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(MAX_PREPARED);
    connection.execute_batch(&writer_pragmas())?;
    if let Some(max) = max_bytes {
        let page = connection.query_row("pragma page_size", [], |row| row.get(0))?;
        connection.execute_batch(&bound_size(max, page))?;
    }
    Ok(connection)
}

/// Starts a script. `version` is that of the file when the last transaction began.
fn begin(connection: &Connection, start: Start, version: &mut i64) -> Result<(), sqlx::Error> {
    let read = || {
        connection.prepare_cached("begin immediate")?.execute([])?;
        let mut version = connection.prepare_cached(READ_VERSION)?;
        version.query_row([], |row| row.get(0))
    };
    let known = match start {
        Start::Continue => return Ok(()),
        Start::Begin => None,
        Start::BeginUnchanged => Some(*version),
    };
    *version = read().map_err(to_sqlx)?;
    match known {
        Some(known) if known != *version => Err(sqlx::Error::AnyDriverError(Box::new(ChangedFile))),
        _ => Ok(()),
    }
}

fn run(connection: &Connection, statements: &[Statement]) -> Result<Vec<SqlRow>, rusqlite::Error> {
    let mut rows = Vec::new();
    for statement in statements {
        let mut prepared = connection.prepare_cached(&statement.sql)?;
        let columns = prepared.column_count();
        let mut found = prepared.query(params_from_iter(&statement.values))?;
        while let Some(row) = found.next()? {
            rows.push(to_row(row, columns));
        }
    }
    Ok(rows)
}

/// The row in the form of no engine.
fn to_row(row: &Row<'_>, columns: usize) -> SqlRow {
    let value = |at| match row.get_ref(at) {
        Ok(ValueRef::Null) => SqlValue::Null,
        Ok(ValueRef::Integer(number)) => SqlValue::Integer(number),
        Ok(ValueRef::Text(text)) => match str::from_utf8(text) {
            Ok(text) => SqlValue::Text(text.into()),
            Err(_) => SqlValue::Unreadable,
        },
        Ok(ValueRef::Blob(bytes)) => SqlValue::from_bytes(bytes),
        Ok(ValueRef::Real(_)) | Err(_) => SqlValue::Unreadable,
    };
    SqlRow((0..columns).map(value).collect())
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null | Self::Unreadable => ValueRef::Null,
            Self::Bool(flag) => ValueRef::Integer((*flag).into()),
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Owned(text) => ValueRef::Text(text.as_bytes()),
            Self::Word(word) => ValueRef::Text(word.as_bytes()),
            Self::Id(id) => ValueRef::Blob(id.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// An error of SQLite that rusqlite reports. As an error of sqlx, it is classified like all others
/// (`fault.rs`).
#[derive(Debug, thiserror::Error)]
#[error("(code: {code}) {message}")]
struct SqliteFailure {
    /// The extended result code.
    code: i32,
    message: String,
}

impl DatabaseError for SqliteFailure {
    fn message(&self) -> &str {
        &self.message
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.code.to_string().into())
    }

    fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

fn to_sqlx(error: rusqlite::Error) -> sqlx::Error {
    match error {
        rusqlite::Error::SqliteFailure(failure, message) => {
            sqlx::Error::Database(Box::new(SqliteFailure {
                code: failure.extended_code,
                message: message.unwrap_or_else(|| failure.to_string()),
            }))
        }
        other => sqlx::Error::Protocol(other.to_string()),
    }
}

/// How long a statement waits for another process that writes.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of the log's file when the log restarts, in bytes: 16 MiB.
const MAX_LOG_BYTES: &str = "16777216";

/// Maximum memory for pages, in KiB. Rows of many callers and tools go to as many places of each
/// index. With SQLite's default of 2 MB, each commit would read these pages again.
const CACHE_KIB: u32 = 32_000;
/// How long these pages stay in memory without work. Afterwards they are read from the file again,
/// most of them from the system's memory.
const CACHE_TIME: Duration = Duration::from_secs(5);

/// For the connection of sqlx.
pub(super) fn writer_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        // The writer makes the checkpoints; see `wal.rs`.
        .pragma("wal_autocheckpoint", "0")
        // A long read can make the log long. When the log restarts, its file is cut to this length.
        .pragma("journal_size_limit", MAX_LOG_BYTES)
        .disable_statement_logging()
}

/// For the connection of rusqlite, which opens a file that has its journal mode already. While a
/// statement runs, SQLite keeps the old content of the pages that it changes. For more than 16 pages
/// this is a temporary file, unless `temp_store` is memory.
fn writer_pragmas() -> String {
    format!(
        "pragma synchronous = full; pragma foreign_keys = on; pragma wal_autocheckpoint = 0; \
         pragma temp_store = memory; \
         pragma journal_size_limit = {MAX_LOG_BYTES}; pragma cache_size = -{CACHE_KIB}"
    )
}

/// Sets the bound that SQLite itself enforces.
pub(super) fn bound_size(max_bytes: u64, page_size: i64) -> String {
    // SQLite counts pages in 32 bits.
    let pages = (max_bytes / page_size.unsigned_abs().max(1)).clamp(1, 0xffff_fffe);
    format!("pragma max_page_count = {pages}")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn open(folder: &tempfile::TempDir) -> (BatchConnection, Connection) {
        let path = folder.path().join("x.db");
        let other = Connection::open(&path).unwrap();
        let prepare = "pragma journal_mode = wal; create table t (x integer)";
        other.execute_batch(prepare).unwrap();
        let batches = BatchConnection::open(&path, 1, None).await.unwrap();
        (batches, other)
    }

    async fn insert(batches: &BatchConnection, start: Start) -> Result<(), sqlx::Error> {
        let mut script = Script::default();
        script.add_statement("insert into t values (1)");
        script.add_statement("commit");
        batches.run(start, script).await.map(drop)
    }

    #[tokio::test]
    async fn change_by_another_connection_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let (batches, other) = open(&folder).await;
        insert(&batches, Start::Begin).await.unwrap();
        for _ in 0..3 {
            insert(&batches, Start::BeginUnchanged).await.unwrap();
        }
        other.execute_batch("insert into t values (2)").unwrap();
        let changed = insert(&batches, Start::BeginUnchanged).await.unwrap_err();
        assert!(is_changed_file(&changed), "{changed}");
        insert(&batches, Start::Continue).await.unwrap();
        insert(&batches, Start::BeginUnchanged).await.unwrap();
        let count = other.query_row("select count(*) from t", [], |row| row.get(0));
        assert_eq!(count, Ok(7));
        batches.close().await;
    }

    #[tokio::test]
    async fn other_failures_are_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let (batches, _other) = open(&folder).await;
        let mut script = Script::default();
        script.add_statement("select * from nowhere");
        let failed = batches.run(Start::Begin, script).await;
        assert!(failed.is_err_and(|error| !is_changed_file(&error)));
        assert!(!is_changed_file(&sqlx::Error::RowNotFound));
    }

    /// 3.51.3 is the first SQLite without the WAL-reset corruption bug (sqlite.org, release 3.51.3). The
    /// program contains its SQLite, so this needs no check at the start.
    #[test]
    fn sqlite_has_no_wal_reset_bug() {
        assert!(rusqlite::version_number() >= 3_051_003);
    }
}
