//! Makes a tool's result of a server's response.

use rmcp::model::{CallToolResult, ContentBlock, CustomResult, ResourceContents, ServerResult};
use serde::Deserialize;
use serde_json::{Value, json};

use super::fault;
use super::message::CHANGES_KEY;
use crate::call::json::Changes;
use crate::call::{
    Content, RESULT_AS_ANSWER_KEY, Resource, ResourceLink, ToolContext, ToolError, ToolResult,
};

/// Longest type of a block that is repeated, in bytes.
const MAX_KIND_BYTES: usize = 100;

/// The result that a response of the server `name` stands for.
pub(super) fn read_response(
    name: &str,
    response: ServerResult,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    match response {
        ServerResult::CallToolResult(result) => Ok(convert_result(result, context)),
        ServerResult::InputRequiredResult(_) => Ok(ToolResult::error(
            "The tool asks for more input from the user, which is not supported here.",
        )),
        ServerResult::CreateTaskResult(_) => Ok(ToolResult::error(
            "The tool returns a task instead of a result, which is not supported here.",
        )),
        ServerResult::CustomResult(CustomResult(other)) => {
            let result = read_unusual_result(other, context)
                .map_err(|reason| fault::bad_output(name, reason))?;
            Ok(convert_result(result, context))
        }
        _ => Err(fault::bad_output(
            name,
            "it is the result of another method",
        )),
    }
}

fn convert_result(result: CallToolResult, context: &ToolContext) -> ToolResult {
    let blocks = result.content.into_iter().enumerate();
    let content = blocks.map(|(at, block)| {
        convert_block(block)
            .unwrap_or_else(|| Content::text(unknown_block(at, &Value::Null, context)))
    });
    let content = content.collect();
    // For our callers, a structured `null` means the same as no structured content.
    let structured_content = result.structured_content.filter(|value| !value.is_null());
    let result_as_answer = result
        .meta
        .as_ref()
        .and_then(|meta| meta.get(RESULT_AS_ANSWER_KEY)?.as_bool());
    let changes = result.meta.as_ref().and_then(|meta| meta.get(CHANGES_KEY));
    if let Some(Ok(changes)) = changes.map(Changes::deserialize) {
        for warning in changes.warnings("the answer") {
            context.warn(warning);
        }
    }
    ToolResult {
        content,
        structured_content,
        is_error: result.is_error.unwrap_or(false),
        result_as_answer,
        ..ToolResult::default()
    }
}

/// Reads a result that does not fit the SDK's type: what can be read is kept, and warnings tell the
/// rest. A call that has run must not lose its result because of one block.
///
/// # Errors
/// What is wrong with a response that is not the result of a tool.
fn read_unusual_result(
    response: Value,
    context: &ToolContext,
) -> Result<CallToolResult, &'static str> {
    let Value::Object(mut fields) = response else {
        return Err("it is not an object");
    };
    let blocks = match fields.shift_remove("content") {
        Some(Value::Array(blocks)) => blocks,
        Some(Value::String(text)) => {
            context.warn("content is a text and not a list of blocks");
            vec![json!({"type": "text", "text": text})]
        }
        Some(block @ Value::Object(_)) => {
            context.warn("content is one block and not a list");
            vec![block]
        }
        Some(Value::Null) | None if fields.contains_key("structuredContent") => Vec::new(),
        _ => return Err("it has neither content nor structuredContent"),
    };
    let blocks = blocks.into_iter().enumerate();
    let content = blocks.map(|(at, block)| {
        read_block(&block).unwrap_or_else(|| ContentBlock::text(unknown_block(at, &block, context)))
    });
    let mut result = CallToolResult::success(content.collect());
    result.structured_content = fields.shift_remove("structuredContent");
    result.is_error = Some(match fields.shift_remove("isError") {
        Some(Value::Bool(flag)) => flag,
        Some(Value::Null) | None => false,
        Some(other) => {
            context.warn("isError is not a boolean");
            other != json!("false") && other != json!(0)
        }
    });
    result.meta = fields
        .shift_remove("_meta")
        .and_then(|meta| serde_json::from_value(meta).ok());
    Ok(result)
}

/// One block, without the members that only describe it if these cannot be read.
fn read_block(block: &Value) -> Option<ContentBlock> {
    serde_json::from_value(block.clone()).ok().or_else(|| {
        let mut block = block.as_object()?.clone();
        block.retain(|name, _| !["annotations", "_meta", "icons", "size"].contains(&name.as_str()));
        serde_json::from_value(Value::Object(block)).ok()
    })
}

/// The text in place of a block that cannot be read, with the block as JSON if it is short.
fn unknown_block(at: usize, block: &Value, context: &ToolContext) -> String {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or("?");
    let kind = context.redact_and_shorten(kind, MAX_KIND_BYTES);
    let json = block.to_string();
    let (text, what) = if json.len() <= fault::MAX_QUOTED_BYTES {
        (json, "is passed on as text")
    } else {
        let text = format!("[{kind}: left out, a block of {} bytes]", json.len());
        (text, "is left out")
    };
    context.warn(format!(
        "content.{at}: the block of type `{kind}` cannot be read and {what}"
    ));
    text
}

fn convert_block(block: ContentBlock) -> Option<Content> {
    Some(match block {
        ContentBlock::Text(text) => Content::text(text.text),
        ContentBlock::Image(image) => Content::Image {
            data: without_data_uri(image.data),
            mime_type: image.mime_type,
        },
        ContentBlock::Audio(audio) => Content::Audio {
            data: without_data_uri(audio.data),
            mime_type: audio.mime_type,
        },
        ContentBlock::Resource(embedded) => {
            let resource = match embedded.resource {
                ResourceContents::TextResourceContents {
                    uri,
                    mime_type,
                    text,
                    ..
                } => Resource {
                    uri,
                    mime_type,
                    text: Some(text),
                    blob: None,
                },
                ResourceContents::BlobResourceContents {
                    uri,
                    mime_type,
                    blob,
                    ..
                } => Resource {
                    uri,
                    mime_type,
                    text: None,
                    blob: Some(blob),
                },
                _ => return None,
            };
            Content::Resource { resource }
        }
        ContentBlock::ResourceLink(link) => Content::ResourceLink(ResourceLink {
            uri: link.uri,
            name: link.name,
            title: link.title,
            description: link.description,
            mime_type: link.mime_type,
        }),
        _ => return None,
    })
}

/// Base64 data without the start of a `data:` URI (RFC 2397), which some servers write before it.
fn without_data_uri(data: String) -> String {
    let plain = data
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    plain.map(|(_, data)| data.to_owned()).unwrap_or(data)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(response: Value) -> Result<ToolResult, ToolError> {
        read_response(
            "docs",
            serde_json::from_value(response).unwrap(),
            &crate::kinds::http::tests::test_context().0,
        )
    }

    #[test]
    fn content_blocks_are_converted() {
        let result = read(json!({
            "content": [
                {"type": "text", "text": "hello", "annotations": {"audience": ["user"]}},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
                {"type": "resource", "resource": {"uri": "f:///a", "mimeType": "text/plain", "text": "a"}},
                {"type": "resource", "resource": {"uri": "f:///b", "blob": "aGk="}},
                {"type": "resource_link", "uri": "f:///c", "name": "c.md", "description": "Notes", "mimeType": "text/markdown"}
            ],
            "structuredContent": {"n": 1}, "_meta": {"x": 1}
        }));
        assert_eq!(
            json!(result.unwrap()),
            json!({
                "content": [
                    {"type": "text", "text": "hello"},
                    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                    {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
                    {"type": "resource", "resource": {"uri": "f:///a", "mimeType": "text/plain", "text": "a"}},
                    {"type": "resource", "resource": {"uri": "f:///b", "blob": "aGk="}},
                    {"type": "resource_link", "uri": "f:///c", "name": "c.md", "description": "Notes", "mimeType": "text/markdown"}
                ],
                "structured_content": {"n": 1}, "is_error": false
            })
        );
        assert!(
            read(json!({"content": [{"type": "text", "text": "no"}], "isError": true}))
                .unwrap()
                .is_error
        );
        assert_eq!(
            read(json!({"structuredContent": {"n": 1}}))
                .unwrap()
                .structured_content,
            Some(json!({"n": 1}))
        );
    }

    #[test]
    fn unreadable_parts_leave_the_rest() {
        let context = crate::kinds::http::tests::test_context().0;
        let read = |response: Value| {
            let response = serde_json::from_value(response).unwrap();
            read_response("docs", response, &context).unwrap()
        };
        let long = "x".repeat(5000);
        let result = read(json!({
            "content": [
                {"type": "video", "data": "x"}, {"type": "video", "data": long}, {"type": "text"}, 7,
                {"type": "text", "text": "ok", "annotations": {"priority": "high"}},
                {"type": "image", "data": "data:image/png;base64,aGk=", "mimeType": "image/png"}
            ],
            "structuredContent": {"n": 1}, "isError": "yes", "_meta": 7
        }));
        assert_eq!(
            json!(result.content),
            json!([
                {"type": "text", "text": r#"{"type":"video","data":"x"}"#},
                {"type": "text", "text": "[video: left out, a block of 5026 bytes]"},
                {"type": "text", "text": r#"{"type":"text"}"#},
                {"type": "text", "text": "7"},
                {"type": "text", "text": "ok"},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"}
            ])
        );
        assert!(result.is_error && result.structured_content == Some(json!({"n": 1})));
        assert_eq!(read(json!({"content": "words"})).as_text(), "words");
    }

    #[test]
    fn unsupported_results_and_invalid_responses_fail() {
        let asks =
            read(json!({"resultType": "input_required", "inputRequests": {}, "requestState": "x"}))
                .unwrap();
        assert!(
            asks.is_error && asks.as_text().contains("more input"),
            "{asks:?}"
        );
        for (response, reason) in [
            (json!({"content": 7}), "neither content nor"),
            (
                json!({"answer": 42}),
                "neither content nor structuredContent",
            ),
            (json!({"tools": []}), "another method"),
        ] {
            let Err(ToolError::BadOutput(message)) = read(response) else {
                panic!("{reason}")
            };
            assert!(
                message.starts_with("the MCP server docs did not return a tool result")
                    && message.contains(reason),
                "{message}"
            );
        }
    }
}
