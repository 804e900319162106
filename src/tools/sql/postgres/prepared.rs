//! Runs a statement on a PostgreSQL database. It is described once. Each call runs it in a transaction of its own,
//! and commits only if the tool may write. The transaction of a reading tool ends after the answer has left.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::TryStreamExt;
use serde_json::Value;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments as _, AssertSqlSafe, Either, Executor, PgConnection, Row, ValueRef};
use tokio::time::{Instant, timeout};

use super::plan::{NoPlan, Plan};
use super::session::Session;
use super::{Database, arguments, decode, faults};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::sql::faults::{Finding, misfit};
use crate::tools::sql::pool;
use crate::tools::sql::rows::{self, Limits, Longest, Odd, Rows, affected};
use crate::tools::sql::statement::Statement;
use crate::tools::{Fault, Placeholder, Values};

/// The server stops a statement by itself this long after the call's deadline, in case the cancel request does not
/// arrive.
const GRACE: Duration = Duration::from_secs(1);
/// How long the remaining rows of a cut answer are read and discarded. If there are more, a new connection is
/// cheaper.
const REST: Duration = Duration::from_millis(20);
/// The limit for connecting at the start of the service, which delays the other tools.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How many attempts a call makes if tables of the statement change meanwhile.
const TRIES: u32 = 3;

/// A statement with its database.
pub(in crate::tools::sql) struct Prepared {
    database: Arc<Database>,
    statement: Statement,
    writes: bool,
    limits: Limits,
    plan: ArcSwapOption<Plan>,
}

/// Why an attempt failed.
enum Trouble {
    Database(sqlx::Error),
    Tool(ToolError),
    /// The rows are not those of the plan: a table has changed.
    Stale,
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        if faults::is_stale(&error) { Self::Stale } else { Self::Database(error) }
    }
}

impl From<ToolError> for Trouble {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

impl Prepared {
    pub(in crate::tools::sql) fn new(
        database: Arc<Database>,
        statement: Statement,
        writes: bool,
        limits: Limits,
    ) -> Self {
        Self { database, statement, writes, limits, plan: ArcSwapOption::empty() }
    }

    /// Checks the statement against the database, on a new connection.
    pub(in crate::tools::sql) async fn probe(&self) -> Result<(), Finding> {
        let server = &self.database.server;
        if let Some(missed) = self.database.missed.get() {
            return Err(missed.clone());
        }
        let missed = match timeout(PROBE_TIMEOUT, Session::open(server)).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(error)) => Err(faults::no_connection(&error, server)),
            Err(_) => Err(format!("{}: no connection within {} seconds", server.place, PROBE_TIMEOUT.as_secs())),
        };
        let mut session = missed.map_err(|message| {
            let finding = Finding::passing(message);
            let _ = self.database.missed.set(finding.clone());
            finding
        })?;
        let plan = Plan::make(&mut session.connection, &self.statement, !self.writes, self.limits.held()).await;
        self.plan.store(Some(Arc::new(plan.map_err(|error| error.finding(server))?)));
        Ok(())
    }

    pub(in crate::tools::sql) async fn call(
        &self,
        values: Values<'_>,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let turn = self.database.pool.place().await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let (mut session, plan) = self.begin(&turn, context).await?;
            let tried = self.attempt(&mut session, &plan, values, context).await;
            let error = match tried {
                Ok(result) => {
                    if !session.is_busy() {
                        turn.keep_after(session.in_order(self.writes));
                    }
                    return Ok(result);
                }
                // The attempt had no effect. The idle connections have prepared the outdated statement too, so they
                // are closed.
                Err(Trouble::Stale) if tries < TRIES => {
                    self.plan.store(None);
                    turn.forget();
                    continue;
                }
                Err(Trouble::Stale) => {
                    return Err(ToolError::upstream("the statement's tables keep changing").before_anything());
                }
                // The statement may still be running. So the session is dropped here, which cancels the statement.
                Err(Trouble::Tool(error)) if session.is_busy() => return Err(error),
                Err(Trouble::Tool(error)) => Err(error),
                Err(Trouble::Database(error)) => {
                    // An error without a code is not from the server: the connection has failed. With a code, the
                    // statement has ended.
                    if faults::code(&error).is_none() {
                        return Err(faults::failure(&error, &self.database.server));
                    }
                    session.idle();
                    Ok(error)
                }
            };
            let is_over = session.connection.execute("rollback").await.is_ok();
            let refusal = error.as_ref().ok().and_then(|error| plan.refusal(error));
            let is_refused = refusal.is_some();
            let error = match (error, refusal) {
                (Err(error), _) => error,
                (Ok(_), Some(advice)) => self.too_long(&advice),
                (Ok(error), None) if is_over && faults::is_of_a_value(&error) => {
                    let misfits = misfits(&mut session.connection, &plan, values).await;
                    match misfits.is_empty() {
                        true => faults::failure(&error, &self.database.server),
                        false => misfits.into(),
                    }
                }
                (Ok(error), None) => faults::failure(&error, &self.database.server),
            };
            let is_answer = is_refused
                || matches!(
                    error,
                    ToolError::Said(_)
                        | ToolError::InvalidArguments(_)
                        | ToolError::InvalidContext(_)
                        | ToolError::BadOutput(_)
                );
            if is_answer && is_over {
                turn.keep_after(session.in_order(self.writes));
            } else {
                // The objects of the statement may have changed, so the next call describes it again.
                self.plan.store(None);
            }
            return Err(error);
        }
    }

    /// A connection with a started transaction, and the plan. A successful `begin` also proves that an idle
    /// connection still works.
    async fn begin(
        &self,
        turn: &pool::ConnectionPermit<Session>,
        context: &ToolContext,
    ) -> Result<(Session, Arc<Plan>), ToolError> {
        let server = &self.database.server;
        if let Some(plan) = self.plan.load_full() {
            while let Some(mut session) = turn.idle().await {
                if self.begin_on(&mut session, &plan, context).await.is_ok() {
                    return Ok((session, plan));
                }
            }
        }
        let mut session = Session::open(server).await.map_err(|error| faults::unreachable(&error, server))?;
        let plan = match self.plan.load_full() {
            Some(plan) => plan,
            None => {
                let plan = Plan::make(&mut session.connection, &self.statement, !self.writes, self.limits.held()).await;
                let plan = Arc::new(plan.map_err(|error| match error {
                    NoPlan::Database(error) => faults::failure(&error, server),
                    NoPlan::Statement(finding) => ToolError::upstream_final(finding.message).before_anything(),
                })?);
                self.plan.store(Some(plan.clone()));
                plan
            }
        };
        let begun = self.begin_on(&mut session, &plan, context).await;
        begun.map_err(|error| faults::failure(&error, server))?;
        Ok((session, plan))
    }

    async fn begin_on(&self, session: &mut Session, plan: &Plan, context: &ToolContext) -> Result<(), sqlx::Error> {
        // The server's limit is a safeguard in case the cancel request does not arrive. A shorter limit of the
        // database stays in force.
        let left = context.deadline.saturating_duration_since(Instant::now()) + GRACE;
        let left = i64::try_from(left.as_millis()).unwrap_or(i64::MAX).min(i32::MAX.into());
        let most = if plan.time_limit > 0 { left.min(plan.time_limit) } else { left };
        let mode = if self.writes { "begin read write" } else { "begin read only" };
        let begin = AssertSqlSafe(format!("{mode}; set local statement_timeout = {most}"));
        sqlx::raw_sql(begin).execute(&mut session.connection).await?;
        Ok(())
    }

    /// Executes the statement and commits. A session that is still busy afterwards must not be used again.
    async fn attempt(
        &self,
        session: &mut Session,
        plan: &Plan,
        values: Values<'_>,
        context: &ToolContext,
    ) -> Result<ToolResult, Trouble> {
        let mut bound = PgArguments::default();
        for text in arguments::bind(&plan.parameters, values)? {
            bound.add(text).map_err(|error| ToolError::upstream_final(error.to_string()).before_anything())?;
        }
        // From here on the server may be running the statement. If this future is dropped (the call was canceled),
        // the session is dropped too. Its `Cancel` then stops the statement on the server, because `busy` has armed
        // it. `idle` disarms it after the last row.
        session.busy();
        let mut rows = Rows::new(self.limits);
        let (mut count, mut is_first, mut stopped) = (0, true, false);
        let mut stream = session.connection.fetch_many(sqlx::query_with(AssertSqlSafe(plan.sql.clone()), bound));
        loop {
            match stream.try_next().await {
                Ok(None) => break,
                Ok(Some(Either::Left(done))) => count = done.rows_affected(),
                Ok(Some(Either::Right(row))) => {
                    if std::mem::take(&mut is_first) && !plan.fits(&row) {
                        return Err(Trouble::Stale);
                    }
                    rows.push(Longest::default(), |odd| object(plan, &row, odd))?;
                }
                // The row is too long, but earlier rows can be shown. The transaction has failed; it only read and is
                // rolled back anyway.
                Err(error) if !self.writes && plan.refusal(&error).is_some() && rows.cut_at_refusal() => {
                    drop(stream);
                    session.idle();
                    return Ok(rows.finish(true, context)?);
                }
                Err(error) => return Err(error.into()),
            }
            // A statement that changes data runs to its end.
            stopped = rows.is_full() && !self.writes;
            if stopped {
                break;
            }
        }
        if stopped {
            // If rows arrive fast, `try_next` is always ready and the timer is never polled. So the loop also checks
            // the clock.
            let end = Instant::now() + REST;
            let rest = async { while Instant::now() < end && matches!(stream.try_next().await, Ok(Some(_))) {} };
            if timeout(REST, rest).await.is_err() || Instant::now() >= end {
                return Ok(rows.finish(true, context)?);
            }
        }
        drop(stream);
        session.idle();
        if self.writes {
            self.commit(session).await?;
        }
        if plan.columns.is_empty() { Ok(affected(count)) } else { Ok(rows.finish(stopped, context)?) }
    }

    /// The error for a row that the server has refused as too long.
    fn too_long(&self, advice: &str) -> ToolError {
        let most = self.limits.held();
        let said = format!("a row is longer than {most} bytes in the database, the most that is read here: {advice}");
        if !self.writes {
            return ToolError::BadOutput(said);
        }
        ToolError::upstream_final(format!("{said}; nothing was changed")).before_anything()
    }

    /// Commits the transaction. If the connection breaks meanwhile, the server may have committed or not. The failure
    /// is then `unavailable` without "no effect", so the call becomes `unknown` and is not repeated. An error that
    /// the server reports means that it has rolled back.
    async fn commit(&self, session: &mut Session) -> Result<(), Trouble> {
        match session.connection.execute("commit").await {
            Ok(_) => Ok(()),
            Err(error) if faults::code(&error).is_none() => {
                let place = &self.database.server.place;
                let message = format!(
                    "{place}: the connection broke while the change was being committed, so it is not known whether it \
                     was: {error}"
                );
                session.busy();
                Err(ToolError::unavailable(message).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The values that the database cannot read. Each is cast again, in a statement of its own.
async fn misfits(connection: &mut PgConnection, plan: &Plan, values: Values<'_>) -> Vec<Fault> {
    let Ok(texts) = arguments::bind(&plan.parameters, values) else { return Vec::new() };
    let mut misfits = Vec::new();
    for (parameter, text) in plan.parameters.iter().zip(texts).filter(|(_, text)| text.is_some()) {
        let cast = AssertSqlSafe(format!("select ($1::text::{}) is null", parameter.type_name));
        let read = sqlx::query(cast).bind(text).persistent(false).execute(&mut *connection).await;
        if let Err(error) = read {
            let words = match &parameter.name {
                Placeholder::Argument(_) => faults::words(&error),
                // The database's message would quote the value.
                Placeholder::Context(_) => format!("the statement wants {}", parameter.type_name),
            };
            misfits.push(misfit(&parameter.name, words));
        }
    }
    misfits
}

/// A row as a JSON object.
fn object(plan: &Plan, row: &PgRow, odd: &mut Odd) -> Result<JsonObject, ToolError> {
    rows::row(plan.columns.iter().map(|column| column.name.as_str()), |at| {
        let column = &plan.columns[at];
        let garbled = |error: String| ToolError::BadOutput(format!("column `{}` cannot be read: {error}", column.name));
        let raw = row.try_get_raw(at).map_err(|error| garbled(error.to_string()))?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        let bytes = raw.as_bytes().map_err(|error| garbled(error.to_string()))?;
        let mut inexact = || {
            odd.insert(format!(
                "column `{}` holds JSON that would lose something here (a number with more digits than a double, a key \
                 that is there twice): it is shown as its text",
                column.name
            ));
        };
        decode::value(bytes, &column.shape, &mut inexact).map_err(|error| garbled(error.to_string()))
    })
}
