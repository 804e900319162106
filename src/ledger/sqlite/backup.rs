//! Copies the ledger while it is in use.
//!
//! `VACUUM INTO` reads one snapshot and delays no other operation: in WAL mode, readers and the
//! writer do not wait for each other. It costs disk space, because the write-ahead log cannot
//! restart while the snapshot is read. The copy gets its final name only when it is complete,
//! checked and synced to disk.

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
use super::commit_marker::{self, CommitMarker, with_suffix};
use super::{fault, open};

/// Number of SQLite's instructions between two checks whether the backup was dropped: some
/// milliseconds.
const PROGRESS_STEPS: i32 = 100_000;

/// Copies the ledger `from` to the new file `to`. Returns its size in bytes. If this future is
/// dropped before its end, SQLite stops and no file remains.
pub(super) async fn backup(from: &Path, to: &Path) -> Result<u64, Error> {
    let to = std::path::absolute(to).map_err(|error| backup_error(to, error))?;
    if to.symlink_metadata().is_ok() {
        return Err(backup_error(
            &to,
            "the file exists already, and a backup never overwrites a file: name another file",
        ));
    }
    if LEDGER_SUFFIXES
        .iter()
        .any(|suffix| is_same_path(&to, &with_suffix(from, suffix)))
    {
        return Err(backup_error(
            &to,
            "SQLite treats a file of this name as a part of the ledger itself: name another file",
        ));
    }
    remove_leftovers(&to);
    let copy = PartialCopy::create(&to)?;
    let Some(name) = copy.path.to_str() else {
        return Err(backup_error(&to, "the name of the file must be UTF-8"));
    };

    let mut connection = connect_read_only(from, &to, &copy.stop).await?;
    let copied = sqlx::query("vacuum into ?")
        .bind(name)
        .execute(&mut connection)
        .await;
    copied.map_err(|error| backup_error(&to, fault::error_reason(&error)))?;
    let _ = connection.close().await;

    let mut copy_connection = connect_read_only(&copy.path, &to, &copy.stop).await?;
    open::check_copy(&mut copy_connection)
        .await
        .map_err(|reason| backup_error(&to, reason))?;
    let _ = copy_connection.close().await;
    assign_new_id(&copy.path)
        .await
        .map_err(|error| backup_error(&to, fault::error_reason(&error)))?;
    copy.finish(&to).await
}

/// Suffixes of the files that belong to a ledger.
const LEDGER_SUFFIXES: [&str; 5] = ["-wal", "-shm", "-journal", ".lock", ".head"];

/// Whether two paths are the same file. The files need not exist.
fn is_same_path(path_a: &Path, path_b: &Path) -> bool {
    let folder = |path: &Path| {
        std::path::absolute(path)
            .ok()?
            .parent()?
            .canonicalize()
            .ok()
    };
    path_a.file_name() == path_b.file_name() && folder(path_a) == folder(path_b)
}

fn backup_error(to: &Path, reason: impl ToString) -> Error {
    Error::BackupFailed {
        place: to.display().to_string(),
        reason: reason.to_string(),
    }
}

/// A connection that only reads `file`, and gives up once `stop` is set.
async fn connect_read_only(
    file: &Path,
    to: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<SqliteConnection, Error> {
    let explain = |error: sqlx::Error| {
        backup_error(
            to,
            format!("{}: {}", file.display(), fault::error_reason(&error)),
        )
    };
    let mut connection = SqliteConnection::connect_with(&open::read_only_options(file))
        .await
        .map_err(explain)?;
    let stop = stop.clone();
    let mut handle = connection.lock_handle().await.map_err(explain)?;
    handle.set_progress_handler(PROGRESS_STEPS, move || !stop.load(Ordering::Relaxed));
    drop(handle);
    Ok(connection)
}

/// Gives the copy an id of its own. No other task uses the copy yet, so it needs no journal, and it
/// is synced afterward.
async fn assign_new_id(copy: &Path) -> Result<(), sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(copy)
        .journal_mode(SqliteJournalMode::Off)
        .synchronous(SqliteSynchronous::Off)
        .disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await?;
    // A ledger of an older release has no marker yet.
    if CommitMarker::read_from(&mut connection).await?.is_some() {
        sqlx::query(commit_marker::RESET_MARKER)
            .execute(&mut connection)
            .await?;
    }
    connection.close().await
}

/// The copy under its temporary name. Dropping it removes the file, unless it is finished.
struct PartialCopy {
    path: PathBuf,
    /// Locked while the copy is made. The lock of a killed process is gone, which marks its file as
    /// a leftover.
    _lock: File,
    stop: Arc<AtomicBool>,
    finished: bool,
}

impl PartialCopy {
    /// Creates the empty file so that only its owner can read it; SQLite keeps the mode. The name
    /// is unique, because SQLite may still write an earlier file for a moment after its backup was
    /// dropped.
    fn create(to: &Path) -> Result<Self, Error> {
        loop {
            let path = with_suffix(to, &format!(".{}{PARTIAL_SUFFIX}", Uuid::now_v7().simple()));
            let opened = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path);
            let file = opened.map_err(|error| backup_error(to, error))?;
            // If the file system cannot lock files, no backup treats the file as a leftover either.
            let is_free = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            // Between the creation and the lock, another backup may have removed the file as a
            // leftover.
            if is_free && path.symlink_metadata().is_ok() {
                return Ok(Self {
                    path,
                    _lock: file,
                    stop: Arc::default(),
                    finished: false,
                });
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
        let failed = |error: std::io::Error| backup_error(to, error);
        let bytes = tokio::task::spawn_blocking(sync)
            .await
            .map_err(|error| backup_error(to, error))?
            .map_err(failed)?;
        match renameat_with(CWD, &self.path, CWD, to, RenameFlags::NOREPLACE) {
            // Not every file system supports a rename that never overwrites.
            Err(Errno::INVAL | Errno::NOSYS) if to.symlink_metadata().is_err() => {
                fs::rename(&self.path, to)
            }
            renamed => renamed.map_err(Into::into),
        }
        .map_err(failed)?;
        self.finished = true;
        // The new name survives a power cut only after the folder is synced.
        to.parent()
            .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
            .map_err(failed)?;
        Ok(bytes)
    }
}

impl Drop for PartialCopy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if !self.finished {
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(with_suffix(&self.path, "-journal"));
        }
    }
}

/// Suffix of unfinished copies.
const PARTIAL_SUFFIX: &str = ".partial";

/// Removes unfinished copies of earlier backups to `to` whose processes have ended. Errors are
/// ignored.
fn remove_leftovers(to: &Path) {
    let (Some(folder), Some(name)) = (to.parent(), to.file_name().and_then(|name| name.to_str()))
    else {
        return;
    };
    let is_leftover = |file: &str| {
        let id = file
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('.')?.strip_suffix(PARTIAL_SUFFIX));
        id.is_some_and(|id| {
            Uuid::try_parse(id).is_ok_and(|parsed| parsed.simple().to_string() == id)
        })
    };
    for found in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !found.file_name().to_str().is_some_and(is_leftover)
            || !found.file_type().is_ok_and(|kind| kind.is_file())
        {
            continue;
        }
        let path = found.path();
        let Ok(file) = OpenOptions::new().write(true).open(&path) else {
            continue;
        };
        if file.try_lock().is_ok() && fs::remove_file(&path).is_ok() {
            let _ = fs::remove_file(with_suffix(&path, "-journal"));
            tracing::info!(file = %path.display(), "the unfinished copy of a killed backup was removed");
        }
    }
}
