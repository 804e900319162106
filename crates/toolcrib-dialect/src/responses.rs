//! The `openai-responses` dialect: OpenAI Responses.

use serde_json::{Value, json};

use super::blocks::{self, IMAGE_TYPES};
use super::found_calls::{FoundCalls, take_field, text_field};
use super::message::AnsweredCall;
use crate::content::Content;
use crate::strict_json::JsonObject;

/// Item types that need no result: the model's own output, and tools that ran on the provider's
/// side.
const NON_CALL_TYPES: [&str; 12] = [
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

/// File types whose content the API reads (file inputs, accepted file types). Text files are not
/// listed: they are sent as text.
const FILE_TYPES: [&str; 9] = [
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
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    match body {
        Value::Array(all) => found.visit_parts(all, false, is_item, read_item),
        Value::Object(fields) => {
            let is_cut = matches!(
                text_field(fields, "status"),
                Some("incomplete" | "failed" | "cancelled")
            );
            match fields.get_mut("output") {
                Some(Value::Array(all)) => found.visit_parts(all, is_cut, is_item, read_item),
                _ => {
                    is_item(body)
                        && found.visit_parts(std::slice::from_mut(body), false, is_item, read_item)
                }
            }
        }
        _ => false,
    }
}

/// Whether the value is an item. An item has a type; a plain message needs none.
fn is_item(value: &Value) -> bool {
    value.get("type").is_some_and(Value::is_string)
        || value.get("role").is_some_and(Value::is_string)
}

/// Adds the item to `found` if it is a call. Returns whether it is a call.
fn read_item(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    match text_field(fields, "type").unwrap_or("message") {
        "function_call" => {
            let is_cut = text_field(fields, "status").is_some_and(|status| status != "completed");
            let (name, arguments) = (
                take_field(fields, &["name"]),
                take_field(fields, &["arguments"]),
            );
            // `id` identifies the item. Results refer to `call_id`.
            found.add_call_with_id(take_field(fields, &["call_id"]), name, arguments);
            if is_cut {
                found.mark_cut_off();
            }
            return true;
        }
        kind if NON_CALL_TYPES.contains(&kind) || kind.ends_with("_output") => {}
        kind => {
            let id = text_field(fields, "call_id")
                .or_else(|| text_field(fields, "id"))
                .unwrap_or("without id");
            found.warn_ignored(&format!("the `{kind}` item {id}"));
        }
    }
    false
}

/// The item with the result of a call: a text, or a list of parts if there is content other than
/// text.
pub(super) fn write_output(answered: AnsweredCall<'_>) -> Value {
    let content = answered.reply.content;
    let text_part = |text| json!({"type": "input_text", "text": text});
    let media: Vec<Option<Value>> = content.iter().map(media_part).collect();
    let output = if media.iter().any(Option::is_some) {
        let parts = content.iter().zip(media);
        let parts = parts.map(|(block, media)| {
            media.unwrap_or_else(|| text_part(blocks::block_as_text(block, blocks::UNSUPPORTED)))
        });
        blocks::unstated_data(answered.reply)
            .map(|data| text_part(data.into()))
            .into_iter()
            .chain(parts)
            .collect()
    } else {
        Value::String(blocks::result_as_text(answered.reply))
    };
    json!({"type": "function_call_output", "call_id": answered.id, "output": output})
}

fn media_part(block: &Content) -> Option<Value> {
    match block {
        Content::Image { data, mime_type } => {
            let kind = blocks::media_type(mime_type);
            let url = IMAGE_TYPES
                .contains(&kind)
                .then(|| blocks::data_url(kind, data))?;
            Some(json!({"type": "input_image", "image_url": url}))
        }
        Content::Resource { resource } => {
            let kind = blocks::media_type(resource.mime_type.as_deref()?);
            let data = resource
                .blob
                .as_deref()
                .filter(|_| FILE_TYPES.contains(&kind))?;
            let (name, data) = (blocks::file_name(resource), blocks::data_url(kind, data));
            Some(json!({"type": "input_file", "filename": name, "file_data": data}))
        }
        Content::Text { .. } | Content::Audio { .. } => None,
    }
}
