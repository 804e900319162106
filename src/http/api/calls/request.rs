//! Reads a request to `POST /calls`: a model's message, and the options for all its calls.

use serde::Deserialize;
use serde_json::Value;
use toolcrib_dialect::{Dialect, Message};
use utoipa::IntoParams;

use crate::access::deny_list::DenyList;
use crate::call::json::Changes;
use crate::call::request_fields::CallOptions;
use crate::call::{CacheMode, Caller, InvocationId, JsonObject};
use crate::catalog::Catalog;
use crate::http::openapi::documented;
use crate::http::problem::ApiError;

/// Most tool calls of one message that run at once. Requests cannot raise it.
const MAX_PARALLEL: usize = 64;

/// Most calls in one request for their results.
const MAX_RESUMED: usize = 256;

/// Most calls in one message.
const MAX_CALLS: usize = 256;

/// Options for all calls of the message.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct CallsQuery {
    /// The dialect of the message. Without it, the service guesses the dialect.
    #[param(value_type = Option<Dialect>)]
    dialect: Option<String>,
    /// Groups the calls of one agent run.
    run_id: Option<String>,
    /// Tools that may not be used in this turn, separated by commas; `*` stands for any characters.
    deny: Option<String>,
    /// How the cache takes part.
    #[param(value_type = Option<CacheMode>)]
    cache: Option<String>,
    /// Shortens each call's deadline, e.g. `5s`.
    #[param(value_type = Option<documented::Duration>)]
    timeout: Option<String>,
    /// The model that wrote the message, if the message does not say it.
    model: Option<String>,
    /// How many calls run at once, at most 64. Default: the manifest's setting.
    #[param(value_type = Option<u64>, minimum = 1, maximum = 64)]
    parallel: Option<String>,
    /// `hold`: if a call waits for approval, `messages` is empty until all calls have ended.
    /// `resume` answers then.
    #[param(pattern = "^hold$")]
    waiting: Option<String>,
}

impl CallsQuery {
    /// A query with these options and no others.
    pub(super) fn new(dialect: Option<String>, run_id: Option<String>) -> Self {
        Self {
            dialect,
            run_id,
            ..Self::default()
        }
    }
}

/// A message and the options for its calls.
#[derive(Debug, Default)]
pub(super) struct CallsRequest {
    /// The provider's JSON; a model's text is a JSON string.
    message: Value,
    pub(super) dialect: Option<Dialect>,
    /// What all calls have beside their arguments.
    pub(super) options: CallOptions,
    /// The denied names of the query and of the envelope together.
    pub(super) deny: DenyList,
    pub(super) parallel: Option<usize>,
    /// The model that wrote the message; empty if that is unknown.
    pub(super) model: String,
    /// Whether the results are held until waiting calls have ended.
    pub(super) holds: bool,
    /// Ids of calls whose results are requested. Then there is no message.
    pub(super) resume: Vec<InvocationId>,
    /// What was changed in the JSON of the request.
    changes: Changes,
}

/// Most names that a request denies, and the longest name, in bytes. Bounded because each one is
/// compared with the names of all tools.
const MAX_DENIED: usize = 100;
const MAX_DENIED_BYTES: usize = 128;

/// The fields of an envelope beside the message.
const ENVELOPE_OPTIONS: [&str; 10] = [
    "dialect", "run_id", "deny", "context", "cache", "timeout", "model", "parallel", "page",
    "waiting",
];

impl CallsRequest {
    /// Combines query and body. An option of the envelope replaces the query's, except that denied
    /// names are added and the shorter timeout is used.
    ///
    /// # Errors
    /// 400, with what would be right.
    pub(super) fn from_parts(query: CallsQuery, body: MessageBody) -> Result<Self, ApiError> {
        let mut request = Self::default();
        for (field, text) in [
            ("dialect", query.dialect),
            ("run_id", query.run_id),
            ("cache", query.cache),
            ("timeout", query.timeout),
            ("model", query.model),
            ("waiting", query.waiting),
        ] {
            if let Some(text) = text {
                request.set_option(field, Value::String(text))?;
            }
        }
        if let Some(names) = query.deny {
            request.add_denied(
                names
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty())
                    .collect(),
            )?;
        }
        if let Some(text) = query.parallel {
            request.set_option(
                "parallel",
                text.parse::<u64>().map_or(Value::String(text), Value::from),
            )?;
        }
        let json = match body {
            MessageBody::Text(text) => Value::String(text),
            MessageBody::Json(json, changes) => {
                request.changes = changes;
                json
            }
        };
        match json {
            Value::Object(fields) if is_envelope(&fields) => {
                for (field, value) in fields {
                    request.set_option(&field, value)?;
                }
            }
            Value::Object(fields) if fields.contains_key("resume") => {
                request.read_resume(fields)?;
            }
            Value::Object(fields) if fields.contains_key("deny") => {
                let detail = "deny is beside a field that no envelope has, so it would have no effect: send \
                             {\"message\": …, \"deny\": […]}, or send deny in the query";
                return Err(ApiError::Malformed(detail.into()));
            }
            message => request.message = message,
        }
        if request.model.is_empty() {
            let fields = ["model", "modelVersion"];
            let mut models = fields
                .iter()
                .filter_map(|field| request.message[field].as_str());
            request.model = models.next().unwrap_or_default().to_owned();
        }
        Ok(request)
    }

    /// A warning for each denied name that matches none of the caller's tools. Its author believes
    /// that a tool is denied. Tools of other callers do not count, since the warning would reveal
    /// which tools exist.
    fn unmatched_denials(&self, catalog: &Catalog, caller: &Caller) -> Vec<String> {
        if self.deny.is_empty() {
            return Vec::new();
        }
        let own = catalog.tools_for(caller);
        let names: Vec<&str> = own
            .iter()
            .flat_map(|entry| entry.definition.names())
            .collect();
        let idle = self.deny.unmatched_entries(&names).into_iter();
        idle.map(|pattern| format!("deny: no tool is called `{pattern}`"))
            .collect()
    }

    /// Takes the message out and parses it.
    ///
    /// # Errors
    /// 400, if it is not a message of any dialect, or has more than `MAX_CALLS` calls.
    pub(super) fn take_message(
        &mut self,
        catalog: &Catalog,
        caller: &Caller,
    ) -> Result<Message, ApiError> {
        let unknown = unknown_field(&self.message).map(str::to_owned);
        let mut message =
            toolcrib_dialect::read_message(std::mem::take(&mut self.message), self.dialect)
                .map_err(|error| {
                    let hint = unknown
                        .map(|field| format!("; `{field}` is not a field of an envelope"))
                        .unwrap_or_default();
                    ApiError::Malformed(format!("{}{hint}", error.message))
                })?;
        match message.calls.len() {
            0..=MAX_CALLS => {
                let denials = self.unmatched_denials(catalog, caller);
                message.warnings.extend(denials);
                message
                    .warnings
                    .extend(self.changes.warnings("the request"));
                Ok(message)
            }
            count => Err(ApiError::Malformed(format!(
                "the message has {count} tool calls; at most {MAX_CALLS} are allowed"
            ))),
        }
    }

    fn add_denied(&mut self, names: Vec<&str>) -> Result<(), ApiError> {
        if names.len() > MAX_DENIED || names.iter().any(|name| name.len() > MAX_DENIED_BYTES) {
            let detail = format!(
                "deny holds at most {MAX_DENIED} names of at most {MAX_DENIED_BYTES} bytes"
            );
            return Err(ApiError::Malformed(detail));
        }
        self.deny.extend(names);
        Ok(())
    }

    fn set_option(&mut self, field: &str, value: Value) -> Result<(), ApiError> {
        let invalid = |message: &str| Err(ApiError::Malformed(message.into()));
        match field {
            "message" => self.message = value,
            "text" if value.is_string() => self.message = value,
            "text" => {
                return invalid("text is the model's text; put a provider's JSON into message");
            }
            // An option that is null counts as absent.
            _ if value.is_null() => {}
            "dialect" => {
                let word = value.as_str().unwrap_or_default();
                let Some(dialect) = Dialect::from_name(word) else {
                    let known = Dialect::names().join(", ");
                    return Err(ApiError::Malformed(format!(
                        "there is no dialect `{word}`; there are {known}"
                    )));
                };
                self.dialect = Some(dialect);
            }
            // Query and envelope may both have a timeout. The shorter one is used.
            "timeout" => {
                let before = self.options.timeout;
                self.read_call_option(field, value)?;
                self.options.timeout = before.into_iter().chain(self.options.timeout).min();
            }
            "model" => match value {
                Value::String(model) => self.model = model,
                _ => return invalid("model is the name of the model, a text"),
            },
            "waiting" if value == "hold" => self.holds = true,
            "waiting" => return invalid("waiting: the only value is `hold`"),
            "run_id" | "context" | "cache" | "page" => self.read_call_option(field, value)?,
            "deny" => {
                let names = value
                    .as_array()
                    .map(|names| names.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
                let Some(Some(names)) = names else {
                    return invalid("deny is a list of tool names");
                };
                self.add_denied(names)?;
            }
            _ => match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
                Some(n @ 1..=MAX_PARALLEL) => self.parallel = Some(n),
                _ => return invalid("parallel is a number from 1 to 64"),
            },
        }
        Ok(())
    }

    /// Reads `{"resume": [ID…], "dialect": D}`.
    fn read_resume(&mut self, fields: JsonObject) -> Result<(), ApiError> {
        let malformed = |message: String| Err(ApiError::Malformed(message));
        for (field, value) in fields {
            match field.as_str() {
                "resume" => {
                    let ids = value.as_array().and_then(|ids| {
                        let id = |id: &Value| id.as_str()?.parse::<InvocationId>().ok();
                        ids.iter().map(id).collect::<Option<Vec<_>>>()
                    });
                    match ids {
                        Some(ids) if (1..=MAX_RESUMED).contains(&ids.len()) => self.resume = ids,
                        _ => {
                            return malformed(format!(
                                "resume is a list of 1 to {MAX_RESUMED} invocation ids"
                            ));
                        }
                    }
                }
                "dialect" => self.set_option("dialect", value)?,
                other => {
                    return malformed(format!(
                        "resume goes with `dialect` only, not with `{other}`"
                    ));
                }
            }
        }
        Ok(())
    }

    fn read_call_option(&mut self, field: &str, value: Value) -> Result<(), ApiError> {
        let known = self.options.read_field(field, field, value);
        known.map(|_| ()).map_err(ApiError::Malformed)
    }
}

/// Whether an object is an envelope: a message, options, and nothing else. Providers also wrap
/// messages in objects, but with other fields.
fn is_envelope(fields: &JsonObject) -> bool {
    fields.contains_key("message") != fields.contains_key("text")
        && fields.keys().all(|key| is_envelope_field(key))
}

/// The first unknown field of an object that was probably meant as an envelope.
fn unknown_field(body: &Value) -> Option<&str> {
    let fields = body
        .as_object()
        .filter(|fields| fields.contains_key("message") || fields.contains_key("text"))?;
    let mut keys = fields.keys().map(String::as_str);
    keys.find(|key| !is_envelope_field(key))
}

fn is_envelope_field(key: &str) -> bool {
    key == "message" || key == "text" || ENVELOPE_OPTIONS.contains(&key)
}

/// The body of a request.
pub(in crate::http) enum MessageBody {
    /// The provider's JSON, or an envelope around it, and what was changed in it.
    Json(Value, Changes),
    /// The model's text, unchanged.
    Text(String),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::ToolName;

    fn parse_request(query: CallsQuery, body: Value) -> Result<CallsRequest, String> {
        CallsRequest::from_parts(query, MessageBody::Json(body, Changes::default()))
            .map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn envelope_takes_precedence_over_the_query() {
        let query = CallsQuery {
            run_id: Some("q".into()),
            deny: Some("a, b_*".into()),
            ..CallsQuery::default()
        };
        let body = json!({"message": {"role": "assistant"}, "run_id": "e", "context": {"tenant": "x"}, "parallel": 2});
        let request = parse_request(query, body).unwrap();
        assert_eq!(request.message, json!({"role": "assistant"}));
        assert_eq!(
            (request.options.run_id.as_deref(), request.parallel),
            (Some("e"), Some(2))
        );
        let denies = |name: &str| request.deny.denies([&ToolName::parse(name).unwrap()]);
        assert!(
            denies("b_1") && !denies("c") && denies("B-1"),
            "other spellings too"
        );
        assert_eq!(request.options.context["tenant"], "x");
    }

    #[test]
    fn provider_wrapper_is_not_an_envelope() {
        let choice =
            json!({"index": 0, "message": {"role": "assistant"}, "finish_reason": "tool_calls"});
        assert_eq!(
            parse_request(CallsQuery::default(), choice.clone())
                .unwrap()
                .message,
            choice
        );
        assert_eq!(
            unknown_field(&json!({"message": {}, "runid": "r"})),
            Some("runid")
        );
        let both = json!({"message": {}, "text": "x"});
        assert_eq!(
            parse_request(CallsQuery::default(), both.clone())
                .unwrap()
                .message,
            both
        );
    }

    #[test]
    fn invalid_option_states_the_valid_values() {
        let error = |field: &str, value: Value| {
            parse_request(CallsQuery::default(), json!({"message": {}, field: value}))
                .expect_err(field)
        };
        assert!(error("dialect", json!("french")).contains("there are openai, openai-responses"));
        assert!(error("parallel", json!(0)).contains("from 1 to 64"));
        assert!(error("deny", json!("a")).contains("a list"));
        assert!(error("timeout", json!("soon")).contains("timeout"));
        assert!(error("cache", json!("no")).contains("bypass"));
    }

    #[test]
    fn shorter_timeout_is_used() {
        for (query, envelope) in [("2s", "5s"), ("5s", "2s")] {
            let query = CallsQuery {
                timeout: Some(query.into()),
                ..CallsQuery::default()
            };
            let request =
                parse_request(query, json!({"message": {}, "timeout": envelope})).unwrap();
            assert_eq!(
                request.options.timeout,
                Some(std::time::Duration::from_secs(2))
            );
        }
    }
}
