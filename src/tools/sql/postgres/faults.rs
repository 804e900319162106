//! What PostgreSQL's errors mean for a call.

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

/// The server's own words, with what it adds to them.
pub(super) fn words(error: &sqlx::Error) -> String {
    let Some(said) = server_error(error) else { return error.to_string() };
    let more: Vec<&str> = [said.detail(), said.hint()].into_iter().flatten().collect();
    if more.is_empty() { said.message().to_owned() } else { format!("{} ({})", said.message(), more.join(" ")) }
}

/// Whether the plan that was made for the statement does not fit the database any more.
pub(super) fn is_stale(error: &sqlx::Error) -> bool {
    code(error) == Some("0A000") && words(error).contains("cached plan must not change")
}

/// Whether it is about a value: the arguments may be to blame.
pub(super) fn is_of_a_value(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code.starts_with("22") || code == "23514")
}

/// A failure of the call. Whatever it is, nothing of it was committed.
pub(super) fn failure(error: &sqlx::Error, server: &Server) -> ToolError {
    let (place, words) = (&server.place, words(error));
    let Some(code) = code(error) else {
        return ToolError::upstream(format!("{place}: {}", broken(error))).before_anything();
    };
    let failure = match (&code[..2], code) {
        // Values, constraints, what a function or trigger raises: the database's answer.
        ("22" | "23" | "44", _) | (_, "P0001") => return ToolError::Said(format!("the database says no: {words}")),
        (_, "25006") => ToolError::upstream_final(WRITES),
        // Another transaction was in the way: the next try may find it gone.
        ("40", _) | (_, "55P03") => passing(format!("{place}: {words}")),
        // Connections, resources, a server that stops or starts.
        ("08" | "53" | "58", _) | (_, "57P01" | "57P02" | "57P03") => ToolError::upstream(format!("{place}: {words}")),
        _ => ToolError::upstream_final(format!("{place}: {words}")),
    };
    failure.before_anything()
}

/// Worth another try, and no sign that the database is down.
fn passing(message: String) -> ToolError {
    ToolError::Upstream { message, retryable: true, down: false, untouched: true, retry_after: None }
}

/// No connection.
pub(super) fn unreachable(error: &NoSession, server: &Server) -> ToolError {
    let message = no_connection(error, server);
    match error {
        // A password, a role, a database that is not there, a certificate: the next try would meet the same.
        NoSession::Database(sqlx::Error::Tls(_) | sqlx::Error::Configuration(_)) => ToolError::upstream_final(message),
        NoSession::Database(error) if code(error).is_some_and(|code| ["28", "3D", "42"].contains(&&code[..2])) => {
            ToolError::upstream_final(message)
        }
        NoSession::Database(_) | NoSession::Late(_) => ToolError::upstream(message),
    }
    .before_anything()
}

/// No connection, in words.
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

/// What was found when the statement was described.
pub(super) fn finding(error: &sqlx::Error, server: &Server) -> Finding {
    let words = words(error);
    match code(error) {
        Some("42P08" | "42P18") => Finding::fault(format!("{words}: say it in the statement, e.g. :name::text")),
        // A table, column, function or type that is not there, or not for this role: it may come.
        Some("42P01" | "42703" | "42883" | "42704" | "3F000" | "42501") => Finding::passing(words),
        Some(code) if ["42", "22", "0A"].contains(&&code[..2]) => Finding::fault(words),
        Some(_) => Finding::passing(format!("{}: {words}", server.place)),
        // sqlx does not know every kind of type.
        None if matches!(error, sqlx::Error::ColumnDecode { .. }) => Finding::fault(
            "a column or parameter has a type that cannot be read here (a multirange?); have the database say it as text, \
             e.g. name::text",
        ),
        None => Finding::passing(format!("{}: {}", server.place, broken(error))),
    }
}
