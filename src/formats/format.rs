//! The formats in which definitions are written.

use std::borrow::Cow;

use super::providers::Provider;
use crate::call::{Definition, Effect, NameMatching, ToolName};
use crate::kinds::Tool;
use crate::text::names::Spellings;

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
    /// Whether the provider keeps it out of the context until it is found. Only Anthropic does.
    pub deferred: bool,
}

impl<'a> From<&'a Tool> for ListedTool<'a> {
    fn from(tool: &'a Tool) -> Self {
        Self {
            definition: &tool.definition,
            effect: tool.policy.effect,
            available: tool.is_available(),
            deferred: false,
        }
    }
}

/// The names of all tools, including those that are not shown, and the setting for other spellings.
#[derive(Clone, Copy)]
pub struct NameRules<'a> {
    /// Names and aliases.
    pub spellings: &'a Spellings,
    /// `calls.name_matching`.
    pub matching: NameMatching,
}

impl NameRules<'_> {
    /// The tool name sent to a provider:
    ///
    /// - its own name if valid;
    /// - else with invalid characters replaced by `_`, if unambiguous;
    /// - else the first valid alias;
    /// - else its own name, so that the provider reports the problem.
    ///
    /// A tool that is left out would be missed without notice. For an invalid name,
    /// `toolcrib check` has already given a warning.
    pub fn name_for<'n>(
        &self,
        provider: Provider,
        tool: &'n ToolName,
        aliases: &'n [ToolName],
    ) -> Cow<'n, str> {
        let is_valid = |name: &str| provider.accepts_name(name);
        let name = tool.as_str();
        if is_valid(name) {
            return name.into();
        }
        if self.is_unambiguous(tool)
            && let Some(plain) = [name.replace('.', "_"), name.replace(['.', '-'], "_")]
                .into_iter()
                .find(|n| is_valid(n))
        {
            return plain.into();
        }
        aliases
            .iter()
            .map(ToolName::as_str)
            .find(|alias| is_valid(alias))
            .unwrap_or(name)
            .into()
    }

    /// Whether the other spellings of a tool's name mean this tool only.
    pub fn is_unambiguous(&self, tool: &ToolName) -> bool {
        self.matching != NameMatching::Exact
            && self.spellings.matching_tools(tool.as_str(), |_| true) == [tool]
    }
}
