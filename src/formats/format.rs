//! The formats in which definitions are written.

use super::providers::Provider;
use crate::call::{Definition, Effect};
use crate::kinds::Tool;

/// A format of `GET /tools?format=` and `toolcrib tools --format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, utoipa::ToSchema)]
#[schema(rename_all = "kebab-case")]
pub enum Format {
    /// Toolcrib's own: definition, policy and state.
    #[default]
    Native,
    /// OpenAI Chat Completions `tools`.
    Openai,
    /// OpenAI Responses `tools`.
    OpenaiResponses,
    /// Anthropic Messages `tools`.
    Anthropic,
    /// Gemini `generateContent` `tools`.
    Gemini,
    /// Bedrock Converse `toolConfig`.
    Bedrock,
    /// MCP's answer to `tools/list`.
    Mcp,
}

impl Format {
    /// Every format with its name.
    pub const ALL: [(&str, Self); 7] = [
        ("native", Self::Native),
        ("openai", Self::Openai),
        ("openai-responses", Self::OpenaiResponses),
        ("anthropic", Self::Anthropic),
        ("gemini", Self::Gemini),
        ("bedrock", Self::Bedrock),
        ("mcp", Self::Mcp),
    ];

    /// The name of the format.
    pub fn as_str(self) -> &'static str {
        let named = Self::ALL.into_iter().find(|(_, format)| *format == self);
        named.map_or("native", |(name, _)| name)
    }

    /// The format with that name.
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(name, _)| *name == word)
            .map(|(_, format)| format)
    }

    /// The provider whose rules apply to definitions in this format. MCP has the same rules for
    /// tool names as Toolcrib.
    pub fn provider(self) -> Option<Provider> {
        match self {
            Self::Native | Self::Mcp => None,
            Self::Openai | Self::OpenaiResponses => Some(Provider::OpenAi),
            Self::Anthropic => Some(Provider::Anthropic),
            Self::Gemini => Some(Provider::Gemini),
            Self::Bedrock => Some(Provider::Bedrock),
        }
    }
}

/// The parts of a tool that formats show.
#[derive(Debug, Clone, Copy)]
pub struct ListedTool<'a> {
    /// Name, description and schemas.
    pub definition: &'a Definition,
    /// What a call may change.
    pub effect: Effect,
    /// Whether the tool can be called. A disabled tool, or a tool of an unavailable source, is not
    /// shown to a model.
    pub available: bool,
}

impl<'a> From<&'a Tool> for ListedTool<'a> {
    fn from(tool: &'a Tool) -> Self {
        Self {
            definition: &tool.definition,
            effect: tool.policy.effect,
            available: tool.is_available(),
        }
    }
}
