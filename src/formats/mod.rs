//! Writes tool definitions in the formats of model APIs, ready to paste into a request.
//!
//! A format follows the types of the provider's own SDK (`tests/clients/test_formats.py` compares
//! them). Schemas use basic keywords of JSON Schema 2020-12 (`schema::to_standalone`), and names
//! follow the provider's rules (`names`). Problems that no format can solve are reported by
//! `toolcrib check`, from the same table (`crate::formats::providers`).

pub(crate) mod mcp;
mod names;
pub mod providers;
mod shape;

use serde_json::Value;

pub use self::names::NameRules;
use crate::call::{Definition, Effect};
use crate::formats::providers::Provider;
use crate::tools::Tool;

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

/// The available tools in the format of an API. Their names lead back to the tools. The native
/// format has only the definition here; the code that knows the state of tools adds it.
pub fn render<'a>(
    format: Format,
    offers: impl IntoIterator<Item = ListedTool<'a>>,
    names: NameRules<'_>,
) -> Value {
    let usable = offers.into_iter().filter(|offer| offer.available);
    let shown = usable.map(|offer| {
        let Definition { name, aliases, .. } = offer.definition;
        let name = match format.provider() {
            Some(provider) => names.name_for(provider, name, aliases),
            None => name.as_str().into(),
        };
        shape::render_tool(format, &name, &offer)
    });
    shape::render_list(format, shown.collect())
}

#[cfg(test)]
mod tests;
