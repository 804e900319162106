//! Fields that requests share, read with problems that say what would be right.

use std::time::Duration;

use serde_json::Value;

use super::problem::ApiError;
use crate::call::units::Time;
use crate::call::{CacheMode, JsonObject, json};

/// Longest `run_id` and `tool_use_id` that is recorded.
pub(super) const MAX_ID: usize = 256;

/// An id of the caller's; null is none.
pub(super) fn id(field: &str, value: Value) -> Result<Option<String>, ApiError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.len() <= MAX_ID => Ok(Some(text)),
        Value::String(_) => Err(ApiError::Malformed(format!("{field} has at most {MAX_ID} bytes"))),
        other => Err(ApiError::Malformed(format!("{field} is a text, not {}", json::type_name(&other)))),
    }
}

/// `context`; null is none.
pub(super) fn context(value: Value) -> Result<JsonObject, ApiError> {
    match value {
        Value::Object(context) => Ok(context),
        Value::Null => Ok(JsonObject::new()),
        other => Err(ApiError::Malformed(format!("context is an object, not {}", json::type_name(&other)))),
    }
}

/// `cache`; null is the default.
pub(super) fn cache(value: Value) -> Result<CacheMode, ApiError> {
    if value.is_null() {
        return Ok(CacheMode::default());
    }
    serde_json::from_value(value)
        .map_err(|_| ApiError::Malformed("cache is one of \"use\", \"refresh\", \"bypass\"".into()))
}

/// `timeout`; null is none.
pub(super) fn timeout(value: Value) -> Result<Option<Duration>, ApiError> {
    let bad = |message: String| Err(ApiError::Malformed(message));
    match value {
        Value::Null => Ok(None),
        Value::String(text) => match Time::parse(&text) {
            Ok(time) if time.0.is_zero() => bad("timeout: a call cannot be done in no time".into()),
            Ok(time) => Ok(Some(time.0)),
            Err(error) => bad(format!("timeout: {error}")),
        },
        _ => bad("timeout is a text with a unit, e.g. \"5s\"".into()),
    }
}
