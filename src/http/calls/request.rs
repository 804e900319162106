//! Reads a request to `POST /calls`: a model's message, and the options for all its calls.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use crate::call::{CacheMode, Caller, JsonObject, Page, fields};
use crate::catalog::Catalog;
use crate::deny_list::Denials;
use crate::dialect::{self, Dialect, Message};
use crate::http::documented;
use crate::http::problem::ApiError;

/// Most tool calls of one message that run at once. Requests cannot raise it.
const MOST_PARALLEL: usize = 64;

/// Most calls in one message.
const MOST_CALLS: usize = 256;

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
    /// How many calls run at once, at most 64. Default: the manifest's setting.
    #[param(value_type = Option<u64>, minimum = 1, maximum = 64)]
    parallel: Option<String>,
}

impl CallsQuery {
    /// A query with these options and no others.
    pub(super) fn of(dialect: Option<String>, run_id: Option<String>) -> Self {
        Self { dialect, run_id, ..Self::default() }
    }
}

/// The body of a request.
pub(in crate::http) enum Said {
    /// The provider's JSON, or an envelope around it.
    Json(Value),
    /// The model's text, unchanged.
    Text(String),
}

/// A message and the options for its calls.
#[derive(Debug, Default)]
pub(super) struct CallsRequest {
    /// The provider's JSON; a model's text is a JSON string.
    message: Value,
    dialect: Option<Dialect>,
    pub(super) run_id: Option<String>,
    /// The denied names of the query and of the envelope together.
    pub(super) deny: Denials,
    pub(super) context: Arc<JsonObject>,
    pub(super) cache: CacheMode,
    pub(super) timeout: Option<Duration>,
    pub(super) parallel: Option<usize>,
    pub(super) page: Option<Page>,
}

/// Most names that a request denies, and the longest name, in bytes. Bounded because each one is compared with the
/// names of all tools.
const MOST_DENIED: usize = 100;
const LONGEST_DENIED: usize = 128;

/// The fields of an envelope beside the message.
const OPTIONS: [&str; 8] = ["dialect", "run_id", "deny", "context", "cache", "timeout", "parallel", "page"];

impl CallsRequest {
    /// Combines query and body. An option of the envelope replaces the query's, except that denied names are added and
    /// the shorter timeout is used.
    ///
    /// # Errors
    /// 400, with what would be right.
    pub(super) fn read(query: CallsQuery, body: Said) -> Result<Self, ApiError> {
        let mut asked = Self::default();
        let CallsQuery { dialect, run_id, deny, cache, timeout, parallel } = query;
        for (field, text) in [("dialect", dialect), ("run_id", run_id), ("cache", cache), ("timeout", timeout)] {
            if let Some(text) = text {
                asked.set(field, Value::String(text))?;
            }
        }
        if let Some(names) = deny {
            asked.deny(names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect())?;
        }
        if let Some(text) = parallel {
            asked.set("parallel", text.parse::<u64>().map_or(Value::String(text), Value::from))?;
        }
        match body {
            Said::Text(text) => asked.message = Value::String(text),
            Said::Json(Value::Object(fields)) if is_envelope(&fields) => {
                for (field, value) in fields {
                    asked.set(&field, value)?;
                }
            }
            Said::Json(Value::Object(fields)) if fields.contains_key("deny") => {
                let right = "deny stands beside something that is no field of an envelope, so it would not be heard: send \
                             {\"message\": …, \"deny\": […]}, or it in the query";
                return Err(ApiError::Malformed(right.into()));
            }
            Said::Json(message) => asked.message = message,
        }
        Ok(asked)
    }

    /// A warning for each denied name that matches none of the caller's tools. Its author believes that a tool is
    /// denied. Tools of other callers do not count, since the warning would reveal which tools exist.
    fn idle_denials(&self, catalog: &Catalog, caller: &Caller) -> Vec<String> {
        if self.deny.is_empty() {
            return Vec::new();
        }
        let own = catalog.list(caller);
        let names: Vec<&str> = own.iter().flat_map(|entry| entry.definition.names()).collect();
        let idle = self.deny.idle(&names).into_iter();
        idle.map(|written| format!("deny: no tool is called `{written}`")).collect()
    }

    /// Takes the message out and parses it.
    ///
    /// # Errors
    /// 400, if it is not a message of any dialect, or has more than `MOST_CALLS` calls.
    pub(super) fn message(&mut self, catalog: &Catalog, caller: &Caller) -> Result<Message, ApiError> {
        let stray = stray_field(&self.message).map(str::to_owned);
        let mut message = dialect::read(std::mem::take(&mut self.message), self.dialect).map_err(|unread| {
            let hint = stray.map(|field| format!("; `{field}` is no field of an envelope")).unwrap_or_default();
            ApiError::Malformed(format!("{}{hint}", unread.what))
        })?;
        match message.asks.len() {
            0..=MOST_CALLS => {
                message.warnings.extend(self.idle_denials(catalog, caller));
                Ok(message)
            }
            count => Err(ApiError::Malformed(format!("the message has {count} tool calls; {MOST_CALLS} are the most"))),
        }
    }

    fn deny(&mut self, names: Vec<&str>) -> Result<(), ApiError> {
        if names.len() > MOST_DENIED || names.iter().any(|name| name.len() > LONGEST_DENIED) {
            let most = format!("deny holds at most {MOST_DENIED} names of at most {LONGEST_DENIED} bytes");
            return Err(ApiError::Malformed(most));
        }
        self.deny.extend(names);
        Ok(())
    }

    fn set(&mut self, field: &str, value: Value) -> Result<(), ApiError> {
        let bad = |message: &str| Err(ApiError::Malformed(message.into()));
        match field {
            "message" => self.message = value,
            "text" if value.is_string() => self.message = value,
            "text" => return bad("text is what the model wrote, a text; a provider's JSON goes into message"),
            // An option that is null counts as absent.
            _ if value.is_null() => {}
            "dialect" => {
                let word = value.as_str().unwrap_or_default();
                let Some(dialect) = Dialect::from_word(word) else {
                    let known = Dialect::ALL.map(Dialect::as_str).join(", ");
                    return Err(ApiError::Malformed(format!("there is no dialect `{word}`; there are {known}")));
                };
                self.dialect = Some(dialect);
            }
            "run_id" => self.run_id = fields::id(field, value).map_err(ApiError::Malformed)?,
            "context" => self.context = Arc::new(fields::context(value).map_err(ApiError::Malformed)?),
            "cache" => self.cache = fields::cache(value).map_err(ApiError::Malformed)?,
            // Query and envelope may both have a timeout. The shorter one is used.
            "timeout" => {
                let timeout = fields::timeout(value).map_err(ApiError::Malformed)?;
                self.timeout = self.timeout.into_iter().chain(timeout).min();
            }
            "page" => self.page = Page::read(value).map_err(ApiError::Malformed)?,
            "deny" => {
                let names = value.as_array().map(|names| names.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
                let Some(Some(names)) = names else { return bad("deny is a list of tools' names") };
                self.deny(names)?;
            }
            _ => match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
                Some(n @ 1..=MOST_PARALLEL) => self.parallel = Some(n),
                _ => return bad("parallel is a number from 1 to 64"),
            },
        }
        Ok(())
    }
}

/// Whether an object is an envelope: a message, options, and nothing else. Providers also wrap messages in objects, but
/// with other fields.
fn is_envelope(fields: &JsonObject) -> bool {
    fields.contains_key("message") != fields.contains_key("text")
        && fields.keys().all(|key| key == "message" || key == "text" || OPTIONS.contains(&key.as_str()))
}

/// The first unknown field of an object that was probably meant as an envelope.
fn stray_field(body: &Value) -> Option<&str> {
    let fields = body.as_object().filter(|fields| fields.contains_key("message") || fields.contains_key("text"))?;
    let known = |key: &&String| *key == "message" || *key == "text" || OPTIONS.contains(&key.as_str());
    fields.keys().find(|key| !known(key)).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::ToolName;

    fn read(query: CallsQuery, body: Value) -> Result<CallsRequest, String> {
        CallsRequest::read(query, Said::Json(body)).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn an_envelope_is_unwrapped_and_wins_over_the_query() {
        let query = CallsQuery { run_id: Some("q".into()), deny: Some("a, b_*".into()), ..CallsQuery::default() };
        let body = json!({"message": {"role": "assistant"}, "run_id": "e", "context": {"tenant": "x"}, "parallel": 2});
        let asked = read(query, body).unwrap();
        assert_eq!(asked.message, json!({"role": "assistant"}));
        assert_eq!((asked.run_id.as_deref(), asked.parallel), (Some("e"), Some(2)));
        let denies = |name: &str| asked.deny.denies([&ToolName::parse(name).unwrap()]);
        assert!(denies("b_1") && !denies("c") && denies("B-1"), "other spellings too");
        assert_eq!(asked.context["tenant"], "x");
    }

    #[test]
    fn what_providers_wrap_messages_in_is_no_envelope() {
        let choice = json!({"index": 0, "message": {"role": "assistant"}, "finish_reason": "tool_calls"});
        assert_eq!(read(CallsQuery::default(), choice.clone()).unwrap().message, choice);
        assert_eq!(stray_field(&json!({"message": {}, "runid": "r"})), Some("runid"));
        let both = json!({"message": {}, "text": "x"});
        assert_eq!(read(CallsQuery::default(), both.clone()).unwrap().message, both);
    }

    #[test]
    fn bad_options_say_what_would_be_right() {
        let of = |field: &str, value: Value| {
            read(CallsQuery::default(), json!({"message": {}, field: value})).expect_err(field)
        };
        assert!(of("dialect", json!("french")).contains("there are openai, openai-responses"));
        assert!(of("parallel", json!(0)).contains("from 1 to 64"));
        assert!(of("deny", json!("a")).contains("a list"));
        assert!(of("timeout", json!("soon")).contains("timeout"));
        assert!(of("cache", json!("no")).contains("bypass"));
    }

    #[test]
    fn shorter_timeout_wins_from_either_side() {
        for (query, envelope) in [("2s", "5s"), ("5s", "2s")] {
            let query = CallsQuery { timeout: Some(query.into()), ..CallsQuery::default() };
            let asked = read(query, json!({"message": {}, "timeout": envelope})).unwrap();
            assert_eq!(asked.timeout, Some(Duration::from_secs(2)));
        }
    }
}
