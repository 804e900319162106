//! Reads the calls from a provider's message.

use serde_json::Value;

use super::found_calls::FoundCalls;
use super::guess::{describe_non_message, guess_dialect};
use super::message::{Dialect, Message};
use super::{
    anthropic, bedrock, gemini, interactions, mcp, message_texts, native, openai, responses, text,
};

/// Why a body is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReadError {
    /// The fault and the correct form, for people, in one sentence.
    pub message: String,
}

/// Finds the calls in a provider's message. If `named` is given, the dialect is not guessed.
///
/// The calls are moved out of `body`, not copied.
///
/// # Errors
/// The body is not a message of any dialect, or not of the named dialect.
pub fn read_message(mut body: Value, named: Option<Dialect>) -> Result<Message, ReadError> {
    if let Some(what) = describe_non_message(&body) {
        return Err(ReadError {
            message: format!("the body is {what}"),
        });
    }
    unwrap_single_message(&mut body);
    let guessed = guess_dialect(&body);
    let Some(dialect) = named.or(guessed) else {
        let known = Dialect::names().join(", ");
        let what = format!(
            "the body matches no dialect ({known}): send the model's message unchanged, or name its dialect with \
             `dialect=`"
        );
        return Err(ReadError { message: what });
    };
    if dialect == Dialect::Text {
        return Ok(match &body {
            Value::String(text) => text::read_text(text),
            message => {
                let mut read = text::read_text(&message_texts::join_texts(message));
                if let Some(Ok(last)) = read.calls.last_mut()
                    && message_texts::is_cut_off(message)
                {
                    last.cut_off = true;
                }
                read
            }
        });
    }
    let other = guessed.filter(|other| *other != dialect && *other != Dialect::Text);
    if let Some(found) = find_calls(dialect, &mut body) {
        // The named dialect finds no calls, but the guessed dialect may find some. Then the named
        // dialect is an error.
        let mut has_other_calls = || {
            other
                .and_then(|other| find_calls(other, &mut body))
                .is_some_and(|found| !found.is_empty())
        };
        if !found.is_empty() || !has_other_calls() {
            return Ok(found.into_message(&body));
        }
    }
    let hint = other
        .map(|other| format!("; it looks like {}", other.as_str()))
        .unwrap_or_default();
    let (name, expected) = (dialect.as_str(), expected_form(dialect));
    Err(ReadError {
        message: format!(
            "the body is not a message of the dialect {name}, which is {expected}{hint}"
        ),
    })
}

/// The calls in the body, if it is a message of the dialect.
fn find_calls(dialect: Dialect, body: &mut Value) -> Option<FoundCalls> {
    let mut found = FoundCalls::new(dialect);
    let is_message = match dialect {
        Dialect::Openai => openai::find_calls(body, &mut found),
        Dialect::OpenaiResponses => responses::find_calls(body, &mut found),
        Dialect::Anthropic => anthropic::find_calls(body, &mut found),
        Dialect::Gemini => gemini::find_calls(body, &mut found),
        Dialect::GeminiInteractions => interactions::find_calls(body, &mut found),
        Dialect::Bedrock => bedrock::find_calls(body, &mut found),
        Dialect::Mcp => mcp::find_calls(body, &mut found),
        Dialect::Native | Dialect::Text => native::find_calls(body, &mut found),
    };
    is_message.then_some(found)
}

/// Unwraps a list that contains only one message.
fn unwrap_single_message(body: &mut Value) {
    if let Value::Array(items) = body
        && let [item] = items.as_mut_slice()
        && let Some(fields) = item.as_object()
    {
        let is_message = fields.contains_key("role") && !fields.contains_key("type");
        if is_message
            || ["choices", "candidates", "parts"]
                .into_iter()
                .any(|name| fields.contains_key(name))
        {
            *body = item.take();
        }
    }
}

fn expected_form(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Openai => {
            "a message with `tool_calls`, a completion with `choices`, a choice, or an array of tool calls"
        }
        Dialect::OpenaiResponses => {
            "a response with `output`, an array of items, or one `function_call` item"
        }
        Dialect::Anthropic => {
            "a message with `content`, an array of blocks, or one `tool_use` block"
        }
        Dialect::Gemini => {
            "a response with `candidates`, a candidate, a content with `parts`, an array of parts, or one `functionCall`"
        }
        Dialect::GeminiInteractions => {
            "an interaction with `steps`, an array of steps, or one `function_call` step"
        }
        Dialect::Bedrock => {
            "a response with `output.message`, a message with `content`, an array of blocks, or one `toolUse` block"
        }
        Dialect::Mcp => "a JSON-RPC request with the method `tools/call`, or an array of them",
        Dialect::Native => "`{\"tool_name\": …, \"arguments\": {…}}`, or an array of such objects",
        Dialect::Text => "what the model wrote, as a text",
    }
}
