//! Turns PostgreSQL's errors into failures of a call.

use sqlx::postgres::PgDatabaseError;

use super::Server;
use super::session::NoSession;
use crate::call::ToolError;
use crate::tools::sql::faults::{Finding, WRITES};

/// The error's code (postgresql.org/docs/current/errcodes-appendix.html).
pub(super) fn code(error: &sqlx::Error) -> Option<&str> {
    server_error(error).map(PgDatabaseError::code)
}

fn server_error(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// The server's message, with its detail and hint.
pub(super) fn words(error: &sqlx::Error) -> String {
    let Some(said) = server_error(error) else { return error.to_string() };
    let more: Vec<&str> = [said.detail(), said.hint()].into_iter().flatten().collect();
    if more.is_empty() { said.message().to_owned() } else { format!("{} ({})", said.message(), more.join(" ")) }
}

/// Whether the prepared statement's plan no longer fits the database.
pub(super) fn is_stale(error: &sqlx::Error) -> bool {
    code(error) == Some("0A000") && words(error).contains("cached plan must not change")
}

/// Whether the error is about a value, so that the arguments may be the cause.
pub(super) fn is_of_a_value(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code.starts_with("22") || code == "23514")
}

/// A failure of the call. The caller ensures that nothing was committed.
pub(super) fn failure(error: &sqlx::Error, server: &Server) -> ToolError {
    let (place, words) = (&server.place, words(error));
    let Some(code) = code(error) else {
        return ToolError::upstream(format!("{place}: {}", broken(error))).before_anything();
    };
    let failure = match (&code[..2], code) {
        // Values, constraints, and errors that a function or trigger raises are answers of the database, for the
        // model.
        ("22" | "23" | "44", _) | (_, "P0001") => return ToolError::Said(format!("the database says no: {words}")),
        (_, "25006") => ToolError::upstream_final(WRITES),
        // A conflict with another transaction, which a further attempt may not meet.
        ("40", _) | (_, "55P03") => passing(format!("{place}: {words}")),
        // Connections, resources, a server that stops or starts.
        ("08" | "53" | "58", _) | (_, "57P01" | "57P02" | "57P03") => ToolError::upstream(format!("{place}: {words}")),
        _ => ToolError::upstream_final(format!("{place}: {words}")),
    };
    failure.before_anything()
}

/// A failure that is worth a further attempt and does not mean that the database is unavailable.
fn passing(message: String) -> ToolError {
    ToolError::Upstream { message, retryable: true, down: false, untouched: true, retry_after: None }
}

/// The failure of a call that got no connection.
pub(super) fn unreachable(error: &NoSession, server: &Server) -> ToolError {
    let message = no_connection(error, server);
    match error {
        // A wrong password, role, database or certificate: a further attempt would fail in the same way.
        NoSession::Database(sqlx::Error::Tls(_) | sqlx::Error::Configuration(_)) => ToolError::upstream_final(message),
        NoSession::Database(error) if code(error).is_some_and(|code| ["28", "3D", "42"].contains(&&code[..2])) => {
            ToolError::upstream_final(message)
        }
        NoSession::Database(_) | NoSession::Late(_) => ToolError::upstream(message),
    }
    .before_anything()
}

/// The message for a connection that could not be opened.
pub(super) fn no_connection(error: &NoSession, server: &Server) -> String {
    let place = &server.place;
    match error {
        NoSession::Late(_) => format!("{place}: no connection within 10 seconds"),
        NoSession::Database(error) if server_error(error).is_some() => {
            format!("{place}: no connection: {}", words(error))
        }
        NoSession::Database(error) => format!("{place}: no connection: {}", broken(error)),
    }
}

fn broken(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Tls(error) => format!("no TLS: {error}"),
        error => error.to_string(),
    }
}

/// The finding for an error that occurred when the statement was described.
pub(super) fn finding(error: &sqlx::Error, server: &Server) -> Finding {
    let words = words(error);
    match code(error) {
        Some("42P08" | "42P18") => Finding::fault(format!("{words}: say it in the statement, e.g. :name::text")),
        // A table, column, function or type is missing, or this role has no access. That may change without a new
        // manifest.
        Some("42P01" | "42703" | "42883" | "42704" | "3F000" | "42501") => Finding::passing(words),
        Some(code) if ["42", "22", "0A"].contains(&&code[..2]) => Finding::fault(words),
        Some(_) => Finding::passing(format!("{}: {words}", server.place)),
        // sqlx cannot describe every type.
        None if matches!(error, sqlx::Error::ColumnDecode { .. }) => Finding::fault(
            "a column or parameter has a type that cannot be read here (a multirange?); have the database say it as text, \
             e.g. name::text",
        ),
        None => Finding::passing(format!("{}: {}", server.place, broken(error))),
    }
}
