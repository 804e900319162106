//! A connection to a SQLite file, and how its statement is stopped.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Column, ConnectOptions, Connection, Executor, SqlSafeStr, Statement};

/// SQLite looks this often, in its own operations, whether its statement is to stop: some microseconds of work.
const OPERATIONS: i32 = 1000;
/// Waiting for another process happens mostly outside of SQLite, where it can be given up: see `mod.rs`.
const BUSY: Duration = Duration::from_millis(20);
/// Rows that the connection's thread may be ahead.
const ROWS_AHEAD: usize = 16;

/// A connection.
pub(super) struct Session {
    pub(super) connection: SqliteConnection,
    stop: Arc<AtomicBool>,
    /// Device and inode: a file that was put in another's place is another database.
    file: Option<(u64, u64)>,
    schema: i64,
    /// Column names of the statements that were prepared here.
    columns: HashMap<Arc<str>, Arc<[String]>>,
}

/// Where the file is, and whether it may be written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    pub(super) writes: bool,
}

impl Session {
    /// Opens the file, which must be there.
    pub(super) async fn open(place: &Place) -> Result<Self, sqlx::Error> {
        let mut options = SqliteConnectOptions::new()
            .filename(&place.file)
            .read_only(!place.writes)
            .create_if_missing(false)
            .busy_timeout(BUSY)
            .row_buffer_size(ROWS_AHEAD)
            .thread_name(|number| format!("sql-{number}"))
            .disable_statement_logging();
        if !place.writes {
            options = options.pragma("query_only", "on");
        }
        let file = identity(&place.file);
        let mut connection = options.connect().await?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        connection.lock_handle().await?.set_progress_handler(OPERATIONS, move || !seen.load(Ordering::Relaxed));
        let schema = schema_version(&mut connection).await?;
        Ok(Self { connection, stop, file, schema, columns: HashMap::new() })
    }

    /// Whether it still leads to what the file's name stands for, with the schema that its statements were prepared for.
    /// When the schema changes SQLite prepares them again by itself, behind sqlx's back, which then counts on columns that
    /// are not there any more.
    pub(super) async fn is_current(&mut self, place: &Place) -> Result<bool, sqlx::Error> {
        let is_same_file = self.file.is_some() && self.file == identity(&place.file);
        Ok(is_same_file && schema_version(&mut self.connection).await? == self.schema)
    }

    /// The columns of a statement, which is prepared at the first use on this connection.
    pub(super) async fn columns(&mut self, sql: &Arc<str>) -> Result<Arc<[String]>, sqlx::Error> {
        if let Some(columns) = self.columns.get(sql) {
            return Ok(columns.clone());
        }
        let statement = (&mut self.connection).prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await?;
        let columns: Arc<[String]> = statement.columns().iter().map(|column| column.name().to_owned()).collect();
        self.columns.insert(sql.clone(), columns.clone());
        Ok(columns)
    }

    /// Stops what runs and waits until it has stopped; the connection can be used again.
    pub(super) async fn stop(&mut self) -> Result<(), sqlx::Error> {
        self.stop.store(true, Ordering::Relaxed);
        let stopped = self.connection.ping().await;
        self.stop.store(false, Ordering::Relaxed);
        stopped
    }
}

/// A connection that is closed has its statement stopped: its thread would otherwise go on with it for nobody.
impl Drop for Session {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn schema_version(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("pragma schema_version").fetch_one(connection).await
}

fn identity(file: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(file).ok().map(|file| (file.dev(), file.ino()))
}
