//! The processes that write to one file. Each has a number, which its reserved rows carry in the
//! column `reserved`, and holds the lock of a file with that number in its name. The system releases
//! the lock with the process, so the other processes notice its end and settle its calls.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;
use uuid::Uuid;

use super::super::Error;
use super::change::{Change, Operation, Rare, Writer};
use super::commit_marker::with_suffix;
use crate::call::Clock;

/// How often a process looks for others that have ended.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// What follows the name of the ledger in the name of a lock file, before the number.
const LOCK_SUFFIX: &str = ".lock-";

/// A process with its lock. It ends with this value, or with the process.
pub(super) struct ProcessLock {
    number: i64,
    path: PathBuf,
    _locked: File,
}

impl ProcessLock {
    /// Gives this process a new number.
    pub(super) fn create(ledger: &Path) -> io::Result<Self> {
        loop {
            let random = Uuid::now_v7().as_u64_pair().1 >> 8;
            // Versions without numbers write 1.
            let number = i64::try_from(random).unwrap_or(0) + 2;
            let path = with_suffix(ledger, &format!("{LOCK_SUFFIX}{number:x}"));
            let locked = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            locked.lock()?;
            let process = Self {
                number,
                path,
                _locked: locked,
            };
            // Before it was locked, another process may have taken it for that of an ended one.
            if process.path.exists() {
                return Ok(process);
            }
        }
    }

    /// The number of the process.
    pub(super) fn number(&self) -> i64 {
        self.number
    }

    /// The name of the process.
    pub(super) fn name(&self) -> Arc<str> {
        name_of(self.number)
    }

    /// Removes the file, once the calls of the process are settled.
    pub(super) fn remove(&self) {
        // A file that stays costs the next start one look.
        let _ = fs::remove_file(&self.path);
    }
}

fn name_of(number: i64) -> Arc<str> {
    format!("process-{number:x}").into()
}

/// The lock files of all processes, with their numbers.
fn lock_files(ledger: &Path) -> Vec<(i64, PathBuf)> {
    let prefix = with_suffix(ledger, LOCK_SUFFIX);
    let name = prefix.file_name().unwrap_or_default().as_encoded_bytes();
    let folder = prefix.parent().filter(|folder| *folder != Path::new(""));
    let Ok(files) = fs::read_dir(folder.unwrap_or(Path::new("."))) else {
        return Vec::new();
    };
    let numbered = |file: fs::DirEntry| {
        let number = file.file_name();
        let number = number.as_encoded_bytes().strip_prefix(name)?;
        let number = i64::from_str_radix(str::from_utf8(number).ok()?, 16).ok()?;
        Some((number, file.path()))
    };
    files.flatten().filter_map(numbered).collect()
}

/// The processes that have ended and whose files are still there. Their locks are held meanwhile, so
/// only one process settles them.
pub(super) fn find_ended(ledger: &Path) -> Vec<ProcessLock> {
    let ended = |(number, path): (i64, PathBuf)| {
        let locked = OpenOptions::new().write(true).open(&path).ok()?;
        locked.try_lock().ok()?;
        Some(ProcessLock {
            number,
            path,
            _locked: locked,
        })
    };
    lock_files(ledger).into_iter().filter_map(ended).collect()
}

/// The names of the processes that hold their locks. A process that another one settles just now is
/// among them.
pub(super) fn find_living(ledger: &Path) -> Vec<Arc<str>> {
    let is_locked = |path: &Path| {
        let file = OpenOptions::new().write(true).open(path);
        // A lock that this look takes is released at once.
        file.is_ok_and(|file| file.try_lock_shared().is_err())
    };
    let files = lock_files(ledger).into_iter();
    let living = files.filter(|(_, path)| is_locked(path));
    living.map(|(number, _)| name_of(number)).collect()
}

/// Settles the calls of processes that end, as long as this process runs.
pub(super) async fn settle_ended(ledger: PathBuf, writer: Writer, clock: Clock) {
    loop {
        sleep(LOOK_INTERVAL).await;
        for process in find_ended(&ledger) {
            match settle_process(&writer, process.number, clock.now()).await {
                Ok(0) => process.remove(),
                Ok(calls) => {
                    tracing::warn!(
                        calls,
                        "a process with the same ledger has ended; its interrupted calls are now `unknown`"
                    );
                    process.remove();
                }
                Err(error) => {
                    tracing::debug!(%error, "calls of an ended process cannot be settled");
                }
            }
        }
    }
}

/// Makes the calls that a process has left `unknown`. Returns their number.
pub(super) async fn settle_process(
    writer: &Writer,
    process: i64,
    now: Timestamp,
) -> Result<u64, Error> {
    let change = Change::SettleProcess { process, now };
    writer
        .send_and_wait(|reply| Operation::Rare(Rare::Change { change, reply }))
        .await
}
