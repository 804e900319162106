//! Writes results as the messages that are appended to the conversation.

use serde_json::{Value, json};

use super::blocks::result_as_text;
use super::found_calls::reply_fields;
use super::message::{AnsweredCall, Dialect, Message, ToolReply, call_id, tool_name};
use super::{anthropic, bedrock, gemini, interactions, mcp, native, openai, responses, text};

/// Writes the messages to append to the conversation, in the message's dialect. `replies` has one
/// entry for each call, in order.
///
/// Every call gets a reply under its id, also a call that could not be read. Providers refuse a
/// conversation in which a call has no result.
pub fn write_replies(message: &Message, replies: &[ToolReply<'_>]) -> Vec<Value> {
    if message.calls.is_empty() {
        return Vec::new();
    }
    let answered_calls = message
        .calls
        .iter()
        .zip(replies)
        .map(|(call, reply)| AnsweredCall {
            id: call_id(call),
            name: tool_name(call),
            reply,
            fields: reply_fields(call),
        });
    match message.dialect {
        Dialect::Openai => openai::write_messages(answered_calls),
        Dialect::OpenaiResponses => answered_calls.map(responses::write_output).collect(),
        Dialect::Anthropic => anthropic::write_results(answered_calls),
        Dialect::Gemini => gemini::write_responses(answered_calls),
        Dialect::GeminiInteractions => answered_calls.map(interactions::write_result).collect(),
        Dialect::Bedrock => bedrock::write_results(answered_calls),
        Dialect::Mcp => message
            .calls
            .iter()
            .zip(answered_calls)
            .map(|(call, answered)| mcp::write_response(call, answered))
            .collect(),
        Dialect::Native => answered_calls.map(native::write_reply).collect(),
        Dialect::Text => text::write_reply(message, replies),
    }
}

/// One user message in words, in a dialect. Each result has its introduction before it.
///
/// A provider takes one result for each call, so a later result must be an ordinary message.
pub fn write_late_results<'a>(
    dialect: Dialect,
    results: impl IntoIterator<Item = (&'a str, ToolReply<'a>)>,
) -> Value {
    let texts = results
        .into_iter()
        .map(|(introduction, reply)| format!("{introduction}\n{}", result_as_text(&reply)));
    let text = texts.collect::<Vec<_>>().join("\n\n");
    match dialect {
        Dialect::Openai | Dialect::Native | Dialect::Text => {
            json!({"role": "user", "content": text})
        }
        Dialect::OpenaiResponses => {
            json!({"role": "user", "content": [{"type": "input_text", "text": text}]})
        }
        Dialect::Anthropic => json!({"role": "user", "content": [{"type": "text", "text": text}]}),
        Dialect::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
        Dialect::GeminiInteractions => {
            json!({"type": "user_input", "content": [{"type": "text", "text": text}]})
        }
        Dialect::Bedrock => json!({"role": "user", "content": [{"text": text}]}),
        // The form of a message in a prompt.
        Dialect::Mcp => json!({"role": "user", "content": {"type": "text", "text": text}}),
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::Content;
    use super::*;

    #[test]
    fn message_of_each_dialect_is_of_the_user_and_has_all_results() {
        let content = [Content::text("paid")];
        let reply = ToolReply {
            content: &content,
            structured: None,
            is_error: false,
            is_final_answer: false,
            is_invalid_call: false,
        };
        for dialect in Dialect::ALL {
            let message = write_late_results(*dialect, [("First:", reply), ("Second:", reply)]);
            let (role, kind) = (&message["role"], &message["type"]);
            assert!(role == "user" || kind == "user_input", "{message}");
            let text = r"First:\npaid\n\nSecond:\npaid";
            assert!(message.to_string().contains(text), "{dialect:?}: {message}");
        }
    }
}
