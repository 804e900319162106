//! Turns SQLite's errors into failures of a call.

use rusqlite::ErrorCode as Code;

use super::session::DatabaseFile;
use crate::call::ToolError;
use crate::kinds::sql::faults::{Finding, WRITES_IN_READ_TOOL};

/// Why an attempt failed.
#[derive(derive_more::From)]
pub(super) enum AttemptError {
    #[from]
    Database(rusqlite::Error),
    #[from]
    Tool(ToolError),
    /// The statement cannot be run as written.
    Statement(Finding),
    /// Another file has replaced the one that was opened.
    Replaced,
    /// The statement needs more time or memory than it may take on a worker of tokio.
    NeedsThread,
}

impl AttemptError {
    /// Whether the connection can serve further calls. The statement had no effect.
    pub(super) fn keeps_connection(&self) -> bool {
        match self {
            Self::Database(error) => error.sqlite_error_code().is_some_and(|code| {
                matches!(
                    code,
                    Code::Unknown
                        | Code::DatabaseBusy
                        | Code::DatabaseLocked
                        | Code::TooBig
                        | Code::ConstraintViolation
                        | Code::TypeMismatch
                        | Code::OperationInterrupted
                )
            }),
            Self::Tool(error) => {
                matches!(error, ToolError::ErrorResult(_) | ToolError::BadOutput(_))
            }
            Self::NeedsThread => true,
            Self::Statement(_) | Self::Replaced => false,
        }
    }
}

fn error_message(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        error => error.to_string(),
    }
}

/// Whether a value or row was longer than the limit of `Session::limit_length`.
pub(super) fn is_too_long(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(Code::TooBig)
}

/// Whether the statement was stopped, see `Session::stop_after`.
pub(super) fn is_stopped(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(Code::OperationInterrupted)
}

/// Whether the authorizer has refused the statement.
pub(super) fn is_denied(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(Code::AuthorizationForStatementDenied)
}

/// Whether another process holds a lock, which may be released soon.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error_code()
        .is_some_and(|code| matches!(code, Code::DatabaseBusy | Code::DatabaseLocked))
}

/// The failure if another process holds its lock for too long.
pub(super) fn busy_failure(file: &DatabaseFile) -> ToolError {
    ToolError::upstream(format!(
        "{}: another process keeps the database locked",
        file.path.display()
    ))
    .not_delivered()
}

/// A failure of the call. The caller ensures that nothing was committed.
pub(super) fn call_failure(
    error: &rusqlite::Error,
    file: &DatabaseFile,
    longest: usize,
) -> ToolError {
    let message = error_message(error);
    let failure = match error.sqlite_error_code() {
        Some(Code::TooBig) if file.writes => ToolError::upstream_permanent(format!(
            "{}; nothing was changed",
            too_long_message(longest)
        )),
        Some(Code::TooBig) => return ToolError::BadOutput(too_long_message(longest)),
        Some(Code::ReadOnly) if !file.writes => ToolError::upstream_permanent(WRITES_IN_READ_TOOL),
        // The statement was valid when it was prepared, so the error is about the values.
        Some(Code::ConstraintViolation | Code::TypeMismatch) => {
            return ToolError::ErrorResult(format!("the database reports an error: {message}"));
        }
        Some(Code::Unknown) if !is_schema_error(&message) => {
            return ToolError::ErrorResult(format!("the database reports an error: {message}"));
        }
        Some(
            Code::DatabaseBusy
            | Code::DatabaseLocked
            | Code::SystemIoFailure
            | Code::DiskFull
            | Code::CannotOpen,
        ) => ToolError::upstream(unusable_message(error, file)),
        Some(_) => ToolError::upstream_permanent(unusable_message(error, file)),
        None => ToolError::upstream(unusable_message(error, file)),
    };
    failure.not_delivered()
}

/// The message for a value or row above the length limit. SQLite does not report which one it was.
fn too_long_message(longest: usize) -> String {
    format!(
        "a value or a row of the statement is longer than {longest} bytes, the most that the service reads: select less of it \
         or fewer columns, or raise max_output (the service reads up to four times max_output)"
    )
}

/// The finding for an error that occurred when the statement was checked.
pub(super) fn probe_finding(error: &rusqlite::Error, file: &DatabaseFile) -> Finding {
    let message = error_message(error);
    match error.sqlite_error_code() {
        Some(Code::Unknown | Code::AuthorizationForStatementDenied)
            if message.starts_with("no such ") =>
        {
            Finding::temporary(message)
        }
        Some(Code::Unknown | Code::AuthorizationForStatementDenied) => Finding::permanent(message),
        Some(_) | None => Finding::temporary(unusable_message(error, file)),
    }
}

/// Why the file cannot be used, and what would help.
pub(super) fn unusable_message(error: &rusqlite::Error, database: &DatabaseFile) -> String {
    let file = database.path.display();
    let message = error_message(error);
    match error.sqlite_error_code() {
        Some(Code::CannotOpen) if !database.path.exists() => {
            format!(
                "there is no file {file}, and the service does not create it: create the database first, or name another file"
            )
        }
        Some(Code::CannotOpen | Code::PermissionDenied) => {
            format!(
                "{file}: cannot be opened ({message}): the service must be able to read it, and to write to its folder if \
                     its journal mode is WAL"
            )
        }
        Some(Code::NotADatabase) => format!("{file}: is not a SQLite database"),
        Some(Code::DatabaseCorrupt) => format!("{file}: the file is damaged ({message})"),
        Some(Code::DiskFull) => format!("{file}: the disk is full"),
        Some(Code::ReadOnly) => format!("{file}: the file or its folder is read-only ({message})"),
        Some(Code::SystemIoFailure) => format!("{file}: the disk failed ({message})"),
        _ => format!("{file}: {message}"),
    }
}

/// Whether the message is about tables and columns, and not about values.
fn is_schema_error(message: &str) -> bool {
    message.starts_with("no such ")
        || message.contains("syntax error")
        || message.contains(" has no column ")
}
