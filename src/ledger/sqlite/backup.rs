//! A copy of the ledger while it is written to.
//!
//! `VACUUM INTO` reads one snapshot and holds nobody up: in WAL mode readers and the writer do not wait for each other.
//! What it costs is room: the write-ahead log cannot be begun anew while the snapshot is read. The copy has its name
//! only when it is whole, checked and on disk.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use uuid::Uuid;

use super::super::Error;
use super::head::{self, Mark};
use super::{fault, open};

/// SQLite asks about every so many of its instructions whether to go on: some milliseconds apart.
const ASK_EVERY: i32 = 100_000;

/// Copies the ledger `from` to the new file `to`; says how large it is, in bytes. Dropped before its end it stops
/// SQLite and leaves nothing behind.
pub(super) async fn backup(from: &Path, to: &Path) -> Result<u64, Error> {
    let to = std::path::absolute(to).map_err(|error| refused(to, error))?;
    if to.symlink_metadata().is_ok() {
        return Err(refused(&to, "it is there already, and is never overwritten: name another file"));
    }
    if OWN_FILES.iter().any(|suffix| same(&to, &beside(from, suffix))) {
        return Err(refused(
            &to,
            "SQLite takes a file of this name for a part of the ledger itself: name another file",
        ));
    }
    remove_leftovers(&to);
    let copy = Partial::create(&to)?;
    let Some(name) = copy.path.to_str() else { return Err(refused(&to, "a name in UTF-8 is needed")) };

    let mut connection = connect(from, &to, &copy.stop).await?;
    let copied = sqlx::query("vacuum into ?").bind(name).execute(&mut connection).await;
    copied.map_err(|error| refused(&to, fault::reason(&error)))?;
    let _ = connection.close().await;

    let mut written = connect(&copy.path, &to, &copy.stop).await?;
    open::check_copy(&mut written).await.map_err(|reason| refused(&to, reason))?;
    let _ = written.close().await;
    begin_anew(&copy.path).await.map_err(|error| refused(&to, fault::reason(&error)))?;
    copy.finish(&to).await
}

/// What stands beside a ledger's name in the names of its own files.
const OWN_FILES: [&str; 5] = ["-wal", "-shm", "-journal", ".lock", ".head"];

/// Whether two names, of files that need not be there, are one.
fn same(one: &Path, other: &Path) -> bool {
    let folder = |path: &Path| std::path::absolute(path).ok()?.parent()?.canonicalize().ok();
    one.file_name() == other.file_name() && folder(one) == folder(other)
}

fn refused(to: &Path, reason: impl ToString) -> Error {
    Error::Backup { place: to.display().to_string(), reason: reason.to_string() }
}

/// A connection that only reads `file` and gives up when it is told to.
async fn connect(file: &Path, to: &Path, stop: &Arc<AtomicBool>) -> Result<SqliteConnection, Error> {
    let explain = |error: sqlx::Error| refused(to, format!("{}: {}", file.display(), fault::reason(&error)));
    let mut connection = SqliteConnection::connect_with(&open::reading(file)).await.map_err(explain)?;
    let stop = stop.clone();
    let mut handle = connection.lock_handle().await.map_err(explain)?;
    handle.set_progress_handler(ASK_EVERY, move || !stop.load(Ordering::Relaxed));
    drop(handle);
    Ok(connection)
}

/// Makes the copy a ledger of its own. It is nobody's yet: it needs no journal, and is brought to disk afterwards.
async fn begin_anew(copy: &Path) -> Result<(), sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(copy)
        .journal_mode(SqliteJournalMode::Off)
        .synchronous(SqliteSynchronous::Off)
        .disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await?;
    // A ledger of an older release has no mark yet.
    if Mark::of(&mut connection).await?.is_some() {
        sqlx::query(head::ANEW).execute(&mut connection).await?;
    }
    connection.close().await
}

/// The copy under its working name; removed unless it is finished.
struct Partial {
    path: PathBuf,
    /// Locked for as long as the copy is being made: a process that was killed holds no lock.
    _lock: File,
    stop: Arc<AtomicBool>,
    finished: bool,
}

impl Partial {
    /// Makes the empty file, readable for its owner alone: SQLite writes into it and leaves its mode as it is. Its name
    /// is its own: SQLite may be busy with an earlier one for a moment after that was given up.
    fn create(to: &Path) -> Result<Self, Error> {
        loop {
            let path = beside(to, &format!(".{}{PARTIAL}", Uuid::now_v7().simple()));
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let file = made.map_err(|error| refused(to, error))?;
            // Where files cannot be locked, nobody takes the file for a leftover either.
            let is_free = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            // Another backup may have taken it for a leftover in between.
            if is_free && path.symlink_metadata().is_ok() {
                return Ok(Self { path, _lock: file, stop: Arc::default(), finished: false });
            }
        }
    }

    /// Brings the copy to disk and gives it its name.
    async fn finish(mut self, to: &Path) -> Result<u64, Error> {
        let path = self.path.clone();
        let sync = move || {
            let file = File::open(path)?;
            file.sync_all()?;
            file.metadata().map(|found| found.len())
        };
        let failed = |error: std::io::Error| refused(to, error);
        let bytes = tokio::task::spawn_blocking(sync).await.map_err(|error| refused(to, error))?.map_err(failed)?;
        match renameat_with(CWD, &self.path, CWD, to, RenameFlags::NOREPLACE) {
            // Not every file system can promise not to overwrite.
            Err(Errno::INVAL | Errno::NOSYS) if to.symlink_metadata().is_err() => fs::rename(&self.path, to),
            done => done.map_err(Into::into),
        }
        .map_err(failed)?;
        self.finished = true;
        // The name is there after a power cut only once the folder is on disk too.
        to.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all()).map_err(failed)?;
        Ok(bytes)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if !self.finished {
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(beside(&self.path, "-journal"));
        }
    }
}

/// How names of unfinished copies end.
const PARTIAL: &str = ".partial";

/// Removes unfinished copies of backups to `to` whose processes are gone. What goes wrong is in nobody's way.
fn remove_leftovers(to: &Path) {
    let (Some(folder), Some(name)) = (to.parent(), to.file_name().and_then(|name| name.to_str())) else { return };
    let is_leftover = |file: &str| {
        let id = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.strip_suffix(PARTIAL));
        id.is_some_and(|id| Uuid::try_parse(id).is_ok_and(|parsed| parsed.simple().to_string() == id))
    };
    for found in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !found.file_name().to_str().is_some_and(is_leftover) || !found.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let path = found.path();
        let Ok(file) = OpenOptions::new().write(true).open(&path) else { continue };
        if file.try_lock().is_ok() && fs::remove_file(&path).is_ok() {
            let _ = fs::remove_file(beside(&path, "-journal"));
            tracing::info!(file = %path.display(), "what a backup left that was killed is removed");
        }
    }
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(suffix);
    name.into()
}
