//! The result of a tool, in the form of MCP.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolcrib_dialect::Content;

use super::definition::ToolName;
use super::invocation_id::InvocationId;
use super::meta::Meta;
use super::paging::Incomplete;
use super::paging::{RestHint, Unit};

/// The result of a tool, also if it is an error result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The blocks for the model.
    pub content: Vec<Content>,
    /// The same data as JSON, if the tool returned an object or an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Whether this is an error result: the tool ran and reports a failure of its own.
    #[serde(default)]
    pub is_error: bool,
    /// Whether this result is the agent's final answer; `None`: as the tool's definition says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_as_answer: Option<bool>,
    /// Whether the cache must not store this result, whatever the tool's policy.
    #[serde(skip)]
    pub not_cached: bool,
    /// How to get less, for a model that sees only a part of this result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Set if the runner left out a part of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Incomplete>,
    /// What was changed or left out, in the words of `meta.warnings`. An answer from the cache has
    /// them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl ToolResult {
    /// A result with one text block.
    pub fn text(text: impl Into<String>) -> Self {
        Content::text(text).into()
    }

    /// An error result, with a message on which the model can act.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            is_error: true,
            ..Self::text(text)
        }
    }

    /// A result from JSON. Objects and arrays become structured content, with their JSON as the
    /// text block. A string becomes its own text, and `null` an empty result.
    pub fn json(value: Value) -> Self {
        match value {
            Value::Null => Self::default(),
            Value::String(text) => Self::text(text),
            Value::Bool(_) | Value::Number(_) => Self::text(value.to_string()),
            Value::Array(_) | Value::Object(_) => Self {
                structured_content: Some(value.clone()),
                ..Self::text(value.to_string())
            },
        }
    }

    /// The same result, marked as the agent's final answer whatever the tool's default is.
    #[must_use]
    pub fn as_answer(self) -> Self {
        Self {
            result_as_answer: Some(true),
            ..self
        }
    }

    /// The same result, which the cache does not store.
    #[must_use]
    pub fn without_caching(self) -> Self {
        Self {
            not_cached: true,
            ..self
        }
    }

    /// The same result with a hint for the model, shown only if the result is cut. The hint tells
    /// in one sentence how to get less, such as "Narrow with a path filter."
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// The flags of the result, without its content and its hint.
    pub(super) fn without_content(&self) -> Self {
        let Self {
            is_error,
            result_as_answer,
            not_cached,
            ..
        } = *self;
        Self {
            is_error,
            result_as_answer,
            not_cached,
            incomplete: self.incomplete.clone(),
            warnings: self.warnings.clone(),
            ..Self::default()
        }
    }

    /// Whether this is the agent's final answer, for a tool with this default. An error result
    /// never is.
    pub fn is_answer(&self, default: bool) -> bool {
        self.result_as_answer.unwrap_or(default) && !self.is_error
    }

    /// The text blocks, joined by line breaks.
    pub fn as_text(&self) -> String {
        let texts = self.content.iter().filter_map(Content::as_text);
        let texts: Vec<&str> = texts.collect();
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

impl From<Content> for ToolResult {
    fn from(block: Content) -> Self {
        Self {
            content: vec![block],
            ..Self::default()
        }
    }
}

impl From<Value> for ToolResult {
    fn from(value: Value) -> Self {
        Self::json(value)
    }
}

/// The output of a tool's stack: the result, shared with the cache, and the report of the layers.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The id of the call. For a replay, the id of the earlier call.
    pub invocation: InvocationId,
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// The tool's result.
    pub result: Arc<ToolResult>,
    /// How the answer came about.
    pub meta: Meta,
    /// Whether this repeats the answer of an earlier call with the same idempotency key.
    pub replayed: bool,
    /// Whether the call waits for a person. The result then only says so, and the tool has not run.
    pub waiting: bool,
}

impl Answer {
    /// The blocks that a model sees of a cut result: the shown part, and how to get the rest.
    /// `reader` gives the tool that reads recorded results, if there is one. `None`: the result is
    /// whole.
    pub fn model_content(&self, reader: impl FnOnce() -> Option<ToolName>) -> Option<Vec<Content>> {
        let overflow = self.meta.overflow.as_ref()?;
        let rest = match &overflow.for_model {
            RestHint::LastPage if overflow.total.is_some() => String::new(),
            RestHint::Text(note) => format!(" {note}"),
            RestHint::Narrow | RestHint::LastPage => format!(" {NARROW_ADVICE}"),
            RestHint::Reference(shape) => match reader() {
                Some(reader) => format!(
                    " The result is {shape}. It is kept: call {reader} with {{\"invocation_id\": \"{}\"}} and, as you need, \
                     \"path\", \"where\" (e.g. total > 10), \"select\" (names of fields), \"offset\" and \"limit\".",
                    self.invocation
                ),
                None => format!(" The result is {shape}. {NARROW_ADVICE}"),
            },
            RestHint::Recorded { offset, hint } => {
                let narrow = hint.as_deref().unwrap_or(NARROW_ADVICE);
                match reader() {
                    Some(reader) => format!(
                        " {narrow} To read on call {reader} with {{\"invocation_id\": \"{}\", \"offset\": {offset}}}.",
                        self.invocation
                    ),
                    None => format!(" {narrow}"),
                }
            }
        };
        let note = overflow.model_note(&rest);
        let ToolResult {
            content,
            structured_content,
            ..
        } = &*self.result;
        // If there are text blocks, they show the data as well. Otherwise the data would be missing
        // for the model. The note says it all if nothing is left of a text.
        let has_text = content.iter().any(|block| block.as_text().is_some())
            || (overflow.shown, overflow.unit) == (0, Unit::Characters);
        let data = structured_content
            .as_ref()
            .filter(|_| !has_text)
            .map(|data| Content::text(data.to_string()));
        Some(
            content
                .iter()
                .cloned()
                .chain(data)
                .chain([Content::text(note)])
                .collect(),
        )
    }
}

/// The advice if there is no better one.
const NARROW_ADVICE: &str = "If the rest matters, narrow the call.";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use toolcrib_dialect::{Resource, ResourceLink};

    use super::*;

    fn content() -> impl Strategy<Value = Content> {
        let resource = (
            "\\PC{0,8}",
            any::<Option<String>>(),
            any::<Option<String>>(),
            any::<Option<String>>(),
        );
        let resource = resource.prop_map(|(uri, mime_type, text, blob)| Resource {
            uri,
            mime_type,
            text,
            blob,
        });
        prop_oneof![
            any::<String>().prop_map(Content::text),
            any::<(String, String)>()
                .prop_map(|(data, mime_type)| Content::Image { data, mime_type }),
            any::<(String, String)>()
                .prop_map(|(data, mime_type)| Content::Audio { data, mime_type }),
            resource.prop_map(|resource| Content::Resource { resource }),
            any::<(String, String)>().prop_map(|(uri, name)| Content::ResourceLink(ResourceLink {
                uri,
                name,
                ..ResourceLink::default()
            })),
        ]
    }

    fn result() -> impl Strategy<Value = ToolResult> {
        let data = prop::option::of(
            any::<(String, i64)>().prop_map(|(text, number)| json!({"n": [number, text]})),
        );
        (
            prop::collection::vec(content(), 0..4),
            data,
            any::<(bool, Option<bool>, Option<String>)>(),
        )
            .prop_map(
                |(content, structured_content, (is_error, result_as_answer, hint))| ToolResult {
                    content,
                    structured_content,
                    is_error,
                    result_as_answer,
                    not_cached: false,
                    hint,
                    incomplete: None,
                    warnings: Vec::new(),
                },
            )
    }

    proptest! {
        #[test]
        fn result_survives_a_json_round_trip(result in result()) {
            let text = serde_json::to_string(&result).unwrap();
            prop_assert_eq!(serde_json::from_str::<ToolResult>(&text).unwrap(), result.clone());
            prop_assert_eq!(serde_json::from_value::<ToolResult>(json!(result)).unwrap(), result);
        }
    }
}
