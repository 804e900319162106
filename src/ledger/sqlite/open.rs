//! Opens the file: sets its mode, takes its lock, migrates its schema, and settles calls that the last process left
//! open.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind as IoErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqlStr, SqliteConnection, SqlitePool};

use super::super::{Error, Row, Settings};
use super::commit_marker::{CommitMarker, Head, StoredMarker};
use super::fault::{failed, reason};
use super::wal;
use crate::call::KEY_KEPT;

/// Number of reading connections. A read takes microseconds; more connections would only hold file handles.
const READERS: u32 = 4;
/// How long a statement waits for another process that writes.
const BUSY: Duration = Duration::from_secs(5);
/// Maximum length of the log's file when the log restarts, in bytes: 16 MiB.
const LOG_KEPT: &str = "16777216";
/// Files up to this size are checked page by page at the start, which takes up to about 150 ms.
const CHECKED_SIZE: u64 = 64 << 20;
/// Up to this size the check also compares indexes with their rows, which takes four times as long. It matters because
/// a call would run again if an index has lost its idempotency key.
const COMPARED_SIZE: u64 = 16 << 20;
/// "TCRB", as the first migration writes it.
const APPLICATION_ID: i64 = 0x5443_5242;
/// First SQLite without the WAL-reset corruption bug (sqlite.org, release 3.51.3).
const OLDEST_SQLITE: (u32, u32, u32) = (3, 51, 3);

pub(super) struct Opened {
    pub(super) connection: SqliteConnection,
    pub(super) head: Head,
    pub(super) readers: SqlitePool,
    pub(super) lock: File,
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY)
        .foreign_keys(true)
        // The writer makes the checkpoints; see `wal.rs`.
        .pragma("wal_autocheckpoint", "0")
        // A long read can make the log long. When the log restarts, its file is cut to this length.
        .pragma("journal_size_limit", LOG_KEPT)
        .disable_statement_logging()
}

pub(super) async fn open(path: &Path, now: Timestamp, settings: &Settings) -> Result<Opened, Error> {
    let accept_loss = settings.accept_loss;
    let place = || path.display().to_string();
    // The order matters. All checks come first and change nothing in an existing file. A writing connection opens only
    // after them, because its closing could copy a damaged log into the database. Rows of ended processes are settled
    // before other processes may open the file.
    if !accept_loss {
        check_log_left(path)?;
    }
    create(path).map_err(|error| Error::Open { place: place(), reason: error.to_string() })?;
    let (lock, alone) = lock(path)?;
    let explain = |error: sqlx::Error| Error::Open { place: place(), reason: reason(&error) };
    let is_marked = look(path, accept_loss).await.map_err(|error| match error {
        Error::Failed(reason) => Error::Open { place: place(), reason },
        other => other,
    })?;
    let mut connection = SqliteConnection::connect_with(&options(path)).await.map_err(explain)?;
    migrate(&mut connection, path).await?;
    bound(&mut connection, settings.max_bytes).await.map_err(explain)?;
    if alone {
        settle_interrupted(&mut connection, now).await.map_err(explain)?;
    }
    if !is_marked {
        // The new id must be in the database file itself. In the log only, it would be lost together with the log, and
        // the loss would go unnoticed.
        wal::empty(&mut connection).await.map_err(explain)?;
    }
    let mark = CommitMarker::of(&mut connection).await.map_err(explain)?;
    let mark = mark.ok_or_else(|| Error::Open { place: place(), reason: "it has no ledger_head".into() })?;
    let head = Head::open(path, mark);
    // From here on, other processes may open the file too.
    lock.lock_shared().map_err(|error| Error::Open { place: place(), reason: error.to_string() })?;
    Ok(Opened { connection, head, readers: readers(path).await?, lock })
}

/// Refuses to start with a log whose database is missing. The log holds commits that a new database would discard.
fn check_log_left(path: &Path) -> Result<(), Error> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let is_left = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    if path.exists() || !is_left {
        return Ok(());
    }
    let log = Path::new(&log).display();
    let reason = format!("the file is gone, and its write-ahead log {log} is not: put it back, or remove that too");
    Err(Error::Open { place: path.display().to_string(), reason })
}

/// Checks the file before any operation can change it. A writing connection would, when it closes, copy a damaged log
/// into the database and remove it. Returns whether the ledger has its head mark already.
async fn look(path: &Path, accept_loss: bool) -> Result<bool, Error> {
    // The head file is read before the database. In the opposite order, another process could commit in between, and
    // commits would seem to be missing.
    let found = StoredMarker::beside(path);
    let mut connection = SqliteConnection::connect_with(&reading(path)).await.map_err(|error| failed(&error))?;
    check_version(&mut connection).await?;
    check_pages(&mut connection, path).await?;
    let is_empty = check_owner(&mut connection, path).await?;
    let mark = CommitMarker::of(&mut connection).await.map_err(|error| failed(&error))?;
    let _ = connection.close().await;
    found.check(mark, is_empty, path, accept_loss)?;
    Ok(mark.is_some())
}

/// How an existing ledger is opened for reading. The journal mode is not set, because setting it would be a write.
pub(super) fn reading(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).read_only(true).busy_timeout(BUSY).disable_statement_logging()
}

/// A pool of connections that read an existing ledger.
pub(super) async fn readers(path: &Path) -> Result<SqlitePool, Error> {
    let pool = SqlitePoolOptions::new().max_connections(READERS).connect_with(reading(path)).await;
    pool.map_err(|error| Error::Open { place: path.display().to_string(), reason: reason(&error) })
}

/// Checks that a file opened for reading is a ledger that this version understands.
pub(super) async fn check_readable(readers: &SqlitePool, path: &Path) -> Result<(), Error> {
    let place = || path.display().to_string();
    let mut connection = readers.acquire().await.map_err(|e| Error::Open { place: place(), reason: reason(&e) })?;
    check_owner(&mut connection, path).await?;
    let newest = "select coalesce(max(version), 0) from _sqlx_migrations";
    let found: i64 = sqlx::query_scalar(newest)
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| Error::Open { place: place(), reason: reason(&error) })?;
    let known = migrations().iter().map(|migration| migration.version).max().unwrap_or(0);
    if found > known { Err(Error::Newer { place: place(), found, known }) } else { Ok(()) }
}

/// Creates the file so that only its owner can read it. SQLite gives its side files the same mode.
fn create(path: &Path) -> std::io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != IoErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Every writing process holds a shared lock on a file beside the database. A process that gets the lock exclusively
/// knows that all rows still `reserved` belong to processes that have ended. It keeps the exclusive lock until the file
/// is ready, so that two processes that start together do not both prepare it. (The lock needs a file of its own:
/// closing any handle on the database itself would drop SQLite's POSIX locks.)
fn lock(path: &Path) -> Result<(File, bool), Error> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&beside);
    let fail = |error: std::io::Error| Error::Open { place: path.display().to_string(), reason: error.to_string() };
    let file = open.map_err(fail)?;
    let alone = file.try_lock().is_ok();
    if !alone {
        // Waits only while another process prepares the file.
        file.lock_shared().map_err(fail)?;
    }
    Ok((file, alone))
}

async fn check_version(connection: &mut SqliteConnection) -> Result<(), Error> {
    let version: String =
        sqlx::query_scalar("select sqlite_version()").fetch_one(connection).await.map_err(|error| failed(&error))?;
    if is_old(&version) { Err(Error::OldSqlite(version)) } else { Ok(()) }
}

fn is_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next()) < OLDEST_SQLITE
}

async fn check_pages(connection: &mut SqliteConnection, path: &Path) -> Result<(), Error> {
    let check = match std::fs::metadata(path).map_or(0, |meta| meta.len()) {
        bytes if bytes <= COMPARED_SIZE => "pragma integrity_check(1)",
        bytes if bytes <= CHECKED_SIZE => "pragma quick_check(1)",
        _ => return Ok(()),
    };
    let place = path.display().to_string();
    let damaged = |what: String| Error::Open {
        place: place.clone(),
        reason: format!("the file is damaged ({what}); it was left as it is: restore a backup or name another file"),
    };
    match sqlx::query_scalar::<_, String>(check).fetch_one(connection).await {
        Ok(verdict) if verdict == "ok" => Ok(()),
        Ok(verdict) => Err(damaged(verdict.lines().last().unwrap_or_default().to_owned())),
        Err(error) => Err(Error::Open { place: place.clone(), reason: reason(&error) }),
    }
}

/// Checks that a copy that was just written is a complete ledger. The error is the reason.
pub(super) async fn check_copy(connection: &mut SqliteConnection) -> Result<(), String> {
    let ask = |error: sqlx::Error| reason(&error);
    let id: i64 = sqlx::query_scalar("pragma application_id").fetch_one(&mut *connection).await.map_err(ask)?;
    let verdict: String = sqlx::query_scalar("pragma quick_check(1)").fetch_one(connection).await.map_err(ask)?;
    match (id, verdict.as_str()) {
        (APPLICATION_ID, "ok") => Ok(()),
        (APPLICATION_ID, found) => Err(format!("the copy is damaged ({found}) and was removed")),
        _ => Err("the copy is no ledger and was removed".into()),
    }
}

/// Refuses a database that is not empty and not a ledger: it belongs to another program. Returns whether it is empty.
async fn check_owner(connection: &mut SqliteConnection, path: &Path) -> Result<bool, Error> {
    let id: i64 = sqlx::query_scalar("pragma application_id")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| failed(&error))?;
    let tables = "select count(*) from sqlite_schema where name not like 'sqlite_%'";
    let tables: i64 = sqlx::query_scalar(tables).fetch_one(connection).await.map_err(|error| failed(&error))?;
    if id == APPLICATION_ID || tables == 0 {
        return Ok(tables == 0);
    }
    let reason = "the file is another program's database; it was left as it is: name another file".into();
    Err(Error::Open { place: path.display().to_string(), reason })
}

/// The migrations, embedded without sqlx's macros, which would compile all of sqlx a second time.
fn migrations() -> Vec<Migration> {
    let embed = |version, name: &'static str, sql: &'static str| {
        Migration::new(version, name.into(), MigrationType::Simple, SqlStr::from_static(sql), false)
    };
    vec![
        embed(1, "ledger", include_str!("../../../migrations/sqlite/0001_ledger.sql")),
        embed(2, "totals", include_str!("../../../migrations/sqlite/0002_totals.sql")),
        embed(3, "registered_tool", include_str!("../../../migrations/sqlite/0003_registered_tool.sql")),
        embed(4, "idempotency", include_str!("../../../migrations/sqlite/0004_idempotency.sql")),
        embed(5, "damage", include_str!("../../../migrations/sqlite/0005_damage.sql")),
        embed(6, "parent", include_str!("../../../migrations/sqlite/0006_parent.sql")),
        embed(7, "size", include_str!("../../../migrations/sqlite/0007_size.sql")),
    ]
}

async fn migrate(connection: &mut SqliteConnection, path: &Path) -> Result<(), Error> {
    let place = path.display().to_string();
    let known = migrations().iter().map(|migration| migration.version).max().unwrap_or(0);
    match Migrator::with_migrations(migrations()).run_direct(None, connection, false).await {
        Ok(()) => Ok(()),
        Err(sqlx::migrate::MigrateError::VersionMissing(found)) => Err(Error::Newer { place, found, known }),
        Err(sqlx::migrate::MigrateError::Execute(error)) => Err(Error::Open { place, reason: reason(&error) }),
        Err(error) => Err(Error::Open { place, reason: error.to_string() }),
    }
}

/// Sets the bound that SQLite itself enforces from here on. A file that is already longer keeps its length.
async fn bound(connection: &mut SqliteConnection, max_bytes: Option<u64>) -> Result<(), sqlx::Error> {
    let Some(max) = max_bytes else { return Ok(()) };
    let page: i64 = sqlx::query_scalar("pragma page_size").fetch_one(&mut *connection).await?;
    // SQLite counts pages in 32 bits.
    let pages = (max / page.unsigned_abs().max(1)).clamp(1, 0xffff_fffe);
    let sql = format!("pragma max_page_count = {pages}");
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

/// Settles calls that an ended process left reserved. Whether they had an effect is unknown, so they stay charged. A
/// write keeps its idempotency key, so it never runs again with that key. Other calls release their keys.
async fn settle_interrupted(connection: &mut SqliteConnection, now: Timestamp) -> Result<(), sqlx::Error> {
    let counted = "update usage_total set failed = failed + open.calls from \
        (select caller, tool, count(*) as calls from invocation where state = 'reserved' group by caller, tool) as open \
        where usage_total.caller = open.caller and usage_total.tool = open.tool";
    let settled = "update invocation set state = 'unknown', \
        key_until = iif(effect = 'write' and key_until is not null, ?, null) where state = 'reserved'";
    let key_until = now.checked_add(KEY_KEPT).unwrap_or(Row::FOREVER).as_millisecond();
    let mut change = connection.begin_with("begin immediate").await?;
    sqlx::query(counted).execute(&mut *change).await?;
    let found = sqlx::query(settled).bind(key_until).execute(&mut *change).await?.rows_affected();
    change.commit().await?;
    if found > 0 {
        tracing::warn!(calls = found, "calls that were interrupted are now `unknown`");
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

    #[test]
    fn old_releases_of_sqlite_are_refused() {
        for (version, old) in
            [("3.51.2", true), ("3.51.3", false), ("3.51", true), ("3.9.9", true), ("3.60.0", false), ("4.0.0", false)]
        {
            assert_eq!(is_old(version), old, "{version}");
        }
    }

    #[tokio::test]
    async fn the_bound_is_a_number_of_pages() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let pages = async |connection: &mut SqliteConnection| {
            sqlx::query_scalar::<_, i64>("pragma max_page_count").fetch_one(connection).await.unwrap()
        };
        let unbounded = pages(&mut connection).await;
        bound(&mut connection, None).await.unwrap();
        assert_eq!(pages(&mut connection).await, unbounded);
        bound(&mut connection, Some(4 << 20)).await.unwrap();
        assert_eq!(pages(&mut connection).await, 1024);
    }
}
