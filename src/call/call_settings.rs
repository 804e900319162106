//! The settings of `calls:` in the manifest: how `POST /calls` treats messages of models, and how
//! names match.

use serde::{Deserialize, Serialize};

/// Which other names match a tool, besides its own name and its aliases.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
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

/// `calls:` of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallSettings {
    /// Tool calls of one message that run at once, at least one.
    #[schemars(extend("examples" = [5]))]
    pub parallel: usize,
    /// Which other names match a tool, besides its own name and its aliases.
    #[schemars(extend("examples" = ["similar"]))]
    pub name_matching: NameMatching,
    /// Malformed messages in a row, within a run, until the answer tells the model to stop; at
    /// least one.
    #[schemars(extend("examples" = [3]))]
    pub max_parse_attempts: u32,
    /// Tool calls in a text dialect, within a run, between two reminders of the format. 0 means
    /// never.
    #[schemars(extend("examples" = [3]))]
    pub format_reminder_every: u32,
}

impl Default for CallSettings {
    /// Five calls at once, three malformed messages, a reminder every three calls.
    fn default() -> Self {
        Self {
            parallel: 5,
            name_matching: NameMatching::default(),
            max_parse_attempts: 3,
            format_reminder_every: 3,
        }
    }
}
