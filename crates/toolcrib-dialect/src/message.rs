//! A model's message as plain data, independent of the dialect.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Content;
use crate::strict_json::JsonObject;

/// A format in which models call tools and get their results.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// OpenAI Chat Completions: `tool_calls` of a message.
    Openai,
    /// OpenAI Responses: `function_call` items.
    OpenaiResponses,
    /// Anthropic Messages: `tool_use` blocks.
    Anthropic,
    /// Gemini `generateContent`: `functionCall` parts.
    Gemini,
    /// Gemini Interactions: `function_call` steps.
    GeminiInteractions,
    /// Bedrock Converse: `toolUse` blocks.
    Bedrock,
    /// MCP: `tools/call` requests.
    Mcp,
    /// `{"tool_name": …, "arguments": {…}}`.
    Native,
    /// What a model without tool calls writes: `[TOOL_CALL]`, ReAct, JSON in a fence or alone.
    Text,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The names of all dialects.
    pub fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|dialect| dialect.as_str()).collect()
    }

    /// The name of the dialect, as in `?dialect=` and in responses.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The dialect with that name.
    pub fn from_name(word: &str) -> Option<Self> {
        word.parse().ok()
    }
}

/// The syntax of calls in a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TextSyntax {
    /// `[TOOL_CALL]{"name": …, "args": {…}}[/TOOL_CALL]`.
    #[default]
    Marked,
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>` (Hermes, Qwen).
    Tagged,
    /// `<function=NAME><parameter=KEY>VALUE</parameter></function>` (Qwen3-Coder).
    Functions,
    /// `<invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>` (MiniMax).
    Invoke,
    /// `[TOOL_CALLS]` and a list of JSON, or a name and JSON (Mistral).
    Mistral,
    /// `<|python_tag|>` and JSON or a call in Python (Llama).
    PythonTag,
    /// `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>` (DeepSeek).
    Deepseek,
    /// `<|tool_call_begin|>NAME<|tool_call_argument_begin|>{…}<|tool_call_end|>` (Kimi).
    Kimi,
    /// `<|channel|>commentary to=functions.NAME<|message|>{…}<|call|>` (gpt-oss).
    Harmony,
    /// Calls in Python in a fence of `tool_code` (Gemini).
    ToolCode,
    /// A list of calls in Python, which is the whole text (Llama).
    Pythonic,
    /// `Action: …` and `Action Input: {…}` on lines of their own (ReAct).
    React,
    /// `{"tool_name": …, "arguments": {…}}` in a fenced block.
    Fenced,
    /// The JSON of `Fenced` without a fence. It is the whole text.
    Bare,
}

/// A model's message: the calls in it, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The dialect of the message, and of the reply.
    pub dialect: Dialect,
    /// The syntax of its calls, if the dialect is `text`. Otherwise the default.
    pub syntax: TextSyntax,
    /// The calls, in the order in which the model wrote them. Something that looks like a call but
    /// cannot be read is included.
    pub calls: Vec<Result<ToolCall, MalformedCall>>,
    /// Notes for the client that sent the message.
    pub warnings: Vec<String>,
}

/// One call as the model wrote it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of the call: a string, or a number in JSON-RPC. The result is returned
    /// with the same id.
    pub id: Option<Value>,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments, as the model wrote them.
    pub arguments: RawArguments,
    /// The model stopped (token limit) while it wrote this call. The call is the last one in the
    /// message.
    pub cut_off: bool,
    /// An earlier call could not be read to its end. So this call may be part of a text in that
    /// one.
    pub doubtful: bool,
    /// The group of tools in which the model looks for the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Fields of the reply that differ from those of other calls.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub reply_fields: JsonObject,
}

impl ToolCall {
    /// A call with a name and arguments only.
    pub fn new(name: String, arguments: RawArguments) -> Self {
        Self {
            name,
            arguments,
            ..Self::default()
        }
    }
}

/// Arguments as the model wrote them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum RawArguments {
    /// A JSON object.
    Object(JsonObject),
    /// A text that should contain JSON.
    Text(String),
    /// The input of a custom tool: a free text, which is the one text parameter of the tool.
    Input(String),
    /// The call has no arguments.
    #[default]
    Missing,
    /// JSON of another type.
    Other(Value),
}

/// A call that cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MalformedCall {
    /// The provider's id of the call, if it could be read.
    pub id: Option<Value>,
    /// The tool's name, if it could be read.
    pub name: Option<String>,
    /// The fault, for people. It completes a sentence.
    pub fault: String,
    /// What the model should do, in whole sentences.
    pub correction: String,
    /// The message requests something other than a tool call.
    pub is_other_method: bool,
    /// Fields of the reply that differ from those of other calls.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub reply_fields: JsonObject,
}

impl MalformedCall {
    /// A call with neither id nor name. `correction` is in whole sentences.
    pub fn new(fault: String, correction: String) -> Self {
        Self {
            fault,
            correction,
            ..Self::default()
        }
    }
}

/// The reply to one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ToolReply<'a> {
    /// The content for the model. A problem is written here as text, too.
    pub content: &'a [Content],
    /// The same content as data, if the tool returned data.
    pub structured: Option<&'a Value>,
    /// The tool returned an error result, or did not run.
    pub is_error: bool,
    /// The result is the agent's final answer.
    pub is_final_answer: bool,
    /// The tool does not exist, or the call could not be read. Dialects with protocol errors (MCP)
    /// reply with such an error.
    pub is_invalid_call: bool,
}

/// One call and its reply.
#[derive(Clone, Copy)]
pub(crate) struct AnsweredCall<'a> {
    /// The provider's id of the call.
    pub(crate) id: Option<&'a Value>,
    /// The tool's name as the model wrote it.
    pub(crate) name: Option<&'a str>,
    /// The reply to the call.
    pub(crate) reply: &'a ToolReply<'a>,
    /// Fields of the reply that the call determines.
    pub(crate) fields: &'a JsonObject,
}

impl AnsweredCall<'_> {
    /// The message with the fields that the call determines. A field that is null is left out.
    pub(crate) fn with_fields(&self, mut message: Value) -> Value {
        if let Value::Object(members) = &mut message {
            members.extend(self.fields.clone());
            members.retain(|name, value| !value.is_null() || !self.fields.contains_key(name));
        }
        message
    }
}

/// The provider's id of a call.
pub fn call_id(call: &Result<ToolCall, MalformedCall>) -> Option<&Value> {
    match call {
        Ok(call) => call.id.as_ref(),
        Err(malformed) => malformed.id.as_ref(),
    }
}

/// The tool's name in a call.
pub fn tool_name(call: &Result<ToolCall, MalformedCall>) -> Option<&str> {
    match call {
        Ok(call) => Some(&call.name),
        Err(malformed) => malformed.name.as_deref(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_dialect_has_a_name() {
        for &dialect in Dialect::ALL {
            assert_eq!(Dialect::from_name(dialect.as_str()), Some(dialect));
            assert_eq!(json!(dialect), dialect.as_str());
            assert_eq!(
                serde_json::from_value::<Dialect>(json!(dialect)).unwrap(),
                dialect
            );
        }
    }
}
