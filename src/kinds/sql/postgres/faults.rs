//! Turns PostgreSQL's errors into failures of a call.

use sqlx::postgres::PgDatabaseError;

use super::ServerAddress;
use crate::call::ToolError;
use crate::kinds::sql::faults::{Finding, WRITES_IN_READ_TOOL};

/// The error's code (postgresql.org/docs/current/errcodes-appendix.html).
pub(super) fn error_code(error: &sqlx::Error) -> Option<&str> {
    server_error(error).map(PgDatabaseError::code)
}

fn server_error(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// The server's message, with its detail and hint.
pub(super) fn server_message(error: &sqlx::Error) -> String {
    let Some(server) = server_error(error) else {
        return error.to_string();
    };
    let details: Vec<&str> = [server.detail(), server.hint()]
        .into_iter()
        .flatten()
        .collect();
    if details.is_empty() {
        server.message().to_owned()
    } else {
        format!("{} ({})", server.message(), details.join(" "))
    }
}

/// Whether the prepared statement's plan no longer fits the database.
pub(super) fn is_stale(error: &sqlx::Error) -> bool {
    error_code(error) == Some("0A000")
        && server_message(error).contains("cached plan must not change")
}

/// Whether the error is about a value, so that the arguments may be the cause.
pub(super) fn is_value_error(error: &sqlx::Error) -> bool {
    error_code(error).is_some_and(|code| code.starts_with("22") || code == "23514")
}

/// A failure of the call. The caller ensures that nothing was committed.
pub(super) fn call_failure(error: &sqlx::Error, server: &ServerAddress) -> ToolError {
    let (address, message) = (&server.display_name, server_message(error));
    let Some(code) = error_code(error) else {
        return ToolError::upstream(format!("{address}: {}", connection_error_text(error)))
            .not_delivered();
    };
    let failure = match (&code[..2], code) {
        // Values, constraints, and errors that a function or trigger raises are answers of the
        // database, for the model.
        ("22" | "23" | "44", _) | (_, "P0001") => {
            return ToolError::ErrorResult(format!("the database reports an error: {message}"));
        }
        (_, "25006") => ToolError::upstream_permanent(WRITES_IN_READ_TOOL),
        // A conflict with another transaction, which a further attempt may not meet.
        ("40", _) | (_, "55P03") => ToolError::upstream_busy(format!("{address}: {message}")),
        // Connections, resources, a server that stops or starts.
        ("08" | "53" | "58", _) | (_, "57P01" | "57P02" | "57P03") => {
            ToolError::upstream(format!("{address}: {message}"))
        }
        _ => ToolError::upstream_permanent(format!("{address}: {message}")),
    };
    failure.not_delivered()
}

/// The failure of a call that got no connection.
pub(super) fn connect_failure(error: &sqlx::Error, server: &ServerAddress) -> ToolError {
    let message = connect_message(error, server);
    match error {
        // A wrong password, role, database or certificate: a further attempt would fail in the same
        // way.
        sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) => {
            ToolError::upstream_permanent(message)
        }
        error if error_code(error).is_some_and(|code| ["28", "3D", "42"].contains(&&code[..2])) => {
            ToolError::upstream_permanent(message)
        }
        _ => ToolError::upstream(message),
    }
    .not_delivered()
}

/// The message for a connection that could not be opened.
pub(super) fn connect_message(error: &sqlx::Error, server: &ServerAddress) -> String {
    let address = &server.display_name;
    match error {
        sqlx::Error::PoolTimedOut => format!("{address}: no connection within 10 seconds"),
        error if server_error(error).is_some() => {
            format!("{address}: no connection: {}", server_message(error))
        }
        error => format!("{address}: no connection: {}", connection_error_text(error)),
    }
}

fn connection_error_text(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Tls(error) => format!("no TLS: {error}"),
        error => error.to_string(),
    }
}

/// The finding for an error that occurred when the statement was described.
pub(super) fn describe_finding(error: &sqlx::Error, server: &ServerAddress) -> Finding {
    let message = server_message(error);
    match error_code(error) {
        Some("42P08" | "42P18") => Finding::permanent(format!(
            "{message}: give the type in the statement, for example :name::text"
        )),
        // A table, column, function or type is missing, or this role has no access. That may change
        // without a new manifest.
        Some("42P01" | "42703" | "42883" | "42704" | "3F000" | "42501") => {
            Finding::temporary(message)
        }
        Some(code) if ["42", "22", "0A"].contains(&&code[..2]) => Finding::permanent(message),
        Some(_) => Finding::temporary(format!("{}: {message}", server.display_name)),
        // sqlx cannot describe every type.
        None if matches!(error, sqlx::Error::ColumnDecode { .. }) => Finding::permanent(
            "a column or parameter has a type that is not supported (a multirange?); cast it to text, for example \
             name::text",
        ),
        None => Finding::temporary(format!(
            "{}: {}",
            server.display_name,
            connection_error_text(error)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_type_stays_a_fault_and_a_lost_connection_does_not() {
        let url = "postgres://shop@db.example/shop";
        let server = ServerAddress::parse(url, "/".as_ref(), &Default::default()).unwrap();
        let unsupported = sqlx::Error::ColumnDecode {
            index: "0".into(),
            source: "no such type".into(),
        };
        assert!(!describe_finding(&unsupported, &server).is_temporary);
        let lost = sqlx::Error::WorkerCrashed;
        assert!(describe_finding(&lost, &server).is_temporary);
        assert!(!is_value_error(&lost));
    }
}
