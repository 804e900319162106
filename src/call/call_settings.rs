//! The settings of `calls:` in the manifest: how `POST /calls` treats messages of models, and how
//! names match.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use super::discovery::Discovery;

/// Which other names match a tool, besides its own name and its aliases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NameMatching {
    /// No other names.
    Exact,
    /// Other spellings, such as `Get-Weather` for `get_weather`, if they match exactly one tool.
    #[default]
    Normalized,
    /// Other spellings, and the most similar name with a ratio above 0.85. Never a tool with
    /// `effect: write`.
    Similar,
}

/// How many malformed messages in a row a model may write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ParseAttempts {
    /// For all models.
    Same(u32),
    /// For the models whose names match a pattern.
    ByModel(BTreeMap<String, u32>),
}

impl ParseAttempts {
    const DEFAULT: u32 = 3;

    /// The number for this model: that of the longest matching pattern, else 3.
    pub fn for_model(&self, model: &str) -> u32 {
        match self {
            Self::Same(attempts) => *attempts,
            Self::ByModel(by_model) => {
                let matching = by_model.iter();
                let matching =
                    matching.filter(|(pattern, _)| WildMatch::new(pattern).matches(model));
                let longest = matching.max_by_key(|(pattern, _)| pattern.len());
                longest.map_or(Self::DEFAULT, |(_, attempts)| *attempts)
            }
        }
    }

    /// The smallest number.
    pub(crate) fn least(&self) -> u32 {
        match self {
            Self::Same(attempts) => *attempts,
            Self::ByModel(by_model) => by_model.values().min().copied().unwrap_or(Self::DEFAULT),
        }
    }
}

/// `calls:` of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallSettings {
    /// Tool calls of one message that run at once, at least one.
    #[schemars(extend("examples" = [5]))]
    pub parallel: usize,
    /// Which other names match a tool, besides its own name and its aliases.
    #[schemars(extend("examples" = ["similar"]))]
    pub name_matching: NameMatching,
    /// Malformed messages in a row, within a run, until the answer tells the model to stop; at
    /// least one. A map has a number for each pattern of model names.
    #[schemars(extend("examples" = [3]))]
    pub max_parse_attempts: ParseAttempts,
    /// Tool calls in a text dialect, within a run, between two reminders of the format. 0 means
    /// never.
    #[schemars(extend("examples" = [3]))]
    pub format_reminder_every: u32,
    /// `discovery:` of the manifest: which lists have only the tools that find others.
    #[serde(skip)]
    #[schemars(skip)]
    pub discovery: Option<Discovery>,
}

impl Default for CallSettings {
    /// Five calls at once, three malformed messages, a reminder every three calls.
    fn default() -> Self {
        Self {
            parallel: 5,
            name_matching: NameMatching::default(),
            max_parse_attempts: ParseAttempts::Same(ParseAttempts::DEFAULT),
            format_reminder_every: 3,
            discovery: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn longest_pattern_decides_the_attempts_of_a_model() {
        let attempts = |written, model| {
            let read: ParseAttempts = serde_json::from_value(written).unwrap();
            read.for_model(model)
        };
        let by_model = json!({"*": 4, "gpt-*": 2, "gpt-*-mini": 5});
        for (model, expected) in [("gpt-6", 2), ("gpt-6-mini", 5), ("llama", 4), ("", 4)] {
            assert_eq!(attempts(by_model.clone(), model), expected, "{model}");
        }
        assert_eq!(attempts(json!({"gpt-*": 2}), "llama"), 3);
        assert_eq!(attempts(json!(7), "llama"), 7);
    }
}
