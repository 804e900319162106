//! A tool as formats see it.

use crate::call::{Definition, Effect};
use crate::kinds::Tool;

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
