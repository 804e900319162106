//! The `bedrock` dialect: Bedrock Converse in the form of its HTTP API, where bytes are base64.
//! SDKs that take raw bytes (boto3) need them decoded first.

use serde_json::{Value, json};

use super::blocks::{self, IMAGE_TYPES};
use super::found_calls::{FoundCalls, take_field, text_field};
use super::message::AnsweredCall;
use crate::content::{Content, Resource};
use crate::strict_json::JsonObject;

/// Stop reasons after which the model's output is incomplete.
const CUT_OFF_REASONS: [&str; 6] = [
    "max_tokens",
    "model_context_window_exceeded",
    "guardrail_intervened",
    "content_filtered",
    "malformed_tool_use",
    "malformed_model_output",
];

/// Names of block contents that need no result.
const NON_CALL_KEYS: [&str; 10] = [
    "text",
    "reasoningContent",
    "toolResult",
    "citationsContent",
    "image",
    "document",
    "video",
    "audio",
    "searchResult",
    "guardContent",
];

/// Finds the calls. Returns false if the body is not a Bedrock message.
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    found.visit_body(body, parts, is_block, read_block)
}

fn parts(fields: &mut JsonObject) -> Option<(&mut Vec<Value>, bool)> {
    let is_cut =
        text_field(fields, "stopReason").is_some_and(|reason| CUT_OFF_REASONS.contains(&reason));
    let is_whole = fields
        .get("output")
        .is_some_and(|output| output.get("message").is_some_and(Value::is_object));
    let message = match is_whole {
        true => fields
            .get_mut("output")?
            .get_mut("message")?
            .as_object_mut()?,
        false => fields,
    };
    let is_assistant = text_field(message, "role") == Some("assistant");
    let content = message.get_mut("content").filter(|_| is_assistant)?;
    Some((content.as_array_mut()?, is_cut))
}

/// Whether the value is a Bedrock block. Its only key names its content; unlike an Anthropic block
/// it has no `type`.
fn is_block(value: &Value) -> bool {
    value.get("type").is_none()
        && (value.get("toolUse").is_some()
            || NON_CALL_KEYS
                .into_iter()
                .any(|name| value.get(name).is_some()))
}

/// Adds the block to `found` if it is a call. Returns whether it is a call.
fn read_block(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    match take_field(fields, &["toolUse"]) {
        // The provider has run this tool itself.
        Some(Value::Object(call)) if text_field(&call, "type") == Some("server_tool_use") => {
            return false;
        }
        Some(Value::Object(mut call)) => {
            found.take_call_with_id(&mut call, &["toolUseId"], "name", "input");
        }
        Some(_) => found.add_call_with_id(None, None, None),
        None => {
            if let Some(other) = fields
                .keys()
                .find(|key| !NON_CALL_KEYS.contains(&key.as_str()))
            {
                found.warn_ignored(&format!("a block with `{other}`"));
            }
            return false;
        }
    }
    true
}

/// Makes one message with all results.
pub(super) fn write_results<'a>(answered: impl Iterator<Item = AnsweredCall<'a>>) -> Vec<Value> {
    let mut names = DocumentNames::default();
    let results: Vec<Value> = answered
        .map(|call| json!({"toolResult": write_result(call, &mut names)}))
        .collect();
    vec![json!({"role": "user", "content": results})]
}

fn write_result(answered: AnsweredCall<'_>, names: &mut DocumentNames) -> Value {
    let reply = answered.reply;
    let mut content = Vec::with_capacity(reply.content.len() + 1);
    // The API refuses data that is not an object ("Provide a json object for the field").
    let data_texts = blocks::find_data_texts(reply).unwrap_or_default();
    content.extend(blocks::unstated_data(reply).map(|text| {
        match reply.structured.filter(|data| data.is_object()) {
            Some(data) => json!({"json": data}),
            None => json!({"text": text}),
        }
    }));
    for (index, block) in reply.content.iter().enumerate() {
        match data_texts
            .iter()
            .find(|(at, data)| *at == index && data.is_object())
        {
            Some((_, data)) => content.push(json!({"json": data})),
            None => convert_block(block, answered.id, names, &mut content),
        }
    }
    if content.is_empty() {
        content.push(json!({"text": blocks::empty_result_text(reply.is_error)}));
    }
    json!({"toolUseId": answered.id, "content": content, "status": if reply.is_error { "error" } else { "success" }})
}

/// Converts a block for the API. The API refuses blank texts, and documents without a text block
/// beside them.
fn convert_block(
    block: &Content,
    id: Option<&Value>,
    names: &mut DocumentNames,
    content: &mut Vec<Value>,
) {
    if let Some((kind, data)) = blocks::image(block, &IMAGE_TYPES) {
        let format = kind.trim_start_matches("image/");
        content.push(json!({"image": {"format": format, "source": {"bytes": data}}}));
        return;
    }
    if let Content::Resource { resource } = block {
        let bytes = blocks::resource_bytes(resource).filter(|bytes| !bytes.is_empty());
        if let (Some(format), Some(bytes)) = (document_format(resource), bytes) {
            let file = blocks::file_name(resource);
            let name = names.unique_name(&file, id);
            content.push(json!({"text": format!("{file} is the document \"{name}\".")}));
            content.push(
                json!({"document": {"format": format, "name": name, "source": {"bytes": bytes}}}),
            );
            return;
        }
    }
    let text = blocks::block_as_text(block, blocks::UNSUPPORTED);
    if !text.trim().is_empty() {
        content.push(json!({"text": text}));
    }
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
struct DocumentNames(Vec<String>);

impl DocumentNames {
    /// Makes a document name that the API accepts (DocumentBlock): letters, digits, hyphens,
    /// brackets and single spaces, at most 200 characters. It must be unique in the whole
    /// conversation, so it ends with the end of the call's id.
    fn unique_name(&mut self, file: &str, id: Option<&Value>) -> String {
        let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-()[]".contains(c);
        let words = stem.split(|c| !is_plain(c));
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let mut stem = words.join(" ");
        if stem.is_empty() {
            stem.push_str("document");
        }
        let id = id.and_then(Value::as_str).unwrap_or_default();
        let id: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
        let end = &id[id.len().saturating_sub(8)..];
        let first = if end.is_empty() {
            stem
        } else {
            format!("{stem} ({end})")
        };
        let mut name = first.clone();
        for number in 2.. {
            if !self.0.contains(&name) {
                break;
            }
            name = format!("{first} {number}");
        }
        self.0.push(name.clone());
        name
    }
}
