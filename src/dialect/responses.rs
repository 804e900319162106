//! The `openai-responses` dialect: OpenAI Responses.

use serde_json::{Value, json};

use super::blocks::{self, IMAGES};
use super::found_calls::{FoundCalls, take, text};
use super::reply::AnsweredCall;
use crate::call::{Content, JsonObject};

/// Item types that need no result: the model's own output, and tools that ran on the provider's side.
const NO_CALL: [&str; 12] = [
    "message",
    "reasoning",
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
    "compaction",
    "item_reference",
    "program",
    "additional_tools",
];

/// File types whose content the API reads (file inputs, accepted file types). Text files are not listed: they are
/// sent as text.
const FILES: [&str; 9] = [
    "application/pdf",
    "application/msword",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "application/vnd.ms-excel",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/vnd.ms-powerpoint",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "application/rtf",
    "application/vnd.oasis.opendocument.text",
];

/// Finds the calls. Returns false if the body is not an object of the Responses API.
pub(super) fn find(body: &mut Value, found: &mut FoundCalls) -> bool {
    match body {
        Value::Array(all) => found.each(all, false, is_item, one),
        Value::Object(fields) => {
            let is_cut = matches!(text(fields, "status"), Some("incomplete" | "failed" | "cancelled"));
            match fields.get_mut("output") {
                Some(Value::Array(all)) => found.each(all, is_cut, is_item, one),
                _ => is_item(body) && found.each(std::slice::from_mut(body), false, is_item, one),
            }
        }
        _ => false,
    }
}

/// Whether the value is an item. An item has a type; a plain message needs none.
fn is_item(value: &Value) -> bool {
    value.get("type").is_some_and(Value::is_string) || value.get("role").is_some_and(Value::is_string)
}

/// Adds the item to `found` if it is a call. Returns whether it is a call.
fn one(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    match text(fields, "type").unwrap_or("message") {
        "function_call" => {
            let is_cut = text(fields, "status").is_some_and(|status| status != "completed");
            let (name, arguments) = (take(fields, &["name"]), take(fields, &["arguments"]));
            // `id` identifies the item. Results refer to `call_id`.
            found.call_with_id(take(fields, &["call_id"]), name, arguments);
            if is_cut {
                found.cut_off();
            }
            return true;
        }
        kind if NO_CALL.contains(&kind) || kind.ends_with("_output") => {}
        kind => {
            let id = text(fields, "call_id").or_else(|| text(fields, "id")).unwrap_or("without id");
            found.left_alone(&format!("the `{kind}` item {id}"));
        }
    }
    false
}

/// The item with the result of a call: a text, or a list of parts if there is content other than text.
pub(super) fn reply(told: AnsweredCall<'_>) -> Value {
    let content = told.said.content;
    let words = |text| json!({"type": "input_text", "text": text});
    let seen: Vec<Option<Value>> = content.iter().map(part).collect();
    let output = if seen.iter().any(Option::is_some) {
        let said = content.iter().zip(seen);
        let said = said.map(|(block, seen)| seen.unwrap_or_else(|| words(blocks::in_words(block, blocks::NO_FORM))));
        blocks::unsaid(told.said).map(|data| words(data.into())).into_iter().chain(said).collect()
    } else {
        Value::String(blocks::all_in_words(told.said))
    };
    json!({"type": "function_call_output", "call_id": told.id, "output": output})
}

fn part(block: &Content) -> Option<Value> {
    match block {
        Content::Image { data, mime_type } => {
            let kind = blocks::media_type(mime_type);
            let url = IMAGES.contains(&kind).then(|| blocks::data_url(kind, data))?;
            Some(json!({"type": "input_image", "image_url": url}))
        }
        Content::Resource { resource } => {
            let kind = blocks::media_type(resource.mime_type.as_deref()?);
            let data = resource.blob.as_deref().filter(|_| FILES.contains(&kind))?;
            let (name, data) = (blocks::file_name(resource), blocks::data_url(kind, data));
            Some(json!({"type": "input_file", "filename": name, "file_data": data}))
        }
        Content::Text { .. } | Content::Audio { .. } => None,
    }
}
