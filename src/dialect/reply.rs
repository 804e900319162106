//! Writes results as the messages that are appended to the conversation.

use serde_json::Value;

use super::found_calls::{id_of, name_of};
use super::message::{Dialect, Message, ToolReply};
use super::{anthropic, bedrock, gemini, mcp, native, openai, responses, text};

/// One call and its reply.
#[derive(Clone, Copy)]
pub(super) struct AnsweredCall<'a> {
    /// The provider's id of the call.
    pub(super) id: Option<&'a Value>,
    /// The tool's name as the model wrote it.
    pub(super) name: Option<&'a str>,
    /// The reply to the call.
    pub(super) said: &'a ToolReply<'a>,
}

/// Writes the messages to append to the conversation, in the message's dialect. `said` has one entry for each call,
/// in order.
///
/// Every call gets a reply under its id, also a call that could not be read. Providers refuse a conversation in which
/// a call has no result.
pub fn reply(message: &Message, said: &[ToolReply<'_>]) -> Vec<Value> {
    if message.asks.is_empty() {
        return Vec::new();
    }
    let told =
        message.asks.iter().zip(said).map(|(ask, said)| AnsweredCall { id: id_of(ask), name: name_of(ask), said });
    match message.dialect {
        Dialect::Openai => openai::reply(told),
        Dialect::OpenaiResponses => told.map(responses::reply).collect(),
        Dialect::Anthropic => anthropic::reply(told),
        Dialect::Gemini => gemini::reply(told),
        Dialect::Bedrock => bedrock::reply(told),
        Dialect::Mcp => message.asks.iter().zip(told).map(|(ask, told)| mcp::reply(ask, told)).collect(),
        Dialect::Native => told.map(native::reply).collect(),
        Dialect::Text => text::reply(message, said),
    }
}
