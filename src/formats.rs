//! Tool definitions in the shapes that model APIs take.

use serde_json::{Value, json};

use crate::call::Definition;

/// A shape that `GET /tools?format=` and `toolcrib tools --format` can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, utoipa::ToSchema)]
#[schema(rename_all = "kebab-case")]
pub enum Format {
    /// Toolcrib's own: definition, policy and state.
    #[default]
    Native,
    /// OpenAI Chat Completions `tools`.
    Openai,
    /// Anthropic Messages `tools`.
    Anthropic,
}

impl Format {
    /// Every format with the word for it.
    pub const ALL: [(&str, Self); 3] =
        [("native", Self::Native), ("openai", Self::Openai), ("anthropic", Self::Anthropic)];

    /// The format of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(name, _)| *name == word).map(|(_, format)| format)
    }
}

/// The definitions as that API takes them. The native shape also shows state, so it is made where that is known; here
/// it is the definition alone.
pub fn render<'a>(format: Format, definitions: impl Iterator<Item = &'a Definition>) -> Value {
    let one = |definition: &Definition| {
        let Definition { name, description, input_schema, .. } = definition;
        match format {
            Format::Openai => json!({
                "type": "function",
                "function": {"name": name, "description": description, "parameters": input_schema},
            }),
            Format::Anthropic | Format::Native => {
                json!({"name": name, "description": description, "input_schema": input_schema})
            }
        }
    };
    definitions.map(one).collect()
}
