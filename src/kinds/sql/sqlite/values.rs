//! Converts values to SQLite and back. In SQLite each value has a type, independent of its column.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rusqlite::Row;
use rusqlite::types::{Value as Stored, ValueRef};
use serde_json::Value;

use crate::call::{JsonObject, ToolError};
use crate::kinds::sql::faults::{collect_bound, value_fault};
use crate::kinds::sql::rows::{self, RowLength, ValueWarnings, float_to_json};
use crate::kinds::{Placeholder, ValueFault, Values};

/// The values in the order of the placeholders; NULL for an absent value.
pub(super) fn bind_values(
    names: &[Placeholder],
    values: Values<'_>,
) -> Result<Vec<Stored>, ToolError> {
    let value = |name| values.get(name).unwrap_or(&Value::Null);
    collect_bound(names.iter().map(|name| to_sqlite(name, value(name))))
}

fn to_sqlite(name: &Placeholder, value: &Value) -> Result<Stored, ValueFault> {
    Ok(match value {
        Value::Null => Stored::Null,
        // SQLite has no booleans: its own `true` is 1.
        Value::Bool(value) => i64::from(*value).into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(double)) if !number.is_u64() => double.into(),
            (None, _) => {
                return Err(value_fault(
                    name,
                    "an integer up to 9223372036854775807 is expected here: SQLite has 64 bits",
                ));
            }
        },
        Value::String(text) => text.clone().into(),
        Value::Array(_) | Value::Object(_) => value.to_string().into(),
    })
}

/// The longest value of a row, and the length of all values. Their JSON is never shorter than this.
pub(super) fn measure_row<'n>(
    names: &'n [String],
    row: &Row<'_>,
) -> Result<RowLength<'n>, rusqlite::Error> {
    let mut longest = RowLength::default();
    for (at, name) in names.iter().enumerate() {
        longest.add(
            name,
            match row.get_ref(at)? {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
                ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
            },
        );
    }
    Ok(longest)
}

/// A row as a JSON object.
pub(super) fn row_to_json(
    names: &[String],
    row: &Row<'_>,
    warnings: &mut ValueWarnings,
) -> Result<JsonObject, ToolError> {
    rows::build_row(names.iter().map(String::as_str), |at| {
        let value = row.get_ref(at);
        let value = value.map_err(|error| {
            ToolError::BadOutput(format!("column `{}` cannot be read: {error}", names[at]))
        })?;
        Ok(value_to_json(&names[at], value, warnings))
    })
}

fn value_to_json(name: &str, value: ValueRef<'_>, warnings: &mut ValueWarnings) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(whole) => whole.into(),
        ValueRef::Real(double) => float_to_json(double),
        ValueRef::Blob(bytes) => BASE64_STANDARD.encode(bytes).into(),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => {
                warnings.insert(format!(
                    "column `{name}` holds a text that is not UTF-8: its bytes are shown as base64"
                ));
                BASE64_STANDARD.encode(bytes).into()
            }
        },
    }
}
