//! Reads the calls from a provider's message.

use serde_json::Value;

use super::found_calls::FoundCalls;
use super::guess::{guess, is_no_message};
use super::message::{Dialect, Message};
use super::{anthropic, bedrock, gemini, mcp, native, openai, responses, text, words};

/// Why a body is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Unread {
    /// The fault and the correct form, for people, in one sentence.
    pub what: String,
}

/// Finds the calls in a provider's message. If `named` is given, the dialect is not guessed.
///
/// The calls are moved out of `body`, not copied.
///
/// # Errors
/// The body is not a message of any dialect, or not of the named dialect.
pub fn read(mut body: Value, named: Option<Dialect>) -> Result<Message, Unread> {
    if let Some(what) = is_no_message(&body) {
        return Err(Unread { what: format!("the body is {what}") });
    }
    alone(&mut body);
    let guessed = guess(&body);
    let Some(dialect) = named.or(guessed) else {
        let known = Dialect::ALL.map(Dialect::as_str).join(", ");
        let what = format!(
            "the body is a message of no dialect that is known here ({known}): send what the model said as it came, \
             or name its dialect with `dialect=`"
        );
        return Err(Unread { what });
    };
    if dialect == Dialect::Text {
        return Ok(match &body {
            Value::String(text) => text::read(text),
            message => {
                let mut read = text::read(&words::said_in(message));
                if let Some(Ok(last)) = read.asks.last_mut()
                    && words::is_cut(message)
                {
                    last.cut_off = true;
                }
                read
            }
        });
    }
    let other = guessed.filter(|other| *other != dialect && *other != Dialect::Text);
    if let Some(found) = find(dialect, &mut body) {
        // The named dialect finds no calls, but the guessed dialect may find some. Then the named dialect is an
        // error.
        let mut has_others = || other.and_then(|other| find(other, &mut body)).is_some_and(|found| !found.is_empty());
        if !found.is_empty() || !has_others() {
            return Ok(found.into_message(&body));
        }
    }
    let looks = other.map(|other| format!("; it looks like {}", other.as_str())).unwrap_or_default();
    let (name, right) = (dialect.as_str(), right(dialect));
    Err(Unread { what: format!("the body is no message of the dialect {name}, which would be {right}{looks}") })
}

/// The calls in the body, if it is a message of the dialect.
fn find(dialect: Dialect, body: &mut Value) -> Option<FoundCalls> {
    let mut found = FoundCalls::new(dialect);
    let is_message = match dialect {
        Dialect::Openai => openai::find(body, &mut found),
        Dialect::OpenaiResponses => responses::find(body, &mut found),
        Dialect::Anthropic => anthropic::find(body, &mut found),
        Dialect::Gemini => gemini::find(body, &mut found),
        Dialect::Bedrock => bedrock::find(body, &mut found),
        Dialect::Mcp => mcp::find(body, &mut found),
        Dialect::Native | Dialect::Text => native::find(body, &mut found),
    };
    is_message.then_some(found)
}

/// Unwraps a list that contains only one message.
fn alone(body: &mut Value) {
    if let Value::Array(items) = body
        && let [item] = items.as_mut_slice()
        && let Some(fields) = item.as_object()
    {
        let is_message = fields.contains_key("role") && !fields.contains_key("type");
        if is_message || ["choices", "candidates", "parts"].into_iter().any(|name| fields.contains_key(name)) {
            *body = item.take();
        }
    }
}

fn right(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Openai => {
            "a message with `tool_calls`, a completion with `choices`, a choice, or an array of tool calls"
        }
        Dialect::OpenaiResponses => "a response with `output`, an array of items, or one `function_call` item",
        Dialect::Anthropic => "a message with `content`, an array of blocks, or one `tool_use` block",
        Dialect::Gemini => {
            "a response with `candidates`, a candidate, a content with `parts`, an array of parts, or one `functionCall`"
        }
        Dialect::Bedrock => {
            "a response with `output.message`, a message with `content`, an array of blocks, or one `toolUse` block"
        }
        Dialect::Mcp => "a JSON-RPC request with the method `tools/call`, or an array of them",
        Dialect::Native => "`{\"tool_name\": …, \"arguments\": {…}}`, or an array of such objects",
        Dialect::Text => "what the model wrote, as a text",
    }
}
