//! Reads the fields that a request may have beside the arguments, for all interfaces. Error
//! messages say what would be valid.

use std::time::Duration;

use serde_json::Value;

use super::invocation::CacheMode;
use super::json::{self, JsonObject};
use super::units::HumanDuration;

/// Maximum length of `run_id` and `tool_use_id`, in bytes.
pub const MAX_ID_LEN: usize = 256;

/// Reads an id that the caller has chosen. Null means no id.
///
/// # Errors
/// What would be valid.
pub fn parse_id(field: &str, value: Value) -> Result<Option<String>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.len() <= MAX_ID_LEN => Ok(Some(text)),
        Value::String(_) => Err(format!("{field} has at most {MAX_ID_LEN} bytes")),
        other => Err(format!(
            "{field} is a text, not {}",
            json::type_name(&other)
        )),
    }
}

/// Reads `context`. Null means an empty context.
///
/// # Errors
/// What would be valid.
pub fn parse_context(value: Value) -> Result<JsonObject, String> {
    match value {
        Value::Object(context) => Ok(context),
        Value::Null => Ok(JsonObject::new()),
        other => Err(format!(
            "context is an object, not {}",
            json::type_name(&other)
        )),
    }
}

/// Reads `cache`. Null means the default.
///
/// # Errors
/// What would be valid.
pub fn parse_cache_mode(value: Value) -> Result<CacheMode, String> {
    if value.is_null() {
        return Ok(CacheMode::default());
    }
    serde_json::from_value(value)
        .map_err(|_| "cache is one of \"use\", \"refresh\", \"bypass\"".into())
}

/// Reads `timeout`. Null means no timeout.
///
/// # Errors
/// What would be valid.
pub fn parse_timeout(value: Value) -> Result<Option<Duration>, String> {
    let bad = Err::<_, String>;
    match value {
        Value::Null => Ok(None),
        Value::String(text) => match HumanDuration::parse(&text) {
            Ok(time) if time.0.is_zero() => bad("timeout must be longer than zero".into()),
            Ok(time) => Ok(Some(time.0)),
            Err(error) => bad(format!("timeout: {error}")),
        },
        _ => bad("timeout is a text with a unit, e.g. \"5s\"".into()),
    }
}
