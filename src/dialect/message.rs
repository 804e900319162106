//! A model's message as plain data, whatever dialect it came in.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Content, JsonObject};

/// A way in which models call tools and are told what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
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
    pub const ALL: [Self; 8] = [
        Self::Openai,
        Self::OpenaiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::Bedrock,
        Self::Mcp,
        Self::Native,
        Self::Text,
    ];

    /// The word for it, as in `?dialect=` and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Bedrock => "bedrock",
            Self::Mcp => "mcp",
            Self::Native => "native",
            Self::Text => "text",
        }
    }

    /// The dialect of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.as_str() == word)
    }
}

/// How calls are written in a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// `[TOOL_CALL]{"name": …, "args": {…}}[/TOOL_CALL]`.
    #[default]
    Marked,
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>` (Hermes, Qwen).
    Tagged,
    /// `Action: …` and `Action Input: {…}` on lines of their own (ReAct).
    React,
    /// `{"tool_name": …, "arguments": {…}}` in a fenced block.
    Fenced,
    /// The same, and nothing else.
    Bare,
}

/// A model's message: the calls in it, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The dialect it is in, and the answer will be.
    pub dialect: Dialect,
    /// How its calls are written, in text; elsewhere the default.
    pub form: Form,
    /// The calls, in the order in which the model wrote them. What looks like a call and cannot be read is one too.
    pub asks: Vec<Result<Ask, Misread>>,
    /// What whoever sent it may want to know.
    pub warnings: Vec<String>,
}

/// One call as the model wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The provider's id for it, handed back with the result as it came: a text, or a number in JSON-RPC.
    pub id: Option<Value>,
    /// The tool's name.
    pub name: String,
    /// Its arguments.
    pub arguments: Written,
    /// The model was cut off before its end (token limit), and this is the last thing it wrote.
    pub cut_off: bool,
    /// A call before it could not be read to its end, so this may be part of a text in that one.
    pub doubtful: bool,
}

/// Arguments as they came.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// An object.
    Object(JsonObject),
    /// A text that is to hold JSON.
    Text(String),
    /// None were given.
    Nothing,
    /// JSON of another type.
    Other(Value),
}

/// A call that cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Misread {
    /// The provider's id for it, if that much could be read.
    pub id: Option<Value>,
    /// The tool's name, if that much could be read.
    pub name: Option<String>,
    /// What is wrong, for people: the rest of a sentence.
    pub what: String,
    /// What to do about it, for the model: whole sentences.
    pub correction: String,
    /// It asks for something else than a call.
    pub is_other_method: bool,
}

/// What is said about one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Said<'a> {
    /// Blocks for the model; of a problem, the same said to a model.
    pub content: &'a [Content],
    /// The same as data, if the tool gave some.
    pub structured: Option<&'a Value>,
    /// The tool said no, or did not run.
    pub is_error: bool,
    /// The result is the agent's final answer.
    pub is_answer: bool,
    /// The tool does not exist or the call could not be read: a protocol error where the dialect has such (MCP).
    pub is_no_call: bool,
}
