//! The body of a call over REST.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::documented;
use super::problem::ApiError;
use crate::call::{CacheMode, JsonObject, Page, json as strict, request_fields};
use crate::text::suggest;

/// The body of `POST /tools/{name}/invoke`.
#[derive(Debug, Default, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InvokeRequest {
    /// The arguments: an object, or the JSON text of one, as OpenAI-style callers hold it.
    #[schema(value_type = documented::Arguments)]
    pub arguments: JsonObject,
    /// The model's id for this call; it is part of the answer.
    #[schema(required = false, max_length = 256)]
    pub tool_use_id: Option<String>,
    /// Groups the calls of one agent run.
    #[schema(required = false, max_length = 256)]
    pub run_id: Option<String>,
    /// For tools that take a context; never part of the arguments.
    #[schema(value_type = Option<documented::Context>, required = false)]
    pub context: Arc<JsonObject>,
    /// How the cache takes part.
    #[schema(value_type = Option<CacheMode>, required = false)]
    pub cache: CacheMode,
    /// Shortens the call's deadline, e.g. `5s`.
    #[schema(value_type = Option<documented::Duration>, required = false)]
    pub timeout: Option<Duration>,
    /// Which part of a long result to show.
    #[schema(required = false)]
    pub page: Option<Page>,
}

/// The fields beside `arguments`.
const OPTIONS: [&str; 6] = [
    "tool_use_id",
    "run_id",
    "context",
    "cache",
    "timeout",
    "page",
];

impl InvokeRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// 400, with what would be right.
    pub(super) fn from_json(body: Value) -> Result<Self, ApiError> {
        let malformed = |message: String| ApiError::Malformed(message);
        let Value::Object(body) = body else {
            return Err(malformed(format!(
                "the body is a JSON {}; send an object: {{\"arguments\": {{…}}}}",
                strict::type_name(&body)
            )));
        };
        let mut request = Self::default();
        let mut arguments = None;
        for (field, value) in body {
            match field.as_str() {
                "arguments" => arguments = Some(parse_arguments(value)?),
                "tool_use_id" => {
                    request.tool_use_id =
                        request_fields::parse_id(&field, value).map_err(malformed)?;
                }
                "run_id" => {
                    request.run_id = request_fields::parse_id(&field, value).map_err(malformed)?;
                }
                "context" => {
                    request.context =
                        Arc::new(request_fields::parse_context(value).map_err(malformed)?);
                }
                "cache" => {
                    request.cache = request_fields::parse_cache_mode(value).map_err(malformed)?;
                }
                "timeout" => {
                    request.timeout = request_fields::parse_timeout(value).map_err(malformed)?;
                }
                "page" => request.page = Page::from_json(value).map_err(malformed)?,
                other => {
                    if let Some(near) =
                        suggest::closest_name(other, OPTIONS, suggest::MIN_MEANT_RATIO)
                    {
                        return Err(malformed(format!(
                            "unknown field `{other}`, did you mean `{near}`?"
                        )));
                    }
                    return Err(malformed(format!(
                        "unknown field `{other}`: a tool's arguments go inside `arguments`, like \
                         {{\"arguments\": {{\"{other}\": …}}}}"
                    )));
                }
            }
        }
        request.arguments = arguments.ok_or_else(|| {
            malformed(
                "`arguments` is missing: send {\"arguments\": {…}}, or {\"arguments\": {}} if there are none".into(),
            )
        })?;
        Ok(request)
    }
}

fn parse_arguments(value: Value) -> Result<JsonObject, ApiError> {
    match value {
        Value::Object(arguments) => Ok(arguments),
        // OpenAI-style callers have the arguments as JSON text. Some models send an empty text for
        // no arguments.
        Value::String(text) if text.trim().is_empty() => Ok(JsonObject::new()),
        Value::String(text) => match strict::parse_strict(text.as_bytes()) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(other) => Err(ApiError::Malformed(format!(
                "`arguments` is a text that holds a JSON {}, not an object",
                strict::type_name(&other)
            ))),
            Err(error) => Err(ApiError::Malformed(format!(
                "`arguments` is a text that is not JSON: {error}"
            ))),
        },
        other => Err(ApiError::Malformed(format!(
            "`arguments` is an object or the JSON text of one, not {}",
            strict::type_name(&other)
        ))),
    }
}
