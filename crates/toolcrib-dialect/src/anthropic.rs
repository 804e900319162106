//! The `anthropic` dialect: Anthropic Messages.

use serde_json::{Value, json};

use super::blocks::{self, IMAGE_TYPES};
use super::found_calls::{FoundCalls, text_field};
use super::message::AnsweredCall;
use crate::content::Content;
use crate::strict_json::JsonObject;
use crate::words::words;

/// Stop reasons after which the model's output is incomplete.
const CUT_OFF_REASONS: [&str; 3] = ["max_tokens", "model_context_window_exceeded", "refusal"];

/// Block types that need no result. The result blocks of the provider's own tools need none either.
const NON_CALL_TYPES: [&str; 8] = words(
    "text thinking redacted_thinking server_tool_use mcp_tool_use container_upload
     compaction image",
);

/// Finds the calls. Returns false if the body is not an Anthropic message.
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    match body.get("content") {
        Some(Value::String(_)) => body.get("role").is_some_and(|role| role == "assistant"),
        _ => found.visit_body(body, parts, is_block, read_block),
    }
}

fn parts(fields: &mut JsonObject) -> Option<(&mut Vec<Value>, bool)> {
    let is_cut =
        text_field(fields, "stop_reason").is_some_and(|reason| CUT_OFF_REASONS.contains(&reason));
    let is_assistant = text_field(fields, "role") == Some("assistant");
    let content = fields.get_mut("content").filter(|_| is_assistant)?;
    Some((content.as_array_mut()?, is_cut))
}

fn is_block(value: &Value) -> bool {
    value
        .get("type")
        .is_some_and(|kind| kind.is_string() && kind != "function")
}

/// Adds the block to `found` if it is a call. Returns whether it is a call.
fn read_block(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    match text_field(fields, "type").unwrap_or_default() {
        "tool_use" => {
            found.take_call_with_id(fields, &["id"], "name", "input");
            let toolset = fields.remove_entry("toolset_name");
            found.set_reply_fields(
                toolset
                    .filter(|(_, name)| name.is_string())
                    .into_iter()
                    .collect(),
            );
            return true;
        }
        // A call of a managed agent. Its event has the result in another form.
        "agent.custom_tool_use" => {
            found.take_call_with_id(fields, &["id"], "name", "input");
            let id = found.last_id();
            let reply = json!({"type": "user.custom_tool_result", "custom_tool_use_id": id, "tool_use_id": null});
            found.set_reply_fields(reply.as_object().cloned().unwrap_or_default());
            return true;
        }
        kind if NON_CALL_TYPES.contains(&kind) || kind.ends_with("_tool_result") => {}
        kind => found.warn_ignored(&format!("a block of the type `{kind}`")),
    }
    false
}

/// Makes one message with all results: the API requires them in the message right after the calls.
/// Results of a managed agent are events of their own.
pub(super) fn write_results<'a>(answered: impl Iterator<Item = AnsweredCall<'a>>) -> Vec<Value> {
    let results: Vec<Value> = answered
        .map(|answered_call| {
            let reply = answered_call.reply;
            let data =
                blocks::unstated_data(reply).map(|data| json!({"type": "text", "text": data}));
            let converted = reply
                .content
                .iter()
                .filter_map(|block| convert_block(block, reply.is_error));
            let mut content: Vec<Value> = data.into_iter().chain(converted).collect();
            if content.is_empty() {
                content.push(
                    json!({"type": "text", "text": blocks::empty_result_text(reply.is_error)}),
                );
            }
            let mut result =
                json!({"type": "tool_result", "tool_use_id": answered_call.id, "content": content});
            if reply.is_error {
                result["is_error"] = true.into();
            }
            answered_call.with_fields(result)
        })
        .collect();
    let (results, mut messages): (Vec<Value>, Vec<Value>) = results
        .into_iter()
        .partition(|result| result["type"] == "tool_result");
    if !results.is_empty() {
        messages.push(json!({"role": "user", "content": results}));
    }
    messages
}

/// Converts a block for the API. The API refuses blank texts, and accepts only text in the result
/// of a failed call.
fn convert_block(block: &Content, is_error: bool) -> Option<Value> {
    if !is_error && let Some(media) = media_block(block) {
        return Some(media);
    }
    let why = if is_error {
        "this API takes only text in the result of a failed call"
    } else {
        blocks::UNSUPPORTED
    };
    let text = blocks::block_as_text(block, why);
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn media_block(block: &Content) -> Option<Value> {
    if let Some((kind, data)) = blocks::image(block, &IMAGE_TYPES) {
        let source = json!({"type": "base64", "media_type": kind, "data": data});
        return Some(json!({"type": "image", "source": source}));
    }
    let Content::Resource { resource } = block else {
        return None;
    };
    let source = match (blocks::resource_text(resource), blocks::file(block)) {
        (Some(text), _) if text.trim().is_empty() => return None,
        (Some(text), _) => json!({"type": "text", "media_type": "text/plain", "data": text}),
        (None, Some((_, kind @ "application/pdf", data))) => {
            json!({"type": "base64", "media_type": kind, "data": data})
        }
        (None, _) => return None,
    };
    Some(json!({"type": "document", "source": source, "title": blocks::file_name(resource)}))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::*;
    use crate::*;

    fn call() -> Value {
        json!({"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}})
    }

    #[test]
    fn calls_are_found_among_blocks() {
        let server = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}});
        let result = json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []});
        let content = json!([{"type": "thinking", "thinking": "…", "signature": ""}, {"type": "text", "text": "hm"}, server,
            result, {"type": "mcp_tool_use", "id": "m", "name": "g", "server_name": "s", "input": {}}, call()]);
        let message = json!({"role": "assistant", "content": content});
        let response = json!({"id": "m", "type": "message", "role": "assistant", "model": "x", "content": content,
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {}});
        for body in [call(), json!([call()]), content, message, response] {
            assert_eq!(read_guessed(body.clone()).warnings, [""; 0]);
            assert_eq!(
                read_calls(body),
                (Dialect::Anthropic, one_call("t1", "f", json!({"a": 1})))
            );
        }
    }

    #[test]
    fn results_form_one_message_with_error_flags() {
        let message = read_guessed(
            json!([call(), {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]),
        );
        let failed = ToolReply {
            is_error: true,
            ..tool_reply(&[])
        };
        let content = [text("no"), image("image/png")];
        let reply = write_replies(
            &message,
            &[
                tool_reply(&[text("4"), text(" "), image("image/png")]),
                ToolReply {
                    content: &content,
                    ..failed
                },
            ],
        );
        assert_eq!(
            Value::from(reply),
            json!([{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "4"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": [{"type": "text", "text": "no"},
                    {"type": "text", "text": "[image/png, 2 B: left out, this API takes only text in the result of a failed call]"}]}
            ]}])
        );
    }

    #[test]
    fn files_become_document_blocks() {
        let notes = Resource {
            uri: "f:///n.md".into(),
            text: Some("# n".into()),
            ..Resource::default()
        };
        let content = [
            file("f:///r.pdf", "application/pdf"),
            Content::Resource { resource: notes },
        ];
        let reply = reply_to(call(), tool_reply(&content));
        assert_eq!(
            reply["content"][0]["content"],
            json!([
                {"type": "document", "title": "r.pdf",
                 "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
                {"type": "document", "title": "n.md", "source": {"type": "text", "media_type": "text/plain", "data": "# n"}}
            ])
        );
    }

    #[test]
    fn token_limit_cuts_off_the_last_call() {
        let body = |content: Value| json!({"role": "assistant", "stop_reason": "max_tokens", "content": content});
        assert_eq!(cut_off_flags(body(json!([call(), call()]))), [false, true]);
        assert_eq!(
            cut_off_flags(body(json!([call(), {"type": "text", "text": "and th"}]))),
            [false]
        );
    }

    #[test]
    fn unknown_block_types_get_warnings() {
        for (kind, warnings) in [
            ("text", 0),
            ("web_search_tool_result", 0),
            ("mcp_tool_use", 0),
            ("surprise", 1),
            ("function_call", 1),
        ] {
            let found =
                read_guessed(json!({"role": "assistant", "content": [{"type": kind}, call()]}));
            assert_eq!(
                (found.calls.len(), found.warnings.len()),
                (1, warnings),
                "{kind}: {:?}",
                found.warnings
            );
        }
        read_refusal(
            json!({"role": "user", "content": [call()]}),
            Some(Dialect::Anthropic),
        );
    }

    #[test]
    fn unsupported_documents_become_text() {
        let blank = Resource {
            mime_type: Some("text/plain".into()),
            blob: Some("IA==".into()),
            ..Resource::default()
        };
        for (block, kind) in [
            (file("f:///a.b", "application/pdf"), "document"),
            (file("f:///a.b", "application/zip"), "text"),
            (file("f:///a.b", "text/x-log"), "document"),
            (file("f:///a.b", "application/json"), "document"),
            (Content::Resource { resource: blank }, "text"),
        ] {
            let content = [block];
            let reply = reply_to(call(), tool_reply(&content));
            assert_eq!(
                reply["content"][0]["content"][0]["type"], kind,
                "{content:?}"
            );
        }
    }

    #[test]
    fn missing_id_is_generated() {
        let message = read_guessed(json!([{"type": "tool_use", "name": "f", "input": {}}]));
        assert_eq!(message.calls[0].as_ref().unwrap().id, Some(json!("call_1")));
        assert!(message.warnings[0].contains("call 1 has no id"));
    }
}
