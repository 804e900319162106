//! The `anthropic` dialect: Anthropic Messages.

use serde_json::{Value, json};

use super::blocks::{self, IMAGE_TYPES};
use super::found_calls::{FoundCalls, text_field};
use super::message::AnsweredCall;
use crate::content::Content;
use crate::strict_json::JsonObject;

/// Stop reasons after which the model's output is incomplete.
const CUT_OFF_REASONS: [&str; 3] = ["max_tokens", "model_context_window_exceeded", "refusal"];

/// Block types that need no result. The result blocks of the provider's own tools need none either.
const NON_CALL_TYPES: [&str; 8] = [
    "text",
    "thinking",
    "redacted_thinking",
    "server_tool_use",
    "mcp_tool_use",
    "container_upload",
    "compaction",
    "image",
];

/// Finds the calls. Returns false if the body is not an Anthropic message.
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    match body.get("content") {
        Some(Value::String(_)) => body.get("role").is_some_and(|role| role == "assistant"),
        _ => found.visit_body(body, parts, is_block, read_block),
    }
}

fn parts(fields: &mut JsonObject) -> Option<(&mut Vec<Value>, bool)> {
    let is_cut =
        text_field(fields, "stop_reason").is_some_and(|reason| CUT_OFF_REASONS.contains(&reason));
    let is_assistant = text_field(fields, "role") == Some("assistant");
    let content = fields.get_mut("content").filter(|_| is_assistant)?;
    Some((content.as_array_mut()?, is_cut))
}

fn is_block(value: &Value) -> bool {
    value
        .get("type")
        .is_some_and(|kind| kind.is_string() && kind != "function")
}

/// Adds the block to `found` if it is a call. Returns whether it is a call.
fn read_block(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    match text_field(fields, "type").unwrap_or_default() {
        "tool_use" => {
            found.take_call_with_id(fields, &["id"], "name", "input");
            let toolset = fields.remove_entry("toolset_name");
            found.set_reply_fields(
                toolset
                    .filter(|(_, name)| name.is_string())
                    .into_iter()
                    .collect(),
            );
            return true;
        }
        // A call of a managed agent. Its event has the result in another form.
        "agent.custom_tool_use" => {
            let id = fields.get("id").cloned();
            let reply = json!({"type": "user.custom_tool_result", "custom_tool_use_id": id, "tool_use_id": null});
            found.take_call_with_id(fields, &["id"], "name", "input");
            found.set_reply_fields(reply.as_object().cloned().unwrap_or_default());
            return true;
        }
        kind if NON_CALL_TYPES.contains(&kind) || kind.ends_with("_tool_result") => {}
        kind => found.warn_ignored(&format!("a block of the type `{kind}`")),
    }
    false
}

/// Makes one message with all results: the API requires them in the message right after the calls.
/// Results of a managed agent are events of their own.
pub(super) fn write_results<'a>(answered: impl Iterator<Item = AnsweredCall<'a>>) -> Vec<Value> {
    let results: Vec<Value> = answered
        .map(|answered_call| {
            let reply = answered_call.reply;
            let data =
                blocks::unstated_data(reply).map(|data| json!({"type": "text", "text": data}));
            let converted = reply
                .content
                .iter()
                .filter_map(|block| convert_block(block, reply.is_error));
            let mut content: Vec<Value> = data.into_iter().chain(converted).collect();
            if content.is_empty() {
                content.push(
                    json!({"type": "text", "text": blocks::empty_result_text(reply.is_error)}),
                );
            }
            let mut result =
                json!({"type": "tool_result", "tool_use_id": answered_call.id, "content": content});
            if reply.is_error {
                result["is_error"] = true.into();
            }
            answered_call.with_fields(result)
        })
        .collect();
    let (results, mut messages): (Vec<Value>, Vec<Value>) = results
        .into_iter()
        .partition(|result| result["type"] == "tool_result");
    if !results.is_empty() {
        messages.push(json!({"role": "user", "content": results}));
    }
    messages
}

/// Converts a block for the API. The API refuses blank texts, and accepts only text in the result
/// of a failed call.
fn convert_block(block: &Content, is_error: bool) -> Option<Value> {
    if !is_error && let Some(media) = media_block(block) {
        return Some(media);
    }
    let why = if is_error {
        "this API takes only text in the result of a failed call"
    } else {
        blocks::UNSUPPORTED
    };
    let text = blocks::block_as_text(block, why);
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn media_block(block: &Content) -> Option<Value> {
    if let Some((kind, data)) = blocks::image(block, &IMAGE_TYPES) {
        let source = json!({"type": "base64", "media_type": kind, "data": data});
        return Some(json!({"type": "image", "source": source}));
    }
    let Content::Resource { resource } = block else {
        return None;
    };
    let source = match (blocks::resource_text(resource), blocks::file(block)) {
        (Some(text), _) if text.trim().is_empty() => return None,
        (Some(text), _) => json!({"type": "text", "media_type": "text/plain", "data": text}),
        (None, Some((_, kind @ "application/pdf", data))) => {
            json!({"type": "base64", "media_type": kind, "data": data})
        }
        (None, _) => return None,
    };
    Some(json!({"type": "document", "source": source, "title": blocks::file_name(resource)}))
}
