//! The `anthropic` dialect: Anthropic Messages.

use serde_json::{Value, json};

use super::blocks::{self, IMAGES};
use super::found_calls::{FoundCalls, take, text};
use super::reply::AnsweredCall;
use crate::call::{Content, JsonObject};

/// Stop reasons after which the model's output is incomplete.
const CUT: [&str; 3] = ["max_tokens", "model_context_window_exceeded", "refusal"];

/// Block types that need no result. The result blocks of the provider's own tools need none either.
const NO_CALL: [&str; 8] = [
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
pub(super) fn find(body: &mut Value, found: &mut FoundCalls) -> bool {
    match body {
        Value::Array(all) => found.each(all, false, is_block, one),
        Value::Object(fields) => {
            let is_cut = text(fields, "stop_reason").is_some_and(|reason| CUT.contains(&reason));
            let is_assistant = text(fields, "role") == Some("assistant");
            match fields.get_mut("content") {
                Some(Value::Array(all)) if is_assistant => found.each(all, is_cut, is_block, one),
                Some(Value::String(_)) => is_assistant,
                _ => is_block(body) && found.each(std::slice::from_mut(body), false, is_block, one),
            }
        }
        _ => false,
    }
}

fn is_block(value: &Value) -> bool {
    value.get("type").is_some_and(|kind| kind.is_string() && kind != "function")
}

/// Adds the block to `found` if it is a call. Returns whether it is a call.
fn one(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    match text(fields, "type").unwrap_or_default() {
        "tool_use" => {
            let (id, name) = (take(fields, &["id"]), take(fields, &["name"]));
            found.call_with_id(id, name, take(fields, &["input"]));
            return true;
        }
        kind if NO_CALL.contains(&kind) || kind.ends_with("_tool_result") => {}
        kind => found.left_alone(&format!("a block of the type `{kind}`")),
    }
    false
}

/// Makes one message with all results: the API requires them in the message right after the calls.
pub(super) fn reply<'a>(told: impl Iterator<Item = AnsweredCall<'a>>) -> Vec<Value> {
    let results: Vec<Value> = told
        .map(|told| {
            let said = told.said;
            let data = blocks::unsaid(said).map(|data| json!({"type": "text", "text": data}));
            let heard = said.content.iter().filter_map(|block| heard(block, said.is_error));
            let mut content: Vec<Value> = data.into_iter().chain(heard).collect();
            if content.is_empty() {
                content.push(json!({"type": "text", "text": blocks::no_words(said.is_error)}));
            }
            let mut result = json!({"type": "tool_result", "tool_use_id": told.id, "content": content});
            if said.is_error {
                result["is_error"] = true.into();
            }
            result
        })
        .collect();
    vec![json!({"role": "user", "content": results})]
}

/// Converts a block for the API. The API refuses blank texts, and accepts only text in the result of a failed call.
fn heard(block: &Content, is_error: bool) -> Option<Value> {
    if !is_error && let Some(seen) = seen(block) {
        return Some(seen);
    }
    let why = if is_error { "this API takes only text in the result of a failed call" } else { blocks::NO_FORM };
    let words = blocks::in_words(block, why);
    (!words.trim().is_empty()).then(|| json!({"type": "text", "text": words}))
}

fn seen(block: &Content) -> Option<Value> {
    match block {
        Content::Image { data, mime_type } => {
            let kind = blocks::media_type(mime_type);
            let source = json!({"type": "base64", "media_type": kind, "data": data});
            IMAGES.contains(&kind).then(|| json!({"type": "image", "source": source}))
        }
        Content::Resource { resource } => {
            let source = match (blocks::text_of(resource), &resource.blob) {
                (Some(text), _) if text.trim().is_empty() => return None,
                (Some(text), _) => json!({"type": "text", "media_type": "text/plain", "data": text}),
                (None, Some(data)) if blocks::media_type(resource.mime_type.as_deref()?) == "application/pdf" => {
                    json!({"type": "base64", "media_type": "application/pdf", "data": data})
                }
                (None, _) => return None,
            };
            Some(json!({"type": "document", "source": source, "title": blocks::file_name(resource)}))
        }
        Content::Text { .. } | Content::Audio { .. } => None,
    }
}
