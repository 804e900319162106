//! Gemini `generateContent`, as its REST API and its SDKs write it: in camel case or, in Python, in snake case.

use serde_json::{Map, Value, json};

use super::blocks;
use super::found::{Found, take, text};
use super::message::Misread;
use super::reply::Told;
use crate::call::{Content, JsonObject};

/// The model stopped in the middle of what it wrote.
const CUT: [&str; 8] = [
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MALFORMED_FUNCTION_CALL",
];

/// What the API takes in a function's response (function calling, multimodal function responses), beside text. Only
/// models from Gemini 3 on look at it.
const MEDIA: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "application/pdf"];

/// What stands in a response beside its candidates, also where it has none: as when the prompt was blocked.
pub(super) const BESIDE: [&str; 4] = ["promptFeedback", "prompt_feedback", "usageMetadata", "usage_metadata"];

/// Finds the calls; false if this is nothing of Gemini's.
pub(super) fn find(body: &mut Value, found: &mut Found) -> bool {
    match body {
        Value::Array(all) => {
            let is_parts = all.is_empty() || all.iter().any(is_part);
            if is_parts {
                parts(all, found);
            }
            is_parts
        }
        Value::Object(fields) => {
            if let Some(Value::Array(candidates)) = fields.get_mut("candidates") {
                if candidates.len() > 1 {
                    found.warn(format!("the response has {} candidates, of which the first is read", candidates.len()));
                }
                if let Some(first) = candidates.first_mut() {
                    return first.as_object_mut().is_some_and(|first| candidate(first, found));
                }
            }
            if BESIDE.into_iter().any(|name| fields.get(name).is_some_and(Value::is_object)) {
                return true;
            }
            if candidate(fields, found) {
                return true;
            }
            let is_part = is_part(body);
            if is_part {
                parts(std::slice::from_mut(body), found);
            }
            is_part
        }
        _ => false,
    }
}

fn is_part(value: &Value) -> bool {
    ["functionCall", "function_call", "text", "inlineData"].into_iter().any(|name| value.get(name).is_some())
}

/// A candidate, or the content that is in one.
fn candidate(fields: &mut JsonObject, found: &mut Found) -> bool {
    let reason = text(fields, "finishReason").or_else(|| text(fields, "finish_reason"));
    let is_cut = reason.is_some_and(|reason| CUT.contains(&reason));
    let is_malformed = reason == Some("MALFORMED_FUNCTION_CALL");
    let is_candidate = reason.is_some();
    let content = match fields.get_mut("content") {
        Some(Value::Object(content)) => Some(content),
        _ => Some(&mut *fields).filter(|fields| fields.contains_key("parts")),
    };
    let is_content = content.is_some();
    let mut last_is_call = false;
    if let Some(Value::Array(all)) = content.and_then(|content| content.get_mut("parts")) {
        last_is_call = parts(all, found);
    }
    if is_cut && last_is_call {
        found.cut_off();
    }
    if is_malformed {
        found.misread(malformed(take(fields, &["finishMessage", "finish_message"])));
    }
    is_candidate || is_content
}

/// Whether the last part is a call.
fn parts(all: &mut [Value], found: &mut Found) -> bool {
    let mut last_is_call = false;
    for part in all {
        let call = part.as_object_mut().and_then(|part| take(part, &["functionCall", "function_call"]));
        last_is_call = call.is_some();
        match call {
            Some(Value::Object(mut call)) => {
                let id = take(&mut call, &["id"]).filter(|id| id != "");
                let (name, arguments) = (take(&mut call, &["name"]), take(&mut call, &["args"]));
                found.call(id, name, arguments);
                // The rest of its arguments was to come in another part.
                if ["willContinue", "will_continue"].into_iter().any(|name| call.get(name) == Some(&Value::Bool(true)))
                {
                    found.cut_off();
                }
            }
            Some(_) => found.call(None, None, None),
            // Whatever else is in a part wants no answer.
            None => {}
        }
    }
    last_is_call
}

/// The API could not read the call itself, and shows of it at most a message.
fn malformed(message: Option<Value>) -> Misread {
    let message = message.as_ref().and_then(Value::as_str).map(|message| format!(" ({message})")).unwrap_or_default();
    Misread {
        id: None,
        name: None,
        what: format!("Gemini could not read the function call that the model wrote{message}"),
        correction: format!(
            "Your function call could not be read{message}. Call again: name one function exactly, give its arguments as \
             one JSON object, and write no code."
        ),
        is_other_method: false,
    }
}

/// One content with all responses. The API wants as many as there were calls, so what is no call in it is answered in text.
pub(super) fn reply<'a>(told: impl Iterator<Item = Told<'a>>) -> Vec<Value> {
    let parts: Vec<Value> = told
        .map(|told| match told.name {
            Some(name) => json!({"functionResponse": response(told, name)}),
            None => json!({"text": blocks::all_in_words(told.said)}),
        })
        .collect();
    vec![json!({"role": "user", "parts": parts})]
}

fn response(told: Told<'_>, name: &str) -> Value {
    let said = told.said;
    let is_inline = |block: &Content| inline(block).is_some();
    let in_words = said.content.iter().filter(|block| !is_inline(block)).count();
    let output = match (said.structured, blocks::data_of(said)) {
        // Nothing would be said beside the data.
        (Some(data), Some(written)) if in_words == written.len() => data.clone(),
        _ => Value::String(blocks::words_but(said, is_inline)),
    };
    let media: Vec<Value> = said
        .content
        .iter()
        .filter_map(inline)
        .map(|(kind, data)| json!({"inlineData": {"mimeType": kind, "data": data}}))
        .collect();
    let mut response = Map::new();
    if let Some(id) = told.id {
        response.insert("id".into(), id.clone());
    }
    response.insert("name".into(), name.into());
    response.insert("response".into(), json!({(if said.is_error { "error" } else { "output" }): output}));
    if !media.is_empty() {
        response.insert("parts".into(), media.into());
    }
    response.into()
}

/// Media type and base64 of what is seen, not read.
fn inline(block: &Content) -> Option<(&str, &str)> {
    let (kind, data) = match block {
        Content::Image { data, mime_type } => (blocks::media_type(mime_type), data.as_str()),
        Content::Resource { resource } => {
            (blocks::media_type(resource.mime_type.as_deref()?), resource.blob.as_deref()?)
        }
        Content::Text { .. } | Content::Audio { .. } => return None,
    };
    MEDIA.contains(&kind).then_some((kind, data))
}
