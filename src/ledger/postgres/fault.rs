//! Classifies errors of the database, and bounds the wait for it.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::super::Error;
use super::session::CONNECTIONS;

/// How long a query may take: longer than the server's own limit, which gives the better message.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(12);
/// `commit_batch_1`: another replica has settled this one.
const REPLICA_ENDED: &str = "TC001";
/// `commit_batch_1`: an earlier connection of this replica has committed meanwhile.
const OUT_OF_ORDER: &str = "TC002";
/// PostgreSQL, appendix A: serialization failure and deadlock. The transaction may be repeated.
const REPEATABLE: [&str; 2] = ["40001", "40P01"];
/// A lock was not free in time.
const LOCKED: &str = "55P03";
/// The role lacks a privilege.
const NO_PRIVILEGE: &str = "42501";
/// The password is wrong, or the server got none.
const INVALID_PASSWORD: &str = "28P01";
/// Classes of errors about the values of a row: data exception and constraint violation.
const ROW_CLASSES: [&str; 2] = ["22", "23"];
/// Classes after which the connection is of no use: connection exception, operator intervention,
/// and a server that only reads (a standby after a failover).
const CONNECTION_CODES: [&str; 4] = ["08", "57", "25006", OUT_OF_ORDER];

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

fn has_code(error: &sqlx::Error, codes: &[&str]) -> bool {
    code(error).is_some_and(|found| codes.iter().any(|code| found.starts_with(code)))
}

/// Whether another replica has settled this one.
pub(super) fn is_replica_ended(error: &sqlx::Error) -> bool {
    has_code(error, &[REPLICA_ENDED])
}

/// Whether the same transaction may succeed at once.
pub(super) fn is_repeatable(error: &sqlx::Error) -> bool {
    has_code(error, &REPEATABLE)
}

/// Whether another transaction has held a lock for too long.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    has_code(error, &[LOCKED])
}

/// Whether the database refuses the values of a row.
pub(super) fn is_row_error(error: &sqlx::Error) -> bool {
    has_code(error, &ROW_CLASSES)
}

/// Whether it is unknown if the transaction was committed: there was no answer of the server.
pub(super) fn is_uncertain(error: &sqlx::Error) -> bool {
    error.as_database_error().is_none()
}

/// Whether a new connection is needed.
pub(super) fn needs_connection(error: &sqlx::Error) -> bool {
    is_uncertain(error) || has_code(error, &CONNECTION_CODES)
}

/// What happened, without values.
pub(super) fn reason(error: &sqlx::Error) -> String {
    match error {
        // The message of a constraint or of a data error may quote a value; its code does not.
        sqlx::Error::Database(found) if is_row_error(error) => format!(
            "the database refuses a row ({})",
            found.code().unwrap_or_default()
        ),
        sqlx::Error::Database(found) if has_code(error, &[NO_PRIVILEGE]) => format!(
            "the database refuses: {}; the role must own the schema `toolcrib`, or be able to create it",
            found.message()
        ),
        sqlx::Error::Database(found) if has_code(error, &[INVALID_PASSWORD]) => format!(
            "the database refuses: {}; the password of the URL is missing or wrong, or has characters that must be written as %XX",
            found.message()
        ),
        sqlx::Error::Database(found) => format!("the database refuses: {}", found.message()),
        sqlx::Error::Io(found) => match find_no_server(found) {
            Some(reason) => reason.to_string(),
            None => format!("the database cannot be reached: {found}"),
        },
        sqlx::Error::PoolTimedOut => format!(
            "the database does not answer, or a connection pooler has fewer than {CONNECTIONS} connections for this replica"
        ),
        other => other.to_string(),
    }
}

/// Why no server of the URL is of use.
#[derive(Debug, thiserror::Error)]
enum NoServer {
    #[error("the server only reads, such as a standby")]
    ReadOnly,
    #[error("no server of the URL is of use: {reasons}")]
    All { reasons: String, may_pass: bool },
}

/// The failure of one server of several.
pub(super) struct ServerFailure {
    /// Host and port.
    pub(super) place: String,
    pub(super) error: sqlx::Error,
}

fn find_no_server(error: &std::io::Error) -> Option<&NoServer> {
    error.get_ref()?.downcast_ref()
}

/// The error of a server that takes no changes.
pub(super) fn read_only_error() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other(NoServer::ReadOnly))
}

/// The error if no server of the URL is of use, with the reason of each.
pub(super) fn no_server_error(mut failures: Vec<ServerFailure>) -> sqlx::Error {
    if failures.len() == 1
        && let Some(failure) = failures.pop()
    {
        return failure.error;
    }
    let reasons: Vec<String> = failures
        .iter()
        .map(|failure| format!("{}: {}", failure.place, reason(&failure.error)))
        .collect();
    sqlx::Error::Io(std::io::Error::other(NoServer::All {
        reasons: reasons.join("; "),
        may_pass: failures.iter().any(|failure| may_pass(&failure.error)),
    }))
}

/// Whether a later attempt to connect may succeed without an operator.
pub(super) fn may_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(found) => !matches!(
            find_no_server(found),
            Some(NoServer::All {
                may_pass: false,
                ..
            })
        ),
        // The server has no TLS, or its certificate is not trusted.
        sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) => false,
        other => needs_connection(other),
    }
}

/// The error of a failed query.
pub(super) fn query_error(error: &sqlx::Error) -> Error {
    Error::Failed(reason(error))
}

/// Waits for work on the database, but no longer than `limit`. Not an `async fn`, whose future would
/// hold the work twice.
pub(super) fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> impl Future<Output = Result<T, sqlx::Error>> {
    timeout(limit, work).map(|done| done.unwrap_or_else(|_| Err(timeout_error())))
}

/// The error of a statement without an answer.
pub(super) fn timeout_error() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        "no answer in time",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_its_reason() {
        let failure = |place: &str, error| ServerFailure {
            place: place.into(),
            error,
        };
        let all = no_server_error(vec![
            failure("a:5432", timeout_error()),
            failure("b:5432", read_only_error()),
        ]);
        assert_eq!(
            reason(&all),
            "no server of the URL is of use: a:5432: the database cannot be reached: no answer in time; \
             b:5432: the server only reads, such as a standby"
        );
        assert!(may_pass(&all) && needs_connection(&all));
        let one = no_server_error(vec![failure("a:5432", read_only_error())]);
        assert_eq!(reason(&one), "the server only reads, such as a standby");
    }

    #[test]
    fn failed_connection_leaves_the_outcome_open() {
        let lost = timeout_error();
        assert!(is_uncertain(&lost) && needs_connection(&lost) && !is_row_error(&lost));
        assert_eq!(
            reason(&lost),
            "the database cannot be reached: no answer in time"
        );
    }
}
