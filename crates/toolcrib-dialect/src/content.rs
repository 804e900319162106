//! The blocks of a result, in the form of MCP.

use serde::{Deserialize, Serialize};

/// One block of a result (MCP content block).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text for the model.
    #[cfg_attr(feature = "openapi", schema(title = "TextContent"))]
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    #[cfg_attr(feature = "openapi", schema(title = "ImageContent"))]
    Image {
        /// Base64.
        data: String,
        /// Media type, e.g. `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// Sound.
    #[cfg_attr(feature = "openapi", schema(title = "AudioContent"))]
    Audio {
        /// Base64.
        data: String,
        /// Media type, e.g. `audio/wav`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// A file that a client may read by its URI.
    #[cfg_attr(feature = "openapi", schema(title = "ResourceLinkContent"))]
    ResourceLink(#[cfg_attr(feature = "openapi", schema(inline))] ResourceLink),
    /// A document or another file.
    #[cfg_attr(feature = "openapi", schema(title = "EmbeddedResource"))]
    Resource {
        /// The file.
        resource: Resource,
    },
}

/// A link to a file (MCP `ResourceLink`). A model gets it as text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResourceLink {
    /// The URI of the file.
    pub uri: String,
    /// The name of the file.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub title: Option<String>,
    /// What the file contains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub description: Option<String>,
    /// Media type, e.g. `application/pdf`.
    #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub mime_type: Option<String>,
}

impl ResourceLink {
    /// The link for a model, which cannot follow it: the name, the media type, the description and
    /// the URI.
    pub fn to_text(&self) -> String {
        let name = self.title.as_ref().unwrap_or(&self.name);
        let kind = self.mime_type.iter().map(|kind| format!(" ({kind})"));
        let about = self.description.iter().map(|about| format!(": {about}"));
        let more: String = kind.chain(about).collect();
        format!("{name}{more}\n{}", self.uri)
    }

    /// The texts that came from another party.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let optional = self.title.iter_mut().chain(&mut self.description);
        [&mut self.uri, &mut self.name]
            .into_iter()
            .chain(optional)
            .chain(&mut self.mime_type)
    }
}

/// A file inside a result (MCP `TextResourceContents`, `BlobResourceContents`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resource {
    /// The URI of the file; its last segment is the file's name.
    pub uri: String,
    /// Media type, e.g. `application/pdf`.
    #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub mime_type: Option<String>,
    /// The content of the file, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub text: Option<String>,
    /// The content of the file as base64, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub blob: Option<String>,
}

impl Content {
    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            _ => None,
        }
    }

    /// Whether this is a text without visible characters.
    pub fn is_blank_text(&self) -> bool {
        self.as_text().is_some_and(|text| text.trim().is_empty())
    }

    /// Makes a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// The message for an error result without a message: a model could not learn anything from an
/// empty one.
pub const EMPTY_ERROR_MESSAGE: &str = "The tool failed without a message.";

/// The key in MCP's `_meta` that marks a result as the agent's final answer.
pub const RESULT_AS_ANSWER_KEY: &str = "toolcrib/resultAsAnswer";

/// A media type without its parameters, as written (RFC 9110, 8.3.1). Upper and lower case mean the same.
pub fn media_type_essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_blocks_match_mcp() {
        let resource = Resource {
            uri: "f:///r.pdf".into(),
            blob: Some("aGk=".into()),
            ..Resource::default()
        };
        let blocks = [
            Content::text("x"),
            Content::Image {
                data: "aGk=".into(),
                mime_type: "image/png".into(),
            },
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
