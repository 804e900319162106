//! Reads the fields that a request may have beside the arguments, for all interfaces. Error
//! messages say what would be valid.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::invocation::CacheMode;
use super::json::{self, JsonObject};
use super::paging::Page;
use super::units::HumanDuration;

/// Maximum length of `run_id` and `tool_use_id`, in bytes.
pub const MAX_ID_LEN: usize = 256;

/// What a request may have beside the arguments, in every interface.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// The run to which the call belongs.
    pub run_id: Option<Arc<str>>,
    /// The context, for tools that take one.
    pub context: Arc<JsonObject>,
    /// How the call uses the cache.
    pub cache: CacheMode,
    /// The longest time for the whole call.
    pub timeout: Option<Duration>,
    /// The requested part of a long result.
    pub page: Option<Page>,
}

impl CallOptions {
    /// The names of the fields.
    pub const FIELDS: [&str; 6] = [
        "tool_use_id",
        "run_id",
        "context",
        "cache",
        "timeout",
        "page",
    ];

    /// Reads a field; false if there is no such field. `label` is the name of the field in the
    /// interface.
    ///
    /// # Errors
    /// What would be valid.
    pub fn read_field(&mut self, field: &str, label: &str, value: Value) -> Result<bool, String> {
        match field {
            "tool_use_id" => self.tool_use_id = parse_id(label, value)?.map(Into::into),
            "run_id" => self.run_id = parse_id(label, value)?.map(Into::into),
            "context" => self.context = Arc::new(parse_context(value)?),
            "cache" => self.cache = parse_cache_mode(value)?,
            "timeout" => self.timeout = parse_timeout(value)?,
            "page" => self.page = Page::from_json(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Reads an id that the caller has chosen. Null means no id.
///
/// # Errors
/// What would be valid.
fn parse_id(field: &str, value: Value) -> Result<Option<String>, String> {
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
fn parse_context(value: Value) -> Result<JsonObject, String> {
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
fn parse_cache_mode(value: Value) -> Result<CacheMode, String> {
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
