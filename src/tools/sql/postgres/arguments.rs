//! Binds values for PostgreSQL. Each value is sent as a text, and the statement casts it to the type that the
//! database has found for the placeholder. So the database itself reads a value of every type, by its own rules.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Number, Value};
use sqlx::postgres::{PgTypeInfo, PgTypeKind};

use crate::call::ToolError;
use crate::tools::sql::faults::misfit;
use crate::tools::{Placeholder, Values};

/// A placeholder with its type.
#[derive(Debug, Clone)]
pub(super) struct Parameter {
    pub(super) name: Placeholder,
    /// The name of the type in SQL.
    pub(super) type_name: String,
    pub(super) wants: Wants,
}

/// How a JSON value is written for a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wants {
    /// As JSON text.
    Json,
    /// Bytes, from base64.
    Bytes,
    /// A whole number. 2.0 is a whole number in JSON, but not in SQL.
    Whole,
    /// A list, from a JSON array.
    Array(Box<Self>),
    /// A single value, as its plain text. The database reads it.
    One,
}

impl Wants {
    pub(super) fn of(kind: &PgTypeInfo) -> Self {
        match kind.kind() {
            PgTypeKind::Array(element) => return Self::Array(Box::new(Self::of(element))),
            PgTypeKind::Domain(of) => return Self::of(of),
            PgTypeKind::Simple
            | PgTypeKind::Pseudo
            | PgTypeKind::Composite(_)
            | PgTypeKind::Enum(_)
            | PgTypeKind::Range(_) => {}
        }
        match kind.oid().map(|oid| oid.0) {
            Some(17) => Self::Bytes,
            Some(20 | 21 | 23 | 26) => Self::Whole,
            Some(114 | 3802) => Self::Json,
            _ => Self::One,
        }
    }
}

/// The texts to bind; NULL for an absent value.
pub(super) fn bind(parameters: &[Parameter], values: Values<'_>) -> Result<Vec<Option<String>>, ToolError> {
    let mut faults = Vec::new();
    let bound = parameters.iter().map(|parameter| {
        let value = values.get(&parameter.name).unwrap_or(&Value::Null);
        text(value, &parameter.wants).unwrap_or_else(|wrong| {
            faults.push(misfit(&parameter.name, format!("{wrong}: the statement wants {}", parameter.type_name)));
            None
        })
    });
    let bound = bound.collect();
    if faults.is_empty() { Ok(bound) } else { Err(faults.into()) }
}

fn text(value: &Value, wants: &Wants) -> Result<Option<String>, &'static str> {
    Ok(Some(match (value, wants) {
        (Value::Null, _) => return Ok(None),
        (value, Wants::Json) => value.to_string(),
        (Value::Array(items), Wants::Array(element)) => list(items, element)?,
        (_, Wants::Array(_)) => return Err("a list is expected here"),
        (Value::Array(_) | Value::Object(_), _) => {
            return Err("one value is expected here (a list fits `= any(:name)`)");
        }
        (Value::String(text), Wants::Bytes) => match BASE64_STANDARD.decode(text) {
            Ok(bytes) => format!("\\x{}", hex::encode(bytes)),
            Err(_) => return Err("base64 is expected here"),
        },
        (_, Wants::Bytes) => return Err("base64 is expected here"),
        (Value::String(text), _) if text.contains('\0') => return Err("PostgreSQL's texts hold no NUL character"),
        (Value::String(text), _) => text.clone(),
        (Value::Bool(value), _) => value.to_string(),
        (Value::Number(number), Wants::Whole) => whole(number),
        (Value::Number(number), Wants::One) => number.to_string(),
    }))
}

fn whole(number: &Number) -> String {
    match number.as_f64() {
        Some(double) if number.is_f64() && double.fract() == 0.0 && double.abs() < 1e18 => (double as i64).to_string(),
        _ => number.to_string(),
    }
}

/// An array in PostgreSQL's text form. Lists in the list are further dimensions, unless the elements are JSON values.
fn list(items: &[Value], element: &Wants) -> Result<String, &'static str> {
    let mut written = Vec::with_capacity(items.len());
    for item in items {
        written.push(match item {
            Value::Array(inner) if *element != Wants::Json => list(inner, element)?,
            item => match text(item, element)? {
                None => "NULL".into(),
                Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            },
        });
    }
    Ok(format!("{{{}}}", written.join(",")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_for_their_type() {
        let array = |of: Wants| Wants::Array(Box::new(of));
        for (value, wants, want) in [
            (json!(2.0), Wants::Whole, "2"),
            (json!(2.5), Wants::Whole, "2.5"),
            (json!(u64::MAX), Wants::Whole, "18446744073709551615"),
            (json!("a'; drop"), Wants::One, "a'; drop"),
            (json!(true), Wants::One, "true"),
            (json!("x"), Wants::Json, "\"x\""),
            (json!({"k": [1]}), Wants::Json, "{\"k\":[1]}"),
            (json!("AP8="), Wants::Bytes, "\\x00ff"),
            (json!([1, null, 3.0]), array(Wants::Whole), "{\"1\",NULL,\"3\"}"),
            (json!(["a\"b\\", "NULL", "{}", ""]), array(Wants::One), r#"{"a\"b\\","NULL","{}",""}"#),
            (json!([[1, 2], [3, 4]]), array(Wants::Whole), "{{\"1\",\"2\"},{\"3\",\"4\"}}"),
            (json!([[1], {"a": 2}]), array(Wants::Json), r#"{"[1]","{\"a\":2}"}"#),
            (json!([]), array(Wants::One), "{}"),
        ] {
            assert_eq!(text(&value, &wants).unwrap().unwrap(), want);
        }
        assert_eq!(text(&Value::Null, &Wants::Json), Ok(None));
        for (value, wants) in [
            (json!([1]), Wants::One),
            (json!({}), Wants::Whole),
            (json!("{1}"), array(Wants::Whole)),
            (json!("not base64!"), Wants::Bytes),
            (json!(1), Wants::Bytes),
            (json!("a\0"), Wants::One),
        ] {
            assert!(text(&value, &wants).is_err(), "{value}");
        }
    }
}
