//! What a tool said, in MCP's shapes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::ToolName;
use super::invocation::InvocationId;
use super::notes::Meta;
use super::page::{Overflow, Rest, Unit};

/// One block of a result (MCP content block).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text for the model.
    #[schema(title = "TextContent")]
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    #[schema(title = "ImageContent")]
    Image {
        /// Base64.
        data: String,
        /// Media type, e.g. `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// Sound.
    #[schema(title = "AudioContent")]
    Audio {
        /// Base64.
        data: String,
        /// Media type, e.g. `audio/wav`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// A document or another file.
    #[schema(title = "EmbeddedResource")]
    Resource {
        /// The file.
        resource: Resource,
    },
}

/// A file inside a result (MCP `TextResourceContents`, `BlobResourceContents`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Resource {
    /// Where it is from; its last segment is its name.
    pub uri: String,
    /// Media type, e.g. `application/pdf`.
    #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub mime_type: Option<String>,
    /// What it holds, if that is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub text: Option<String>,
    /// What it holds, as base64, if that is bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub blob: Option<String>,
}

impl Content {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// Words for an error that a tool gives none: without words a model learns nothing from it.
pub const FAILED_SILENTLY: &str = "The tool failed without a message.";

/// The key in MCP's `_meta` under which a result says whether it is the agent's final answer.
pub const RESULT_AS_ANSWER: &str = "toolcrib/resultAsAnswer";

/// What the tool said, whether it said yes or no.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Blocks for the model.
    pub content: Vec<Content>,
    /// The same as data, when the tool gave an object or an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// The tool ran and says no.
    #[serde(default)]
    pub is_error: bool,
    /// Whether this result is the agent's final answer; without it, as the tool's definition has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_as_answer: Option<bool>,
    /// The cache does not keep it, whatever the tool's policy.
    #[serde(skip)]
    pub not_cached: bool,
    /// How to ask for less, for a model that is shown a part of this result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ToolResult {
    /// A result of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], ..Self::default() }
    }

    /// The tool says no, in words that the model can act on.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// A result from JSON: objects and arrays become structured content with their JSON as the text block;
    /// a string is its own text; `null` is nothing.
    pub fn json(value: Value) -> Self {
        match value {
            Value::Null => Self::default(),
            Value::String(text) => Self::text(text),
            Value::Bool(_) | Value::Number(_) => Self::text(value.to_string()),
            Value::Array(_) | Value::Object(_) => {
                Self { structured_content: Some(value.clone()), ..Self::text(value.to_string()) }
            }
        }
    }

    /// The same result as the agent's final answer, whatever the tool's default is.
    #[must_use]
    pub fn as_answer(self) -> Self {
        Self { result_as_answer: Some(true), ..self }
    }

    /// The same result, which the cache does not keep.
    #[must_use]
    pub fn without_caching(self) -> Self {
        Self { not_cached: true, ..self }
    }

    /// The same result with a hint for the model, shown only if the result is cut: how to ask for less, in one sentence such as
    /// "Narrow with a path filter."
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// What it says beside its content and its hint.
    pub(super) fn without_content(&self) -> Self {
        let Self { is_error, result_as_answer, not_cached, .. } = *self;
        Self { is_error, result_as_answer, not_cached, ..Self::default() }
    }

    /// Whether this is the agent's final answer, for a tool with this default. A result that says no never is.
    pub fn is_answer(&self, default: bool) -> bool {
        self.result_as_answer.unwrap_or(default) && !self.is_error
    }

    /// The text blocks, joined by line ends.
    pub fn as_text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|block| match block {
                Content::Text { text } => Some(text.as_str()),
                Content::Image { .. } | Content::Audio { .. } | Content::Resource { .. } => None,
            })
            .collect();
        texts.join("\n")
    }
}

impl From<String> for ToolResult {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolResult {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<Value> for ToolResult {
    fn from(value: Value) -> Self {
        Self::json(value)
    }
}

/// What comes out of a tool's stack: the result, shared with the cache, and what the layers noted on the way.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The call; the earlier one, when it was asked for again by its idempotency key.
    pub invocation: InvocationId,
    /// The model's id for it.
    pub tool_use_id: Option<Arc<str>>,
    /// What the tool said.
    pub result: Arc<ToolResult>,
    /// How it came about.
    pub meta: Meta,
    /// Answered before: this says the same again.
    pub replayed: bool,
}

impl Answer {
    /// What a model is shown of a result that was cut: its part, and how to come by the rest. `reader`: the tool by which it may
    /// read on in stored results, if there is one. `None`: the result is whole.
    pub fn with_overflow(&self, reader: impl FnOnce() -> Option<ToolName>) -> Option<Vec<Content>> {
        let overflow = self.meta.overflow.as_ref()?;
        let Overflow { shown, total, unit, for_model, .. } = overflow;
        let unit = match unit {
            Unit::Items => "items",
            Unit::Characters => "characters",
        };
        let rest = match for_model {
            Rest::End => String::new(),
            Rest::Said(words) => format!(" {words}"),
            Rest::Narrow => format!(" {NARROW}"),
            Rest::Stored { offset, hint } => {
                let narrow = hint.as_deref().unwrap_or(NARROW);
                match reader() {
                    Some(reader) => format!(
                        " {narrow} To read on call {reader} with {{\"invocation_id\": \"{}\", \"offset\": {offset}}}.",
                        self.invocation
                    ),
                    None => format!(" {narrow}"),
                }
            }
        };
        let words = match for_model {
            Rest::End if *shown == 0 => format!("[Behind the end: there are {total} {unit}.]"),
            Rest::End => format!("[This is the last page: {shown} of {total} {unit}.]"),
            _ => format!("[Only {shown} of {total} {unit} are shown.{rest}]"),
        };
        let ToolResult { content, structured_content, .. } = &*self.result;
        // Beside words, data that no words say would be left out.
        let is_said = content.iter().any(|block| matches!(block, Content::Text { .. }));
        let data = structured_content.as_ref().filter(|_| !is_said).map(|data| Content::text(data.to_string()));
        Some(content.iter().cloned().chain(data).chain([Content::text(words)]).collect())
    }
}

/// What is said where there is no better advice.
const NARROW: &str = "If the rest matters, narrow the call.";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn content() -> impl Strategy<Value = Content> {
        let resource = ("\\PC{0,8}", any::<Option<String>>(), any::<Option<String>>(), any::<Option<String>>());
        let resource = resource.prop_map(|(uri, mime_type, text, blob)| Resource { uri, mime_type, text, blob });
        prop_oneof![
            any::<String>().prop_map(Content::text),
            any::<(String, String)>().prop_map(|(data, mime_type)| Content::Image { data, mime_type }),
            any::<(String, String)>().prop_map(|(data, mime_type)| Content::Audio { data, mime_type }),
            resource.prop_map(|resource| Content::Resource { resource }),
        ]
    }

    fn result() -> impl Strategy<Value = ToolResult> {
        let data = prop::option::of(any::<(String, i64)>().prop_map(|(text, number)| json!({"n": [number, text]})));
        (prop::collection::vec(content(), 0..4), data, any::<(bool, Option<bool>, Option<String>)>()).prop_map(
            |(content, structured_content, (is_error, result_as_answer, hint))| ToolResult {
                content,
                structured_content,
                is_error,
                result_as_answer,
                not_cached: false,
                hint,
            },
        )
    }

    proptest! {
        #[test]
        fn a_result_is_the_same_after_it_was_written_and_read(result in result()) {
            let text = serde_json::to_string(&result).unwrap();
            prop_assert_eq!(serde_json::from_str::<ToolResult>(&text).unwrap(), result.clone());
            prop_assert_eq!(serde_json::from_value::<ToolResult>(json!(result)).unwrap(), result);
        }
    }

    #[test]
    fn blocks_are_those_of_mcp() {
        let resource = Resource { uri: "f:///r.pdf".into(), blob: Some("aGk=".into()), ..Resource::default() };
        let blocks = [
            Content::text("x"),
            Content::Image { data: "aGk=".into(), mime_type: "image/png".into() },
            Content::Resource { resource },
        ];
        assert_eq!(
            json!(blocks),
            json!([
                {"type": "text", "text": "x"},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                {"type": "resource", "resource": {"uri": "f:///r.pdf", "blob": "aGk="}}
            ])
        );
    }
}
