//! Makes the result of a `tools/call` from a call's answer.

use std::borrow::Cow;

use rmcp::model::{
    AudioContent, CallToolResult, ContentBlock, EmbeddedResource, ImageContent, MetaObject, ResourceContents,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::failure::{self, Refused};
use crate::call::{
    Answer, CacheStatus, CallError, Caller, Content, Effect, FAILED_SILENTLY, InvocationId, JsonObject,
    RESULT_AS_ANSWER, Resource, ToolName,
};
use crate::catalog::Entry;
use crate::registry::Registry;

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
    pub fn of(
        registry: &Registry,
        (entry, caller): (&Entry, &Caller),
        id: InvocationId,
        called: &'a Result<Answer, CallError>,
        modern: bool,
    ) -> Result<Self, Refused> {
        let reader = || registry.catalog().reader(caller, |_| true);
        let mut reply = match called {
            Ok(answer) => Self::answer(entry, answer, reader, modern),
            Err(error) => Self::failure(error, entry.policy.effect, Some(id))?,
        };
        reply.complete(modern);
        Ok(reply)
    }

    /// The result for a call that did not start.
    ///
    /// # Errors
    /// As [`Reply::of`].
    pub fn refusal(error: &CallError, modern: bool) -> Result<Self, Refused> {
        let mut reply = Self::failure(error, Effect::default(), None)?;
        reply.complete(modern);
        Ok(reply)
    }

    fn failure(error: &CallError, effect: Effect, id: Option<InvocationId>) -> Result<Self, Refused> {
        let (content, meta) = failure::said(error, effect, id)?;
        let content = Cow::Owned(vec![content]);
        Ok(Self { result_type: None, content, structured_content: None, is_error: true, meta })
    }

    fn complete(&mut self, modern: bool) {
        if modern {
            self.result_type = Some("complete");
            self.meta.insert(SERVER_INFO.into(), server_info());
        }
    }

    fn answer(entry: &Entry, answer: &'a Answer, reader: impl FnOnce() -> Option<ToolName>, modern: bool) -> Self {
        let result = &*answer.result;
        let content = match answer.with_overflow(reader) {
            Some(content) => Cow::Owned(content),
            None => Cow::Borrowed(&*result.content),
        };
        let mut meta = notes(answer);
        // Until 2025-11-25, structured content must be an object. Other data becomes a text block.
        let (structured_content, other) = match &result.structured_content {
            Some(data) if modern || data.is_object() => (Some(data), None),
            other => (None, other.as_ref()),
        };
        let mut content = whole(content);
        if let Some(data) = other.filter(|data| !is_said(&content, data)) {
            content.to_mut().push(Content::text(data.to_string()));
            if let Some(told) = meta.entry("toolcrib/warnings").or_insert_with(|| json!([])).as_array_mut() {
                told.push("structured content that is no object is a text block here".into());
            }
        }
        if result.is_error && structured_content.is_none() && content.iter().all(Content::is_silent) {
            content = Cow::Owned(vec![Content::text(FAILED_SILENTLY)]);
        }
        if result.is_answer(entry.definition.result_as_answer) {
            meta.insert(RESULT_AS_ANSWER.into(), true.into());
        }
        Self { result_type: None, content, structured_content, is_error: result.is_error, meta }
    }

    /// Converts to rmcp's type.
    pub(super) fn into_result(self) -> CallToolResult {
        let mut result = CallToolResult::success(self.content.into_owned().into_iter().map(block).collect());
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

/// The `_meta` of the result: how the answer was made. Facts without information are left out, such as an empty list.
fn notes(answer: &Answer) -> JsonObject {
    let mut notes = JsonObject::new();
    let mut note = |name: &str, value: Value| notes.insert(format!("toolcrib/{name}"), value);
    note("invocationId", answer.invocation.to_string().into());
    let meta = &answer.meta;
    if meta.cache != CacheStatus::Off {
        note("cache", meta.cache.as_str().into());
    }
    if !meta.usage.is_empty() {
        note("usage", json!(meta.usage));
    }
    if !meta.coercions.is_empty() {
        note("coercions", json!(meta.coercions));
    }
    if let Some(overflow) = &meta.overflow {
        note("overflow", json!(overflow));
    }
    if !meta.warnings.is_empty() {
        note("warnings", json!(meta.warnings));
    }
    if answer.replayed {
        note("replayed", true.into());
    }
    notes
}

/// Whether one of the text blocks is this data as JSON.
fn is_said(content: &[Content], data: &Value) -> bool {
    content.iter().any(|block| match block {
        Content::Text { text } => serde_json::from_str::<Value>(text).is_ok_and(|said| said == *data),
        Content::Image { .. } | Content::Audio { .. } | Content::Resource { .. } => false,
    })
}

/// Repairs resources, because MCP requires text or bytes, and not both. With both, the text is kept, since models read
/// text. With neither, the text is empty.
fn whole(blocks: Cow<'_, [Content]>) -> Cow<'_, [Content]> {
    let is_odd = |block: &Content| matches!(block, Content::Resource { resource } if resource.text.is_some() == resource.blob.is_some());
    if !blocks.iter().any(is_odd) {
        return blocks;
    }
    let mend = |block: Content| match block {
        Content::Resource { resource } if resource.text.is_some() == resource.blob.is_some() => {
            let text = Some(resource.text.unwrap_or_default());
            Content::Resource { resource: Resource { text, blob: None, ..resource } }
        }
        block => block,
    };
    blocks.into_owned().into_iter().map(mend).collect()
}

fn block(content: Content) -> ContentBlock {
    match content {
        Content::Text { text } => ContentBlock::text(text),
        Content::Image { data, mime_type } => ContentBlock::Image(ImageContent::new(data, mime_type)),
        Content::Audio { data, mime_type } => ContentBlock::Audio(AudioContent::new(data, mime_type)),
        Content::Resource { resource: Resource { uri, mime_type, text, blob } } => {
            let contents = match blob {
                Some(blob) => ResourceContents::BlobResourceContents { uri, mime_type, blob, meta: None },
                None => {
                    let text = text.unwrap_or_default();
                    ResourceContents::TextResourceContents { uri, mime_type, text, meta: None }
                }
            };
            ContentBlock::Resource(EmbeddedResource::new(contents))
        }
    }
}
