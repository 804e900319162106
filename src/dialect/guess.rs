//! Which dialect a message is in, by the marks that providers leave.

use serde_json::Value;

use super::message::Dialect;
use super::{gemini, openai};
use crate::call::JsonObject;

/// The dialect, if one of its marks is there.
pub(super) fn guess(body: &Value) -> Option<Dialect> {
    match body {
        Value::String(_) => Some(Dialect::Text),
        // Nothing to tell by, and nothing to do.
        Value::Array(items) if items.is_empty() => Some(Dialect::Openai),
        Value::Array(items) => {
            let objects = || items.iter().filter_map(Value::as_object);
            // Items may stand beside plain messages, which tell less.
            let marked = objects().filter(|fields| !fields.contains_key("role")).find_map(of);
            let marked = marked.or_else(|| objects().find_map(of));
            // Blocks of Bedrock have no mark but the name of what is in them.
            marked.or_else(|| items.iter().all(|item| item.get("text").is_some()).then_some(Dialect::Bedrock))
        }
        Value::Object(fields) if fields.len() == 1 && is(fields, "text", Value::is_string) => Some(Dialect::Text),
        Value::Object(fields) => of(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn of(fields: &JsonObject) -> Option<Dialect> {
    let has = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    let object = |name: &str| is(fields, name, Value::is_object);
    let array = |name: &str| is(fields, name, Value::is_array);
    let text = |name: &str| is(fields, name, Value::is_string);
    let role = fields.get("role").and_then(Value::as_str);
    // The most telling first.
    if has("jsonrpc") || text("method") {
        return Some(Dialect::Mcp);
    }
    if array("choices") || openai::CALLS.into_iter().any(array) || openai::is_choice(fields) {
        return Some(Dialect::Openai);
    }
    if let Some(call) = fields.get("function_call").or_else(|| fields.get("functionCall")).and_then(Value::as_object) {
        // OpenAI's first way of calling has the same name; its arguments are called otherwise.
        let is_openai = role.is_some_and(|role| role != "model") || call.contains_key("arguments");
        return Some(if is_openai { Dialect::Openai } else { Dialect::Gemini });
    }
    if array("candidates") || array("parts") || role == Some("model") || has("finishReason") || has("finish_reason") {
        return Some(Dialect::Gemini);
    }
    if gemini::BESIDE.into_iter().any(object) {
        return Some(Dialect::Gemini);
    }
    if array("output") {
        return Some(Dialect::OpenaiResponses);
    }
    if object("toolUse")
        || has("stopReason")
        || fields.get("output").is_some_and(|output| output.get("message").is_some())
    {
        return Some(Dialect::Bedrock);
    }
    if let Some(kind) = fields.get("type").and_then(Value::as_str) {
        let by_type = of_type(kind, fields);
        if by_type.is_some() {
            return by_type;
        }
    }
    if object("function") {
        let declares = fields["function"].get("description").is_some();
        return (!declares).then_some(Dialect::Openai);
    }
    if role == Some("assistant") {
        return Some(match fields.get("content") {
            Some(Value::Array(blocks)) => of_content(blocks),
            _ => Dialect::Openai,
        });
    }
    // What is fed through the SDK for Python has every field of a part, most of them null.
    if role.is_none() && (fields.contains_key("functionCall") || fields.contains_key("function_call")) {
        return Some(Dialect::Gemini);
    }
    let names_a_tool = has("tool_name") || has("tool") && !object("tool") || has("name");
    let has_arguments = ["arguments", "args", "input", "parameters"].into_iter().any(|name| fields.contains_key(name));
    let is_native = role.is_none() && names_a_tool && (has_arguments || has("tool_name"));
    (is_native && !has("description")).then_some(Dialect::Native)
}

/// By the `type` that Anthropic's blocks and OpenAI's items have.
fn of_type(kind: &str, fields: &JsonObject) -> Option<Dialect> {
    match kind {
        "function" | "custom" if is(fields, kind, Value::is_object) => {
            let declares = fields[kind].get("description").is_some();
            (!declares).then_some(Dialect::Openai)
        }
        "message" => Some(match fields.get("content") {
            Some(Value::Array(blocks)) => of_content(blocks),
            _ => Dialect::Anthropic,
        }),
        "text" | "thinking" | "redacted_thinking" | "container_upload" => Some(Dialect::Anthropic),
        kind if kind.ends_with("tool_use") || kind.ends_with("tool_result") => Some(Dialect::Anthropic),
        "reasoning" | "compaction" | "mcp_list_tools" | "mcp_approval_request" => Some(Dialect::OpenaiResponses),
        // Not LangChain's `tool_call`, which is `{name, args, id}`.
        kind if kind != "tool_call" && (kind.ends_with("_call") || kind.ends_with("_call_output")) => {
            Some(Dialect::OpenaiResponses)
        }
        _ => None,
    }
}

/// By what is in a message: OpenAI's items hold `output_text`, Anthropic's blocks have a `type`, Bedrock's have none.
fn of_content(blocks: &[Value]) -> Dialect {
    match blocks.first().map(|block| block.get("type").and_then(Value::as_str)) {
        None => Dialect::Anthropic,
        Some(Some("output_text" | "refusal")) => Dialect::OpenaiResponses,
        Some(Some(_)) => Dialect::Anthropic,
        Some(None) => Dialect::Bedrock,
    }
}

/// Why a body is no message of any dialect, where that can be said: the rest of a sentence that begins with "the body is".
pub(super) fn is_no_message(body: &Value) -> Option<&'static str> {
    match body {
        Value::Array(items) => {
            let is_message = |item: &Value| {
                let has = |name| item.get(name).is_some();
                (has("role") && !has("type")) || has("choices") || has("candidates")
            };
            let messages = items.iter().filter(|item| is_message(item)).count();
            (messages > 1 && items.len() == messages)
                .then_some("a list of messages, of which only the last, what the model said, may have calls to run")
        }
        Value::Object(fields) => of_other_things(fields),
        Value::String(_) => None,
        Value::Null | Value::Bool(_) | Value::Number(_) => Some("neither an object, an array nor a text"),
    }
}

fn of_other_things(fields: &JsonObject) -> Option<&'static str> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let has = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    let first_choice = fields.get("choices").and_then(|choices| choices.get(0));
    let is_chunk = text("object").ends_with(".chunk")
        || first_choice.is_some_and(|choice| choice.get("delta").is_some() && choice.get("message").is_none())
        || text("type").starts_with("response.")
        || STREAMED.contains(&text("type"))
        || STREAMED_BY_BEDROCK.into_iter().any(has);
    if is_chunk {
        return Some("one piece of a stream: put the stream together first, and send the whole message");
    }
    if matches!(text("role"), "user" | "system" | "developer" | "tool" | "function") {
        return Some("what was said to the model: send what the model said, whose role is `assistant` or `model`");
    }
    if fields.get("messages").is_some_and(Value::is_array) {
        return Some("a request to a model: send what the model said to it");
    }
    let is_failure = has("error") && !["jsonrpc", "output", "choices", "candidates"].into_iter().any(has);
    is_failure.then_some("a provider's error, in which a model says nothing")
}

/// Anthropic's events.
const STREAMED: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

const STREAMED_BY_BEDROCK: [&str; 5] =
    ["messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop"];

fn is(fields: &JsonObject, name: &str, shape: impl Fn(&Value) -> bool) -> bool {
    fields.get(name).is_some_and(shape)
}
