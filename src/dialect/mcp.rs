//! The `mcp` dialect: MCP `tools/call` as JSON-RPC.

use serde_json::{Map, Value, json};

use super::blocks;
use super::found_calls::{FoundCalls, take, text};
use super::message::{MalformedCall, ToolCall, ToolReply};
use super::reply::AnsweredCall;
use crate::call::{Content, JsonObject, RESULT_AS_ANSWER, Resource};

/// JSON-RPC 2.0, "method not found".
const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC 2.0, "invalid params". MCP answers an unknown tool or a malformed call with it.
const INVALID_PARAMS: i64 = -32602;

/// Finds the calls. Returns false if the body is not a JSON-RPC request.
pub(super) fn find(body: &mut Value, found: &mut FoundCalls) -> bool {
    let requests = match body {
        Value::Array(batch) => batch.as_mut_slice(),
        one => std::slice::from_mut(one),
    };
    if !requests.is_empty() && !requests.iter().any(is_rpc) {
        return false;
    }
    for request in requests {
        match request.as_object_mut() {
            Some(fields) => one(fields, found),
            None => found.left_alone("what is no object"),
        }
    }
    true
}

fn is_rpc(value: &Value) -> bool {
    value.get("jsonrpc").is_some() || value.get("method").is_some_and(Value::is_string)
}

fn one(fields: &mut JsonObject, found: &mut FoundCalls) {
    let id = take(fields, &["id"]);
    match text(fields, "method") {
        Some("tools/call") => {
            if id.is_none() {
                found.warn("a request has no id: its answer has the id null".into());
            }
            let mut params = take(fields, &["params"]);
            let mut of = |name: &str| take(params.as_mut()?.as_object_mut()?, &[name]);
            let (name, arguments) = (of("name"), of("arguments"));
            found.call(id, name, arguments);
        }
        Some(method) if id.is_some() => {
            let what = format!("only the method `tools/call` is answered here, not `{method}`");
            let correction = format!("{what}.");
            found.misread(MalformedCall { id, name: None, what, correction, is_other_method: true });
        }
        Some(method) => found.left_alone(&format!("the notification `{method}`")),
        None => found.left_alone("what has no method"),
    }
}

/// The response to one request.
pub(super) fn reply(ask: &Result<ToolCall, MalformedCall>, told: AnsweredCall<'_>) -> Value {
    let said = told.said;
    if said.is_no_call {
        let is_other = matches!(ask, Err(misread) if misread.is_other_method);
        let code = if is_other { METHOD_NOT_FOUND } else { INVALID_PARAMS };
        let message = blocks::all_in_words(said);
        return json!({"jsonrpc": "2.0", "id": told.id, "error": {"code": code, "message": message}});
    }
    let mut result = Map::new();
    result.insert("content".into(), content(said));
    // Before the MCP version 2025-11-25 this must be an object. Other data is in a text block anyway.
    if let Some(data) = said.structured.filter(|data| data.is_object()) {
        result.insert("structuredContent".into(), data.clone());
    }
    result.insert("isError".into(), said.is_error.into());
    if said.is_answer {
        result.insert("_meta".into(), json!({RESULT_AS_ANSWER: true}));
    }
    json!({"jsonrpc": "2.0", "id": told.id, "result": result})
}

/// The content blocks, which have MCP's own form. An error without text gets one, because a model would learn nothing
/// from an empty error.
pub(super) fn content(said: &ToolReply<'_>) -> Value {
    if said.is_error && said.structured.is_none() && said.content.iter().all(Content::is_silent) {
        return json!([Content::text(blocks::no_words(true))]);
    }
    let block = |block: &Content| match block {
        // MCP requires text or bytes in a file.
        Content::Resource { resource } if resource.text.is_none() && resource.blob.is_none() => {
            json!(Content::Resource { resource: Resource { text: Some(String::new()), ..resource.clone() } })
        }
        block => json!(block),
    };
    said.content.iter().map(block).collect()
}
