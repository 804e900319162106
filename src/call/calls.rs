//! How `POST /calls` treats what a model said, and how names are matched: `calls:` of the manifest.

use serde::{Deserialize, Serialize};

/// Which names a tool answers to besides its own and its aliases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameMatching {
    /// None.
    Exact,
    /// Other spellings of them, if only one tool can be meant.
    #[default]
    Normalized,
    /// These, and the name most like it, with a ratio above 0.85 (the first seed's rule). Never a tool with `effect: write`.
    Similar,
}

/// `calls:` of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallSettings {
    /// Tool calls of one message that run at once; at least one.
    pub parallel: usize,
    /// Which names are understood.
    pub name_matching: NameMatching,
    /// Answers in a row, within a run, that cannot be read before the model is told to stop trying; at least one.
    pub max_parse_attempts: u32,
    /// Uses of tools in a text dialect, within a run, between two reminders of its format; 0 is never.
    pub format_reminder_every: u32,
}

impl Default for CallSettings {
    /// The first seed's numbers.
    fn default() -> Self {
        Self { parallel: 5, name_matching: NameMatching::default(), max_parse_attempts: 3, format_reminder_every: 3 }
    }
}
