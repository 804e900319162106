//! Writes results as the messages that are appended to the conversation.

use serde_json::Value;

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
