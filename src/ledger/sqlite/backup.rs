//! Copies the ledger while it is in use.
//!
//! `VACUUM INTO` reads one snapshot and delays no other operation: in WAL mode, readers and the writer do not wait for
//! each other. It costs disk space, because the write-ahead log cannot restart while the snapshot is read. The copy
//! gets its final name only when it is complete, checked and synced to disk.

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
use super::commit_marker::{self, CommitMarker};
use super::{fault, open};

/// Number of SQLite's instructions between two checks whether the backup was dropped: some milliseconds.
const ASK_EVERY: i32 = 100_000;

/// Copies the ledger `from` to the new file `to`. Returns its size in bytes. If this future is dropped before its end,
/// SQLite stops and no file remains.
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

/// Suffixes of the files that belong to a ledger.
const OWN_FILES: [&str; 5] = ["-wal", "-shm", "-journal", ".lock", ".head"];

/// Whether two paths are the same file. The files need not exist.
fn same(one: &Path, other: &Path) -> bool {
    let folder = |path: &Path| std::path::absolute(path).ok()?.parent()?.canonicalize().ok();
    one.file_name() == other.file_name() && folder(one) == folder(other)
}

fn refused(to: &Path, reason: impl ToString) -> Error {
    Error::Backup { place: to.display().to_string(), reason: reason.to_string() }
}

/// A connection that only reads `file`, and gives up once `stop` is set.
async fn connect(file: &Path, to: &Path, stop: &Arc<AtomicBool>) -> Result<SqliteConnection, Error> {
    let explain = |error: sqlx::Error| refused(to, format!("{}: {}", file.display(), fault::reason(&error)));
    let mut connection = SqliteConnection::connect_with(&open::reading(file)).await.map_err(explain)?;
    let stop = stop.clone();
    let mut handle = connection.lock_handle().await.map_err(explain)?;
    handle.set_progress_handler(ASK_EVERY, move || !stop.load(Ordering::Relaxed));
    drop(handle);
    Ok(connection)
}

/// Gives the copy an id of its own. No other task uses the copy yet, so it needs no journal, and it is synced
/// afterward.
async fn begin_anew(copy: &Path) -> Result<(), sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(copy)
        .journal_mode(SqliteJournalMode::Off)
        .synchronous(SqliteSynchronous::Off)
        .disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await?;
    // A ledger of an older release has no mark yet.
    if CommitMarker::of(&mut connection).await?.is_some() {
        sqlx::query(commit_marker::ANEW).execute(&mut connection).await?;
    }
    connection.close().await
}

/// The copy under its temporary name. Dropping it removes the file, unless it is finished.
struct Partial {
    path: PathBuf,
    /// Locked while the copy is made. The lock of a killed process is gone, which marks its file as a leftover.
    _lock: File,
    stop: Arc<AtomicBool>,
    finished: bool,
}

impl Partial {
    /// Creates the empty file so that only its owner can read it; SQLite keeps the mode. The name is unique, because
    /// SQLite may still write an earlier file for a moment after its backup was dropped.
    fn create(to: &Path) -> Result<Self, Error> {
        loop {
            let path = beside(to, &format!(".{}{PARTIAL}", Uuid::now_v7().simple()));
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let file = made.map_err(|error| refused(to, error))?;
            // If the file system cannot lock files, no backup treats the file as a leftover either.
            let is_free = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            // Between the creation and the lock, another backup may have removed the file as a leftover.
            if is_free && path.symlink_metadata().is_ok() {
                return Ok(Self { path, _lock: file, stop: Arc::default(), finished: false });
            }
        }
    }

    /// Syncs the copy to disk and gives it its final name.
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
            // Not every file system supports a rename that never overwrites.
            Err(Errno::INVAL | Errno::NOSYS) if to.symlink_metadata().is_err() => fs::rename(&self.path, to),
            done => done.map_err(Into::into),
        }
        .map_err(failed)?;
        self.finished = true;
        // The new name survives a power cut only after the folder is synced.
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

/// Suffix of unfinished copies.
const PARTIAL: &str = ".partial";

/// Removes unfinished copies of earlier backups to `to` whose processes have ended. Errors are ignored.
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
