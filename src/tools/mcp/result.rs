//! Makes a tool's result of a server's response.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};
use serde::Deserialize;
use serde_json::Value;

use super::fault;
use super::message::CHANGES_KEY;
use crate::call::json::Changes;
use crate::call::{Content, RESULT_AS_ANSWER_KEY, Resource, ToolContext, ToolError, ToolResult};

/// The result that a response of the server `name` stands for.
pub(super) fn read_response(
    name: &str,
    response: ServerResult,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    match response {
        ServerResult::CallToolResult(result) => convert_result(name, result, context),
        ServerResult::InputRequiredResult(_) => Ok(ToolResult::error(
            "The tool asks for more input from the user, which is not supported here.",
        )),
        ServerResult::CreateTaskResult(_) => Ok(ToolResult::error(
            "The tool returns a task instead of a result, which is not supported here.",
        )),
        ServerResult::CustomResult(other) => Err(fault::bad_output(
            name,
            &describe_invalid_result(other.0, context),
        )),
        _ => Err(fault::bad_output(
            name,
            "it is the result of another method",
        )),
    }
}

fn convert_result(
    name: &str,
    result: CallToolResult,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    let mut content = Vec::with_capacity(result.content.len());
    for block in result.content {
        content.push(
            self::convert_block(block)
                .ok_or_else(|| fault::bad_output(name, "its content is of an unknown type"))?,
        );
    }
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
    let is_error = result.is_error.unwrap_or(false);
    Ok(ToolResult {
        content,
        structured_content,
        is_error,
        result_as_answer,
        ..ToolResult::default()
    })
}

fn convert_block(block: ContentBlock) -> Option<Content> {
    Some(match block {
        ContentBlock::Text(text) => Content::text(text.text),
        ContentBlock::Image(image) => Content::Image {
            data: image.data,
            mime_type: image.mime_type,
        },
        ContentBlock::Audio(audio) => Content::Audio {
            data: audio.data,
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
        // No caller here can follow a link, so make it a text: the name, the description and the
        // URI.
        ContentBlock::ResourceLink(link) => {
            let name = link.title.unwrap_or(link.name);
            let kind = link
                .mime_type
                .map(|kind| format!(" ({kind})"))
                .unwrap_or_default();
            let about = link
                .description
                .map(|about| format!(": {about}"))
                .unwrap_or_default();
            Content::text(format!("{name}{kind}{about}\n{}", link.uri))
        }
        _ => return None,
    })
}

/// What is wrong with a response that is not the result of a tool.
fn describe_invalid_result(mut response: Value, context: &ToolContext) -> String {
    let Some(fields) = response.as_object_mut() else {
        return "it is not an object".into();
    };
    match serde_json::from_value::<Vec<ContentBlock>>(
        fields.remove("content").unwrap_or(Value::Array(Vec::new())),
    ) {
        Err(error) => format!(
            "content: {}",
            context.redact_and_shorten(&error.to_string(), fault::MAX_QUOTED_BYTES)
        ),
        Ok(_) if fields.get("isError").is_some_and(|flag| !flag.is_boolean()) => {
            "isError is not a boolean".into()
        }
        Ok(_) => "it has neither content nor structuredContent".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(response: Value) -> Result<ToolResult, ToolError> {
        read_response(
            "docs",
            serde_json::from_value(response).unwrap(),
            &crate::tools::http::tests::test_context().0,
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
                    {"type": "text", "text": "c.md (text/markdown): Notes\nf:///c"}
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
    fn unsupported_results_and_invalid_responses_fail() {
        let asks =
            read(json!({"resultType": "input_required", "inputRequests": {}, "requestState": "x"}))
                .unwrap();
        assert!(
            asks.is_error && asks.as_text().contains("more input"),
            "{asks:?}"
        );
        for (response, reason) in [
            (
                json!({"content": [{"type": "video", "data": "x"}]}),
                "content: unknown variant `video`",
            ),
            (json!({"content": "words"}), "content: invalid type"),
            (
                json!({"content": [], "isError": "no"}),
                "isError is not a boolean",
            ),
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
