//! Converts content that is not text (images, audio, files, data) for APIs that accept only some of
//! it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::message::ToolReply;
use crate::content::{Content, EMPTY_ERROR_MESSAGE, Resource, media_type_essence};

/// The text for a result without text. An API may refuse an empty result, and a model learns
/// nothing from it.
pub(super) fn empty_result_text(is_error: bool) -> &'static str {
    if is_error {
        EMPTY_ERROR_MESSAGE
    } else {
        "(no output)"
    }
}

/// A text for an API without a field for errors: it begins with "Error", if the call failed.
pub(super) fn mark_error(text: String, is_error: bool) -> String {
    let is_marked = || {
        let start = text.trim_start().as_bytes().get(..5);
        text == EMPTY_ERROR_MESSAGE
            || start.is_some_and(|start| start.eq_ignore_ascii_case(b"error"))
    };
    if is_error && !is_marked() {
        format!("Error: {text}")
    } else {
        text
    }
}

/// Image types that every provider accepts. Exception: Gemini does not accept GIF.
pub(super) const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/// The reason for leaving a block out: the API has no form for it in a tool's result.
pub(super) const UNSUPPORTED: &str = "this API does not take it in a tool result";

/// The media type without parameters, as providers write it.
pub(super) fn media_type(mime_type: &str) -> &str {
    match media_type_essence(mime_type) {
        "image/jpg" => "image/jpeg",
        plain => plain,
    }
}

/// A block as text. Content that is not text is replaced by a note, such as "[audio/wav, 12.0 KiB:
/// left out, …]".
pub fn block_as_text<'a>(block: &'a Content, why: &str) -> Cow<'a, str> {
    match block {
        Content::Text { text } => text.into(),
        Content::ResourceLink(link) => link.to_text().into(),
        Content::Image { data, mime_type } | Content::Audio { data, mime_type } => {
            format!("[{mime_type}, {}: left out, {why}]", decoded_size(data)).into()
        }
        Content::Resource { resource } => {
            let name = file_name(resource);
            let kind = resource.mime_type.as_deref().unwrap_or("unknown type");
            match (resource_text(resource), &resource.blob) {
                (Some(text), _) => format!("[{name}, {kind}]\n{text}").into(),
                (None, Some(blob)) => {
                    format!("[{name}, {kind}, {}: left out, {why}]", decoded_size(blob)).into()
                }
                (None, None) => format!("[{name}, {kind}: empty]").into(),
            }
        }
    }
}

/// All blocks as text, one per line. Never empty.
pub(super) fn result_as_text(reply: &ToolReply<'_>) -> String {
    text_except(reply, |_| false)
}

/// The blocks for which `is_elsewhere` is false, as text. Empty only if other blocks are elsewhere
/// in the reply.
pub(super) fn text_except(
    reply: &ToolReply<'_>,
    is_elsewhere: impl Fn(&Content) -> bool,
) -> String {
    let blocks = reply
        .content
        .iter()
        .filter(|block| !is_elsewhere(block))
        .map(|block| block_as_text(block, UNSUPPORTED));
    let texts: Vec<Cow<'_, str>> = unstated_data(reply)
        .map(Cow::Owned)
        .into_iter()
        .chain(blocks)
        .collect();
    let text = texts.join("\n");
    let is_blank = text.trim().is_empty() && !reply.content.iter().any(is_elsewhere);
    if is_blank {
        empty_result_text(reply.is_error).to_owned()
    } else {
        text
    }
}

/// The structured data as JSON, if the result has no text block. Otherwise the text already states
/// the data.
pub(super) fn unstated_data(reply: &ToolReply<'_>) -> Option<String> {
    let is_stated = reply.content.iter().any(|block| block.as_text().is_some());
    reply
        .structured
        .filter(|_| !is_stated)
        .map(Value::to_string)
}

/// The content of a file, if that is text.
pub(super) fn resource_text(resource: &Resource) -> Option<Cow<'_, str>> {
    if let Some(text) = &resource.text {
        return Some(text.into());
    }
    let kind = media_type(resource.mime_type.as_deref()?);
    let is_text = kind.starts_with("text/")
        || ["application/json", "application/xml", "application/yaml"].contains(&kind);
    let bytes = STANDARD
        .decode(resource.blob.as_deref().filter(|_| is_text)?)
        .ok()?;
    Some(String::from_utf8(bytes).ok()?.into())
}

/// The bytes of a file as base64.
pub(super) fn resource_bytes(resource: &Resource) -> Option<Cow<'_, str>> {
    match (&resource.blob, &resource.text) {
        (Some(blob), _) => Some(blob.into()),
        (None, Some(text)) => Some(STANDARD.encode(text).into()),
        (None, None) => None,
    }
}

/// The last segment of a file's URI, without a query. Providers require a file name, and a short
/// one.
pub(super) fn file_name(resource: &Resource) -> Cow<'_, str> {
    let path = resource.uri.split(['?', '#']).next().unwrap_or_default();
    let last = path
        .rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or("document");
    let name = percent_encoding::percent_decode_str(last).decode_utf8_lossy();
    match name.char_indices().nth(100) {
        Some((end, _)) => Cow::Owned(name[..end].to_owned()),
        None => name,
    }
}

/// The media type and base64 of a picture, if it is of one of these types.
pub(super) fn image<'a>(block: &'a Content, types: &[&str]) -> Option<(&'a str, &'a str)> {
    let Content::Image { data, mime_type } = block else {
        return None;
    };
    let kind = media_type(mime_type);
    types.contains(&kind).then_some((kind, data))
}

/// The media type and base64 of a file, if it has both.
pub(super) fn file(block: &Content) -> Option<(&Resource, &str, &str)> {
    let Content::Resource { resource } = block else {
        return None;
    };
    let kind = media_type(resource.mime_type.as_deref()?);
    Some((resource, kind, resource.blob.as_deref()?))
}

/// An object without its members that are null.
pub(super) fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(members) = &mut object {
        members.retain(|_, member| !member.is_null());
    }
    object
}

/// A `data:` URL that contains the bytes.
pub(super) fn data_url(media_type: &str, base64: &str) -> String {
    format!("data:{media_type};base64,{base64}")
}

/// Finds the result data for an API that has a field for data. Returns the texts that repeat the
/// data, each with its position and the data it repeats: the whole data, or one item of a list. The
/// caller leaves these texts out. Returns `None` if the texts say something else, because the tool
/// then wrote them for the model.
pub(super) fn find_data_texts<'a>(reply: &ToolReply<'a>) -> Option<Vec<(usize, &'a Value)>> {
    let data = reply.structured?;
    let mut items = data
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .peekable();
    let (mut has_texts, mut found) = (false, Vec::new());
    for (index, block) in reply.content.iter().enumerate() {
        let Some(text) = block.as_text() else {
            continue;
        };
        has_texts = true;
        if is_json_of(data, text) {
            found.push((index, data));
        } else if let Some(item) = items.next_if(|item| is_json_of(item, text)) {
            found.push((index, item));
        }
    }
    (!has_texts || !found.is_empty()).then_some(found)
}

/// Whether the text is this data as JSON, in any layout.
fn is_json_of(data: &Value, text: &str) -> bool {
    let has_same_start =
        text.trim_start().starts_with(['{', '[']) == (data.is_object() || data.is_array());
    has_same_start && serde_json::from_str::<Value>(text).is_ok_and(|value| value == *data)
}

/// The number of bytes that the base64 text encodes.
fn decoded_size(base64: &str) -> bytesize::ByteSize {
    let padding = base64
        .bytes()
        .rev()
        .take_while(|byte| *byte == b'=')
        .count();
    bytesize::ByteSize((base64.len() / 4 * 3).saturating_sub(padding) as u64)
}
