//! The connection that commits batches. It runs a whole script on a thread of its own, and answers
//! once.
//!
//! It is a connection of rusqlite. A connection of sqlx answers after each statement and wakes its
//! caller each time. These switches of threads cost more time than the statements of a commit. Rare
//! work stays on the writer's connection of sqlx. The writer never uses both at the same time.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use rusqlite::types::{FromSql, ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, params_from_iter};
use sqlx::error::{DatabaseError, ErrorKind};
use tokio::sync::oneshot;

use super::script::{Script, SqlValue, Statement};
use super::writer_settings::{BUSY_TIMEOUT, bound_size, name_process, writer_pragmas};

/// Maximum number of prepared statements. Rows of calls have one for each power of two up to the
/// longest batch, the rest is about 15 more.
const MAX_PREPARED: usize = 64;

/// A row that a script returned.
pub(super) struct ScriptRow(Vec<Value>);

impl ScriptRow {
    pub(super) fn get<T: FromSql>(&self, column: usize) -> Result<T, sqlx::Error> {
        let value = self.0.get(column).map_or(ValueRef::Null, ValueRef::from);
        T::column_result(value).map_err(|error| sqlx::Error::Decode(error.into()))
    }
}

type Reply = oneshot::Sender<Result<Vec<ScriptRow>, sqlx::Error>>;

/// The handle of the connection. The connection closes when it is dropped.
pub(super) struct BatchConnection {
    scripts: mpsc::SyncSender<(Script, Reply)>,
    closed: oneshot::Receiver<()>,
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
        let (scripts, waiting) = mpsc::sync_channel::<(Script, Reply)>(1);
        let (opened, is_open) = oneshot::channel();
        let (close, closed) = oneshot::channel();
        let serve = move || {
            let connection = match connect(&path, process, max_bytes) {
                Ok(connection) => connection,
                Err(error) => return drop(opened.send(Err(to_sqlx(error)))),
            };
            if opened.send(Ok(())).is_err() {
                return;
            }
            for (script, reply) in waiting {
                let _ = reply.send(run(&connection, &script.statements).map_err(to_sqlx));
            }
            drop(connection);
            let _ = close.send(());
        };
        let thread = thread::Builder::new().name("ledger-writer".into());
        thread.spawn(serve).map_err(sqlx::Error::Io)?;
        is_open.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))?;
        Ok(Self { scripts, closed })
    }

    /// Runs all statements. Returns the rows of all of them, in order. After an error the caller
    /// rolls back.
    pub(super) async fn run(&self, script: Script) -> Result<Vec<ScriptRow>, sqlx::Error> {
        if script.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        self.scripts
            .send((script, reply))
            .map_err(|_| sqlx::Error::WorkerCrashed)?;
        answer.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    /// Ends the transaction, if one is open.
    pub(super) async fn roll_back(&self) {
        let mut script = Script::default();
        script.add_statement("rollback");
        // Without a transaction, SQLite reports an error.
        let _ = self.run(script).await;
    }

    /// Closes the connection, and waits until it is closed.
    pub(super) async fn close(self) {
        drop(self.scripts);
        let _ = self.closed.await;
    }
}

fn connect(
    path: &Path,
    process: i64,
    max_bytes: Option<u64>,
) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(MAX_PREPARED);
    connection.execute_batch(&writer_pragmas())?;
    connection.execute_batch(&name_process(process))?;
    if let Some(max) = max_bytes {
        let page = connection.query_row("pragma page_size", [], |row| row.get(0))?;
        connection.execute_batch(&bound_size(max, page))?;
    }
    Ok(connection)
}

fn run(
    connection: &Connection,
    statements: &[Statement],
) -> Result<Vec<ScriptRow>, rusqlite::Error> {
    let mut rows = Vec::new();
    for statement in statements {
        let mut prepared = connection.prepare_cached(&statement.sql)?;
        let columns = prepared.column_count();
        let mut found = prepared.query(params_from_iter(&statement.values))?;
        while let Some(row) = found.next()? {
            let values = (0..columns).map(|column| row.get(column));
            rows.push(ScriptRow(values.collect::<Result<_, _>>()?));
        }
    }
    Ok(rows)
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Json(text) => ValueRef::Text(text.as_bytes()),
            Self::Word(word) => ValueRef::Text(word.as_bytes()),
            Self::Id(id) => ValueRef::Blob(id.as_bytes()),
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
