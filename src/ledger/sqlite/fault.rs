//! Classifies SQLite's errors: what would help, and whether the content of the file is still
//! certain.

use std::path::Path;

// Result codes (sqlite.org/rescode.html). The lower byte of an extended code is its primary code.
use rusqlite::ffi::{
    SQLITE_BUSY as BUSY, SQLITE_CANTOPEN as CANTOPEN, SQLITE_CONSTRAINT as CONSTRAINT,
    SQLITE_CORRUPT as CORRUPT, SQLITE_FULL as FULL, SQLITE_IOERR as IOERR, SQLITE_IOERR_SHMLOCK,
    SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_WRITE as IOERR_WRITE, SQLITE_LOCKED as LOCKED,
    SQLITE_MISMATCH as MISMATCH, SQLITE_NOMEM as NOMEM, SQLITE_NOTADB as NOTADB,
    SQLITE_RANGE as RANGE, SQLITE_READONLY as READONLY, SQLITE_TOOBIG as TOOBIG,
};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::super::Error;

/// They concern the index of the write-ahead log and occur before anything is written.
/// (`SQLITE_IOERR_SHMSIZE` and `SQLITE_IOERR_SHMMAP` may occur when the commit is already on disk.)
const IOERR_SHM: [i32; 2] = [SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMLOCK];

/// A failure of the writer.
pub(super) struct Fault {
    /// The message, with what would help.
    pub(super) reason: String,
    /// Whether the content of the file is uncertain, so that the writer must stop. After a failed
    /// fsync the kernel may have discarded the data, and report success for the next fsync (Rebello
    /// and others, "Can Applications Recover from fsync Failures?", ATC 2020). A transaction that
    /// SQLite has rolled back may also be found committed when the file is opened again. Only a new
    /// start can tell.
    pub(super) is_final: bool,
}

impl Fault {
    /// Whether there is no room.
    pub(super) fn is_full(error: &sqlx::Error) -> bool {
        error_code(error).is_some_and(|code| code & 0xff == FULL)
    }

    /// The reason, if no read can be trusted any more.
    pub(super) fn fatal_read_reason(error: &sqlx::Error) -> Option<String> {
        error_code(error)
            .is_some_and(is_uncertain)
            .then(|| error_reason(error))
    }

    /// Whether the database refuses the row itself, whatever the state of the disk: a constraint,
    /// or a value that is too big.
    pub(super) fn is_row_error(error: &sqlx::Error) -> bool {
        error_code(error)
            .is_some_and(|code| matches!(code & 0xff, TOOBIG | CONSTRAINT | MISMATCH | RANGE))
    }

    /// Classifies a failure of the connection that writes `file`.
    pub(super) fn classify(error: &sqlx::Error, file: &Path) -> Self {
        let is_final = match error_code(error) {
            // SQLite writes the frame that commits last. A write that failed on a read-only file
            // system is therefore not committed.
            Some(IOERR_WRITE) if is_read_only(file) => {
                return Self {
                    reason: reason_for_code(READONLY, error),
                    is_final: false,
                };
            }
            // SQLite may extend the index of the log after it has written the commit.
            Some(code) => is_uncertain(code) || code & 0xff == NOMEM,
            // The thread of the connection has ended, or the head file could not be synced.
            None => matches!(error, sqlx::Error::WorkerCrashed | sqlx::Error::Io(_)),
        };
        Self {
            reason: error_reason(error),
            is_final,
        }
    }
}

fn is_uncertain(code: i32) -> bool {
    matches!(code & 0xff, IOERR | CORRUPT | NOTADB) && !IOERR_SHM.contains(&code)
}

fn error_code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// Whether the file system is read-only. The kernel makes a file system read-only when it finds
/// errors in it.
fn is_read_only(file: &Path) -> bool {
    statvfs(file).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The error for a failed statement.
pub(super) fn statement_error(error: &sqlx::Error) -> Error {
    Error::Failed(error_reason(error))
}

/// The message for a failure, with what would help.
pub(super) fn error_reason(error: &sqlx::Error) -> String {
    match error_code(error) {
        Some(code) => reason_for_code(code, error),
        None if matches!(error, sqlx::Error::Io(_)) => format!("the disk failed: {error}"),
        None => error.to_string(),
    }
}

fn reason_for_code(code: i32, error: &sqlx::Error) -> String {
    match code & 0xff {
        BUSY | LOCKED => "another process keeps the file locked".into(),
        READONLY => {
            "the file or its folder is read-only; make it writable or name another file".into()
        }
        IOERR => format!("the disk failed: {error}"),
        CORRUPT => {
            "the file is damaged; it was left as it is: restore a backup or name another file"
                .into()
        }
        FULL => "the disk is full".into(),
        CANTOPEN => "the file cannot be opened: its folder must exist and be writable".into(),
        NOTADB => {
            "the file is not a SQLite database; it was left as it is: name another file".into()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use sqlx::error::{DatabaseError, ErrorKind};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("code {0}")]
    struct CodeError(i32);

    impl DatabaseError for CodeError {
        fn message(&self) -> &str {
            "it failed"
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.to_string().into())
        }

        fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    fn error_with_code(code: i32) -> sqlx::Error {
        sqlx::Error::Database(Box::new(CodeError(code)))
    }

    #[test]
    fn error_reasons_name_the_remedy() {
        for (code, expected) in [
            (5, "another process keeps the file locked"),
            (262, "another process keeps the file locked"),
            (1032, "the file or its folder is read-only"),
            (778, "the disk failed: "),
            (11, "the file is damaged"),
            (13, "the disk is full"),
            (14, "the file cannot be opened"),
            (26, "the file is not a SQLite database"),
            (1, "error returned from database: code 1"),
        ] {
            assert!(
                error_reason(&error_with_code(code)).starts_with(expected),
                "{code}: {}",
                error_reason(&error_with_code(code))
            );
        }
        assert!(
            error_reason(&sqlx::Error::Io(std::io::Error::other("gone")))
                .starts_with("the disk failed: ")
        );
        assert!(!error_reason(&sqlx::Error::WorkerCrashed).contains("disk"));
    }

    #[test]
    fn full_disk_differs_from_refused_row() {
        for (code, is_full, is_of_a_row) in [
            (13, true, false),
            (269, true, false),
            (10, false, false),
            (5, false, false),
            (18, false, true),
            (19, false, true),
        ] {
            let error = error_with_code(code);
            assert_eq!(
                (Fault::is_full(&error), Fault::is_row_error(&error)),
                (is_full, is_of_a_row),
                "{code}"
            );
        }
        for code in [2067, 20, 25] {
            assert!(Fault::is_row_error(&error_with_code(code)), "{code}");
        }
        assert!(!Fault::is_full(&sqlx::Error::WorkerCrashed));
    }

    #[test]
    fn only_uncertain_failures_are_final() {
        let judge = |code| {
            Fault::classify(
                &sqlx::Error::Database(Box::new(CodeError(code))),
                Path::new("."),
            )
        };
        // Full, busy, locked, another process's snapshot, read-only, moved, no file, index of the
        // log not opened, not locked.
        for code in [13, 5, 6, 517, 8, 1032, 14, 4618, 5130] {
            assert!(!judge(code).is_final, "{code}: {}", judge(code).reason);
        }
        // No memory, read, short read, write, fsync, fsync of the folder, truncate, lock, no room
        // for the index of the log, corrupt, not a database.
        for code in [
            7, 10, 266, 522, 778, 1034, 1290, 1546, 3850, 4874, 5386, 11, 267, 779, 26,
        ] {
            assert!(judge(code).is_final, "{code}: {}", judge(code).reason);
        }
        assert!(Fault::classify(&sqlx::Error::WorkerCrashed, Path::new(".")).is_final);
        assert!(
            !Fault::classify(&sqlx::Error::Configuration("gone".into()), Path::new(".")).is_final
        );
    }
}
