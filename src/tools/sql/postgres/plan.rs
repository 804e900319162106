//! Describes a statement: the types of its parameters and columns, and from these the SQL text that is run.

use std::sync::Arc;

use serde_json::Value;
use sqlx::postgres::{PgArguments, PgColumn, PgRow, PgTypeInfo};
use sqlx::{Arguments as _, AssertSqlSafe, Column, PgConnection, Row, Statement as _};

use super::arguments::Parameter;
use super::decode::Shape;
use super::uses::{Uses, describe};
use super::{Server, bounded, faults};
use crate::tools::sql::faults::{Finding, WRITES};
use crate::tools::sql::rows;
use crate::tools::sql::statement::Statement;

/// A statement in the form in which it is run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) sql: Arc<str>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) columns: Vec<PlannedColumn>,
    /// The database's own limit for a statement, in milliseconds; 0 means no limit.
    pub(super) time_limit: i64,
}

/// A column of the result.
#[derive(Debug)]
pub(super) struct PlannedColumn {
    pub(super) name: String,
    type_of: PgTypeInfo,
    pub(super) shape: Shape,
}

/// Why there is no plan.
pub(super) enum NoPlan {
    Database(sqlx::Error),
    Statement(Finding),
}

impl From<sqlx::Error> for NoPlan {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl NoPlan {
    pub(super) fn finding(self, server: &Server) -> Finding {
        match self {
            Self::Database(error) => faults::finding(&error, server),
            Self::Statement(finding) => finding,
        }
    }
}

impl Plan {
    /// Asks the database. With `reads`, a statement that changes data is refused. `most` is the limit for a row, in
    /// bytes.
    pub(super) async fn make(
        connection: &mut PgConnection,
        statement: &Statement,
        reads: bool,
        most: usize,
    ) -> Result<Self, NoPlan> {
        let Uses { parameters, typed, described } = Uses::find(connection, statement).await?;
        let names = described.columns().iter().map(Column::name);
        if let Some(fault) = rows::name_fault(names) {
            return Err(NoPlan::Statement(Finding::fault(fault)));
        }
        let (mut sql, mut columns) = (typed, planned(described.columns()));
        // Not every statement can stand inside another one: `show`, `explain` and `call` cannot. These run without
        // the bound on rows.
        for form in bounded::forms(&sql, described.columns(), most) {
            if let Ok(wrapped) = describe(connection, &form).await {
                (sql, columns) = (form, planned(wrapped.columns()));
                break;
            }
        }
        let columns = columns?;
        let time_limit = "select setting::bigint from pg_catalog.pg_settings where name = 'statement_timeout'";
        let time_limit = sqlx::query_scalar(time_limit).persistent(false).fetch_one(&mut *connection).await?;
        let plan = Self { sql: sql.into(), parameters, columns, time_limit };
        if reads && plan.writes(connection).await? {
            return Err(NoPlan::Statement(Finding::fault(WRITES)));
        }
        Ok(plan)
    }

    /// Whether the row has the columns that were described.
    pub(super) fn fits(&self, row: &PgRow) -> bool {
        let planned = self.columns.iter().map(|column| (column.name.as_str(), column.type_of.oid()));
        planned.eq(row.columns().iter().map(|column| (column.name(), column.type_info().oid())))
    }

    /// The advice for a row that is longer than the limit, if the error means that.
    pub(super) fn refusal(&self, error: &sqlx::Error) -> Option<String> {
        bounded::refusal(error, |at| self.columns.get(at).map(|column| column.name.as_str()))
    }

    /// Whether the statement would change data, according to the database's query plan. Commands without a plan, such
    /// as `create table`, are refused later by the read-only transaction of the call.
    async fn writes(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let mut arguments = PgArguments::default();
        for _ in &self.parameters {
            arguments.add(None::<String>).map_err(sqlx::Error::Encode)?;
        }
        let explain = AssertSqlSafe(format!("explain (format json, costs off) {}", self.sql));
        let row = match sqlx::query_with(explain, arguments).persistent(false).fetch_one(connection).await {
            Ok(row) => row,
            // This role may lack the permission for the statement, which the caller reports.
            Err(error) if faults::code(&error) == Some("42501") => return Err(error),
            Err(_) => return Ok(false),
        };
        let plan = row.try_get_raw(0).ok().and_then(|raw| serde_json::from_str::<Value>(raw.as_str().ok()?).ok());
        Ok(plan.is_some_and(|plan| changes(&plan)))
    }
}

/// Whether a part of the query plan changes or locks rows.
fn changes(plan: &Value) -> bool {
    match plan {
        Value::Object(node) => {
            let kind = node.get("Node Type").and_then(Value::as_str);
            kind.is_some_and(|kind| ["ModifyTable", "LockRows"].contains(&kind)) || node.values().any(changes)
        }
        Value::Array(nodes) => nodes.iter().any(changes),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The columns with their shapes, or the first column that cannot be read.
fn planned(columns: &[PgColumn]) -> Result<Vec<PlannedColumn>, NoPlan> {
    let planned = columns.iter().map(|column| {
        let (name, type_of) = (column.name().to_owned(), column.type_info().clone());
        match Shape::of(&type_of) {
            Some(shape) => Ok(PlannedColumn { name, type_of, shape }),
            None => Err(NoPlan::Statement(Finding::fault(format!(
                "column `{name}` has a type that has no JSON; have the database say it as text: {name}::text"
            )))),
        }
    });
    planned.collect()
}
