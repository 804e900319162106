//! Describes a statement: the types of its parameters and columns, and from these the SQL text that
//! is run.

use std::sync::Arc;

use serde_json::Value;
use sqlx::postgres::{PgArguments, PgColumn, PgRow, PgTypeInfo, PgTypeKind};
use sqlx::{Arguments as _, AssertSqlSafe, Column, PgConnection, Row, Statement as _};

use super::arguments::Parameter;
use super::decode::Shape;
use super::parameter_types::{DescribedStatement, prepare_statement};
use super::{ServerAddress, faults};
use crate::kinds::sql::faults::{Finding, WRITES_IN_READ_TOOL};
use crate::kinds::sql::reader::main_statement_start;
use crate::kinds::sql::rows::{self, RowLength};
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
        for form in bounded_forms(&sql, described.columns(), max_row_bytes) {
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
        too_long_advice(error, |at| {
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

/// The start of the server's error message for such a row. The error is a failing cast of this
/// text, because plain SQL cannot raise an error in any other way.
const ERROR_PREFIX: &str = "toolcrib: row too long: ";
/// A value that is stored in at most this many bytes is not measured. LZ4 packs at most 255 to 1,
/// so such a value has at most about 510 kB, which the service can hold in memory.
const UNMEASURED_BYTES: usize = 2000;

/// Wraps a statement in another one, so that the server itself refuses a row that is too long. sqlx
/// has no bound: it would read the whole row into memory first.
///
/// The wrapping does not change the statement. `offset 0` keeps PostgreSQL from merging the two. So
/// each value is computed once, functions with effects run as often as before, and rows come in the
/// same order, one by one. Lengths are read from the headers of values where possible, without
/// unpacking them.
///
/// These are equivalent forms; the caller uses the first one that the database accepts. Empty if no
/// column can be long.
fn bounded_forms(sql: &str, columns: &[PgColumn], max_bytes: usize) -> Vec<String> {
    let names: Vec<String> = columns
        .iter()
        .map(|column| quote_identifier(column.name()))
        .collect();
    let columns = || columns.iter().map(PgColumn::type_info).zip(&names);
    let Some(guard) = length_guard(columns(), max_bytes) else {
        return Vec::new();
    };
    let shown = |(kind, name): (&PgTypeInfo, &String)| match Shape::for_type(kind) {
        Some(_) => name.clone(),
        None if is_array_type(kind) => format!("{name}::text[] as {name}"),
        None => format!("{name}::text as {name}"),
    };
    // The select list has a cast to text for the types that only the database can write. Otherwise it
    // is `*`: then a change of the table's columns changes the result type of the prepared statement,
    // and the server reports that.
    let shown = match columns().any(|(kind, _)| Shape::for_type(kind).is_none()) {
        true => columns().map(shown).collect::<Vec<_>>().join(", "),
        false => "*".into(),
    };
    let names = names.join(", ");
    let wrap = |table: &str| {
        format!("select * from (select {shown} from {table} as \"x\" offset 0) as \"rows\"{guard}")
    };
    let mut forms = vec![
        // For a query.
        wrap(&format!("(\n{sql}\n)")),
        // For a change that returns rows.
        format!(
            "with \"toolcrib rows\" ({names}) as (\n{sql}\n) {}",
            wrap("\"toolcrib rows\"")
        ),
    ];
    // PostgreSQL permits a change inside a `with` only at the top level of a statement.
    if let Some(at) = main_statement_start(sql) {
        let (with, main) = sql.split_at(at);
        let rows = wrap("\"toolcrib rows\"");
        forms.push(format!(
            "{with}, \"toolcrib rows\" ({names}) as (\n{main}\n) {rows}"
        ));
    }
    forms
}

/// The condition that a row has at most `max_bytes` bytes; `None` if no column can be long.
fn length_guard<'c>(
    columns: impl Iterator<Item = (&'c PgTypeInfo, &'c String)>,
    max_bytes: usize,
) -> Option<String> {
    let lengths = columns
        .enumerate()
        .filter_map(|(at, (kind, name))| Some((at, length_expression(kind, name)?)));
    let lengths: Vec<(usize, String)> = lengths.collect();
    if lengths.is_empty() {
        return None;
    }
    let join = |write: fn(&(usize, String)) -> String, separator: &str| {
        let written: Vec<String> = lengths.iter().map(write).collect();
        written.join(separator)
    };
    let sum = join(|(_, length)| format!("coalesce({length}, 0)::int8"), " + ");
    let list = join(
        |(at, length)| format!("'{at}=' || coalesce({length}, 0)"),
        " || ' ' || ",
    );
    Some(format!(
        " where case when {sum} > {max_bytes} then ('{ERROR_PREFIX}' || {list})::pg_catalog.bool is null else true end"
    ))
}

/// The SQL expression for the length of a value in bytes; `None` if the type has only short values.
fn length_expression(kind: &PgTypeInfo, name: &str) -> Option<String> {
    let unpacked = |length: &str| {
        format!(
            "case when pg_catalog.pg_column_size({name}) > {UNMEASURED_BYTES} then pg_catalog.octet_length({length}) end"
        )
    };
    let array = || Some(unpacked(&format!("pg_catalog.array_send({name})")));
    match Shape::for_type(kind) {
        // The select list has already cast these to text.
        None if is_array_type(kind) => array(),
        None => Some(format!("pg_catalog.octet_length({name})")),
        Some(Shape::Array(_)) => array(),
        Some(Shape::Json | Shape::Jsonb) => Some(unpacked(&format!("{name}::pg_catalog.text"))),
        // Enums, names and single characters are short.
        Some(Shape::Text) if is_short_type(kind) => None,
        Some(Shape::Text) => Some(format!("pg_catalog.octet_length({name}::pg_catalog.text)")),
        Some(Shape::Bytes) => Some(format!("pg_catalog.octet_length({name})")),
        // All other types are short. A numeric has at most 147,455 digits.
        Some(_) => None,
    }
}

fn is_short_type(kind: &PgTypeInfo) -> bool {
    match kind.kind() {
        PgTypeKind::Enum(_) => true,
        PgTypeKind::Domain(of) => is_short_type(of),
        // The types "char" and name.
        _ => kind.oid().is_some_and(|oid| [18, 19].contains(&oid.0)),
    }
}

fn is_array_type(kind: &PgTypeInfo) -> bool {
    matches!(kind.kind(), PgTypeKind::Array(_))
}

fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The advice for a row that the server has refused as too long; `None` for any other error. `name`
/// gives a column's name.
pub(super) fn too_long_advice<'n>(
    error: &sqlx::Error,
    name: impl Fn(usize) -> Option<&'n str>,
) -> Option<String> {
    if faults::error_code(error) != Some("22P02") {
        return None;
    }
    let message = faults::server_message(error);
    let (_, lengths) = message.split_once(ERROR_PREFIX)?;
    let mut longest = RowLength::default();
    for (at, bytes) in lengths.split(' ').filter_map(|entry| entry.split_once('=')) {
        let bytes: &str = &bytes[..bytes
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(bytes.len())];
        longest.add(name(at.parse().ok()?)?, bytes.parse().ok()?);
    }
    Some(longest.advice())
}
