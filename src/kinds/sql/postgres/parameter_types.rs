//! Finds the type of each placeholder: the database describes the statement, and reports the type
//! of each parameter.

use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgStatement, PgTypeInfo};
use sqlx::{AssertSqlSafe, Either, Executor, PgConnection, SqlSafeStr, Statement as _};

use super::arguments::{Parameter, ValueFormat};
use super::faults;
use crate::kinds::Placeholder;
use crate::kinds::sql::statement::Statement;

/// The result of describing a statement.
pub(super) struct DescribedStatement {
    /// The values to bind.
    pub(super) parameters: Vec<Parameter>,
    /// The statement, in which each value is cast to its type.
    pub(super) sql: String,
    /// The described statement, with its columns.
    pub(super) described: PgStatement,
}

/// One occurrence of a placeholder in the statement.
struct Occurrence<'s> {
    name: &'s Placeholder,
    type_name: String,
    /// `None` if any type is possible, as in `:name is null`.
    format: Option<ValueFormat>,
}

impl DescribedStatement {
    /// Asks the database. Usually each name has one type. PostgreSQL cannot find a type if the
    /// first occurrence does not determine it, as in `:name is null or name = :name`. Then each
    /// occurrence is described as a parameter of its own.
    pub(super) async fn describe(
        connection: &mut PgConnection,
        statement: &Statement,
    ) -> Result<Self, sqlx::Error> {
        let numbered = statement.render(|index| format!("${}", index + 1));
        let (described, occurrences) = match prepare_statement(connection, &numbered).await {
            Ok(described) => {
                let types = parameter_types(connection, &described).await?;
                let occurrence = |index: usize| {
                    let (type_name, format) = types.get(index)?.clone();
                    Some(Occurrence {
                        name: &statement.placeholders()[index].name,
                        type_name,
                        format: Some(format),
                    })
                };
                let occurrences = statement.occurrences().filter_map(occurrence).collect();
                (described, occurrences)
            }
            Err(error) if is_type_undetermined(&error) => {
                describe_occurrences(connection, statement, error).await?
            }
            Err(error) => return Err(error),
        };
        Ok(Self::new(statement, described, &occurrences))
    }

    /// A value is bound once for each form in which it is written.
    fn new(statement: &Statement, described: PgStatement, occurrences: &[Occurrence<'_>]) -> Self {
        let format_elsewhere = |name: &Placeholder| {
            occurrences
                .iter()
                .filter(|occurrence| occurrence.name == name)
                .find_map(|occurrence| occurrence.format.clone())
        };
        let mut parameters: Vec<Parameter> = Vec::new();
        let mut rest = occurrences.iter();
        let sql = statement.render(|_| {
            let Some(occurrence) = rest.next() else {
                return String::new();
            };
            let name = occurrence.name;
            let format = occurrence.format.clone();
            let format = format
                .or_else(|| format_elsewhere(name))
                .unwrap_or(ValueFormat::Scalar);
            let is_known = |known: &Parameter| known.name == *name && known.format == format;
            let number = parameters.iter().position(is_known).unwrap_or_else(|| {
                let determined = occurrences
                    .iter()
                    .find(|other| other.name == name && other.format.as_ref() == Some(&format));
                parameters.push(Parameter {
                    name: name.clone(),
                    type_name: determined.unwrap_or(occurrence).type_name.clone(),
                    format,
                });
                parameters.len() - 1
            });
            format!("(${}::text::{})", number + 1, occurrence.type_name)
        });
        Self {
            parameters,
            sql,
            described,
        }
    }
}

/// Describes each occurrence of a placeholder as a parameter of its own.
async fn describe_occurrences<'s>(
    connection: &mut PgConnection,
    statement: &'s Statement,
    first_error: sqlx::Error,
) -> Result<(PgStatement, Vec<Occurrence<'s>>), sqlx::Error> {
    // The occurrences that may have any type. They are described as text.
    let mut is_untyped = vec![false; statement.occurrences().count()];
    let described = loop {
        let mut at = 0;
        let separate = statement.render(|_| {
            at += 1;
            format!("${at}{}", if is_untyped[at - 1] { "::text" } else { "" })
        });
        let error = match prepare_statement(connection, &separate).await {
            Ok(described) => break described,
            Err(error) => error,
        };
        let slot = undetermined_parameter(&error)
            .and_then(|number| is_untyped.get_mut(number.checked_sub(1)?));
        match slot.filter(|untyped| !**untyped) {
            Some(untyped) => *untyped = true,
            None => return Err(first_error),
        }
    };
    let types = parameter_types(connection, &described).await?;
    let occurrences = statement.occurrences().zip(types).zip(is_untyped);
    let occurrences = occurrences.map(|((index, (type_name, format)), is_untyped)| Occurrence {
        name: &statement.placeholders()[index].name,
        type_name,
        format: (!is_untyped).then_some(format),
    });
    Ok((described, occurrences.collect()))
}

/// Asks the database for the types of a statement.
pub(super) async fn prepare_statement(
    connection: &mut PgConnection,
    sql: &str,
) -> Result<PgStatement, sqlx::Error> {
    connection
        .prepare(AssertSqlSafe(sql.to_owned()).into_sql_str())
        .await
}

/// The types of the parameters: the name of each, quoted and with its schema if necessary, and how
/// its values are written.
async fn parameter_types(
    connection: &mut PgConnection,
    described: &PgStatement,
) -> Result<Vec<(String, ValueFormat)>, sqlx::Error> {
    let types = match described.parameters() {
        Some(Either::Left(types)) if !types.is_empty() => types,
        Some(Either::Left(_) | Either::Right(_)) | None => return Ok(Vec::new()),
    };
    let numbers: Vec<Oid> = types.iter().filter_map(PgTypeInfo::oid).collect();
    let names = "select pg_catalog.format_type(type, null) from unnest($1) with ordinality as t (type, place) order by place";
    let names: Vec<String> = sqlx::query_scalar(names)
        .bind(numbers)
        .persistent(false)
        .fetch_all(connection)
        .await?;
    Ok(names
        .into_iter()
        .zip(types.iter().map(ValueFormat::for_type))
        .collect())
}

/// The codes are ambiguous_parameter and indeterminate_datatype.
fn is_type_undetermined(error: &sqlx::Error) -> bool {
    matches!(faults::error_code(error), Some("42P08" | "42P18"))
}

/// The number of the parameter whose type could not be found. The message contains it in every
/// language.
fn undetermined_parameter(error: &sqlx::Error) -> Option<usize> {
    let message = is_type_undetermined(error).then(|| faults::server_message(error))?;
    let (_, number) = message.split_once('$')?;
    number[..number
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(number.len())]
        .parse()
        .ok()
}
