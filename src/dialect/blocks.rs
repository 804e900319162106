//! What tools give besides text, for APIs that take some of it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::message::Said;
use crate::call::{Content, FAILED_SILENTLY, Resource};

/// Words for a result that has none: an API may refuse an empty result, and a model learns nothing from it.
pub(super) fn no_words(is_error: bool) -> &'static str {
    if is_error { FAILED_SILENTLY } else { "(no output)" }
}

/// Images that every provider takes, but for Gemini, which takes no GIF.
pub(super) const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/// Why something is left out: the API has no form for it in a tool's result.
pub(super) const NO_FORM: &str = "this API does not take it in a tool result";

/// A media type as providers write it: without parameters.
pub(super) fn media_type(written: &str) -> &str {
    match written.split(';').next().unwrap_or_default().trim() {
        "image/jpg" => "image/jpeg",
        plain => plain,
    }
}

/// A block in words. What words cannot say is left out, and the words say so: "[audio/wav, 12.0 KiB: left out, …]".
pub(super) fn in_words<'a>(block: &'a Content, why: &str) -> Cow<'a, str> {
    match block {
        Content::Text { text } => text.into(),
        Content::Image { data, mime_type } | Content::Audio { data, mime_type } => {
            format!("[{mime_type}, {}: left out, {why}]", size(data)).into()
        }
        Content::Resource { resource } => {
            let name = file_name(resource);
            let kind = resource.mime_type.as_deref().unwrap_or("unknown type");
            match (text_of(resource), &resource.blob) {
                (Some(text), _) => format!("[{name}, {kind}]\n{text}").into(),
                (None, Some(blob)) => format!("[{name}, {kind}, {}: left out, {why}]", size(blob)).into(),
                (None, None) => format!("[{name}, {kind}: empty]").into(),
            }
        }
    }
}

/// All in words, one block below the other. Never empty.
pub(super) fn all_in_words(said: &Said<'_>) -> String {
    words_but(said, |_| false)
}

/// In words what is not said elsewhere. Empty only where something is said elsewhere.
pub(super) fn words_but(said: &Said<'_>, is_elsewhere: impl Fn(&Content) -> bool) -> String {
    let blocks = said.content.iter().filter(|block| !is_elsewhere(block)).map(|block| in_words(block, NO_FORM));
    let words: Vec<Cow<'_, str>> = unsaid(said).map(Cow::Owned).into_iter().chain(blocks).collect();
    let words = words.join("\n");
    let is_silent = words.trim().is_empty() && !said.content.iter().any(is_elsewhere);
    if is_silent { no_words(said.is_error).to_owned() } else { words }
}

/// Data that no text says, as JSON.
pub(super) fn unsaid(said: &Said<'_>) -> Option<String> {
    let is_said = said.content.iter().any(|block| matches!(block, Content::Text { .. }));
    said.structured.filter(|_| !is_said).map(Value::to_string)
}

/// What a file says, if that is text.
pub(super) fn text_of(resource: &Resource) -> Option<Cow<'_, str>> {
    if let Some(text) = &resource.text {
        return Some(text.into());
    }
    let kind = media_type(resource.mime_type.as_deref()?);
    let is_text =
        kind.starts_with("text/") || ["application/json", "application/xml", "application/yaml"].contains(&kind);
    let bytes = STANDARD.decode(resource.blob.as_deref().filter(|_| is_text)?).ok()?;
    Some(String::from_utf8(bytes).ok()?.into())
}

/// A file's bytes as base64.
pub(super) fn bytes_of(resource: &Resource) -> Option<Cow<'_, str>> {
    match (&resource.blob, &resource.text) {
        (Some(blob), _) => Some(blob.into()),
        (None, Some(text)) => Some(STANDARD.encode(text).into()),
        (None, None) => None,
    }
}

/// The last part of a file's URI, without a query; providers want names of files, and short ones.
pub(super) fn file_name(resource: &Resource) -> Cow<'_, str> {
    let path = resource.uri.split(['?', '#']).next().unwrap_or_default();
    let last = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("document");
    let name = percent_encoding::percent_decode_str(last).decode_utf8_lossy();
    match name.char_indices().nth(100) {
        Some((end, _)) => Cow::Owned(name[..end].to_owned()),
        None => name,
    }
}

/// A file's bytes in a URL of their own.
pub(super) fn data_url(media_type: &str, base64: &str) -> String {
    format!("data:{media_type};base64,{base64}")
}

/// Result data for an API that has a form for it: the texts that say the same as the data, or as one item of a list of
/// several, each with what it says. They are not needed beside the data. `None` when the texts say something else: they
/// are what the tool meant for the model.
pub(super) fn data_of<'a>(said: &Said<'a>) -> Option<Vec<(usize, &'a Value)>> {
    let data = said.structured?;
    let mut items = data.as_array().map(Vec::as_slice).unwrap_or_default().iter().peekable();
    let (mut has_texts, mut found) = (false, Vec::new());
    for (index, block) in said.content.iter().enumerate() {
        let Content::Text { text } = block else { continue };
        has_texts = true;
        if is_written_as(data, text) {
            found.push((index, data));
        } else if let Some(item) = items.next_if(|item| is_written_as(item, text)) {
            found.push((index, item));
        }
    }
    (!has_texts || !found.is_empty()).then_some(found)
}

/// Whether the text is this data as JSON, however it is laid out.
fn is_written_as(data: &Value, text: &str) -> bool {
    let begins_alike = text.trim_start().starts_with(['{', '[']) == (data.is_object() || data.is_array());
    begins_alike && serde_json::from_str::<Value>(text).is_ok_and(|said| said == *data)
}

/// How much base64 stands for.
fn size(base64: &str) -> bytesize::ByteSize {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    bytesize::ByteSize((base64.len() / 4 * 3).saturating_sub(padding) as u64)
}
