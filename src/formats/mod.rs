//! Tool definitions in the shapes that model APIs take, ready to paste into a request.
//!
//! A shape is met as its provider's own SDK types have it (`tests/clients/test_formats.py` holds each against them).
//! Schemas go out in plain words of JSON Schema 2020-12 (`schema::standalone`), names as the provider takes them
//! (`names`). What no shape can put right, `toolcrib check` reports by the same table (`crate::providers`).

mod mcp;
mod names;
mod shape;

use serde_json::Value;

pub use self::names::Names;
use crate::call::{Definition, Effect};
use crate::providers::Provider;
use crate::tools::Tool;

/// A shape that `GET /tools?format=` and `toolcrib tools --format` can give.
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
    /// Every format with the word for it.
    pub const ALL: [(&str, Self); 7] = [
        ("native", Self::Native),
        ("openai", Self::Openai),
        ("openai-responses", Self::OpenaiResponses),
        ("anthropic", Self::Anthropic),
        ("gemini", Self::Gemini),
        ("bedrock", Self::Bedrock),
        ("mcp", Self::Mcp),
    ];

    /// The format of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(name, _)| *name == word).map(|(_, format)| format)
    }

    /// Whose rules a definition in this shape has to meet; MCP's are those of a tool's name here.
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

/// A tool as far as formats show it.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// What it says of itself.
    pub definition: &'a Definition,
    /// What a call may change.
    pub effect: Effect,
    /// Whether it can be called; one that is off, or whose source is down, is not shown to a model.
    pub available: bool,
}

impl<'a> From<&'a Tool> for Offer<'a> {
    fn from(tool: &'a Tool) -> Self {
        Self { definition: &tool.definition, effect: tool.policy.effect, available: tool.is_available() }
    }
}

/// The tools that can be called, as that API takes them, under names that lead back to them. The native shape also shows state,
/// so it is made where that is known; here it is the definition alone.
pub fn render<'a>(format: Format, offers: impl IntoIterator<Item = Offer<'a>>, names: Names<'_>) -> Value {
    let usable = offers.into_iter().filter(|offer| offer.available);
    let shown = usable.map(|offer| {
        let Definition { name, aliases, .. } = offer.definition;
        let name = match format.provider() {
            Some(provider) => names.shown(provider, name, aliases),
            None => name.as_str().into(),
        };
        shape::tool(format, &name, &offer)
    });
    shape::list(format, shown.collect())
}

#[cfg(test)]
mod tests;
