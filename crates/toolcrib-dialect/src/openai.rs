//! The `openai` dialect: OpenAI Chat Completions, and the many servers that use this format. Some
//! of their SDKs write camel case (Mistral).

use std::borrow::Cow;

use serde_json::{Value, json};

use super::blocks::{self, IMAGE_TYPES};
use super::found_calls::{FoundCalls, take_field, text_field};
use super::message::AnsweredCall;
use crate::content::Content;
use crate::strict_json::JsonObject;

/// The keys of a message that hold its calls.
pub(super) const CALL_KEYS: [&str; 2] = ["tool_calls", "toolCalls"];

/// The keys that hold the reason why the model stopped.
const STOP_REASON_KEYS: [&str; 3] = ["finish_reason", "finishReason", "done_reason"];

/// Finish reasons after which the model's output is incomplete. `content_filter` also cuts the
/// output.
const CUT_OFF_REASONS: [&str; 2] = ["length", "content_filter"];

/// Finds the calls. Returns false if the body is not an OpenAI message.
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    match body {
        Value::Array(calls) if calls.is_empty() || calls.iter().any(is_call) => {
            calls.iter_mut().for_each(|call| read_call(call, found));
            true
        }
        Value::Object(fields) => {
            if let Some(Value::Array(choices)) = fields.get_mut("choices") {
                if choices.len() > 1 {
                    found.warn(format!(
                        "the completion has {} choices, of which the first is read",
                        choices.len()
                    ));
                }
                return choices
                    .iter_mut()
                    .find_map(Value::as_object_mut)
                    .is_some_and(|first| read_choice(first, found));
            }
            if is_choice(fields) {
                return read_choice(fields, found);
            }
            if is_call(body) {
                read_call(body, found);
                return true;
            }
            body.as_object_mut()
                .is_some_and(|fields| read_message(fields, found))
        }
        _ => false,
    }
}

/// Whether the object is a choice, or a response of Ollama, which has the same shape. A `message`
/// alone is not enough: other objects have one too.
pub(super) fn is_choice(fields: &JsonObject) -> bool {
    let has = |name: &&str| fields.contains_key(*name);
    fields.get("message").is_some_and(Value::is_object)
        && [
            "finish_reason",
            "finishReason",
            "index",
            "logprobs",
            "done",
            "created_at",
        ]
        .iter()
        .any(has)
}

fn read_choice(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    let is_cut = STOP_REASON_KEYS
        .into_iter()
        .filter_map(|name| text_field(fields, name))
        .any(|reason| CUT_OFF_REASONS.contains(&reason));
    let is_message = fields
        .get_mut("message")
        .and_then(Value::as_object_mut)
        .is_some_and(|inner| read_message(inner, found));
    if is_cut {
        found.mark_cut_off();
    }
    is_message
}

fn read_message(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    let is_assistant = text_field(fields, "role") == Some("assistant");
    match take_field(fields, &CALL_KEYS) {
        Some(Value::Array(mut calls)) if !calls.is_empty() => {
            calls.iter_mut().for_each(|call| read_call(call, found));
        }
        Some(mut call @ Value::Object(_)) => read_call(&mut call, found),
        // Some servers fill in both keys.
        _ => match take_field(fields, &["function_call", "functionCall"]) {
            Some(Value::Object(mut call)) => {
                found.take_call(&mut call, &[], &["name"], &["arguments"]);
            }
            _ => {
                return is_assistant || CALL_KEYS.into_iter().any(|name| fields.contains_key(name));
            }
        },
    }
    true
}

fn is_call(value: &Value) -> bool {
    let has = |name: &str| value.get(name).is_some();
    let kind = value.get("type").and_then(Value::as_str);
    value.get("function").is_some_and(Value::is_object)
        || matches!(kind, Some("function" | "custom")) && !has("role")
}

fn read_call(call: &mut Value, found: &mut FoundCalls) {
    let Some(fields) = call.as_object_mut() else {
        found.add_call_with_id(None, None, None);
        return;
    };
    let id = take_field(fields, &["id"]);
    if let Some(Value::Object(custom)) = fields.get_mut("custom") {
        found.add_custom_call(id, custom);
        return;
    }
    if let Some(kind) = text_field(fields, "type")
        .filter(|kind| *kind != "function" && !fields.contains_key("function"))
    {
        let fault = format!("a call of the type `{kind}` calls no function of this service");
        found.add_foreign_call(id, fault);
        return;
    }
    let function = match fields.get_mut("function") {
        Some(Value::Object(function)) => function,
        _ => fields,
    };
    let name = take_field(function, &["name"]);
    let arguments = take_field(function, &["arguments"]);
    found.add_call_with_id(id, name, arguments);
}

/// Makes one message for each call. Such a message cannot contain images and PDFs, so a message of
/// the user with them follows.
pub(super) fn write_messages<'a>(answered: impl Iterator<Item = AnsweredCall<'a>>) -> Vec<Value> {
    let mut media = Vec::new();
    let mut messages: Vec<Value> = answered
        .map(|call| {
            let content = text_and_media(call, &mut media);
            match call.id {
                Some(id) => json!({"role": "tool", "tool_call_id": id, "content": content}),
                None => json!({"role": "function", "name": call.name.unwrap_or_default(), "content": content}),
            }
        })
        .collect();
    if !media.is_empty() {
        messages.push(json!({"role": "user", "content": media}));
    }
    messages
}

/// The reply as text. Images and files are added to `media`.
fn text_and_media(answered: AnsweredCall<'_>, media: &mut Vec<Value>) -> String {
    let name = answered.name.unwrap_or("the tool");
    let mut texts: Vec<Cow<'_, str>> = blocks::unstated_data(answered.reply)
        .map(Cow::Owned)
        .into_iter()
        .collect();
    for block in answered.reply.content {
        if let Some(part) = media_part(block) {
            let number = media.len() / 2 + 1;
            texts.push(format!("[attachment {number}: in the user's message that follows]").into());
            media.push(json!({"type": "text", "text": format!("Attachment {number}, from the result of {name}:")}));
            media.push(part);
        } else {
            texts.push(blocks::block_as_text(block, blocks::UNSUPPORTED));
        }
    }
    let text = texts.join("\n");
    if text.trim().is_empty() {
        blocks::empty_result_text(answered.reply.is_error).to_owned()
    } else {
        blocks::mark_error(text, answered.reply.is_error)
    }
}

fn media_part(block: &Content) -> Option<Value> {
    if let Some((kind, data)) = blocks::image(block, &IMAGE_TYPES) {
        let url = blocks::data_url(kind, data);
        return Some(json!({"type": "image_url", "image_url": {"url": url}}));
    }
    let (file, kind, data) =
        blocks::file(block).filter(|(_, kind, _)| *kind == "application/pdf")?;
    let (name, data) = (blocks::file_name(file), blocks::data_url(kind, data));
    Some(json!({"type": "file", "file": {"filename": name, "file_data": data}}))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::*;
    use crate::*;

    fn call(id: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}})
    }

    #[test]
    fn calls_are_found_in_every_sdk_shape() {
        let message = json!({"role": "assistant", "content": null, "refusal": null, "function_call": null,
            "audio": null, "tool_calls": [call("c1")]});
        let choice = json!({"index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": message});
        let completion =
            json!({"id": "x", "object": "chat.completion", "choices": [choice], "usage": {}});
        let bare = json!([call("c1")]);
        for body in [
            message.clone(),
            choice,
            completion,
            bare,
            call("c1"),
            json!([message]),
        ] {
            assert_eq!(
                read_calls(body),
                (Dialect::Openai, one_call("c1", "f", json!("{\"a\": 1}")))
            );
        }
    }

    #[test]
    fn camel_case_keys_are_read() {
        let message =
            json!({"role": "assistant", "content": "", "toolCalls": [call("c1"), call("c2")]});
        let completion =
            json!({"choices": [{"index": 0, "message": message, "finishReason": "length"}]});
        assert_eq!(cut_off_flags(completion), [false, true]);
    }

    #[test]
    fn ollama_call_without_id_gets_one() {
        let call = json!({"function": {"name": "f", "arguments": {"a": 1}}});
        let body = json!({"model": "m", "done": true, "message": {"role": "assistant", "content": "", "tool_calls": [call]}});
        assert_eq!(
            read_calls(body.clone()),
            (Dialect::Openai, one_call("call_1", "f", json!({"a": 1})))
        );
        assert!(read_guessed(body).warnings[0].contains("`call_1`"));
    }

    #[test]
    fn function_call_gets_a_function_message() {
        let body = json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}});
        let reply = reply_to(body, tool_reply(&[text("4")]));
        assert_eq!(
            reply,
            json!({"role": "function", "name": "f", "content": "4"})
        );
    }

    #[test]
    fn images_follow_in_a_user_message() {
        let message = read_guessed(json!([call("a"), call("b")]));
        let (first, second) = (
            [
                text("see"),
                image("image/png"),
                file("f:///a/r.pdf?x", "application/pdf"),
            ],
            [text("4")],
        );
        assert_eq!(
            Value::from(write_replies(
                &message,
                &[tool_reply(&first), tool_reply(&second)]
            )),
            json!([
                {"role": "tool", "tool_call_id": "a", "content": "see\n\
                    [attachment 1: in the user's message that follows]\n[attachment 2: in the user's message that follows]"},
                {"role": "tool", "tool_call_id": "b", "content": "4"},
                {"role": "user", "content": [
                    {"type": "text", "text": "Attachment 1, from the result of f:"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                    {"type": "text", "text": "Attachment 2, from the result of f:"},
                    {"type": "file", "file": {"filename": "r.pdf", "file_data": "data:application/pdf;base64,aGk="}}]}
            ])
        );
    }

    #[test]
    fn unsupported_content_is_noted_as_omitted() {
        let sound = Content::Audio {
            data: "AAAA".repeat(1024),
            mime_type: "audio/wav".into(),
        };
        let reply = reply_to(
            json!([call("a")]),
            tool_reply(&[sound, image("image/tiff")]),
        );
        let why = "left out, this API does not take it in a tool result";
        assert_eq!(
            reply["content"],
            format!("[audio/wav, 3.0 KiB: {why}]\n[image/tiff, 2 B: {why}]")
        );
    }

    #[test]
    fn calls_of_other_types_and_extra_choices_get_warnings() {
        let custom = json!({"id": "x9", "type": "other"});
        let choice = |id| json!({"message": {"role": "assistant", "tool_calls": [call(id), custom.clone()]}});
        let message = read_guessed(json!({"choices": [choice("a"), choice("b")]}));
        assert_eq!(message.calls.len(), 2);
        assert!(
            message.warnings[0].contains("2 choices"),
            "{:?}",
            message.warnings
        );
        assert!(
            message.warnings[1].contains("a call of the type `other`"),
            "{:?}",
            message.warnings
        );
    }

    #[test]
    fn length_limit_cuts_off_the_last_call() {
        let body = |reason: &str| {
            json!({"choices": [{"index": 0, "finish_reason": reason,
                "message": {"role": "assistant", "tool_calls": [call("a"), call("b")]}}]})
        };
        assert_eq!(cut_off_flags(body("length")), [false, true]);
        assert_eq!(cut_off_flags(body("tool_calls")), [false, false]);
    }
}
