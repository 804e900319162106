//! The body of a call over REST.

use serde_json::Value;

use crate::call::request_fields::CallOptions;
use crate::call::{JsonObject, json as strict};
use crate::http::problem::ApiError;
use crate::text::suggest;

/// The names that other APIs give to `arguments`.
const OTHER_NAMES: [&str; 5] = ["input", "args", "parameters", "params", "inputs"];

/// The body of `POST /tools/{name}/invoke`; [`documented::InvokeRequest`](crate::http::openapi::documented::InvokeRequest) documents it.
#[derive(Debug)]
pub(crate) struct InvokeRequest {
    /// The arguments.
    pub arguments: JsonObject,
    /// The other fields.
    pub options: CallOptions,
    /// What was changed in a text that holds the arguments, as warnings.
    pub repairs: Vec<String>,
}

impl InvokeRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// 400, with what would be right.
    pub(crate) fn from_json(body: Value) -> Result<Self, ApiError> {
        let malformed = |message: String| ApiError::Malformed(message);
        let Value::Object(body) = body else {
            return Err(malformed(format!(
                "the body is a JSON {}; send an object: {{\"arguments\": {{…}}}}",
                strict::type_name(&body)
            )));
        };
        let mut options = CallOptions::default();
        let (mut arguments, mut repairs) = (None, Vec::new());
        for (field, value) in body {
            match field.as_str() {
                "arguments" => arguments = Some(parse_arguments(value, &mut repairs)?),
                known if CallOptions::FIELDS.contains(&known) => {
                    options.read_field(known, known, value).map_err(malformed)?;
                }
                other => {
                    if let Some(near) =
                        suggest::closest_name(other, CallOptions::FIELDS, suggest::MIN_MEANT_RATIO)
                    {
                        return Err(malformed(format!(
                            "unknown field `{other}`, did you mean `{near}`?"
                        )));
                    }
                    if OTHER_NAMES.contains(&other) {
                        return Err(malformed(format!(
                            "unknown field `{other}`: the field with a tool's arguments is `arguments`"
                        )));
                    }
                    return Err(malformed(format!(
                        "unknown field `{other}`: a tool's arguments go inside `arguments`, like \
                         {{\"arguments\": {{\"{other}\": …}}}}"
                    )));
                }
            }
        }
        let arguments = arguments.ok_or_else(|| {
            malformed(
                "`arguments` is missing: send {\"arguments\": {…}}, or {\"arguments\": {}} if there are none".into(),
            )
        })?;
        Ok(Self {
            arguments,
            options,
            repairs,
        })
    }
}

fn parse_arguments(value: Value, repairs: &mut Vec<String>) -> Result<JsonObject, ApiError> {
    match value {
        Value::Object(arguments) => Ok(arguments),
        // OpenAI-style callers have the arguments as JSON text. Some models send an empty text for
        // no arguments.
        Value::String(text) if text.trim().is_empty() => Ok(JsonObject::new()),
        Value::String(text) => match strict::parse_foreign(text.as_bytes()) {
            Ok((Value::Object(arguments), changes)) => {
                repairs.extend(changes.warnings("the text of `arguments`"));
                Ok(arguments)
            }
            Ok((other, _)) => Err(ApiError::Malformed(format!(
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
