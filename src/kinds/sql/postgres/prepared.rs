//! Runs a statement on a PostgreSQL database. It is described once. Each call runs it in a
//! transaction of its own, and commits only if the tool may write. The transaction of a reading
//! tool ends after the answer has left.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::TryStreamExt;
use serde_json::Value;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments as _, AssertSqlSafe, Either, Executor, PgConnection, Row, ValueRef};
use tokio::time::{Instant, timeout};

use super::plan::{Plan, PlanError};
use super::session::Session;
use super::{Database, arguments, decode, faults};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::kinds::sql::faults::{Finding, value_fault};
use crate::kinds::sql::pool;
use crate::kinds::sql::rows::{self, Limits, RowLength, Rows, ValueWarnings, affected_rows_result};
use crate::kinds::sql::statement::Statement;
use crate::kinds::{Placeholder, ValueFault, Values};

/// The server stops a statement by itself this long after the call's deadline, in case the cancel
/// request does not arrive.
const SERVER_TIMEOUT_MARGIN: Duration = Duration::from_secs(1);
/// How long the remaining rows of a cut answer are read and discarded. If there are more, a new
/// connection is cheaper.
const DRAIN_TIME: Duration = Duration::from_millis(20);
/// The limit for connecting at the start of the service, which delays the other tools.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How many attempts a call makes if tables of the statement change meanwhile.
const MAX_ATTEMPTS: u32 = 3;

/// A statement with its database.
pub(in crate::kinds::sql) struct Prepared {
    database: Arc<Database>,
    statement: Statement,
    writes: bool,
    limits: Limits,
    plan: ArcSwapOption<Plan>,
}

/// Why an attempt failed.
#[derive(derive_more::From)]
enum AttemptError {
    Database(sqlx::Error),
    #[from]
    Tool(ToolError),
    /// The rows are not those of the plan: a table has changed.
    Stale,
}

impl From<sqlx::Error> for AttemptError {
    fn from(error: sqlx::Error) -> Self {
        if faults::is_stale(&error) {
            Self::Stale
        } else {
            Self::Database(error)
        }
    }
}

impl Prepared {
    pub(in crate::kinds::sql) fn new(
        database: Arc<Database>,
        statement: Statement,
        writes: bool,
        limits: Limits,
    ) -> Self {
        Self {
            database,
            statement,
            writes,
            limits,
            plan: ArcSwapOption::empty(),
        }
    }

    /// Checks the statement against the database, on a new connection.
    pub(in crate::kinds::sql) async fn probe(&self) -> Result<(), Finding> {
        let server = &self.database.server;
        if let Some(failure) = self.database.start_failure.get() {
            return Err(failure.clone());
        }
        let connected = match timeout(PROBE_TIMEOUT, Session::open(server)).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(error)) => Err(faults::connect_message(&error, server)),
            Err(_) => Err(format!(
                "{}: no connection within {} seconds",
                server.display_name,
                PROBE_TIMEOUT.as_secs()
            )),
        };
        let mut session = connected.map_err(|message| {
            let finding = Finding::temporary(message);
            let _ = self.database.start_failure.set(finding.clone());
            finding
        })?;
        let plan = self.describe(&mut session).await;
        self.plan.store(Some(Arc::new(
            plan.map_err(|error| error.into_finding(server))?,
        )));
        Ok(())
    }

    pub(in crate::kinds::sql) async fn call(
        &self,
        values: Values<'_>,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let permit = self.database.pool.acquire().await?;
        for _ in 0..MAX_ATTEMPTS {
            let (mut session, plan) = self.begin_transaction(&permit, context).await?;
            let attempt_result = self.run_attempt(&mut session, &plan, values, context).await;
            let error = match attempt_result {
                Ok(result) => {
                    if !session.is_busy() {
                        if self.writes {
                            permit.release_after_reset(session.reset(true));
                        } else {
                            session.mark_unreset();
                            permit.release_unreset(session, |session| session.reset(false));
                        }
                    }
                    return Ok(result);
                }
                // The attempt had no effect. The idle connections have prepared the outdated
                // statement too, so they are closed.
                Err(AttemptError::Stale) => {
                    self.plan.store(None);
                    permit.close_all_idle();
                    continue;
                }
                // The statement may still be running. So the session is dropped here, which cancels
                // the statement.
                Err(AttemptError::Tool(error)) if session.is_busy() => return Err(error),
                Err(AttemptError::Tool(error)) => Err(error),
                Err(AttemptError::Database(error)) => {
                    // An error without a code is not from the server: the connection has failed.
                    // With a code, the statement has ended.
                    if faults::error_code(&error).is_none() {
                        return Err(faults::call_failure(&error, &self.database.server));
                    }
                    session.mark_idle();
                    Ok(error)
                }
            };
            let is_rolled_back = session.connection.execute("rollback").await.is_ok();
            let refusal = error
                .as_ref()
                .ok()
                .and_then(|error| plan.too_long_advice(error));
            let is_refused = refusal.is_some();
            let error = match (error, refusal) {
                (Err(error), _) => error,
                (Ok(_), Some(advice)) => self.too_long_error(&advice),
                (Ok(error), None) if is_rolled_back && faults::is_value_error(&error) => {
                    let value_faults =
                        find_value_faults(&mut session.connection, &plan, values).await;
                    match value_faults.is_empty() {
                        true => faults::call_failure(&error, &self.database.server),
                        false => value_faults.into(),
                    }
                }
                (Ok(error), None) => faults::call_failure(&error, &self.database.server),
            };
            let is_answer = is_refused
                || matches!(
                    error,
                    ToolError::ErrorResult(_)
                        | ToolError::InvalidArguments(_)
                        | ToolError::InvalidContext(_)
                        | ToolError::BadOutput(_)
                );
            if is_answer && is_rolled_back {
                permit.release_after_reset(session.reset(self.writes));
            } else {
                // The objects of the statement may have changed, so the next call describes it
                // again.
                self.plan.store(None);
            }
            return Err(error);
        }
        Err(ToolError::upstream("the statement's tables keep changing").not_delivered())
    }

    /// Describes the statement. It may wait for a lock of a table, so a drop cancels it.
    async fn describe(&self, session: &mut Session) -> Result<Plan, PlanError> {
        session.mark_busy();
        let plan = Plan::create(
            &mut session.connection,
            &self.statement,
            !self.writes,
            self.limits.max_database_bytes(),
        )
        .await;
        session.mark_idle();
        plan
    }

    /// A connection with a started transaction, and the plan. A successful `begin` also proves that
    /// an idle connection still works.
    async fn begin_transaction(
        &self,
        permit: &pool::ConnectionPermit<Session>,
        context: &ToolContext,
    ) -> Result<(Session, Arc<Plan>), ToolError> {
        let server = &self.database.server;
        if let Some(plan) = self.plan.load_full() {
            while let Some(mut session) = permit.take_idle().await {
                if self.send_begin(&mut session, &plan, context).await.is_ok() {
                    return Ok((session, plan));
                }
            }
        }
        let mut session = Session::open(server)
            .await
            .map_err(|error| faults::connect_failure(&error, server))?;
        let plan = match self.plan.load_full() {
            Some(plan) => plan,
            None => {
                let plan = self.describe(&mut session).await;
                let plan = Arc::new(plan.map_err(|error| match error {
                    PlanError::Database(error) => faults::call_failure(&error, server),
                    PlanError::Statement(finding) => {
                        ToolError::upstream_permanent(finding.message).not_delivered()
                    }
                })?);
                self.plan.store(Some(plan.clone()));
                plan
            }
        };
        let started = self.send_begin(&mut session, &plan, context).await;
        started.map_err(|error| faults::call_failure(&error, server))?;
        Ok((session, plan))
    }

    async fn send_begin(
        &self,
        session: &mut Session,
        plan: &Plan,
        context: &ToolContext,
    ) -> Result<(), sqlx::Error> {
        // The server's limit is a safeguard in case the cancel request does not arrive. A shorter
        // limit of the database stays in force.
        let time_left =
            context.deadline.saturating_duration_since(Instant::now()) + SERVER_TIMEOUT_MARGIN;
        let time_left = i64::try_from(time_left.as_millis())
            .unwrap_or(i64::MAX)
            .min(i32::MAX.into());
        let timeout_ms = if plan.time_limit > 0 {
            time_left.min(plan.time_limit)
        } else {
            time_left
        };
        let mode = if self.writes {
            "read write"
        } else {
            "read only"
        };
        session.begin(mode, timeout_ms).await
    }

    /// Executes the statement and commits. A session that is still busy afterwards must not be used
    /// again.
    async fn run_attempt(
        &self,
        session: &mut Session,
        plan: &Plan,
        values: Values<'_>,
        context: &ToolContext,
    ) -> Result<ToolResult, AttemptError> {
        let mut bound = PgArguments::default();
        for text in arguments::bind_values(&plan.parameters, values)? {
            bound.add(text).map_err(|error| {
                ToolError::upstream_permanent(error.to_string()).not_delivered()
            })?;
        }
        // From here on the server may be running the statement. If this future is dropped (the call
        // was cancelled), the session is dropped too. Its `CancelOnDrop` then stops the statement
        // on the server, because `mark_busy` has armed it. `mark_idle` disarms it after the last
        // row.
        session.mark_busy();
        let mut rows = Rows::new(self.limits);
        let (mut count, mut is_first, mut stopped) = (0, true, false);
        let mut stream = session
            .connection
            .fetch_many(sqlx::query_with(AssertSqlSafe(plan.sql.clone()), bound));
        loop {
            match stream.try_next().await {
                Ok(None) => break,
                Ok(Some(Either::Left(result))) => count = result.rows_affected(),
                Ok(Some(Either::Right(row))) => {
                    if std::mem::take(&mut is_first) && !plan.matches_row(&row) {
                        return Err(AttemptError::Stale);
                    }
                    rows.push(RowLength::default(), |warnings| {
                        row_to_json(plan, &row, warnings)
                    })?;
                }
                // The row is too long, but earlier rows can be shown. The transaction has failed;
                // it only read and is rolled back anyway.
                Err(error)
                    if !self.writes
                        && plan.too_long_advice(&error).is_some()
                        && rows.cut_at_refused_row() =>
                {
                    drop(stream);
                    session.mark_idle();
                    return Ok(rows.into_result(true, context)?);
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
            // If rows arrive fast, `try_next` is always ready and the timer is never polled. So the
            // loop also checks the clock.
            let end = Instant::now() + DRAIN_TIME;
            let drain = async {
                while Instant::now() < end && matches!(stream.try_next().await, Ok(Some(_))) {}
            };
            if timeout(DRAIN_TIME, drain).await.is_err() || Instant::now() >= end {
                return Ok(rows.into_result(true, context)?);
            }
        }
        drop(stream);
        session.mark_idle();
        if self.writes {
            self.commit(session).await?;
        }
        if plan.columns.is_empty() {
            Ok(affected_rows_result(count))
        } else {
            Ok(rows.into_result(stopped, context)?)
        }
    }

    /// The error for a row that the server has refused as too long.
    fn too_long_error(&self, advice: &str) -> ToolError {
        let limit = self.limits.max_database_bytes();
        let message = format!(
            "a row is longer than {limit} bytes in the database, the most that the service reads: {advice}"
        );
        if !self.writes {
            return ToolError::BadOutput(message);
        }
        ToolError::upstream_permanent(format!("{message}; nothing was changed")).not_delivered()
    }

    /// Commits the transaction. If the connection breaks meanwhile, the server may have committed
    /// or not. The failure is then `unavailable` without "no effect", so the call becomes `unknown`
    /// and is not repeated. An error that the server reports means that it has rolled back.
    async fn commit(&self, session: &mut Session) -> Result<(), AttemptError> {
        match session.connection.execute("commit").await {
            Ok(_) => Ok(()),
            Err(error) if faults::error_code(&error).is_none() => {
                let address = &self.database.server.display_name;
                let message = format!(
                    "{address}: the connection broke while the change was being committed, so it is unknown whether the \
                     change was committed: {error}"
                );
                session.mark_busy();
                Err(ToolError::unavailable(message).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The values that the database cannot read. Each is cast again, in a statement of its own.
async fn find_value_faults(
    connection: &mut PgConnection,
    plan: &Plan,
    values: Values<'_>,
) -> Vec<ValueFault> {
    let Ok(texts) = arguments::bind_values(&plan.parameters, values) else {
        return Vec::new();
    };
    let mut faults_found = Vec::new();
    for (parameter, text) in plan
        .parameters
        .iter()
        .zip(texts)
        .filter(|(_, text)| text.is_some())
    {
        let cast = AssertSqlSafe(format!(
            "select ($1::text::{}) is null",
            parameter.type_name
        ));
        let cast_result = sqlx::query(cast)
            .bind(text)
            .persistent(false)
            .execute(&mut *connection)
            .await;
        if let Err(error) = cast_result {
            let message = match &parameter.name {
                Placeholder::Argument(_) => faults::server_message(&error),
                // The database's message would quote the value.
                Placeholder::Context(_) | Placeholder::Caller(_) => {
                    format!("the statement expects {}", parameter.type_name)
                }
            };
            faults_found.push(value_fault(&parameter.name, message));
        }
    }
    faults_found
}

/// A row as a JSON object.
fn row_to_json(
    plan: &Plan,
    row: &PgRow,
    warnings: &mut ValueWarnings,
) -> Result<JsonObject, ToolError> {
    rows::build_row(
        plan.columns.iter().map(|column| column.name.as_str()),
        |at| {
            let column = &plan.columns[at];
            let unreadable = |error: String| {
                ToolError::BadOutput(format!("column `{}` cannot be read: {error}", column.name))
            };
            let raw = row
                .try_get_raw(at)
                .map_err(|error| unreadable(error.to_string()))?;
            if raw.is_null() {
                return Ok(Value::Null);
            }
            let bytes = raw
                .as_bytes()
                .map_err(|error| unreadable(error.to_string()))?;
            let mut warn_inexact = || {
                warnings.insert(format!(
                "column `{}` holds JSON that has no exact form here (a number with more digits than a double, or a \
                 duplicate key): it is shown as text",
                column.name
            ));
            };
            decode::decode_value(bytes, &column.shape, &mut warn_inexact)
                .map_err(|error| unreadable(error.to_string()))
        },
    )
}
