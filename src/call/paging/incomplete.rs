//! Describes a result whose runner left out a part of the output, and what an answer says about it.

use serde::{Deserialize, Serialize};

use super::page::Unit;

/// States that a runner left out the end of the output, because it exceeded a limit of the tool.
/// The length of the missing part is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incomplete {
    /// What the output consists of.
    pub unit: Unit,
    /// The tool's setting that was exceeded, such as `max_rows`.
    pub limit: String,
}

impl Incomplete {
    /// Output that consists of `unit`, and that exceeded this setting.
    pub fn new(unit: Unit, limit: &str) -> Self {
        Self {
            unit,
            limit: limit.to_owned(),
        }
    }

    /// The sentence that tells a program about the missing part.
    pub fn explain(&self) -> String {
        let Self { unit, limit } = self;
        format!(
            "The tool has more {unit}, which its limit `{limit}` left out: ask for less at once, or raise the limit."
        )
    }
}
