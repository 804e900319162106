//! Values to SQLite and back. SQLite's types are those of its values, not of its columns.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, Decode, Row, Sqlite, TypeInfo, ValueRef};

use crate::call::{JsonObject, ToolError, Violation};
use crate::tools::sql::faults::misfit;
use crate::tools::sql::rows::{self, Odd, float};

/// The arguments in the order of the placeholders. What is absent is NULL.
pub(super) fn bind(names: &[String], arguments: &JsonObject) -> Result<SqliteArguments, ToolError> {
    let mut bound = SqliteArguments::default();
    let mut faults = Vec::new();
    for name in names {
        if let Err(fault) = add(&mut bound, name, arguments.get(name).unwrap_or(&Value::Null)) {
            faults.push(fault);
        }
    }
    if faults.is_empty() { Ok(bound) } else { Err(ToolError::InvalidArguments(faults)) }
}

fn add(bound: &mut SqliteArguments, name: &str, value: &Value) -> Result<(), Violation> {
    let added = match value {
        Value::Null => bound.add(None::<i64>),
        // SQLite has no truth values: its own `true` is 1.
        Value::Bool(value) => bound.add(i64::from(*value)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => bound.add(whole),
            (None, _) if number.is_u64() => {
                return Err(misfit(name, "an integer up to 9223372036854775807 is expected here: SQLite has 64 bits"));
            }
            (None, number) => bound.add(number),
        },
        Value::String(text) => bound.add(text.clone()),
        Value::Array(_) | Value::Object(_) => bound.add(value.to_string()),
    };
    added.map_err(|error| misfit(name, error.to_string()))
}

/// A row as an object.
pub(super) fn object(names: &[String], row: &SqliteRow, odd: &mut Odd) -> Result<JsonObject, ToolError> {
    rows::row(names.iter().map(String::as_str), |at| {
        value(&names[at], row, at, odd)
            .map_err(|error| ToolError::BadOutput(format!("column `{}` cannot be read: {error}", names[at])))
    })
}

fn value(
    name: &str,
    row: &SqliteRow,
    at: usize,
    odd: &mut Odd,
) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let stored = raw.type_info().name().to_owned();
    Ok(match stored.as_str() {
        "INTEGER" => <i64 as Decode<'_, Sqlite>>::decode(raw)?.into(),
        "REAL" => float(<f64 as Decode<'_, Sqlite>>::decode(raw)?),
        kind => {
            let bytes = <&[u8] as Decode<'_, Sqlite>>::decode(raw)?;
            match std::str::from_utf8(bytes) {
                Ok(text) if kind == "TEXT" => text.into(),
                Err(_) if kind == "TEXT" => {
                    odd.insert(format!(
                        "column `{name}` holds a text that is not UTF-8: its bytes are shown as base64"
                    ));
                    BASE64_STANDARD.encode(bytes).into()
                }
                _ => BASE64_STANDARD.encode(bytes).into(),
            }
        }
    })
}
