//! The `gemini` dialect: Gemini `generateContent`, as its REST API and its SDKs write it. Keys are
//! in camel case or, in Python, in snake case.

use serde_json::{Value, json};

use super::blocks;
use super::found_calls::{FoundCalls, take_field, text_field};
use super::message::{AnsweredCall, MalformedCall};
use crate::content::Content;
use crate::strict_json::JsonObject;
use crate::words::words;

/// Finish reasons after which the model's output is incomplete.
const CUT_OFF_REASONS: [&str; 8] = words(
    "MAX_TOKENS SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII
     MALFORMED_FUNCTION_CALL",
);

/// Media types, beside text, that the API accepts in a function response (function calling,
/// multimodal function responses). Only models from Gemini 3 on use them.
const INLINE_MEDIA_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "application/pdf"];

/// Fields beside the candidates of a response. They exist even without candidates, for example when
/// the prompt was blocked.
pub(super) const RESPONSE_FIELDS: [&str; 4] = [
    "promptFeedback",
    "prompt_feedback",
    "usageMetadata",
    "usage_metadata",
];

/// Finds the calls. Returns false if the body is not a Gemini message.
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    match body {
        Value::Array(all) => found.visit_parts(all, false, is_part, read_part),
        Value::Object(fields) => {
            if let Some(Value::Array(candidates)) = fields.get_mut("candidates") {
                if candidates.len() > 1 {
                    found.warn(format!(
                        "the response has {} candidates, of which the first is read",
                        candidates.len()
                    ));
                }
                if let Some(first) = candidates.first_mut() {
                    return first
                        .as_object_mut()
                        .is_some_and(|first| read_candidate(first, found));
                }
            }
            if RESPONSE_FIELDS
                .into_iter()
                .any(|name| fields.get(name).is_some_and(Value::is_object))
            {
                return true;
            }
            if read_candidate(fields, found) {
                return true;
            }
            found.visit_parts(std::slice::from_mut(body), false, is_part, read_part)
        }
        _ => false,
    }
}

fn is_part(value: &Value) -> bool {
    ["functionCall", "function_call", "text", "inlineData"]
        .into_iter()
        .any(|name| value.get(name).is_some())
}

/// Reads a candidate, or the content object of a candidate.
fn read_candidate(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    let reason = text_field(fields, "finishReason").or_else(|| text_field(fields, "finish_reason"));
    let is_cut = reason.is_some_and(|reason| CUT_OFF_REASONS.contains(&reason));
    let is_malformed = reason == Some("MALFORMED_FUNCTION_CALL");
    let is_candidate = reason.is_some();
    let content = match fields.get_mut("content") {
        Some(Value::Object(content)) => Some(content),
        _ => Some(&mut *fields).filter(|fields| fields.contains_key("parts")),
    };
    let is_content = content.is_some();
    if let Some(Value::Array(all)) = content.and_then(|content| content.get_mut("parts")) {
        found.visit_parts(all, is_cut, is_part, read_part);
    }
    if is_malformed {
        found.add_malformed(malformed_call(take_field(
            fields,
            &["finishMessage", "finish_message"],
        )));
    }
    is_candidate || is_content
}

/// Adds the part to `found` if it is a call. Returns whether it is a call. Other parts need no
/// result.
fn read_part(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    match take_field(fields, &["functionCall", "function_call"]) {
        Some(Value::Object(mut call)) => {
            call.retain(|name, value| name != "id" || value != "");
            found.take_call(&mut call, &["id"], &["name"], &["args"]);
            // The remaining arguments were expected in another part.
            let is_open = |name: &&str| call.get(*name) == Some(&Value::Bool(true));
            if ["willContinue", "will_continue"].iter().any(is_open) {
                found.mark_cut_off();
            }
        }
        Some(_) => found.add_call(None, None, None),
        None => return false,
    }
    true
}

/// A call that the API itself could not read. The response has at most a message about it.
fn malformed_call(message: Option<Value>) -> MalformedCall {
    let message = message
        .as_ref()
        .and_then(Value::as_str)
        .map(|message| format!(" ({message})"))
        .unwrap_or_default();
    MalformedCall::new(
        format!("Gemini could not read the function call that the model wrote{message}"),
        format!(
            "Your function call could not be read{message}. Call again: name one function exactly, give its arguments as \
             one JSON object, and write no code."
        ),
    )
}

/// Makes one content object with all responses. The API requires one function response for each
/// call. So anything that is not a call of the API is answered as text.
pub(super) fn write_responses<'a>(answered: impl Iterator<Item = AnsweredCall<'a>>) -> Vec<Value> {
    let parts: Vec<Value> = answered
        .map(|call| match call.name {
            Some(name) => json!({"functionResponse": write_response(call, name)}),
            None => json!({"text": blocks::result_as_text(call.reply)}),
        })
        .collect();
    vec![json!({"role": "user", "parts": parts})]
}

fn write_response(answered: AnsweredCall<'_>, name: &str) -> Value {
    let reply = answered.reply;
    let is_inline = |block: &Content| inline_data(block).is_some();
    let texts = reply.content.iter().filter(|block| !is_inline(block));
    let output = match (reply.structured, blocks::find_data_texts(reply)) {
        // The data covers all texts, so no text is needed beside it.
        (Some(data), Some(data_texts)) if texts.count() == data_texts.len() => data.clone(),
        _ => Value::String(blocks::text_except(reply, is_inline)),
    };
    let media = reply.content.iter().filter_map(inline_data);
    let media: Vec<Value> = media
        .map(|(kind, data)| json!({"inlineData": {"mimeType": kind, "data": data}}))
        .collect();
    blocks::without_nulls(json!({
        "id": answered.id,
        "name": name,
        "response": {(if reply.is_error { "error" } else { "output" }): output},
        "parts": Some(media).filter(|media| !media.is_empty()),
    }))
}

/// The media type and base64 of a block that is sent as bytes, not as text.
fn inline_data(block: &Content) -> Option<(&str, &str)> {
    let file = blocks::file(block).map(|(_, kind, data)| (kind, data));
    blocks::image(block, &INLINE_MEDIA_TYPES)
        .or_else(|| file.filter(|(kind, _)| INLINE_MEDIA_TYPES.contains(kind)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::*;
    use crate::*;

    #[test]
    fn camel_and_snake_case_are_read() {
        for (call, finish) in [
            ("functionCall", "finishReason"),
            ("function_call", "finish_reason"),
        ] {
            let part =
                json!({call: {"id": "g1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "x"});
            let parts = json!([{"text": "hm", "thought": true, "functionCall": null}, part]);
            let content = json!({"role": "model", "parts": parts});
            let candidate = json!({"content": content, finish: "STOP", "index": 0});
            let response =
                json!({"candidates": [candidate], "usageMetadata": {}, "modelVersion": "x"});
            for body in [
                part,
                parts,
                content,
                candidate,
                response.clone(),
                json!([response]),
            ] {
                assert_eq!(
                    read_calls(body),
                    (Dialect::Gemini, one_call("g1", "f", json!({"a": 1})))
                );
            }
        }
    }

    #[test]
    fn response_id_is_present_only_if_given() {
        let message = read_guessed(
            json!([{"functionCall": {"name": "f"}}, {"functionCall": {"id": "2", "name": "g", "args": {}}}]),
        );
        let data = json!([1, 2]);
        let (first, second) = ([text("[1, 2]"), image("image/png")], [text("no")]);
        let first = ToolReply {
            structured: Some(&data),
            ..tool_reply(&first)
        };
        let reply = write_replies(
            &message,
            &[
                first,
                ToolReply {
                    is_error: true,
                    ..tool_reply(&second)
                },
            ],
        );
        assert_eq!(
            Value::from(reply),
            json!([{"role": "user", "parts": [
                {"functionResponse": {"name": "f", "response": {"output": [1, 2]},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]}},
                {"functionResponse": {"id": "2", "name": "g", "response": {"error": "no"}}}
            ]}])
        );
    }

    #[test]
    fn text_beyond_the_data_replaces_the_data() {
        let data = json!({"a": 1});
        let content = [text("page 1 of 2: {\"a\": 1}")];
        let reply = reply_to(
            json!({"functionCall": {"name": "f"}}),
            ToolReply {
                structured: Some(&data),
                ..tool_reply(&content)
            },
        );
        let response = &reply["parts"][0]["functionResponse"]["response"];
        assert_eq!(*response, json!({"output": "page 1 of 2: {\"a\": 1}"}));
    }

    #[test]
    fn response_without_candidates_has_no_calls() {
        let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "x"});
        let dumped = json!({"candidates": null, "prompt_feedback": {"block_reason": "SAFETY"}});
        let empty = json!({"candidates": [], "usageMetadata": {"totalTokenCount": 4}});
        for body in [blocked, dumped, empty] {
            assert_eq!(read_calls(body), (Dialect::Gemini, Vec::new()));
        }
    }

    #[test]
    fn malformed_function_call_is_answered_as_text() {
        let body = json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(f())", "index": 0}]});
        let message = read_guessed(body);
        let malformed = message.calls[0].as_ref().unwrap_err();
        assert!(
            malformed.correction.contains("(print(f()))"),
            "{malformed:?}"
        );
        let reply = write_replies(
            &message,
            &[ToolReply {
                is_error: true,
                ..tool_reply(&[text("again")])
            }],
        );
        assert_eq!(
            reply,
            [json!({"role": "user", "parts": [{"text": "again"}]})]
        );
    }

    #[test]
    fn token_limit_cuts_off_the_last_call() {
        let parts = json!([{"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}]);
        assert_eq!(
            cut_off_flags(json!({"finishReason": "MAX_TOKENS", "content": {"parts": parts}})),
            [false, true]
        );
    }

    #[test]
    fn text_after_the_call_was_cut_off() {
        let parts = json!([{"functionCall": {"name": "f"}}, {"text": "and then I wou"}]);
        assert_eq!(
            cut_off_flags(json!({"finishReason": "MAX_TOKENS", "content": {"parts": parts}})),
            [false]
        );
    }

    #[test]
    fn continued_call_is_cut_off() {
        for continues in ["willContinue", "will_continue"] {
            let call = |continued: bool| json!({"parts": [{"functionCall": {"name": "f", continues: continued}}]});
            let cut_by = |continued: bool| {
                cut_off_flags(json!({"finishReason": "STOP", "content": call(continued)}))
            };
            assert_eq!(
                (cut_by(true), cut_by(false)),
                (vec![true], vec![false]),
                "{continues}"
            );
        }
    }
}
