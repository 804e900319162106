//! Runs a statement on a SQLite file. The statement is checked against the file once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::CachedStatement;
use rusqlite::types::Value as Stored;
use tokio::time::{Instant, sleep};

use super::faults::{self, AttemptError};
use super::session::{DatabaseFile, Session, ThreadConnection};
use super::{Database, values};
use crate::call::{ToolContext, ToolError, ToolResult};
use crate::tools::sql::faults::{Finding, WRITES_IN_READ_TOOL};
use crate::tools::sql::rows::{self, Limits, Rows, affected_rows_result};
use crate::tools::sql::statement::Statement;
use crate::tools::{Placeholder, Values};

/// The first and the longest pause between two attempts while another process holds its lock.
const LOCK_RETRY_PAUSES: (Duration, Duration) =
    (Duration::from_millis(2), Duration::from_millis(50));
/// The lowest limit for the length of a value that a reading statement handles, whatever
/// `max_output` is.
const MIN_READ_BYTES: usize = 4 << 20;
/// The limit for a change that returns rows. All columns of a changed row count, also those that
/// are not returned.
const MAX_RETURNING_BYTES: usize = 16 << 20;

/// A statement with its database.
pub(in crate::tools::sql) struct Prepared {
    database: Arc<Database>,
    job: Arc<StatementJob>,
    names: Vec<Placeholder>,
}

/// What the connection's thread needs to run a call.
struct StatementJob {
    database_file: DatabaseFile,
    sql: String,
    limits: Limits,
    /// Whether the statement was checked against the database and accepted.
    is_checked: AtomicBool,
}

/// The outcome of a statement.
enum StatementOutcome {
    /// The number of changed rows, for a statement that returns no rows.
    Affected(u64),
    /// Rows, and whether the statement was stopped before its end.
    Rows(Rows, bool),
}

impl StatementOutcome {
    fn into_result(self, context: &ToolContext) -> Result<ToolResult, ToolError> {
        match self {
            Self::Affected(count) => Ok(affected_rows_result(count)),
            Self::Rows(rows, stopped) => rows.into_result(stopped, context),
        }
    }
}

impl Prepared {
    pub(in crate::tools::sql) fn new(
        database: Arc<Database>,
        statement: &Statement,
        limits: Limits,
    ) -> Self {
        let sql = statement.render(|index| format!("?{}", index + 1));
        let names = statement
            .placeholders()
            .iter()
            .map(|one| one.name.clone())
            .collect();
        let work = StatementJob {
            database_file: database.file.clone(),
            sql,
            limits,
            is_checked: AtomicBool::new(false),
        };
        Self {
            database,
            job: Arc::new(work),
            names,
        }
    }

    /// Checks the statement against the database, on a new connection.
    pub(in crate::tools::sql) async fn probe(&self) -> Result<(), Finding> {
        let (file, work) = (&self.database.file, self.job.clone());
        let finding = |error| match error {
            AttemptError::Database(error) => Err(error),
            AttemptError::Statement(finding) => Ok(finding),
            AttemptError::Tool(error) => Ok(Finding::temporary(error.to_string())),
            AttemptError::Replaced => Ok(Finding::temporary(format!(
                "{}: the file was replaced",
                file.path.display()
            ))),
        };
        let session = Session::open(file).await.map_err(|error| {
            finding(error)
                .unwrap_or_else(|error| Finding::temporary(faults::unusable_message(&error, file)))
        })?;
        let checked = session.run(move |link| work.check_statement(link)).await;
        checked.map_err(|error| {
            finding(error).unwrap_or_else(|error| faults::probe_finding(&error, file))
        })
    }

    pub(in crate::tools::sql) async fn call(
        &self,
        values: Values<'_>,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let bound = Arc::new(values::bind_values(&self.names, values)?);
        let file = &self.database.file;
        let permit = self.database.pool.acquire().await?;
        let (mut session, mut pause) = (None, LOCK_RETRY_PAUSES.0);
        let answer = loop {
            let opened = match session.take() {
                Some(session) => Ok(session),
                None => match permit.take_idle().await {
                    Some(session) => Ok(session),
                    None => Session::open(file).await,
                },
            };
            let attempt_result = match opened {
                Ok(opened) => {
                    let (work, bound) = (self.job.clone(), bound.clone());
                    let attempt_result =
                        opened.run(move |link| work.run_attempt(link, &bound)).await;
                    session = Some(opened);
                    attempt_result
                }
                Err(trouble) => Err(trouble),
            };
            match attempt_result {
                Ok(answer) => break answer.into_result(context),
                Err(AttemptError::Tool(error)) => break Err(error),
                Err(AttemptError::Statement(finding)) => {
                    break Err(ToolError::upstream_permanent(finding.message).not_delivered());
                }
                Err(AttemptError::Replaced) => session = None,
                Err(AttemptError::Database(error)) if !faults::is_busy(&error) => {
                    break Err(faults::call_failure(
                        &error,
                        file,
                        self.job.max_value_bytes(),
                    ));
                }
                Err(AttemptError::Database(_)) if Instant::now() + 2 * pause > context.deadline => {
                    break Err(faults::busy_failure(file));
                }
                Err(AttemptError::Database(_)) => {
                    sleep(pause).await;
                    pause = (2 * pause).min(LOCK_RETRY_PAUSES.1);
                }
            }
        };
        if let (Some(session), Ok(_) | Err(ToolError::ErrorResult(_) | ToolError::BadOutput(_))) =
            (session, &answer)
        {
            permit.release(session);
        }
        answer
    }
}

impl StatementJob {
    /// The most bytes of a value or row, for a statement that returns rows.
    fn max_value_bytes(&self) -> usize {
        if self.database_file.writes {
            MAX_RETURNING_BYTES
        } else {
            self.limits.max_database_bytes().max(MIN_READ_BYTES)
        }
    }

    fn check_statement(&self, link: &ThreadConnection) -> Result<(), AttemptError> {
        let statement = link.prepare(&self.sql)?;
        let fault = rows::duplicate_column_fault(statement.column_names()).or_else(|| {
            // `explain` changes nothing. But for `explain` SQLite reports whether the explained
            // statement is read-only.
            let reads =
                self.database_file.writes || statement.readonly() || statement.is_explain() != 0;
            (!reads).then(|| WRITES_IN_READ_TOOL.to_owned())
        });
        fault.map_or(Ok(()), |fault| {
            Err(AttemptError::Statement(Finding::permanent(fault)))
        })
    }

    fn run_attempt(
        &self,
        link: &ThreadConnection,
        bound: &[Stored],
    ) -> Result<StatementOutcome, AttemptError> {
        if !link.is_current(&self.database_file) {
            return Err(AttemptError::Replaced);
        }
        if !self.is_checked.load(Ordering::Relaxed) {
            self.check_statement(link)?;
            self.is_checked.store(true, Ordering::Relaxed);
        }
        if !self.database_file.writes {
            return self.run_statement(link, bound);
        }
        link.connection.execute_batch("begin immediate")?;
        let outcome = self.run_statement(link, bound);
        if let Err(trouble) = outcome {
            link.connection.execute_batch("rollback")?;
            return Err(trouble);
        }
        match link.connection.execute_batch("commit") {
            Ok(()) => outcome,
            Err(error) => {
                // A constraint that is checked at the commit, or a concurrent reader. Nothing is
                // committed yet, so a rollback is possible. If the rollback fails too, the state of
                // the file is unknown, and so is the outcome of the call.
                link.connection.execute_batch("rollback").map_err(|_| {
                    let message = faults::unusable_message(&error, &self.database_file);
                    ToolError::unavailable(format!(
                        "it is not known whether the change was committed: {message}"
                    ))
                })?;
                Err(error.into())
            }
        }
    }

    /// Runs the statement itself.
    fn run_statement(
        &self,
        link: &ThreadConnection,
        bound: &[Stored],
    ) -> Result<StatementOutcome, AttemptError> {
        let mut statement = link.prepare(&self.sql)?;
        if statement.column_count() == 0 {
            link.limit_length(None)?;
            return run_without_rows(link, &mut statement, bound);
        }
        link.limit_length(Some(self.max_value_bytes()))?;
        bind_parameters(&mut statement, bound)?;
        let mut names: Option<Vec<String>> = None;
        let mut rows = Rows::new(self.limits);
        let mut cursor = statement.raw_query();
        loop {
            let row = match cursor.next() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error)
                    if faults::is_too_long(&error)
                        && !self.database_file.writes
                        && rows.cut_at_refused_row() =>
                {
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            // The names are read after the first step. If the schema has changed, SQLite prepares
            // the statement again in that step.
            let names = match &mut names {
                Some(names) => names,
                names => {
                    let found = row.as_ref().column_names();
                    if let Some(fault) = rows::duplicate_column_fault(found.iter().copied()) {
                        return Err(AttemptError::Statement(Finding::permanent(fault)));
                    }
                    names.insert(found.into_iter().map(str::to_owned).collect())
                }
            };
            rows.push(values::measure_row(names, row)?, |odd| {
                values::row_to_json(names, row, odd)
            })?;
            // A statement that changes data runs to its end.
            if rows.is_full() && !self.database_file.writes {
                break;
            }
        }
        let stopped = rows.is_full() && !self.database_file.writes;
        Ok(StatementOutcome::Rows(rows, stopped))
    }
}

fn bind_parameters(
    statement: &mut CachedStatement<'_>,
    bound: &[Stored],
) -> Result<(), rusqlite::Error> {
    bound
        .iter()
        .enumerate()
        .try_for_each(|(at, value)| statement.raw_bind_parameter(at + 1, value))
}

/// Runs a statement that returns no rows.
fn run_without_rows(
    link: &ThreadConnection,
    statement: &mut CachedStatement<'_>,
    bound: &[Stored],
) -> Result<StatementOutcome, AttemptError> {
    let before = link.connection.total_changes();
    bind_parameters(statement, bound)?;
    statement.raw_execute()?;
    // `changes()` counts the last insert, update or delete, which may have been an earlier
    // statement.
    let has_changed = link.connection.total_changes() != before;
    Ok(StatementOutcome::Affected(if has_changed {
        link.connection.changes()
    } else {
        0
    }))
}
