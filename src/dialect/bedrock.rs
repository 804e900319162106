//! The `bedrock` dialect: Bedrock Converse in the form of its HTTP API, where bytes are base64. SDKs that take raw
//! bytes (boto3) need them decoded first.

use serde_json::{Value, json};

use super::blocks;
use super::found_calls::{FoundCalls, take, text};
use super::reply::AnsweredCall;
use crate::call::{Content, JsonObject, Resource};

/// Stop reasons after which the model's output is incomplete.
const CUT: [&str; 6] = [
    "max_tokens",
    "model_context_window_exceeded",
    "guardrail_intervened",
    "content_filtered",
    "malformed_tool_use",
    "malformed_model_output",
];

/// Names of block contents that need no result.
const NO_CALL: [&str; 9] = [
    "text",
    "reasoningContent",
    "citationsContent",
    "image",
    "document",
    "video",
    "audio",
    "searchResult",
    "guardContent",
];

/// Finds the calls. Returns false if the body is not a Bedrock message.
pub(super) fn find(body: &mut Value, found: &mut FoundCalls) -> bool {
    match body {
        Value::Array(all) => found.each(all, false, is_block, one),
        Value::Object(fields) => {
            let is_cut = text(fields, "stopReason").is_some_and(|reason| CUT.contains(&reason));
            let message = match fields.get_mut("output").and_then(|output| output.get_mut("message")) {
                Some(Value::Object(message)) => message,
                _ => fields,
            };
            let is_assistant = text(message, "role") == Some("assistant");
            match message.get_mut("content") {
                Some(Value::Array(all)) if is_assistant => found.each(all, is_cut, is_block, one),
                _ => is_block(body) && found.each(std::slice::from_mut(body), false, is_block, one),
            }
        }
        _ => false,
    }
}

/// Whether the value is a Bedrock block. Its only key names its content; unlike an Anthropic block it has no `type`.
fn is_block(value: &Value) -> bool {
    value.get("type").is_none()
        && (value.get("toolUse").is_some() || NO_CALL.into_iter().any(|name| value.get(name).is_some()))
}

/// Adds the block to `found` if it is a call. Returns whether it is a call.
fn one(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    match take(fields, &["toolUse"]) {
        // The provider has run this tool itself.
        Some(Value::Object(call)) if text(&call, "type") == Some("server_tool_use") => return false,
        Some(Value::Object(mut call)) => {
            let (id, name) = (take(&mut call, &["toolUseId"]), take(&mut call, &["name"]));
            found.call_with_id(id, name, take(&mut call, &["input"]));
        }
        Some(_) => found.call_with_id(None, None, None),
        None => {
            if let Some(other) = fields.keys().find(|key| !NO_CALL.contains(&key.as_str())) {
                found.left_alone(&format!("a block with `{other}`"));
            }
            return false;
        }
    }
    true
}

/// Makes one message with all results.
pub(super) fn reply<'a>(told: impl Iterator<Item = AnsweredCall<'a>>) -> Vec<Value> {
    let mut names = Names::default();
    let results: Vec<Value> = told.map(|told| json!({"toolResult": result(told, &mut names)})).collect();
    vec![json!({"role": "user", "content": results})]
}

fn result(told: AnsweredCall<'_>, names: &mut Names) -> Value {
    let said = told.said;
    let mut content = Vec::with_capacity(said.content.len() + 1);
    // The API refuses data that is not an object ("Provide a json object for the field").
    let written = blocks::data_of(said).unwrap_or_default();
    content.extend(blocks::unsaid(said).map(|text| match said.structured.filter(|data| data.is_object()) {
        Some(data) => json!({"json": data}),
        None => json!({"text": text}),
    }));
    for (index, block) in said.content.iter().enumerate() {
        match written.iter().find(|(at, data)| *at == index && data.is_object()) {
            Some((_, data)) => content.push(json!({"json": data})),
            None => heard(block, told.id, names, &mut content),
        }
    }
    if content.is_empty() {
        content.push(json!({"text": blocks::no_words(said.is_error)}));
    }
    json!({"toolUseId": told.id, "content": content, "status": if said.is_error { "error" } else { "success" }})
}

/// Converts a block for the API. The API refuses blank texts, and documents without a text block beside them.
fn heard(block: &Content, id: Option<&Value>, names: &mut Names, content: &mut Vec<Value>) {
    match block {
        Content::Image { data, mime_type } => {
            if let Some(format) = image_format(blocks::media_type(mime_type)) {
                content.push(json!({"image": {"format": format, "source": {"bytes": data}}}));
                return;
            }
        }
        Content::Resource { resource } => {
            let bytes = blocks::bytes_of(resource).filter(|bytes| !bytes.is_empty());
            if let (Some(format), Some(bytes)) = (document_format(resource), bytes) {
                let file = blocks::file_name(resource);
                let name = names.name(&file, id);
                content.push(json!({"text": format!("{file} is the document \"{name}\".")}));
                content.push(json!({"document": {"format": format, "name": name, "source": {"bytes": bytes}}}));
                return;
            }
        }
        Content::Text { .. } | Content::Audio { .. } => {}
    }
    let words = blocks::in_words(block, blocks::NO_FORM);
    if !words.trim().is_empty() {
        content.push(json!({"text": words}));
    }
}

fn image_format(media_type: &str) -> Option<&str> {
    let format = media_type.strip_prefix("image/")?;
    ["png", "jpeg", "gif", "webp"].contains(&format).then_some(format)
}

fn document_format(resource: &Resource) -> Option<&'static str> {
    Some(match blocks::media_type(resource.mime_type.as_deref()?) {
        "application/pdf" => "pdf",
        "text/csv" => "csv",
        "application/msword" => "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "application/vnd.ms-excel" => "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        "text/html" => "html",
        "text/plain" => "txt",
        "text/markdown" => "md",
        _ => return None,
    })
}

/// The document names of one reply. They must be unique.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    /// Makes a document name that the API accepts (DocumentBlock): letters, digits, hyphens, brackets and single
    /// spaces, at most 200 characters. It must be unique in the whole conversation, so it ends with the end of the
    /// call's id.
    fn name(&mut self, file: &str, id: Option<&Value>) -> String {
        let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-()[]".contains(c) { c } else { ' ' };
        let stem: String = stem.chars().map(plain).collect();
        let mut stem = stem.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        if stem.is_empty() {
            stem.push_str("document");
        }
        let id = id.and_then(Value::as_str).unwrap_or_default();
        let id: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
        let end = &id[id.len().saturating_sub(8)..];
        let first = if end.is_empty() { stem } else { format!("{stem} ({end})") };
        let mut name = first.clone();
        let mut number = 2;
        while self.0.contains(&name) {
            name = format!("{first} {number}");
            number += 1;
        }
        self.0.push(name.clone());
        name
    }
}
