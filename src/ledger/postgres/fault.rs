//! Classifies errors of the database.

use super::super::Error;

/// `commit_batch_1`: another replica has settled this one.
const REPLICA_ENDED: &str = "TC001";
/// `commit_batch_1`: an earlier connection of this replica has committed meanwhile.
const OUT_OF_ORDER: &str = "TC002";
/// PostgreSQL, appendix A: serialization failure and deadlock. The transaction may be repeated.
const REPEATABLE: [&str; 2] = ["40001", "40P01"];
/// A lock was not free in time.
const LOCKED: &str = "55P03";
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
        sqlx::Error::Database(found) => format!("the database refuses: {}", found.message()),
        sqlx::Error::Io(found) => format!("the database cannot be reached: {found}"),
        sqlx::Error::PoolTimedOut => "the database does not answer".into(),
        other => other.to_string(),
    }
}

/// The error of a failed query.
pub(super) fn query_error(error: &sqlx::Error) -> Error {
    Error::Failed(reason(error))
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
    fn failed_connection_leaves_the_outcome_open() {
        let lost = timeout_error();
        assert!(is_uncertain(&lost) && needs_connection(&lost) && !is_row_error(&lost));
        assert_eq!(
            reason(&lost),
            "the database cannot be reached: no answer in time"
        );
    }
}
