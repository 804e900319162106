//! Runs a statement on a SQLite file. The statement is checked against the file once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::CachedStatement;
use rusqlite::types::Value as Stored;
use tokio::time::{Instant, sleep};

use super::faults::{self, Trouble};
use super::session::{DatabaseFile, Link, Session};
use super::{Database, values};
use crate::call::{ToolContext, ToolError, ToolResult};
use crate::tools::sql::faults::{Finding, WRITES};
use crate::tools::sql::rows::{self, Limits, Rows, affected};
use crate::tools::sql::statement::Statement;
use crate::tools::{Placeholder, Values};

/// The first and the longest pause between two attempts while another process holds its lock.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// The lowest limit for the length of a value that a reading statement handles, whatever `max_output` is.
const READS: usize = 4 << 20;
/// The limit for a change that returns rows. All columns of a changed row count, also those that are not returned.
const WRITES_ROWS: usize = 16 << 20;

/// A statement with its database.
pub(in crate::tools::sql) struct Prepared {
    database: Arc<Database>,
    work: Arc<Work>,
    names: Vec<Placeholder>,
}

/// What the connection's thread needs to run a call.
struct Work {
    place: DatabaseFile,
    sql: String,
    limits: Limits,
    /// Whether the statement was checked against the database and accepted.
    is_checked: AtomicBool,
}

/// The outcome of a statement.
enum Answer {
    /// The number of changed rows, for a statement that returns no rows.
    Affected(u64),
    /// Rows, and whether the statement was stopped before its end.
    Rows(Rows, bool),
}

impl Answer {
    fn result(self, context: &ToolContext) -> Result<ToolResult, ToolError> {
        match self {
            Self::Affected(count) => Ok(affected(count)),
            Self::Rows(rows, stopped) => rows.finish(stopped, context),
        }
    }
}

impl Prepared {
    pub(in crate::tools::sql) fn new(database: Arc<Database>, statement: &Statement, limits: Limits) -> Self {
        let sql = statement.render(|index| format!("?{}", index + 1));
        let names = statement.placeholders().iter().map(|one| one.name.clone()).collect();
        let work = Work { place: database.place.clone(), sql, limits, is_checked: AtomicBool::new(false) };
        Self { database, work: Arc::new(work), names }
    }

    /// Checks the statement against the database, on a new connection.
    pub(in crate::tools::sql) async fn probe(&self) -> Result<(), Finding> {
        let (place, work) = (&self.database.place, self.work.clone());
        let finding = |trouble| match trouble {
            Trouble::Database(error) => Err(error),
            Trouble::Statement(finding) => Ok(finding),
            Trouble::Tool(error) => Ok(Finding::passing(error.to_string())),
            Trouble::Replaced => Ok(Finding::passing(format!("{}: the file was replaced", place.file.display()))),
        };
        let session = Session::open(place).await.map_err(|trouble| {
            finding(trouble).unwrap_or_else(|error| Finding::passing(faults::unusable(&error, place)))
        })?;
        let looked = session.run(move |link| work.look(link)).await;
        looked.map_err(|trouble| finding(trouble).unwrap_or_else(|error| faults::finding(&error, place)))
    }

    pub(in crate::tools::sql) async fn call(
        &self,
        values: Values<'_>,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let bound = Arc::new(values::bind(&self.names, values)?);
        let place = &self.database.place;
        let turn = self.database.pool.place().await?;
        let (mut session, mut pause) = (None, PAUSES.0);
        let answer = loop {
            let opened = match session.take() {
                Some(session) => Ok(session),
                None => match turn.idle().await {
                    Some(session) => Ok(session),
                    None => Session::open(place).await,
                },
            };
            let tried = match opened {
                Ok(opened) => {
                    let (work, bound) = (self.work.clone(), bound.clone());
                    let tried = opened.run(move |link| work.attempt(link, &bound)).await;
                    session = Some(opened);
                    tried
                }
                Err(trouble) => Err(trouble),
            };
            match tried {
                Ok(answer) => break answer.result(context),
                Err(Trouble::Tool(error)) => break Err(error),
                Err(Trouble::Statement(finding)) => {
                    break Err(ToolError::upstream_final(finding.message).before_anything());
                }
                Err(Trouble::Replaced) => session = None,
                Err(Trouble::Database(error)) if !faults::is_busy(&error) => {
                    break Err(faults::failure(&error, place, self.work.longest()));
                }
                Err(Trouble::Database(_)) if Instant::now() + 2 * pause > context.deadline => {
                    break Err(faults::busy(place));
                }
                Err(Trouble::Database(_)) => {
                    sleep(pause).await;
                    pause = (2 * pause).min(PAUSES.1);
                }
            }
        };
        if let (Some(session), Ok(_) | Err(ToolError::Said(_) | ToolError::BadOutput(_))) = (session, &answer) {
            turn.keep(session);
        }
        answer
    }
}

impl Work {
    /// The most bytes of a value or row, for a statement that returns rows.
    fn longest(&self) -> usize {
        if self.place.writes { WRITES_ROWS } else { self.limits.held().max(READS) }
    }

    fn look(&self, link: &Link) -> Result<(), Trouble> {
        let statement = link.prepare(&self.sql)?;
        let fault = rows::name_fault(statement.column_names()).or_else(|| {
            // `explain` changes nothing. But for `explain` SQLite reports whether the explained statement is
            // read-only.
            let reads = self.place.writes || statement.readonly() || statement.is_explain() != 0;
            (!reads).then(|| WRITES.to_owned())
        });
        fault.map_or(Ok(()), |fault| Err(Trouble::Statement(Finding::fault(fault))))
    }

    fn attempt(&self, link: &Link, bound: &[Stored]) -> Result<Answer, Trouble> {
        if !link.is_current(&self.place) {
            return Err(Trouble::Replaced);
        }
        if !self.is_checked.load(Ordering::Relaxed) {
            self.look(link)?;
            self.is_checked.store(true, Ordering::Relaxed);
        }
        if !self.place.writes {
            return self.run(link, bound);
        }
        link.connection.execute_batch("begin immediate")?;
        let done = self.run(link, bound);
        if let Err(trouble) = done {
            link.connection.execute_batch("rollback")?;
            return Err(trouble);
        }
        match link.connection.execute_batch("commit") {
            Ok(()) => done,
            Err(error) => {
                // A constraint that is checked at the commit, or a concurrent reader. Nothing is committed yet, so a
                // rollback is possible. If the rollback fails too, the state of the file is unknown, and so is the
                // outcome of the call.
                link.connection.execute_batch("rollback").map_err(|_| {
                    let said = faults::unusable(&error, &self.place);
                    ToolError::unavailable(format!("it is not known whether the change was committed: {said}"))
                })?;
                Err(error.into())
            }
        }
    }

    /// Runs the statement itself.
    fn run(&self, link: &Link, bound: &[Stored]) -> Result<Answer, Trouble> {
        let mut statement = link.prepare(&self.sql)?;
        if statement.column_count() == 0 {
            link.limit_length(None)?;
            return affect(link, &mut statement, bound);
        }
        link.limit_length(Some(self.longest()))?;
        bind(&mut statement, bound)?;
        let mut names: Option<Vec<String>> = None;
        let mut rows = Rows::new(self.limits);
        let mut cursor = statement.raw_query();
        loop {
            let row = match cursor.next() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) if faults::is_too_long(&error) && !self.place.writes && rows.cut_at_refusal() => break,
                Err(error) => return Err(error.into()),
            };
            // The names are read after the first step. If the schema has changed, SQLite prepares the statement again
            // in that step.
            let names = match &mut names {
                Some(names) => names,
                names => {
                    let found = row.as_ref().column_names();
                    if let Some(fault) = rows::name_fault(found.iter().copied()) {
                        return Err(Trouble::Statement(Finding::fault(fault)));
                    }
                    names.insert(found.into_iter().map(str::to_owned).collect())
                }
            };
            rows.push(values::measure(names, row)?, |odd| values::object(names, row, odd))?;
            // A statement that changes data runs to its end.
            if rows.is_full() && !self.place.writes {
                break;
            }
        }
        let stopped = rows.is_full() && !self.place.writes;
        Ok(Answer::Rows(rows, stopped))
    }
}

fn bind(statement: &mut CachedStatement<'_>, bound: &[Stored]) -> Result<(), rusqlite::Error> {
    bound.iter().enumerate().try_for_each(|(at, value)| statement.raw_bind_parameter(at + 1, value))
}

/// Runs a statement that returns no rows.
fn affect(link: &Link, statement: &mut CachedStatement<'_>, bound: &[Stored]) -> Result<Answer, Trouble> {
    let before = link.connection.total_changes();
    bind(statement, bound)?;
    statement.raw_execute()?;
    // `changes()` counts the last insert, update or delete, which may have been an earlier statement.
    let has_changed = link.connection.total_changes() != before;
    Ok(Answer::Affected(if has_changed { link.connection.changes() } else { 0 }))
}
