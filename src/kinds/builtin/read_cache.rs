//! `read_cache`: the stored result of an earlier call, by the key `tool:{name}|input:{input}`. It
//! runs no tool.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::arguments::{argument_faults, text_argument};
use crate::call::json::parse_strict;
use crate::call::{
    Effect, JsonObject, StoredResultError, StoredResults, ToolContext, ToolError, ToolResult,
};
use crate::kinds::{Runner, RunnerTraits, Tool, ToolOutcome, ValueFault, Values};

const DESCRIPTION: &str = "Returns the stored result of an earlier tool call, without running the tool and at no cost. Use it when the \
     answer of an earlier call is needed once more. Says so when nothing is stored: then call the tool itself.";
const KEY_EXAMPLE: &str = "tool:get_weather|input:{\"city\": \"Oslo\"}";

/// The tool, registered as `name`.
pub(super) fn tool(name: &str) -> Tool {
    let key = format!("The tool's name and the arguments of that call as JSON, e.g. {KEY_EXAMPLE}");
    // The key may hold values that the other tool's schema marks `writeOnly`. They must not get
    // into the ledger here either.
    let key = json!({"type": "string", "description": key, "writeOnly": true});
    let schema = json!({
        "type": "object", "properties": {"key": key}, "required": ["key"], "additionalProperties": false,
    });
    Tool::new(name, DESCRIPTION)
        .input_schema(schema)
        .effect(Effect::Read)
        .with_runner(Arc::new(ReadCache))
}

struct ReadCache;

#[async_trait]
impl Runner for ReadCache {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let CallKey { tool, input } = CallKey::from_arguments(&arguments)?;
        let Some(stored) = context.service::<Arc<dyn StoredResults>>().cloned() else {
            return Err(ToolError::unavailable("this service has no stored results"));
        };
        match stored.find_result(&context, &tool, &input).await {
            Ok(result) => Ok(ToolResult::clone(&result)),
            Err(reason) => Err(ToolError::ErrorResult(explain_not_stored(&tool, reason))),
        }
    }

    fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        argument_faults("key", CallKey::from_arguments(values.arguments))
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            is_cacheable: false,
            ..RunnerTraits::with_context(true)
        }
    }
}

/// Why there is no stored result, and what to do.
fn explain_not_stored(tool: &str, reason: StoredResultError) -> String {
    let tool: String = tool.chars().take(200).collect();
    match reason {
        StoredResultError::UnknownTool(suggestions) if suggestions.is_empty() => {
            format!("there is no tool `{tool}`")
        }
        StoredResultError::UnknownTool(suggestions) => {
            format!(
                "there is no tool `{tool}`; did you mean {}?",
                suggestions.join(", ")
            )
        }
        StoredResultError::Denied => format!("`{tool}` is not allowed for this request"),
        StoredResultError::ToolDisabled => format!("`{tool}` is disabled"),
        StoredResultError::NotCacheable => {
            format!("the answers of `{tool}` are never stored: call it")
        }
        StoredResultError::NotRecordable => {
            format!(
                "the answers of `{tool}` are not kept in the ledger, so they cannot be read: call it"
            )
        }
        StoredResultError::InvalidArguments(violations) => {
            let messages: Vec<&str> = violations
                .iter()
                .map(|violation| violation.message.as_str())
                .collect();
            format!(
                "no call of `{tool}` can have had this input: {}",
                messages.join(" ")
            )
        }
        StoredResultError::NotFound => format!(
            "nothing is stored for this call of `{tool}`: it was not made with exactly these arguments, had no good answer, \
             or was too long ago. Call `{tool}` itself. A key looks like {KEY_EXAMPLE}"
        ),
    }
}

/// The call that a key describes.
#[derive(Debug, PartialEq)]
struct CallKey {
    tool: String,
    input: JsonObject,
}

impl CallKey {
    /// Parses the argument. The error is a sentence.
    fn from_arguments(arguments: &JsonObject) -> Result<Self, String> {
        let parts = text_argument(arguments, "key")
            .trim()
            .strip_prefix("tool:")
            .and_then(|rest| rest.split_once("|input:"));
        let (tool, input) = parts.ok_or_else(|| format!("`key` must look like {KEY_EXAMPLE}."))?;
        match tool.trim() {
            "" => Err(format!(
                "`key` names no tool: it must look like {KEY_EXAMPLE}."
            )),
            tool => Ok(Self {
                tool: tool.to_owned(),
                input: parse_input(input.trim())?,
            }),
        }
    }
}

/// Parses the arguments of a call: JSON, or as crewAI writes them, `name=value` pairs separated by
/// `&` or commas. The values of pairs are texts; the tool's schema converts them if it requires
/// another type.
fn parse_input(text: &str) -> Result<JsonObject, String> {
    if text.is_empty() {
        return Ok(JsonObject::new());
    }
    if text.starts_with(['{', '[', '"']) {
        return match parse_strict(text.as_bytes()) {
            Ok(Value::Object(input)) => Ok(input),
            Ok(_) => Err("the input in `key` must be a JSON object.".into()),
            Err(error) => Err(format!("the input in `key` is not JSON: {error}.")),
        };
    }
    if text.matches('=').count() == 1 {
        return parse_pairs([text].into_iter()).ok_or_else(ambiguous_input_message);
    }
    match (parse_pairs(text.split('&')), parse_pairs(text.split(','))) {
        (Some(input), None) | (None, Some(input)) => Ok(input),
        _ => Err(ambiguous_input_message()),
    }
}

fn ambiguous_input_message() -> String {
    format!("the input in `key` is ambiguous or invalid: write it as JSON, like {KEY_EXAMPLE}.")
}

/// Parses each piece as `name=value`; `None` if a piece is something else, or if a name occurs
/// twice.
fn parse_pairs<'a>(pieces: impl Iterator<Item = &'a str>) -> Option<JsonObject> {
    let mut input = JsonObject::new();
    for piece in pieces {
        let (name, value) = piece
            .split_once('=')
            .filter(|(_, value)| !value.contains('='))?;
        let name = name.trim();
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if !is_name || input.insert(name.to_owned(), value.trim().into()).is_some() {
            return None;
        }
    }
    Some(input)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(key: &str) -> Result<(String, Value), String> {
        let arguments = json!({"key": key});
        CallKey::from_arguments(arguments.as_object().unwrap())
            .map(|key| (key.tool, Value::Object(key.input)))
    }

    #[test]
    fn key_is_parsed_into_tool_and_input() {
        for (key, tool, input) in [
            (
                r#"tool:get_weather|input:{"city": "Oslo"}"#,
                "get_weather",
                json!({"city": "Oslo"}),
            ),
            (
                " tool: search |input: {\"q\": \"a|input:b\"}\n",
                "search",
                json!({"q": "a|input:b"}),
            ),
            ("tool:now|input:", "now", json!({})),
            ("tool:now|input:{}", "now", json!({})),
            (
                "tool:search|input:query=rust programming",
                "search",
                json!({"query": "rust programming"}),
            ),
            (
                "tool:search|input:query=AT&T, Inc.",
                "search",
                json!({"query": "AT&T, Inc."}),
            ),
            (
                "tool:search|input:query=rust, limit=5",
                "search",
                json!({"query": "rust", "limit": "5"}),
            ),
            (
                "tool:search|input:query=rust, wasm&limit=5",
                "search",
                json!({"query": "rust, wasm", "limit": "5"}),
            ),
            ("tool:search|input:query=", "search", json!({"query": ""})),
        ] {
            assert_eq!(read(key), Ok((tool.to_owned(), input)), "{key}");
        }
    }

    #[test]
    fn invalid_key_error_shows_an_example() {
        for key in [
            "",
            "search",
            "search|input:{}",
            "tool:search",
            "tool:|input:{}",
            "tool:search|inputs:{}",
        ] {
            assert!(read(key).unwrap_err().contains(KEY_EXAMPLE), "{key}");
        }
        for (key, expected) in [
            ("tool:search|input:[1]", "must be a JSON object"),
            ("tool:search|input:{'q': 1}", "is not JSON: "),
            (r#"tool:search|input:{"q": 1, "q": 2}"#, "duplicate key"),
            ("tool:search|input:rust", "is ambiguous or invalid"),
            ("tool:search|input:a=1&b=2&c", "is ambiguous or invalid"),
            ("tool:search|input:a=b=c", "is ambiguous or invalid"),
            ("tool:search|input:a=1, a=2", "is ambiguous or invalid"),
            ("tool:search|input:a b=1", "is ambiguous or invalid"),
            ("tool:search|input:a=1&b=2, c=3", "is ambiguous or invalid"),
        ] {
            let error = read(key).unwrap_err();
            assert!(error.contains(expected), "{key}: {error}");
        }
    }
}
