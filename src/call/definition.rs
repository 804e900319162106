//! The definition of a tool: the part that callers and models see.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantArray};
use utoipa::ToSchema;

use super::json::JsonObject;
use super::paging::Paging;

/// A tool's name: 1 to 128 characters of `A-Z a-z 0-9 _ - .`, as in MCP 2026-07-28 (Tools).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Debug, derive_more::Display)]
#[debug("{_0:?}")]
pub struct ToolName(Arc<str>);

/// The text is not a valid tool name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a tool name has 1 to 128 characters of A-Z a-z 0-9 _ - . and is not . or ..")]
pub struct NameError;

impl ToolName {
    /// Maximum length in bytes.
    pub const MAX_LEN: usize = 128;

    /// Checks and stores a name.
    ///
    /// # Errors
    /// [`NameError`] when the text is empty, too long, or has an invalid character.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let fits = !text.is_empty()
            && text.len() <= Self::MAX_LEN
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
            // In a URL these two mean a folder, and clients remove them.
            && !matches!(text, "." | "..");
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(NameError)
        }
    }

    /// Replaces a name that could not be read, until the error is reported.
    pub(crate) fn placeholder() -> Self {
        Self("invalid".into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as shared text.
    pub fn to_arc(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl std::borrow::Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for ToolName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ToolName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// How a tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// A Rust function in this process.
    Native,
    /// A child process.
    Command,
    /// A request to an HTTP API.
    Http,
    /// A function in a Python process.
    Python,
    /// A function in a process of Node.js, Deno or Bun.
    Typescript,
    /// A prepared statement.
    Sql,
    /// A model with tools of its own.
    Agent,
    /// A tool of an MCP server.
    Mcp,
}

impl Kind {
    /// Every kind.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name used in manifests and answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// An environment variable that a tool needs. Its value never leaves the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvVar {
    /// Name of the variable.
    #[schemars(extend("examples" = ["WEATHER_KEY"]))]
    pub name: String,
    /// Purpose of the variable.
    #[serde(default)]
    #[schemars(extend("examples" = ["Key for the weather API"]))]
    pub description: String,
    /// Whether the service refuses to start without it. A variable with a default is always
    /// optional.
    #[serde(default = "default_true")]
    #[schemars(extend("examples" = [false]))]
    pub required: bool,
    /// Value when the variable is not set. It is shown, so it must not be a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["celsius"]))]
    pub default: Option<String>,
}

impl EnvVar {
    /// Whether the service refuses to start without the variable: it is required and has no
    /// default.
    pub fn is_required(&self) -> bool {
        self.required && self.default.is_none()
    }
}

fn default_true() -> bool {
    true
}

/// Where a tool was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// In the manifest.
    Manifest,
    /// In the program: a built-in tool of the demo, or a tool of the program that embeds the crate.
    #[default]
    Program,
    /// By an admin, at run time.
    Registered,
}

/// An example call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The arguments of the call.
    #[schemars(extend("examples" = [serde_json::json!({"city": "Oslo"})]))]
    pub arguments: JsonObject,
    /// The result of the call. Structured content if it is an object or an array, else text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = [serde_json::json!({"temperature": 4})]))]
    pub result: Option<Value>,
}

/// The part of a tool that callers may see.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The unique name.
    pub name: ToolName,
    /// When to use the tool, for the model.
    pub description: String,
    /// JSON Schema of the arguments; its root is `"type": "object"`.
    pub input_schema: Arc<Value>,
    /// JSON Schema of `structured_content`, if the tool declares one.
    pub output_schema: Option<Arc<Value>>,
    /// MCP tool annotations (hints such as `title`, `readOnlyHint`).
    pub annotations: JsonObject,
    /// `_meta` of an MCP tool, as its server sent it, for MCP clients. It is no part of the
    /// definition hash.
    pub meta: JsonObject,
    /// Whether a result is the agent's final answer, so that the model need not be called again.
    pub result_as_answer: bool,
    /// Which side requests further pages of long results.
    pub paging: Paging,
    /// Free labels for filters.
    pub tags: Vec<String>,
    /// Other exact names of the tool.
    pub aliases: Vec<ToolName>,
    /// The environment variables that the tool declares.
    pub env: Vec<EnvVar>,
    /// The fields of the caller's `context` that the tool declares. `None`: it declares nothing, so
    /// it gets all fields if its runner takes the context.
    pub context: Option<Vec<String>>,
    /// Example calls. They are no part of the definition hash.
    pub examples: Vec<Example>,
}

impl Definition {
    /// The name, then the aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name)
            .chain(&self.aliases)
            .map(ToolName::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_are_bounded_and_plain() {
        assert!(ToolName::parse("get_weather-2.x").is_ok());
        for bad in ["", "../etc", "a b", "a\0b", "naïve", &"x".repeat(129)] {
            assert_eq!(ToolName::parse(bad), Err(NameError), "{bad:?}");
        }
    }
}
