//! The `openai` dialect: OpenAI Chat Completions, and the many servers that use this format. Some of their SDKs write
//! camel case (Mistral).

use std::borrow::Cow;

use serde_json::{Value, json};

use super::blocks::{self, IMAGES};
use super::found_calls::{FoundCalls, take, text};
use super::reply::AnsweredCall;
use crate::call::{Content, JsonObject};

/// The keys of a message that hold its calls.
pub(super) const CALLS: [&str; 2] = ["tool_calls", "toolCalls"];

/// The keys that hold the reason why the model stopped.
const REASON: [&str; 3] = ["finish_reason", "finishReason", "done_reason"];

/// Finish reasons after which the model's output is incomplete. `content_filter` also cuts the output.
const CUT: [&str; 2] = ["length", "content_filter"];

/// Finds the calls. Returns false if the body is not an OpenAI message.
pub(super) fn find(body: &mut Value, found: &mut FoundCalls) -> bool {
    match body {
        Value::Array(calls) if calls.is_empty() || calls.iter().any(is_call) => {
            calls.iter_mut().for_each(|call| one(call, found));
            true
        }
        Value::Object(fields) => {
            if let Some(Value::Array(choices)) = fields.get_mut("choices") {
                if choices.len() > 1 {
                    found.warn(format!("the completion has {} choices, of which the first is read", choices.len()));
                }
                return choices.iter_mut().find_map(Value::as_object_mut).is_some_and(|first| choice(first, found));
            }
            if is_choice(fields) {
                return choice(fields, found);
            }
            if is_call(body) {
                one(body, found);
                return true;
            }
            body.as_object_mut().is_some_and(|fields| message(fields, found))
        }
        _ => false,
    }
}

/// Whether the object is a choice, or a response of Ollama, which has the same shape. A `message` alone is not
/// enough: other objects have one too.
pub(super) fn is_choice(fields: &JsonObject) -> bool {
    let has = |name: &&str| fields.contains_key(*name);
    fields.get("message").is_some_and(Value::is_object)
        && ["finish_reason", "finishReason", "index", "logprobs", "done", "created_at"].iter().any(has)
}

fn choice(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    let is_cut = REASON.into_iter().filter_map(|name| text(fields, name)).any(|reason| CUT.contains(&reason));
    let is_message =
        fields.get_mut("message").and_then(Value::as_object_mut).is_some_and(|inner| message(inner, found));
    if is_cut {
        found.cut_off();
    }
    is_message
}

fn message(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    let is_assistant = text(fields, "role") == Some("assistant");
    match take(fields, &CALLS) {
        Some(Value::Array(mut calls)) if !calls.is_empty() => calls.iter_mut().for_each(|call| one(call, found)),
        Some(mut call @ Value::Object(_)) => one(&mut call, found),
        // Some servers fill in both keys.
        _ => match take(fields, &["function_call", "functionCall"]) {
            Some(Value::Object(mut call)) => {
                let (name, arguments) = (take(&mut call, &["name"]), take(&mut call, &["arguments"]));
                found.call(None, name, arguments);
            }
            _ => return is_assistant || CALLS.into_iter().any(|name| fields.contains_key(name)),
        },
    }
    true
}

fn is_call(value: &Value) -> bool {
    let has = |name: &str| value.get(name).is_some();
    let kind = value.get("type").and_then(Value::as_str);
    value.get("function").is_some_and(Value::is_object) || matches!(kind, Some("function" | "custom")) && !has("role")
}

fn one(call: &mut Value, found: &mut FoundCalls) {
    let Some(fields) = call.as_object_mut() else {
        found.call_with_id(None, None, None);
        return;
    };
    let id = take(fields, &["id"]);
    if let Some(kind) = text(fields, "type").filter(|kind| *kind != "function" && !fields.contains_key("function")) {
        let id = id.as_ref().and_then(Value::as_str).unwrap_or("without id");
        found.left_alone(&format!("the `{kind}` call {id}"));
        return;
    }
    let function = match fields.get_mut("function") {
        Some(Value::Object(function)) => function,
        _ => fields,
    };
    let (name, arguments) = (take(function, &["name"]), take(function, &["arguments"]));
    found.call_with_id(id, name, arguments);
}

/// Makes one message for each call. Such a message cannot contain images and PDFs, so a message of the user with them
/// follows.
pub(super) fn reply<'a>(told: impl Iterator<Item = AnsweredCall<'a>>) -> Vec<Value> {
    let mut shown = Vec::new();
    let mut messages: Vec<Value> = told
        .map(|told| {
            let content = words_and_shown(told, &mut shown);
            match told.id {
                Some(id) => json!({"role": "tool", "tool_call_id": id, "content": content}),
                None => json!({"role": "function", "name": told.name.unwrap_or_default(), "content": content}),
            }
        })
        .collect();
    if !shown.is_empty() {
        messages.push(json!({"role": "user", "content": shown}));
    }
    messages
}

/// The reply as text. Images and files are added to `shown`.
fn words_and_shown(told: AnsweredCall<'_>, shown: &mut Vec<Value>) -> String {
    let name = told.name.unwrap_or("the tool");
    let mut words: Vec<Cow<'_, str>> = blocks::unsaid(told.said).map(Cow::Owned).into_iter().collect();
    for block in told.said.content {
        if let Some(part) = part(block) {
            let number = shown.len() / 2 + 1;
            words.push(format!("[attachment {number}: in the user's message that follows]").into());
            shown.push(json!({"type": "text", "text": format!("Attachment {number}, from the result of {name}:")}));
            shown.push(part);
        } else {
            words.push(blocks::in_words(block, blocks::NO_FORM));
        }
    }
    let words = words.join("\n");
    if words.trim().is_empty() { blocks::no_words(told.said.is_error).to_owned() } else { words }
}

fn part(block: &Content) -> Option<Value> {
    match block {
        Content::Image { data, mime_type } => {
            let kind = blocks::media_type(mime_type);
            let url = IMAGES.contains(&kind).then(|| blocks::data_url(kind, data))?;
            Some(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        Content::Resource { resource } if resource.mime_type.as_deref() == Some("application/pdf") => {
            let data = blocks::data_url("application/pdf", resource.blob.as_deref()?);
            Some(json!({"type": "file", "file": {"filename": blocks::file_name(resource), "file_data": data}}))
        }
        Content::Text { .. } | Content::Audio { .. } | Content::Resource { .. } => None,
    }
}
