//! Describes a statement: the types of its parameters and columns, and from these the SQL text that
//! is run.

use std::sync::Arc;

use serde_json::Value;
use sqlx::postgres::{PgArguments, PgColumn, PgRow, PgTypeInfo};
use sqlx::{Arguments as _, AssertSqlSafe, Column, PgConnection, Row, Statement as _};

use super::arguments::Parameter;
use super::decode::Shape;
use super::parameter_types::{DescribedStatement, prepare_statement};
use super::{ServerAddress, bounded, faults};
use crate::kinds::sql::faults::{Finding, WRITES_IN_READ_TOOL};
use crate::kinds::sql::rows;
use crate::kinds::sql::statement::Statement;

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
    type_info: PgTypeInfo,
    pub(super) shape: Shape,
}

/// Why there is no plan.
#[derive(derive_more::From)]
pub(super) enum PlanError {
    #[from]
    Database(sqlx::Error),
    Statement(Finding),
}

impl PlanError {
    pub(super) fn into_finding(self, server: &ServerAddress) -> Finding {
        match self {
            Self::Database(error) => faults::describe_finding(&error, server),
            Self::Statement(finding) => finding,
        }
    }
}

impl Plan {
    /// Asks the database. With `read_only`, a statement that changes data is refused.
    /// `max_row_bytes` is the limit for a row, in bytes.
    pub(super) async fn create(
        connection: &mut PgConnection,
        statement: &Statement,
        read_only: bool,
        max_row_bytes: usize,
    ) -> Result<Self, PlanError> {
        let description = DescribedStatement::describe(connection, statement).await?;
        let described = &description.described;
        let names = described.columns().iter().map(Column::name);
        if let Some(fault) = rows::duplicate_column_fault(names) {
            return Err(PlanError::Statement(Finding::permanent(fault)));
        }
        let (mut sql, mut columns) = (description.sql, plan_columns(described.columns()));
        // Not every statement can stand inside another one: `show`, `explain` and `call` cannot.
        // These run without the bound on rows.
        for form in bounded::bounded_forms(&sql, described.columns(), max_row_bytes) {
            if let Ok(wrapped) = prepare_statement(connection, &form).await {
                (sql, columns) = (form, plan_columns(wrapped.columns()));
                break;
            }
        }
        let columns = columns?;
        let time_limit =
            "select setting::bigint from pg_catalog.pg_settings where name = 'statement_timeout'";
        let time_limit = sqlx::query_scalar(time_limit)
            .persistent(false)
            .fetch_one(&mut *connection)
            .await?;
        let plan = Self {
            sql: sql.into(),
            parameters: description.parameters,
            columns,
            time_limit,
        };
        if read_only && plan.changes_data(connection).await? {
            return Err(PlanError::Statement(Finding::permanent(
                WRITES_IN_READ_TOOL,
            )));
        }
        Ok(plan)
    }

    /// Whether the row has the columns that were described.
    pub(super) fn matches_row(&self, row: &PgRow) -> bool {
        let planned = self
            .columns
            .iter()
            .map(|column| (column.name.as_str(), column.type_info.oid()));
        planned.eq(row
            .columns()
            .iter()
            .map(|column| (column.name(), column.type_info().oid())))
    }

    /// The advice for a row that is longer than the limit, if the error means that.
    pub(super) fn too_long_advice(&self, error: &sqlx::Error) -> Option<String> {
        bounded::too_long_advice(error, |at| {
            self.columns.get(at).map(|column| column.name.as_str())
        })
    }

    /// Whether the statement would change data, according to the database's query plan. Commands
    /// without a plan, such as `create table`, are refused later by the read-only transaction of
    /// the call.
    async fn changes_data(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let mut arguments = PgArguments::default();
        for _ in &self.parameters {
            arguments.add(None::<String>).map_err(sqlx::Error::Encode)?;
        }
        let explain = AssertSqlSafe(format!("explain (format json, costs off) {}", self.sql));
        let row = match sqlx::query_with(explain, arguments)
            .persistent(false)
            .fetch_one(connection)
            .await
        {
            Ok(row) => row,
            // This role may lack the permission for the statement, which the caller reports.
            Err(error) if faults::error_code(&error) == Some("42501") => return Err(error),
            Err(_) => return Ok(false),
        };
        let plan = row
            .try_get_raw(0)
            .ok()
            .and_then(|raw| serde_json::from_str::<Value>(raw.as_str().ok()?).ok());
        Ok(plan.is_some_and(|plan| has_changing_node(&plan)))
    }
}

/// Whether a part of the query plan changes or locks rows.
fn has_changing_node(plan: &Value) -> bool {
    match plan {
        Value::Object(node) => {
            let kind = node.get("Node Type").and_then(Value::as_str);
            kind.is_some_and(|kind| ["ModifyTable", "LockRows"].contains(&kind))
                || node.values().any(has_changing_node)
        }
        Value::Array(nodes) => nodes.iter().any(has_changing_node),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The columns with their shapes, or the first column that cannot be read.
fn plan_columns(columns: &[PgColumn]) -> Result<Vec<PlannedColumn>, PlanError> {
    let planned = columns.iter().map(|column| {
        let (name, type_of) = (column.name().to_owned(), column.type_info().clone());
        match Shape::for_type(&type_of) {
            Some(shape) => Ok(PlannedColumn {
                name,
                type_info: type_of,
                shape,
            }),
            None => Err(PlanError::Statement(Finding::permanent(format!(
                "column `{name}` has a type without a form in JSON; cast it to text: {name}::text"
            )))),
        }
    });
    planned.collect()
}
