//! Guesses the dialect of a message from fields that are typical of each provider.

use serde_json::Value;

use super::message::Dialect;
use super::{gemini, native, openai};
use crate::strict_json::JsonObject;
use crate::words::words;

/// The dialect, if a typical field is present.
pub(super) fn guess_dialect(body: &Value) -> Option<Dialect> {
    match body {
        Value::String(_) => Some(Dialect::Text),
        // An empty list has no typical field. Any dialect will do, because there are no calls.
        Value::Array(items) if items.is_empty() => Some(Dialect::Openai),
        Value::Array(items) => {
            let objects = || items.iter().filter_map(Value::as_object);
            // The list may mix items and plain messages. Plain messages are less typical, so they
            // are examined last.
            let marked = objects()
                .filter(|fields| !fields.contains_key("role"))
                .find_map(dialect_of_object);
            let marked = marked.or_else(|| objects().find_map(dialect_of_object));
            // A Bedrock block is recognized only by the name of its content.
            marked.or_else(|| {
                items
                    .iter()
                    .all(|item| item.get("text").is_some())
                    .then_some(Dialect::Bedrock)
            })
        }
        Value::Object(fields)
            if fields.len() == 1 && has_field_of(fields, "text", Value::is_string) =>
        {
            Some(Dialect::Text)
        }
        Value::Object(fields) => dialect_of_object(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn dialect_of_object(fields: &JsonObject) -> Option<Dialect> {
    let has = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    let object = |name: &str| has_field_of(fields, name, Value::is_object);
    let array = |name: &str| has_field_of(fields, name, Value::is_array);
    let text = |name: &str| has_field_of(fields, name, Value::is_string);
    let role = fields.get("role").and_then(Value::as_str);
    // The most reliable fields come first.
    if has("jsonrpc") || text("method") {
        return Some(Dialect::Mcp);
    }
    if array("choices") || openai::CALL_KEYS.into_iter().any(array) || openai::is_choice(fields) {
        return Some(Dialect::Openai);
    }
    if let Some(call) = fields
        .get("function_call")
        .or_else(|| fields.get("functionCall"))
        .and_then(Value::as_object)
    {
        // OpenAI's first form of calls uses the same name, but another key for the arguments.
        let is_openai = role.is_some_and(|role| role != "model") || call.contains_key("arguments");
        return Some(match is_openai {
            true => Dialect::Openai,
            false => Dialect::Gemini,
        });
    }
    if array("candidates")
        || array("parts")
        || role == Some("model")
        || has("finishReason")
        || has("finish_reason")
        || gemini::RESPONSE_FIELDS.into_iter().any(object)
    {
        return Some(Dialect::Gemini);
    }
    if array("output") {
        return Some(Dialect::OpenaiResponses);
    }
    if array("steps") {
        return Some(Dialect::GeminiInteractions);
    }
    if object("toolUse")
        || has("stopReason")
        || fields
            .get("output")
            .is_some_and(|output| output.get("message").is_some())
    {
        return Some(Dialect::Bedrock);
    }
    if let Some(kind) = fields.get("type").and_then(Value::as_str) {
        let by_type = dialect_of_type(kind, fields);
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
            Some(Value::Array(blocks)) => dialect_of_content(blocks),
            _ => Dialect::Openai,
        });
    }
    // Objects of the Python SDK have every field of a part, and most of them are null.
    if role.is_none()
        && (fields.contains_key("functionCall") || fields.contains_key("function_call"))
    {
        return Some(Dialect::Gemini);
    }
    let names_a_tool = has("tool_name") || has("tool") && !object("tool") || has("name");
    let mut argument_keys = native::ARGUMENT_KEYS.into_iter();
    let has_arguments = argument_keys.any(|name| fields.contains_key(name));
    let is_action = text("action") && fields.contains_key(native::ACTION_INPUT);
    let is_native =
        role.is_none() && (is_action || names_a_tool && (has_arguments || has("tool_name")));
    (is_native && !has("description")).then_some(Dialect::Native)
}

/// Guesses from the `type` of an Anthropic block or an OpenAI item.
fn dialect_of_type(kind: &str, fields: &JsonObject) -> Option<Dialect> {
    match kind {
        "function" | "custom" if has_field_of(fields, kind, Value::is_object) => {
            let declares = fields[kind].get("description").is_some();
            (!declares).then_some(Dialect::Openai)
        }
        "message" => Some(match fields.get("content") {
            Some(Value::Array(blocks)) => dialect_of_content(blocks),
            _ => Dialect::Anthropic,
        }),
        "text" | "thinking" | "redacted_thinking" | "container_upload" => Some(Dialect::Anthropic),
        kind if kind.ends_with("tool_use") || kind.ends_with("tool_result") => {
            Some(Dialect::Anthropic)
        }
        "thought" | "model_output" | "function_result" => Some(Dialect::GeminiInteractions),
        // Items of Responses have their arguments as a text, apart from those that search for tools.
        kind if kind.ends_with("_call")
            && has_field_of(fields, "arguments", Value::is_object)
            && !["call_id", "execution"]
                .iter()
                .any(|name| fields.contains_key(*name)) =>
        {
            (kind != "tool_call").then_some(Dialect::GeminiInteractions)
        }
        "reasoning" | "compaction" | "mcp_list_tools" | "mcp_approval_request" => {
            Some(Dialect::OpenaiResponses)
        }
        // LangChain's `tool_call` is excluded; its shape is `{name, args, id}`.
        kind if kind != "tool_call"
            && (kind.ends_with("_call") || kind.ends_with("_call_output")) =>
        {
            Some(Dialect::OpenaiResponses)
        }
        _ => None,
    }
}

/// Guesses from the content of a message. OpenAI items contain `output_text`, Anthropic blocks have
/// a `type`, and Bedrock blocks have none.
fn dialect_of_content(blocks: &[Value]) -> Dialect {
    match blocks
        .first()
        .map(|block| block.get("type").and_then(Value::as_str))
    {
        None => Dialect::Anthropic,
        Some(Some("output_text" | "refusal")) => Dialect::OpenaiResponses,
        Some(Some(_)) => Dialect::Anthropic,
        Some(None) => Dialect::Bedrock,
    }
}

/// Explains why a body is not a message of any dialect, if the reason is known. The text completes
/// a sentence that begins with "the body is".
pub(super) fn describe_non_message(body: &Value) -> Option<&'static str> {
    match body {
        Value::Array(items) => {
            let is_message = |item: &Value| {
                let has = |name| item.get(name).is_some();
                (has("role") && !has("type")) || has("choices") || has("candidates")
            };
            let messages = items.iter().filter(|item| is_message(item)).count();
            (messages > 1 && items.len() == messages).then_some(
                "a list of messages: send only the last one, which is the model's message",
            )
        }
        Value::Object(fields) => describe_object(fields),
        Value::String(_) => None,
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            Some("neither an object, an array nor a text")
        }
    }
}

fn describe_object(fields: &JsonObject) -> Option<&'static str> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let has = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    let first_choice = fields.get("choices").and_then(|choices| choices.get(0));
    let is_chunk = text("object").ends_with(".chunk")
        || first_choice
            .is_some_and(|choice| choice.get("delta").is_some() && choice.get("message").is_none())
        || text("type").starts_with("response.")
        || STREAM_EVENT_TYPES
            .into_iter()
            .any(|kind| kind == text("type"))
        || BEDROCK_STREAM_KEYS.into_iter().any(has);
    if is_chunk {
        return Some(
            "one piece of a stream: put the stream together first, and send the whole message",
        );
    }
    if matches!(
        text("role"),
        "user" | "system" | "developer" | "tool" | "function"
    ) {
        return Some(
            "a message to the model: send the model's message, which has the role `assistant` or `model`",
        );
    }
    if fields.get("messages").is_some_and(Value::is_array) {
        return Some("a request to a model: send the model's answer to it");
    }
    let is_failure = has("error")
        && !["jsonrpc", "output", "choices", "candidates"]
            .into_iter()
            .any(has);
    is_failure.then_some("a provider's error, which has no message of a model")
}

/// The types of Anthropic's stream events.
const STREAM_EVENT_TYPES: [&str; 6] = words(
    "message_start content_block_start content_block_delta content_block_stop
     message_delta message_stop",
);
const BEDROCK_STREAM_KEYS: [&str; 5] = [
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
];

fn has_field_of(fields: &JsonObject, name: &str, shape: impl Fn(&Value) -> bool) -> bool {
    fields.get(name).is_some_and(shape)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Dialect::{
        Anthropic, Bedrock, Gemini, GeminiInteractions, Mcp, Native, Openai, OpenaiResponses, Text,
    };
    use super::*;

    #[test]
    fn typical_fields_identify_the_dialect() {
        for (body, dialect) in [
            (json!("x"), Text),
            (json!({"text": "x"}), Text),
            (json!([]), Openai),
            (json!({"jsonrpc": "2.0"}), Mcp),
            (json!({"method": "x"}), Mcp),
            (json!({"jsonrpc": null, "choices": []}), Openai),
            (json!({"function_call": {"name": "f", "args": {}}}), Gemini),
            (
                json!({"function_call": {"name": "f", "arguments": "{}"}}),
                Openai,
            ),
            (
                json!({"role": "assistant", "function_call": {"name": "f"}}),
                Openai,
            ),
            (
                json!({"role": "model", "functionCall": {"name": "f"}}),
                Gemini,
            ),
            (json!({"candidates": []}), Gemini),
            (json!({"parts": []}), Gemini),
            (json!({"role": "model"}), Gemini),
            (json!({"finishReason": "STOP"}), Gemini),
            (json!({"functionCall": null}), Gemini),
            (json!({"function_call": null}), Gemini),
            (json!({"steps": []}), GeminiInteractions),
            (
                json!({"type": "function_call", "id": "1", "arguments": {}}),
                GeminiInteractions,
            ),
            (
                json!({"type": "function_call", "call_id": "1", "arguments": {}}),
                OpenaiResponses,
            ),
            (
                json!([{"type": "google_search_call", "id": "1", "arguments": {}}]),
                GeminiInteractions,
            ),
            (json!({"type": "thought"}), GeminiInteractions),
            (json!({"type": "agent.custom_tool_use"}), Anthropic),
            (json!({"output": []}), OpenaiResponses),
            (json!({"output": {"message": {}}}), Bedrock),
            (json!({"toolUse": {}}), Bedrock),
            (json!({"stopReason": "x"}), Bedrock),
            (json!([{"text": "a"}, {"text": "b"}]), Bedrock),
            (
                json!({"type": "function", "function": {"name": "f"}}),
                Openai,
            ),
            (json!({"type": "custom", "custom": {"name": "f"}}), Openai),
            (
                json!({"type": "message", "content": [{"type": "output_text"}]}),
                OpenaiResponses,
            ),
            (
                json!({"type": "message", "content": [{"type": "text"}]}),
                Anthropic,
            ),
            (json!({"type": "message"}), Anthropic),
            (json!({"type": "text", "id": 1}), Anthropic),
            (json!({"type": "thinking"}), Anthropic),
            (json!({"type": "redacted_thinking"}), Anthropic),
            (json!({"type": "container_upload"}), Anthropic),
            (json!({"type": "server_tool_use"}), Anthropic),
            (json!({"type": "web_search_tool_result"}), Anthropic),
            (json!({"type": "reasoning"}), OpenaiResponses),
            (json!({"type": "compaction"}), OpenaiResponses),
            (json!({"type": "mcp_list_tools"}), OpenaiResponses),
            (json!({"type": "mcp_approval_request"}), OpenaiResponses),
            (json!({"type": "function_call"}), OpenaiResponses),
            (json!({"type": "shell_call_output"}), OpenaiResponses),
            (
                json!({"type": "tool_call", "name": "f", "args": {}}),
                Native,
            ),
            (json!({"function": {"name": "f"}}), Openai),
            (json!({"role": "assistant", "content": "x"}), Openai),
            (json!({"role": "assistant", "content": []}), Anthropic),
            (
                json!({"role": "assistant", "content": [{"type": "text"}]}),
                Anthropic,
            ),
            (
                json!({"role": "assistant", "content": [{"type": "refusal"}]}),
                OpenaiResponses,
            ),
            (
                json!({"role": "assistant", "content": [{"text": "x"}]}),
                Bedrock,
            ),
            (
                json!([{"role": "assistant", "content": "x"}, {"type": "tool_use"}]),
                Anthropic,
            ),
            (json!({"tool_name": "f"}), Native),
            (json!({"tool": "f", "arguments": {}}), Native),
            (json!({"name": "f", "args": {}}), Native),
            (json!({"name": "f", "input": {}}), Native),
            (json!({"name": "f", "parameters": null}), Native),
            (json!({"action": "f", "action_input": {}}), Native),
            (json!([{"action": "f", "action_input": null}]), Native),
        ] {
            assert_eq!(guess_dialect(&body), Some(dialect), "{body}");
        }
    }

    #[test]
    fn bodies_without_typical_fields_have_no_dialect() {
        for body in [
            json!(null),
            json!(1),
            json!({}),
            json!([{"text": "a"}, {}]),
            json!({"text": 1}),
            json!({"text": "x", "more": 1}),
            json!({"output": {}}),
            json!({"type": "surprise"}),
            json!({"type": "function", "function": {"name": "f", "description": "d"}}),
            json!({"function": {"name": "f", "description": "d"}}),
            json!({"functionCall": null, "role": "user"}),
            json!({"name": "f"}),
            json!({"tool": {}, "arguments": {}}),
            json!({"name": "f", "arguments": {}, "description": "d"}),
            json!({"role": "user", "name": "f", "arguments": {}}),
            json!({"arguments": {}}),
            json!({"action": "f"}),
            json!({"action": {}, "action_input": {}}),
            json!({"action_input": {}}),
        ] {
            assert_eq!(guess_dialect(&body), None, "{body}");
        }
    }

    #[test]
    fn non_messages_are_described() {
        for (body, what) in [
            (
                json!([{"role": "user"}, {"role": "assistant"}]),
                Some("a list of messages"),
            ),
            (
                json!([{"choices": []}, {"candidates": []}]),
                Some("a list of messages"),
            ),
            (json!([{"role": "assistant"}]), None),
            (
                json!([{"role": "a"}, {"role": "b", "type": "message"}]),
                None,
            ),
            (
                json!({"object": "chat.completion.chunk"}),
                Some("one piece of a stream"),
            ),
            (
                json!({"choices": [{"delta": {}}]}),
                Some("one piece of a stream"),
            ),
            (json!({"choices": [{"delta": {}, "message": {}}]}), None),
            (
                json!({"type": "response.created"}),
                Some("one piece of a stream"),
            ),
            (
                json!({"type": "message_start"}),
                Some("one piece of a stream"),
            ),
            (json!({"messageStart": {}}), Some("one piece of a stream")),
            (json!({"messageStart": null}), None),
            (json!({"role": "user"}), Some("a message to the model")),
            (json!({"role": "assistant"}), None),
            (json!({"messages": []}), Some("a request to a model")),
            (json!({"messages": 1}), None),
            (json!({"error": {}}), Some("a provider's error")),
            (json!({"error": {}, "choices": []}), None),
            (json!({"error": null}), None),
            (json!(1), Some("neither an object, an array nor a text")),
            (json!("x"), None),
        ] {
            let description = describe_non_message(&body);
            assert_eq!(
                description.is_some(),
                what.is_some(),
                "{body}: {description:?}"
            );
            assert!(
                description.is_none_or(|text| text.starts_with(what.unwrap())),
                "{body}: {description:?}"
            );
        }
    }
}
