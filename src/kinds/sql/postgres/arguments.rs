//! Binds values for PostgreSQL. Each value is sent as a text, and the statement casts it to the
//! type that the database has found for the placeholder. So the database itself reads a value of
//! every type, by its own rules.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Number, Value};
use sqlx::postgres::{PgTypeInfo, PgTypeKind};

use crate::call::ToolError;
use crate::kinds::sql::faults::{collect_bound, value_fault};
use crate::kinds::{Placeholder, Values};

/// A placeholder with its type.
#[derive(Debug, Clone)]
pub(super) struct Parameter {
    pub(super) name: Placeholder,
    /// The name of the type in SQL.
    pub(super) type_name: String,
    pub(super) format: ValueFormat,
}

/// How a JSON value is written for a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueFormat {
    /// As JSON text.
    Json,
    /// Bytes, from base64.
    Bytes,
    /// A whole number. 2.0 is a whole number in JSON, but not in SQL.
    Integer,
    /// A list, from a JSON array.
    Array(Box<Self>),
    /// A single value, as its plain text. The database reads it.
    Scalar,
}

impl ValueFormat {
    pub(super) fn for_type(kind: &PgTypeInfo) -> Self {
        match kind.kind() {
            PgTypeKind::Array(element) => return Self::Array(Box::new(Self::for_type(element))),
            PgTypeKind::Domain(of) => return Self::for_type(of),
            PgTypeKind::Simple
            | PgTypeKind::Pseudo
            | PgTypeKind::Composite(_)
            | PgTypeKind::Enum(_)
            | PgTypeKind::Range(_) => {}
        }
        match kind.oid().map(|oid| oid.0) {
            Some(17) => Self::Bytes,
            Some(20 | 21 | 23 | 26) => Self::Integer,
            Some(114 | 3802) => Self::Json,
            _ => Self::Scalar,
        }
    }
}

/// The texts to bind; NULL for an absent value.
pub(super) fn bind_values(
    parameters: &[Parameter],
    values: Values<'_>,
) -> Result<Vec<Option<String>>, ToolError> {
    collect_bound(parameters.iter().map(|parameter| {
        let value = values.get(&parameter.name).unwrap_or(&Value::Null);
        to_sql_text(value, &parameter.format).map_err(|reason| {
            let expected = &parameter.type_name;
            let message = format!("{reason}: the statement expects {expected}");
            value_fault(&parameter.name, message)
        })
    }))
}

fn to_sql_text(value: &Value, format: &ValueFormat) -> Result<Option<String>, &'static str> {
    Ok(Some(match (value, format) {
        (Value::Null, _) => return Ok(None),
        (value, ValueFormat::Json) => value.to_string(),
        (Value::Array(items), ValueFormat::Array(element)) => array_text(items, element)?,
        (_, ValueFormat::Array(_)) => return Err("a list is expected here"),
        (Value::Array(_) | Value::Object(_), _) => {
            return Err("one value is expected here (a list fits `= any(:name)`)");
        }
        (Value::String(text), ValueFormat::Bytes) => match BASE64_STANDARD.decode(text) {
            Ok(bytes) => format!("\\x{}", hex::encode(bytes)),
            Err(_) => return Err("base64 is expected here"),
        },
        (_, ValueFormat::Bytes) => return Err("base64 is expected here"),
        (Value::String(text), _) if text.contains('\0') => {
            return Err("texts of PostgreSQL cannot contain NUL");
        }
        (Value::String(text), _) => text.clone(),
        (Value::Bool(value), _) => value.to_string(),
        (Value::Number(number), ValueFormat::Integer) => integer_text(number),
        (Value::Number(number), ValueFormat::Scalar) => number.to_string(),
    }))
}

fn integer_text(number: &Number) -> String {
    match number.as_f64() {
        Some(double) if number.is_f64() && double.fract() == 0.0 && double.abs() < 1e18 => {
            (double as i64).to_string()
        }
        _ => number.to_string(),
    }
}

/// An array in PostgreSQL's text form. Lists in the list are further dimensions, unless the
/// elements are JSON values.
fn array_text(items: &[Value], element: &ValueFormat) -> Result<String, &'static str> {
    let mut texts = Vec::with_capacity(items.len());
    for item in items {
        texts.push(match item {
            Value::Array(inner) if *element != ValueFormat::Json => array_text(inner, element)?,
            item => match to_sql_text(item, element)? {
                None => "NULL".into(),
                Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            },
        });
    }
    Ok(format!("{{{}}}", texts.join(",")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_formatted_for_their_type() {
        let array = |of: ValueFormat| ValueFormat::Array(Box::new(of));
        for (value, format, expected) in [
            (json!(2.0), ValueFormat::Integer, "2"),
            (json!(2.5), ValueFormat::Integer, "2.5"),
            (
                json!(u64::MAX),
                ValueFormat::Integer,
                "18446744073709551615",
            ),
            (json!("a'; drop"), ValueFormat::Scalar, "a'; drop"),
            (json!(true), ValueFormat::Scalar, "true"),
            (json!("x"), ValueFormat::Json, "\"x\""),
            (json!({"k": [1]}), ValueFormat::Json, "{\"k\":[1]}"),
            (json!("AP8="), ValueFormat::Bytes, "\\x00ff"),
            (
                json!([1, null, 3.0]),
                array(ValueFormat::Integer),
                "{\"1\",NULL,\"3\"}",
            ),
            (
                json!(["a\"b\\", "NULL", "{}", ""]),
                array(ValueFormat::Scalar),
                r#"{"a\"b\\","NULL","{}",""}"#,
            ),
            (
                json!([[1, 2], [3, 4]]),
                array(ValueFormat::Integer),
                "{{\"1\",\"2\"},{\"3\",\"4\"}}",
            ),
            (
                json!([[1], {"a": 2}]),
                array(ValueFormat::Json),
                r#"{"[1]","{\"a\":2}"}"#,
            ),
            (json!([]), array(ValueFormat::Scalar), "{}"),
        ] {
            assert_eq!(to_sql_text(&value, &format).unwrap().unwrap(), expected);
        }
        assert_eq!(to_sql_text(&Value::Null, &ValueFormat::Json), Ok(None));
        for (value, format) in [
            (json!([1]), ValueFormat::Scalar),
            (json!({}), ValueFormat::Integer),
            (json!("{1}"), array(ValueFormat::Integer)),
            (json!("not base64!"), ValueFormat::Bytes),
            (json!(1), ValueFormat::Bytes),
            (json!("a\0"), ValueFormat::Scalar),
        ] {
            assert!(to_sql_text(&value, &format).is_err(), "{value}");
        }
    }
}
