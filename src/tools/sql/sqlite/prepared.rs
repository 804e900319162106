//! A statement on a SQLite file: held against it once, and run.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Either, Executor, Row};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use super::session::Session;
use super::{Database, faults, values};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::sql::faults::{Finding, WRITES};
use crate::tools::sql::pool;
use crate::tools::sql::rows::{self, Limits, Rows, affected};
use crate::tools::sql::statement::Statement;

/// Between two looks whether another process has let go of its lock: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// A statement on it.
pub(in crate::tools::sql) struct Prepared {
    database: Arc<Database>,
    sql: Arc<str>,
    names: Vec<String>,
    limits: Limits,
    /// The database has seen it and has nothing against it.
    checked: OnceCell<()>,
}

/// Why a try of the statement came to nothing.
enum Trouble {
    Database(sqlx::Error),
    Tool(ToolError),
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<ToolError> for Trouble {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

impl Prepared {
    pub(in crate::tools::sql) fn new(database: Arc<Database>, statement: &Statement, limits: Limits) -> Self {
        let sql = statement.render(|index| format!("?{}", index + 1)).into();
        let names = statement.placeholders().iter().map(|one| one.name.clone()).collect();
        Self { database, sql, names, limits, checked: OnceCell::new() }
    }

    /// Holds the statement against the database, on a connection that is opened for it.
    pub(in crate::tools::sql) async fn probe(&self) -> Result<(), Finding> {
        let place = &self.database.place;
        let mut session =
            Session::open(place).await.map_err(|error| Finding::passing(faults::unusable(&error, place)))?;
        self.look(&mut session).await.map_err(|error| faults::finding(&error, place))?
    }

    async fn look(&self, session: &mut Session) -> Result<Result<(), Finding>, sqlx::Error> {
        let columns = session.columns(&self.sql).await?;
        if let Some(fault) = rows::name_fault(columns.iter().map(String::as_str)) {
            return Ok(Err(Finding::fault(fault)));
        }
        if !self.database.place.writes && writes(session, &self.sql).await? {
            return Ok(Err(Finding::fault(WRITES)));
        }
        Ok(Ok(()))
    }

    pub(in crate::tools::sql) async fn call(
        &self,
        arguments: &JsonObject,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let bound = values::bind(&self.names, arguments)?;
        let place = &self.database.place;
        let turn = self.database.pool.place().await?;
        let (mut session, mut pause) = (None, PAUSES.0);
        let said = loop {
            let tried = match &mut session {
                Some(session) => self.attempt(session, &bound, context).await,
                None => match self.session(&turn).await {
                    Ok(opened) => self.attempt(session.insert(opened), &bound, context).await,
                    Err(error) => Err(error.into()),
                },
            };
            match tried {
                Ok(result) => break Ok(result),
                Err(Trouble::Tool(error)) => break Err(error),
                Err(Trouble::Database(error)) if !faults::is_busy(&error) => break Err(faults::failure(&error, place)),
                Err(Trouble::Database(_)) if Instant::now() + 2 * pause > context.deadline => {
                    break Err(faults::busy(place));
                }
                Err(Trouble::Database(_)) => sleep(pause).await,
            }
            pause = (2 * pause).min(PAUSES.1);
        };
        if let (Some(session), Ok(_) | Err(ToolError::Said(_))) = (session, &said) {
            turn.keep(session);
        }
        said
    }

    async fn session(&self, turn: &pool::Place<Session>) -> Result<Session, sqlx::Error> {
        let place = &self.database.place;
        while let Some(mut session) = turn.idle() {
            if session.is_current(place).await? {
                return Ok(session);
            }
        }
        Session::open(place).await
    }

    async fn attempt(
        &self,
        session: &mut Session,
        bound: &SqliteArguments,
        context: &ToolContext,
    ) -> Result<ToolResult, Trouble> {
        if !self.checked.initialized() {
            let looked = self.look(session).await?;
            looked.map_err(|finding| ToolError::upstream_final(finding.message).before_anything())?;
            let _ = self.checked.set(());
        }
        if !self.database.place.writes {
            return self.run(session, bound, context).await;
        }
        session.connection.execute("begin immediate").await?;
        let done = self.run(session, bound, context).await;
        if let Err(trouble) = done {
            session.connection.execute("rollback").await?;
            return Err(trouble);
        }
        match session.connection.execute("commit").await {
            Ok(_) => done,
            Err(error) => {
                // A constraint that is checked at the end, or a reader in the way: nothing is committed yet.
                session.connection.execute("rollback").await.map_err(|_| {
                    let said = faults::unusable(&error, &self.database.place);
                    ToolError::unavailable(format!("it is not known whether the change was committed: {said}"))
                })?;
                Err(error.into())
            }
        }
    }

    /// The statement itself.
    async fn run(
        &self,
        session: &mut Session,
        bound: &SqliteArguments,
        context: &ToolContext,
    ) -> Result<ToolResult, Trouble> {
        let names = session.columns(&self.sql).await?;
        let writes = self.database.place.writes;
        let changes = if writes { total_changes(session).await? } else { 0 };
        let mut rows = Rows::new(self.limits);
        let mut count = 0;
        let query = sqlx::query_with(AssertSqlSafe(self.sql.clone()), bound.clone());
        let mut stream = (&mut session.connection).fetch_many(query);
        while let Some(step) = stream.try_next().await? {
            match step {
                Either::Left(done) => count = done.rows_affected(),
                Either::Right(row) => rows.push(|odd| values::object(&names, &row, odd))?,
            }
            // What changes something runs to its end.
            if rows.is_full() && !writes {
                break;
            }
        }
        drop(stream);
        let stopped = rows.is_full() && !writes;
        if stopped {
            session.stop().await?;
        }
        if names.is_empty() {
            // SQLite's count is that of the last insert, update or delete, if this was none.
            let changed = total_changes(session).await? != changes;
            return Ok(affected(if changed { count } else { 0 }));
        }
        Ok(rows.finish(stopped, context)?)
    }
}

async fn total_changes(session: &mut Session) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("select total_changes()").fetch_one(&mut session.connection).await
}

/// Whether the statement writes, as SQLite itself would say (`sqlite3_stmt_readonly`, which sqlx does not reach): its
/// program begins a write transaction, or changes the file in one of the ways that need none.
async fn writes(session: &mut Session, sql: &str) -> Result<bool, sqlx::Error> {
    let program = (&mut session.connection).fetch_all(AssertSqlSafe(format!("explain {sql}"))).await?;
    for row in program {
        let (operation, p2): (String, i64) = (row.try_get("opcode")?, row.try_get("p2")?);
        if (operation == "Transaction" && p2 != 0) || ["Vacuum", "JournalMode", "Checkpoint"].contains(&&*operation) {
            return Ok(true);
        }
    }
    Ok(false)
}
