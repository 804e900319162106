//! Makes the result of a `tools/call` from a call's answer.

use std::borrow::Cow;

use rmcp::model::{
    AudioContent, CallToolResult, ContentBlock, EmbeddedResource, ImageContent, MetaObject,
    ResourceContents,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::failure::{self, JsonRpcFailure};
use crate::call::{
    Answer, CacheStatus, CallError, Caller, Content, EMPTY_ERROR_MESSAGE, Effect, InvocationId,
    JsonObject, RESULT_AS_ANSWER_KEY, ToolName,
};
use crate::catalog::Entry;
use crate::catalog::registry::Registry;

/// The key of `_meta` that names the server, in every result since 2026-07-28.
pub(super) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The result of a `tools/call`, as it goes over the wire.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply<'a> {
    /// `complete`; only since 2026-07-28.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    content: Cow<'a, [Content]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a Value>,
    is_error: bool,
    #[serde(rename = "_meta")]
    meta: JsonObject,
}

impl<'a> Reply<'a> {
    /// The result for a call that has ended. `modern`: the client uses version 2026-07-28.
    ///
    /// # Errors
    /// The failure is an error of JSON-RPC and not a result: `failure.rs` decides.
    pub fn from_call(
        registry: &Registry,
        (entry, caller): (&Entry, &Caller),
        id: InvocationId,
        outcome: &'a Result<Answer, CallError>,
        modern: bool,
    ) -> Result<Self, JsonRpcFailure> {
        let reader = || registry.catalog().find_result_reader(caller, |_| true);
        let mut reply = match outcome {
            Ok(answer) => Self::build_answer(entry, answer, reader, modern),
            Err(error) => Self::build_failure(error, entry.policy.effect, Some(id))?,
        };
        reply.add_version_fields(modern);
        Ok(reply)
    }

    /// The result for a call that did not start.
    ///
    /// # Errors
    /// As [`Reply::from_call`].
    pub fn from_error(error: &CallError, modern: bool) -> Result<Self, JsonRpcFailure> {
        let mut reply = Self::build_failure(error, Effect::default(), None)?;
        reply.add_version_fields(modern);
        Ok(reply)
    }

    fn build_failure(
        error: &CallError,
        effect: Effect,
        id: Option<InvocationId>,
    ) -> Result<Self, JsonRpcFailure> {
        let (content, meta) = failure::build_reply(error, effect, id)?;
        let content = Cow::Owned(vec![content]);
        Ok(Self {
            result_type: None,
            content,
            structured_content: None,
            is_error: true,
            meta,
        })
    }

    fn add_version_fields(&mut self, modern: bool) {
        if modern {
            self.result_type = Some("complete");
            self.meta.insert(SERVER_INFO.into(), server_info());
        }
    }

    fn build_answer(
        entry: &Entry,
        answer: &'a Answer,
        reader: impl FnOnce() -> Option<ToolName>,
        modern: bool,
    ) -> Self {
        let result = &*answer.result;
        let content = match answer.model_content(reader) {
            Some(content) => Cow::Owned(content),
            None => Cow::Borrowed(&*result.content),
        };
        let mut meta = answer_meta(answer);
        // Until 2025-11-25, structured content must be an object. Other data becomes a text block.
        let (structured_content, other) = match &result.structured_content {
            Some(data) if modern || data.is_object() => (Some(data), None),
            other => (None, other.as_ref()),
        };
        let mut content = repair_resources(content);
        if let Some(data) = other.filter(|data| !has_text_of(&content, data)) {
            content.to_mut().push(Content::text(data.to_string()));
            if let Some(warnings) = meta
                .entry("toolcrib/warnings")
                .or_insert_with(|| json!([]))
                .as_array_mut()
            {
                warnings
                    .push("structured content that is not an object is a text block here".into());
            }
        }
        if result.is_error
            && structured_content.is_none()
            && content.iter().all(Content::is_blank_text)
        {
            content = Cow::Owned(vec![Content::text(EMPTY_ERROR_MESSAGE)]);
        }
        if result.is_answer(entry.definition.result_as_answer) {
            meta.insert(RESULT_AS_ANSWER_KEY.into(), true.into());
        }
        Self {
            result_type: None,
            content,
            structured_content,
            // A model must not take the words for the result.
            is_error: result.is_error || answer.waiting,
            meta,
        }
    }

    /// Converts to rmcp's type.
    pub(super) fn into_tool_result(self) -> CallToolResult {
        let mut result = CallToolResult::success(
            self.content
                .into_owned()
                .into_iter()
                .map(to_content_block)
                .collect(),
        );
        result.structured_content = self.structured_content.cloned();
        result.is_error = Some(self.is_error);
        result.meta = Some(MetaObject(self.meta));
        result
    }
}

/// Name and version of this program, in MCP's shape.
pub(super) fn server_info() -> Value {
    json!({"name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION")})
}

/// The `_meta` of the result: how the answer was made. Facts without information are left out, such
/// as an empty list.
fn answer_meta(answer: &Answer) -> JsonObject {
    let mut fields = JsonObject::new();
    let mut insert = |name: &str, value: Value| fields.insert(format!("toolcrib/{name}"), value);
    insert("invocationId", answer.invocation.to_string().into());
    let meta = &answer.meta;
    if meta.cache != CacheStatus::Off {
        insert("cache", meta.cache.as_str().into());
    }
    if !meta.usage.is_empty() {
        insert("usage", json!(meta.usage));
    }
    if !meta.coercions.is_empty() {
        insert("coercions", json!(meta.coercions));
    }
    if let Some(overflow) = &meta.overflow {
        insert("overflow", json!(overflow));
    }
    if !meta.warnings.is_empty() {
        insert("warnings", json!(meta.warnings));
    }
    if answer.waiting {
        insert("state", "waiting".into());
    }
    if answer.replayed {
        insert("replayed", true.into());
    }
    fields
}

/// Whether one of the text blocks is this data as JSON.
fn has_text_of(content: &[Content], data: &Value) -> bool {
    let is_data =
        |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|value| value == *data);
    let mut blocks = content.iter();
    blocks.any(|block| matches!(block, Content::Text { text } if is_data(text)))
}

/// Repairs resources, because MCP requires text or bytes, and not both. With both, the text is
/// kept, since models read text. With neither, the text is empty.
fn repair_resources(blocks: Cow<'_, [Content]>) -> Cow<'_, [Content]> {
    let is_invalid = |block: &Content| matches!(block, Content::Resource { resource } if resource.text.is_some() == resource.blob.is_some());
    if !blocks.iter().any(is_invalid) {
        return blocks;
    }
    let repair = |mut block: Content| {
        if let Content::Resource { resource } = &mut block
            && resource.text.is_some() == resource.blob.is_some()
        {
            resource.text.get_or_insert_default();
            resource.blob = None;
        }
        block
    };
    blocks.into_owned().into_iter().map(repair).collect()
}

fn to_content_block(content: Content) -> ContentBlock {
    match content {
        Content::Text { text } => ContentBlock::text(text),
        Content::ResourceLink(link) => {
            let mut block = rmcp::model::Resource::new(link.uri, link.name);
            block.title = link.title;
            block.description = link.description;
            block.mime_type = link.mime_type;
            ContentBlock::ResourceLink(block)
        }
        Content::Image { data, mime_type } => {
            ContentBlock::Image(ImageContent::new(data, mime_type))
        }
        Content::Audio { data, mime_type } => {
            ContentBlock::Audio(AudioContent::new(data, mime_type))
        }
        Content::Resource { resource } => {
            let (uri, mime_type, meta) = (resource.uri, resource.mime_type, None);
            let contents = match resource.blob {
                Some(blob) => ResourceContents::BlobResourceContents {
                    uri,
                    mime_type,
                    blob,
                    meta,
                },
                None => ResourceContents::TextResourceContents {
                    uri,
                    mime_type,
                    text: resource.text.unwrap_or_default(),
                    meta,
                },
            };
            ContentBlock::Resource(EmbeddedResource::new(contents))
        }
    }
}
