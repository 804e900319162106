//! Finds the type of each placeholder: the database describes the statement, and reports the type of each parameter.

use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgStatement, PgTypeInfo};
use sqlx::{AssertSqlSafe, Either, Executor, PgConnection, SqlSafeStr, Statement as _};

use super::arguments::{Parameter, Wants};
use super::faults;
use crate::tools::Placeholder;
use crate::tools::sql::statement::Statement;

/// The result of describing a statement.
pub(super) struct Uses {
    /// The values to bind.
    pub(super) parameters: Vec<Parameter>,
    /// The statement, in which each value is cast to its type.
    pub(super) typed: String,
    /// The described statement, with its columns.
    pub(super) described: PgStatement,
}

/// One occurrence of a placeholder in the statement.
struct Use<'s> {
    name: &'s Placeholder,
    type_name: String,
    /// `None` if any type is possible, as in `:name is null`.
    wants: Option<Wants>,
}

impl Uses {
    /// Asks the database. Usually each name has one type. PostgreSQL cannot find a type if the first occurrence does
    /// not determine it, as in `:name is null or name = :name`. Then each occurrence is described as a parameter of
    /// its own.
    pub(super) async fn find(connection: &mut PgConnection, statement: &Statement) -> Result<Self, sqlx::Error> {
        let names: Vec<&Placeholder> = statement.placeholders().iter().map(|one| &one.name).collect();
        let plain = statement.render(|index| format!("${}", index + 1));
        match describe(connection, &plain).await {
            Ok(described) => {
                let types = types(connection, &described).await?;
                let uses: Vec<Use<'_>> = names.iter().zip(types).map(|(name, found)| Use::of(name, found)).collect();
                let typed = statement.render(|index| format!("(${}::text::{})", index + 1, uses[index].type_name));
                let parameters = uses.into_iter().map(|one| one.parameter(&Wants::One)).collect();
                Ok(Self { parameters, typed, described })
            }
            Err(error) if is_undetermined(&error) => Self::of_places(connection, statement, &names, error).await,
            Err(error) => Err(error),
        }
    }

    async fn of_places(
        connection: &mut PgConnection,
        statement: &Statement,
        names: &[&Placeholder],
        first: sqlx::Error,
    ) -> Result<Self, sqlx::Error> {
        let mut places = Vec::new();
        statement.render(|index| {
            places.push(index);
            String::new()
        });
        // The occurrences that may have any type. They are described as text.
        let mut free = vec![false; places.len()];
        let described = loop {
            let mut at = 0;
            let apart = statement.render(|_| {
                at += 1;
                format!("${at}{}", if free[at - 1] { "::text" } else { "" })
            });
            let error = match describe(connection, &apart).await {
                Ok(described) => break described,
                Err(error) => error,
            };
            let place = undetermined(&error).and_then(|number| free.get_mut(number.checked_sub(1)?));
            match place.filter(|is_free| !**is_free) {
                Some(is_free) => *is_free = true,
                None => return Err(first),
            }
        };
        let found = types(connection, &described).await?;
        let mut uses: Vec<Use<'_>> =
            places.iter().zip(found).map(|(index, found)| Use::of(names[*index], found)).collect();
        for (one, _) in uses.iter_mut().zip(&free).filter(|(_, is_free)| **is_free) {
            one.wants = None;
        }
        let elsewhere =
            |name: &Placeholder| uses.iter().filter(|one| one.name == name).find_map(|one| one.wants.clone());
        let wanted = uses.iter().map(|one| one.wants.clone().or_else(|| elsewhere(one.name)).unwrap_or(Wants::One));
        let wanted: Vec<Wants> = wanted.collect();
        // A value is bound once for each form in which it is written.
        let mut parameters: Vec<Parameter> = Vec::new();
        let mut at = 0;
        let typed = statement.render(|_| {
            let (one, wants) = (&uses[at], &wanted[at]);
            at += 1;
            let known = parameters.iter().position(|known| known.name == *one.name && known.wants == *wants);
            let number = known.unwrap_or_else(|| {
                let determined =
                    uses.iter().find(|other| other.name == one.name && other.wants.as_ref() == Some(wants));
                parameters.push(determined.unwrap_or(one).parameter(wants));
                parameters.len() - 1
            });
            format!("(${}::text::{})", number + 1, one.type_name)
        });
        Ok(Self { parameters, typed, described })
    }
}

impl<'s> Use<'s> {
    fn of(name: &'s Placeholder, (type_name, wants): (String, Wants)) -> Self {
        Self { name, type_name, wants: Some(wants) }
    }

    fn parameter(&self, otherwise: &Wants) -> Parameter {
        let wants = self.wants.as_ref().unwrap_or(otherwise).clone();
        Parameter { name: self.name.clone(), type_name: self.type_name.clone(), wants }
    }
}

/// Asks the database for the types of a statement.
pub(super) async fn describe(connection: &mut PgConnection, sql: &str) -> Result<PgStatement, sqlx::Error> {
    connection.prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await
}

/// The types of the parameters: the name of each, quoted and with its schema if necessary, and how its values are
/// written.
async fn types(connection: &mut PgConnection, described: &PgStatement) -> Result<Vec<(String, Wants)>, sqlx::Error> {
    let types = match described.parameters() {
        Some(Either::Left(types)) if !types.is_empty() => types,
        Some(Either::Left(_) | Either::Right(_)) | None => return Ok(Vec::new()),
    };
    let numbers: Vec<Oid> = types.iter().filter_map(PgTypeInfo::oid).collect();
    let names =
        "select pg_catalog.format_type(type, null) from unnest($1) with ordinality as t (type, place) order by place";
    let names: Vec<String> = sqlx::query_scalar(names).bind(numbers).persistent(false).fetch_all(connection).await?;
    Ok(names.into_iter().zip(types.iter().map(Wants::of)).collect())
}

/// The codes are ambiguous_parameter and indeterminate_datatype.
fn is_undetermined(error: &sqlx::Error) -> bool {
    matches!(faults::code(error), Some("42P08" | "42P18"))
}

/// The number of the parameter whose type could not be found. The message contains it in every language.
fn undetermined(error: &sqlx::Error) -> Option<usize> {
    let words = is_undetermined(error).then(|| faults::words(error))?;
    let (_, number) = words.split_once('$')?;
    number[..number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len())].parse().ok()
}
