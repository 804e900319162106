//! Runs a statement on a SQLite file. The statement is checked against the file once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rusqlite::types::Value as Stored;
use rusqlite::{CachedStatement, Connection, ErrorCode, StatementStatus};
use tokio::time::{Instant, sleep};

use super::faults::{self, AttemptError};
use super::session::{DatabaseFile, Session};
use super::{Database, values};
use crate::call::{ToolContext, ToolError, ToolResult};
use crate::kinds::sql::faults::{Finding, WRITES_IN_READ_TOOL};
use crate::kinds::sql::rows::{self, Limits, Rows, affected_rows_result};
use crate::kinds::sql::statement::Statement;
use crate::kinds::{Placeholder, Values};
use crate::runtime::blocking::run_blocking;

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
pub(in crate::kinds::sql) struct Prepared {
    database: Arc<Database>,
    job: Arc<StatementJob>,
    names: Vec<Placeholder>,
}

/// What a thread needs to run a call.
struct StatementJob {
    database_file: DatabaseFile,
    sql: String,
    limits: Limits,
    /// Whether the statement was checked against the database and accepted.
    is_checked: AtomicBool,
    placement: Placement,
    /// The names of the columns in the last result.
    columns: ArcSwapOption<Vec<String>>,
}

/// The outcome of a statement.
enum StatementOutcome {
    /// The number of changed rows, for a statement that returns no rows.
    Affected(u64),
    /// Rows, and whether the statement was stopped before its end.
    Rows(Rows, bool),
}

/// The thread on which a statement runs, see [`Placement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Worker,
    Thread,
}

/// A connection that may serve the next call, and the outcome of this one.
type Attempt = (Option<Session>, Result<StatementOutcome, AttemptError>);

/// Stops the statement of a dropped call. Otherwise its thread would go on with it.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Prepared {
    pub(in crate::kinds::sql) fn new(
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
        let job = StatementJob {
            database_file: database.file.clone(),
            sql,
            limits,
            is_checked: AtomicBool::new(false),
            placement: Placement::new(),
            columns: ArcSwapOption::empty(),
        };
        Self {
            database,
            job: Arc::new(job),
            names,
        }
    }

    /// Checks the statement against the database, on a new connection.
    pub(in crate::kinds::sql) async fn probe(&self) -> Result<(), Finding> {
        let job = self.job.clone();
        let checked = run_blocking(move || {
            let file = &job.database_file;
            let session = Session::open(file)
                .map_err(|error| Finding::temporary(faults::unusable_message(&error, file)))?;
            job.check_statement(&session).map_err(|error| match error {
                AttemptError::Database(error) => faults::probe_finding(&error, file),
                AttemptError::Statement(finding) => finding,
                AttemptError::Tool(error) => Finding::temporary(error.to_string()),
                AttemptError::Replaced | AttemptError::NeedsThread => {
                    Finding::temporary(format!("{}: the file was replaced", file.path.display()))
                }
            })
        });
        checked
            .await
            .unwrap_or_else(|| Err(Finding::temporary("the database was not checked")))
    }

    pub(in crate::kinds::sql) async fn call(
        &self,
        values: Values<'_>,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let bound = Arc::new(values::bind_values(&self.names, values)?);
        let file = &self.database.file;
        let permit = self.database.pool.acquire().await?;
        let mut pause = LOCK_RETRY_PAUSES.0;
        loop {
            let (session, outcome) = self.run(permit.take_idle().await, &bound).await;
            if let Some(session) = session {
                permit.release(session);
            }
            match outcome {
                Ok(StatementOutcome::Affected(count)) => return Ok(affected_rows_result(count)),
                Ok(StatementOutcome::Rows(rows, stopped)) => {
                    return rows.into_result(stopped, context);
                }
                Err(AttemptError::Tool(error)) => return Err(error),
                Err(AttemptError::Statement(finding)) => {
                    return Err(ToolError::upstream_permanent(finding.message).not_delivered());
                }
                Err(AttemptError::Replaced | AttemptError::NeedsThread) => {}
                Err(AttemptError::Database(error)) if !faults::is_busy(&error) => {
                    let longest = self.job.max_value_bytes();
                    return Err(faults::call_failure(&error, file, longest));
                }
                Err(AttemptError::Database(_)) if Instant::now() + 2 * pause > context.deadline => {
                    return Err(faults::busy_failure(file));
                }
                Err(AttemptError::Database(_)) => {
                    sleep(pause).await;
                    pause = (2 * pause).min(LOCK_RETRY_PAUSES.1);
                }
            }
        }
    }

    /// Runs the statement once. Without a `session`, it opens one.
    async fn run(&self, session: Option<Session>, bound: &Arc<Vec<Stored>>) -> Attempt {
        let session = match session {
            Some(session) if self.job.placement.is_on_worker() => {
                match self.job.run_on_worker(session, bound) {
                    (session, Err(AttemptError::NeedsThread)) => session,
                    attempt => return attempt,
                }
            }
            session => session,
        };
        let stop = StopOnDrop(Arc::default());
        let (job, bound, stopped) = (self.job.clone(), bound.clone(), stop.0.clone());
        let attempt = run_blocking(move || job.run_on_thread(session, &bound, stopped)).await;
        attempt.unwrap_or_else(|| {
            let error = ToolError::unavailable("the service is stopping");
            (None, Err(error.into()))
        })
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

    fn check_statement(&self, session: &Session) -> Result<(), AttemptError> {
        let statement = session.prepare(&self.sql)?;
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

    /// Runs the statement on the current thread, a worker of tokio. Only for reads.
    fn run_on_worker(&self, session: Session, bound: &[Stored]) -> Attempt {
        let start = std::time::Instant::now();
        let attempt = || {
            session.stop_after(WORKER_STEPS, start + WORKER_TIME)?;
            self.run_attempt(&session, bound, Place::Worker)
        };
        let outcome = attempt();
        // One step may count a whole table, and SQLite looks at the limits only between steps.
        if start.elapsed() > LONG_WORKER_TIME {
            self.placement.record_overrun();
        }
        let outcome = outcome.map_err(|error| match error {
            AttemptError::Database(error)
                if faults::is_stopped(&error) || faults::is_too_long(&error) =>
            {
                self.placement.record_overrun();
                AttemptError::NeedsThread
            }
            error => error,
        });
        keep_session(session, outcome)
    }

    /// Runs the statement on the current thread, which may block. If the call has ended meanwhile,
    /// nothing runs.
    fn run_on_thread(
        &self,
        session: Option<Session>,
        bound: &[Stored],
        stop: Arc<AtomicBool>,
    ) -> Attempt {
        if stop.load(Ordering::Relaxed) {
            let error = ToolError::unavailable_before_start("the call has ended", None);
            return (session, Err(error.into()));
        }
        let session = match session.map_or_else(|| Session::open(&self.database_file), Ok) {
            Ok(session) => session,
            Err(error) => return (None, Err(error.into())),
        };
        let attempt = || {
            session.stop_when(stop)?;
            self.run_attempt(&session, bound, Place::Thread)
        };
        let outcome = attempt();
        keep_session(session, outcome)
    }

    fn run_attempt(
        &self,
        session: &Session,
        bound: &[Stored],
        place: Place,
    ) -> Result<StatementOutcome, AttemptError> {
        if !session.is_current(&self.database_file) {
            return Err(AttemptError::Replaced);
        }
        // SQLite may have to read long statements of the schema. The limit of an earlier call would
        // hold for them, too.
        session.limit_length(None)?;
        if !self.is_checked.load(Ordering::Relaxed) {
            self.check_statement(session)?;
            self.is_checked.store(true, Ordering::Relaxed);
        }
        if !self.database_file.writes {
            return self.run_statement(session, bound, place);
        }
        session.connection.execute_batch("begin immediate")?;
        let outcome = self.run_statement(session, bound, place);
        if let Err(trouble) = outcome {
            roll_back(&session.connection)?;
            return Err(trouble);
        }
        match session.connection.execute_batch("commit") {
            Ok(()) => outcome,
            Err(error) => {
                // A constraint that is checked at the commit, or a concurrent reader. Nothing is
                // committed yet, so a rollback is possible. A full disk makes SQLite roll back. If the
                // rollback fails too, or SQLite has ended the transaction for another reason, the
                // outcome of the call is unknown.
                let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
                let is_rolled_back = match session.connection.is_autocommit() {
                    true => is_full,
                    false => roll_back(&session.connection).is_ok(),
                };
                if is_rolled_back {
                    return Err(error.into());
                }
                let message = faults::unusable_message(&error, &self.database_file);
                let message =
                    format!("it is not known whether the change was committed: {message}");
                Err(ToolError::unavailable(message).into())
            }
        }
    }

    /// The names of the columns. They are checked only if they have changed.
    fn column_names(
        &self,
        statement: &rusqlite::Statement<'_>,
    ) -> Result<Arc<Vec<String>>, AttemptError> {
        let names = || (0..statement.column_count()).flat_map(|at| statement.column_name(at));
        if let Some(known) = self
            .columns
            .load_full()
            .filter(|known| names().eq(known.iter()))
        {
            return Ok(known);
        }
        if let Some(fault) = rows::duplicate_column_fault(names()) {
            return Err(AttemptError::Statement(Finding::permanent(fault)));
        }
        let found: Arc<Vec<String>> = Arc::new(names().map(str::to_owned).collect());
        self.columns.store(Some(found.clone()));
        Ok(found)
    }

    /// Runs the statement itself.
    fn run_statement(
        &self,
        session: &Session,
        bound: &[Stored],
        place: Place,
    ) -> Result<StatementOutcome, AttemptError> {
        let mut statement = session.prepare(&self.sql)?;
        if statement.column_count() == 0 {
            return run_without_rows(session, &mut statement, bound);
        }
        let longest = match place {
            Place::Worker => WORKER_BYTES,
            Place::Thread => self.max_value_bytes(),
        };
        session.limit_length(Some(longest))?;
        bind_parameters(&mut statement, bound)?;
        let mut names: Option<Arc<Vec<String>>> = None;
        let mut rows = Rows::new(self.limits);
        let start = std::time::Instant::now();
        statement.reset_status(StatementStatus::VmStep);
        let mut cursor = statement.raw_query();
        loop {
            let row = match cursor.next() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error)
                    if faults::is_too_long(&error)
                        && place == Place::Thread
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
                names => names.insert(self.column_names(row.as_ref())?),
            };
            rows.push(values::measure_row(names, row)?, |odd| {
                values::row_to_json(names, row, odd)
            })?;
            // A statement that changes data runs to its end.
            if rows.is_full() && !self.database_file.writes {
                break;
            }
        }
        drop(cursor);
        if place == Place::Thread && !self.database_file.writes {
            let steps = statement.get_status(StatementStatus::VmStep);
            self.placement.record_thread_run(steps, start.elapsed());
        }
        let stopped = rows.is_full() && !self.database_file.writes;
        Ok(StatementOutcome::Rows(rows, stopped))
    }
}

/// Keeps the connection for the next call, if it is still in order and no transaction is open.
fn keep_session(session: Session, outcome: Result<StatementOutcome, AttemptError>) -> Attempt {
    let is_kept = outcome
        .as_ref()
        .map_or_else(AttemptError::keeps_connection, |_| true)
        && session.connection.is_autocommit();
    (is_kept.then_some(session), outcome)
}

/// Ends the transaction, unless SQLite has ended it already: a statement with `raise(rollback, …)`
/// and a full disk do that.
fn roll_back(connection: &Connection) -> Result<(), rusqlite::Error> {
    if connection.is_autocommit() {
        return Ok(());
    }
    connection.execute_batch("rollback")
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
    session: &Session,
    statement: &mut CachedStatement<'_>,
    bound: &[Stored],
) -> Result<StatementOutcome, AttemptError> {
    let before = session.connection.total_changes();
    bind_parameters(statement, bound)?;
    statement.raw_execute()?;
    // `changes()` counts the last insert, update or delete, which may have been an earlier
    // statement.
    let has_changed = session.connection.total_changes() != before;
    Ok(StatementOutcome::Affected(if has_changed {
        session.connection.changes()
    } else {
        0
    }))
}

/// The most steps of SQLite's virtual machine for a statement on a worker. They take some dozens of
/// microseconds, and give about 200 rows. Steps are counted, not time, because they are the same on
/// every run, however busy the machine is.
const WORKER_STEPS: i32 = 1000;
/// The longest time of a statement on a worker. Few steps can take long if the disk is slow.
const WORKER_TIME: Duration = Duration::from_millis(2);
/// A run of this time leads back to threads, although it was within the limits. It is longer than
/// the pauses that a busy machine gives a thread.
const LONG_WORKER_TIME: Duration = Duration::from_millis(10);
/// The longest value or row that a statement handles on a worker. A single operation of SQLite
/// cannot be stopped. With two values of this length, each takes at most some milliseconds.
const WORKER_BYTES: usize = 4 << 10;
/// How many brief runs on a thread come before the next run on a worker, if a run was not brief.
/// So a statement that is seldom brief loses at most a few percent of its time.
const THREAD_RUNS: u32 = 20;

/// Where the next run of one statement is: on the worker of tokio that serves its call, or on a
/// blocking thread.
///
/// The way to a thread and back costs many times what a brief statement costs. But a statement must
/// not hold up a worker, which serves other calls too. So a statement runs on a worker only while
/// its last runs were brief, and within narrow bounds. A read that exceeds them has had no effect,
/// and starts again on a thread.
struct Placement {
    /// How many more runs on a thread have to be brief.
    thread_runs: AtomicU32,
}

impl Placement {
    /// The first run of a statement is on a thread.
    pub(super) fn new() -> Self {
        Self {
            thread_runs: AtomicU32::new(1),
        }
    }

    /// Whether the next run may be on a worker.
    pub(super) fn is_on_worker(&self) -> bool {
        self.thread_runs.load(Ordering::Relaxed) == 0
    }

    /// Records the steps and the time of a run on a thread.
    pub(super) fn record_thread_run(&self, steps: i32, time: Duration) {
        if steps >= WORKER_STEPS || time >= WORKER_TIME {
            self.record_overrun();
        } else {
            // Calls at the same time may lose a count, which does no harm.
            let left = self.thread_runs.load(Ordering::Relaxed);
            self.thread_runs
                .store(left.saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// Records a run that was too long for a worker.
    pub(super) fn record_overrun(&self) {
        self.thread_runs.store(THREAD_RUNS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps and time of a brief run.
    const BRIEF: (i32, Duration) = (10, Duration::from_micros(10));

    impl Placement {
        fn record(&self, (steps, time): (i32, Duration)) {
            self.record_thread_run(steps, time);
        }
    }

    #[test]
    fn brief_runs_lead_to_a_worker() {
        let placement = Placement::new();
        assert!(!placement.is_on_worker(), "nothing is known yet");
        placement.record(BRIEF);
        assert!(placement.is_on_worker());
    }

    #[test]
    fn long_run_leads_back_to_threads() {
        let long_runs: [fn(&Placement); 3] = [
            Placement::record_overrun,
            |placement| placement.record((WORKER_STEPS, BRIEF.1)),
            |placement| placement.record((BRIEF.0, WORKER_TIME)),
        ];
        for record_long_run in long_runs {
            let placement = Placement::new();
            placement.record(BRIEF);
            record_long_run(&placement);
            for _ in 0..THREAD_RUNS {
                assert!(!placement.is_on_worker());
                placement.record(BRIEF);
            }
            assert!(placement.is_on_worker());
        }
    }
}
