//! The `mcp` dialect: MCP `tools/call` as JSON-RPC.

use serde_json::{Value, json};

use super::blocks;
use super::found_calls::{FoundCalls, take_field, text_field};
use super::message::{AnsweredCall, MalformedCall, ToolCall, ToolReply};
use crate::content::{Content, RESULT_AS_ANSWER_KEY, Resource};
use crate::strict_json::JsonObject;

/// JSON-RPC 2.0, "method not found".
const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC 2.0, "invalid params". MCP answers an unknown tool or a malformed call with it.
const INVALID_PARAMS: i64 = -32602;

/// Finds the calls. Returns false if the body is not a JSON-RPC request.
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    let requests = match body {
        Value::Array(batch) => batch.as_mut_slice(),
        one => std::slice::from_mut(one),
    };
    if !requests.is_empty() && !requests.iter().any(is_json_rpc) {
        return false;
    }
    for request in requests {
        match request.as_object_mut() {
            Some(fields) => read_request(fields, found),
            None => found.warn_ignored("an entry that is not an object"),
        }
    }
    true
}

fn is_json_rpc(value: &Value) -> bool {
    value.get("jsonrpc").is_some() || value.get("method").is_some_and(Value::is_string)
}

fn read_request(fields: &mut JsonObject, found: &mut FoundCalls) {
    let id = take_field(fields, &["id"]);
    match text_field(fields, "method") {
        Some("tools/call") => {
            if id.is_none() {
                found.warn("a request has no id: its answer has the id null".into());
            }
            let mut params = take_field(fields, &["params"]);
            let mut of = |name: &str| take_field(params.as_mut()?.as_object_mut()?, &[name]);
            let (name, arguments) = (of("name"), of("arguments"));
            found.add_call(id, name, arguments);
        }
        Some(method) if id.is_some() => {
            let what = format!("only the method `tools/call` is answered here, not `{method}`");
            let correction = format!("{what}.");
            found.add_malformed(MalformedCall {
                id,
                is_other_method: true,
                ..MalformedCall::new(what, correction)
            });
        }
        Some(method) => found.warn_ignored(&format!("the notification `{method}`")),
        None => found.warn_ignored("an entry without a method"),
    }
}

/// The response to one request.
pub(super) fn write_response(
    call: &Result<ToolCall, MalformedCall>,
    answered: AnsweredCall<'_>,
) -> Value {
    let reply = answered.reply;
    if reply.is_invalid_call {
        let is_other = matches!(call, Err(malformed) if malformed.is_other_method);
        let code = if is_other {
            METHOD_NOT_FOUND
        } else {
            INVALID_PARAMS
        };
        let message = blocks::result_as_text(reply);
        return json!({"jsonrpc": "2.0", "id": answered.id, "error": {"code": code, "message": message}});
    }
    let result = blocks::without_nulls(json!({
        "content": content_blocks(reply),
        // Before the MCP version 2025-11-25 this must be an object. Other data is in a text block
        // anyway.
        "structuredContent": reply.structured.filter(|data| data.is_object()),
        "isError": reply.is_error,
        "_meta": reply.is_final_answer.then(|| json!({RESULT_AS_ANSWER_KEY: true})),
    }));
    json!({"jsonrpc": "2.0", "id": answered.id, "result": result})
}

/// The content blocks, which have MCP's own form. An error without text gets one, because a model
/// would learn nothing from an empty error.
pub(super) fn content_blocks(reply: &ToolReply<'_>) -> Value {
    if reply.is_error
        && reply.structured.is_none()
        && reply.content.iter().all(Content::is_blank_text)
    {
        return json!([Content::text(blocks::empty_result_text(true))]);
    }
    let block = |block: &Content| match block {
        // MCP requires text or bytes in a file.
        Content::Resource { resource } if resource.text.is_none() && resource.blob.is_none() => {
            json!(Content::Resource {
                resource: Resource {
                    text: Some(String::new()),
                    ..resource.clone()
                }
            })
        }
        block => json!(block),
    };
    reply.content.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::*;
    use crate::*;

    fn call(id: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "f", "arguments": {"a": 1}}})
    }

    #[test]
    fn single_and_batch_requests_are_read() {
        let loose = json!({"method": "tools/call", "id": 7, "params": {"name": "f", "arguments": {"a": 1}}});
        for body in [call(json!(7)), json!([call(json!(7))]), loose] {
            assert_eq!(
                read_calls(body),
                (
                    Dialect::Mcp,
                    vec![(json!(7), "f".to_owned(), json!({"a": 1}))]
                )
            );
        }
        let without = json!({"method": "tools/call", "params": {"name": "f"}});
        let reply = reply_to(without, tool_reply(&[]));
        assert_eq!(
            reply,
            json!({"jsonrpc": "2.0", "id": null, "result": {"content": [], "isError": false}})
        );
    }

    #[test]
    fn results_have_content_and_structured_data() {
        let (object, list) = (json!({"a": 1}), json!([1]));
        let content = [text("x"), image("image/tiff")];
        let reply = reply_to(
            call(json!("q")),
            ToolReply {
                structured: Some(&object),
                is_error: true,
                ..tool_reply(&content)
            },
        );
        assert_eq!(
            reply,
            json!({"jsonrpc": "2.0", "id": "q", "result": {"isError": true, "structuredContent": {"a": 1}, "content": [
                {"type": "text", "text": "x"}, {"type": "image", "data": "aGk=", "mimeType": "image/tiff"}]}})
        );
        let reply = reply_to(
            call(json!("q")),
            ToolReply {
                structured: Some(&list),
                ..tool_reply(&content)
            },
        );
        assert_eq!(reply["result"].get("structuredContent"), None);
    }

    #[test]
    fn final_answer_is_marked() {
        let reply = reply_to(
            call(json!("q")),
            ToolReply {
                is_final_answer: true,
                ..tool_reply(&[])
            },
        );
        assert_eq!(
            reply["result"]["_meta"],
            json!({"toolcrib/resultAsAnswer": true})
        );
    }

    #[test]
    fn invalid_call_gets_a_protocol_error() {
        let content = [text("no such tool")];
        let no_call = ToolReply {
            is_error: true,
            is_invalid_call: true,
            ..tool_reply(&content)
        };
        let reply = reply_to(call(json!(1)), no_call);
        assert_eq!(
            reply,
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no such tool"}})
        );
        let other = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
        assert_eq!(reply_to(other, no_call)["error"]["code"], -32601);
        let notification =
            read_guessed(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(notification.calls, []);
        assert!(
            notification.warnings[0]
                .contains("the notification `notifications/initialized` is ignored")
        );
    }
}
