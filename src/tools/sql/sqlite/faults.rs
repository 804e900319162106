//! Turns SQLite's errors into failures of a call.

use super::session::DatabaseFile;
use crate::call::ToolError;
use crate::tools::sql::faults::{Finding, WRITES};

// Primary result codes (sqlite.org/rescode.html).
const ERROR: u32 = 1;
const PERM: u32 = 3;
const BUSY: u32 = 5;
const LOCKED: u32 = 6;
const READONLY: u32 = 8;
const IOERR: u32 = 10;
const CORRUPT: u32 = 11;
const FULL: u32 = 13;
const CANTOPEN: u32 = 14;
const TOOBIG: u32 = 18;
const CONSTRAINT: u32 = 19;
const MISMATCH: u32 = 20;
const AUTH: u32 = 23;
const NOTADB: u32 = 26;

/// Why an attempt failed.
pub(super) enum Trouble {
    Database(rusqlite::Error),
    Tool(ToolError),
    /// The statement cannot be run as written.
    Statement(Finding),
    /// Another file has replaced the one that was opened.
    Replaced,
}

impl Trouble {
    /// The connection's thread has ended. It is unknown what it did last.
    pub(super) fn lost(message: impl Into<String>) -> Self {
        Self::Tool(ToolError::unavailable(message))
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<ToolError> for Trouble {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

fn code(error: &rusqlite::Error) -> Option<u32> {
    let code = u32::try_from(error.sqlite_error()?.extended_code).ok()?;
    Some(code & 0xff)
}

fn message(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        error => error.to_string(),
    }
}

/// Whether a value or row was longer than the limit of `Link::limit_length`.
pub(super) fn is_too_long(error: &rusqlite::Error) -> bool {
    code(error) == Some(TOOBIG)
}

/// Whether the authorizer has refused the statement.
pub(super) fn is_refusal(error: &rusqlite::Error) -> bool {
    code(error) == Some(AUTH)
}

/// Whether another process holds a lock, which may be released soon.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    code(error).is_some_and(|code| matches!(code, BUSY | LOCKED))
}

/// The failure if another process holds its lock for too long.
pub(super) fn busy(place: &DatabaseFile) -> ToolError {
    ToolError::upstream(format!("{}: another process keeps the database locked", place.file.display()))
        .before_anything()
}

/// A failure of the call. The caller ensures that nothing was committed.
pub(super) fn failure(error: &rusqlite::Error, place: &DatabaseFile, longest: usize) -> ToolError {
    let said = message(error);
    let failure = match code(error) {
        Some(TOOBIG) if place.writes => {
            ToolError::upstream_final(format!("{}; nothing was changed", too_long(longest)))
        }
        Some(TOOBIG) => return ToolError::BadOutput(too_long(longest)),
        Some(READONLY) if !place.writes => ToolError::upstream_final(WRITES),
        // The statement was valid when it was prepared, so the error is about the values.
        Some(CONSTRAINT | MISMATCH) => return ToolError::Said(format!("the database says no: {said}")),
        Some(ERROR) if !is_of_the_schema(&said) => return ToolError::Said(format!("the database says no: {said}")),
        Some(BUSY | LOCKED | IOERR | FULL | CANTOPEN) => ToolError::upstream(unusable(error, place)),
        Some(_) => ToolError::upstream_final(unusable(error, place)),
        None => ToolError::upstream(unusable(error, place)),
    };
    failure.before_anything()
}

/// The message for a value or row above the length limit. SQLite does not report which one it was.
fn too_long(longest: usize) -> String {
    format!(
        "a value or a row of the statement is longer than {longest} bytes, the most that is read here: ask for less of it, or \
         for fewer columns, or raise max_output (four times that is read)"
    )
}

/// The finding for an error that occurred when the statement was checked.
pub(super) fn finding(error: &rusqlite::Error, place: &DatabaseFile) -> Finding {
    let said = message(error);
    match code(error) {
        Some(ERROR | AUTH) if said.starts_with("no such ") => Finding::passing(said),
        Some(ERROR | AUTH) => Finding::fault(said),
        Some(_) | None => Finding::passing(unusable(error, place)),
    }
}

/// Why the file cannot be used, and what would help.
pub(super) fn unusable(error: &rusqlite::Error, place: &DatabaseFile) -> String {
    let file = place.file.display();
    let said = message(error);
    match code(error) {
        Some(CANTOPEN) if !place.file.exists() => {
            format!("there is no file {file}; it is not made here: create the database first, or name another file")
        }
        Some(CANTOPEN | PERM) => {
            format!(
                "{file}: cannot be opened ({said}): may the service read it, and write to its folder where its journal \
                     mode is WAL?"
            )
        }
        Some(NOTADB) => format!("{file}: is not a SQLite database"),
        Some(CORRUPT) => format!("{file}: the file is damaged ({said})"),
        Some(FULL) => format!("{file}: the disk is full"),
        Some(READONLY) => format!("{file}: the file or its folder is read-only ({said})"),
        Some(IOERR) => format!("{file}: the disk failed ({said})"),
        _ => format!("{file}: {said}"),
    }
}

/// Whether the message is about tables and columns, and not about values.
fn is_of_the_schema(message: &str) -> bool {
    message.starts_with("no such ") || message.contains("syntax error") || message.contains(" has no column ")
}
