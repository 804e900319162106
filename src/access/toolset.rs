//! Toolsets: named parts of the tools.

use super::tool_pattern::{ToolPattern, any_denies, any_grants};

/// One toolset of the manifest. It has the tools that a pattern or a tag selects, except excluded
/// ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Toolset {
    tools: Vec<ToolPattern>,
    tags: Vec<String>,
    exclude: Vec<ToolPattern>,
}

impl Toolset {
    /// A toolset of these patterns and tags, without the excluded tools.
    pub fn new(tools: &[String], tags: Vec<String>, exclude: &[String]) -> Self {
        Self {
            tools: ToolPattern::parse_list(tools),
            tags,
            exclude: ToolPattern::parse_list(exclude),
        }
    }

    /// Whether it has the tool with these names and tags. `exists` returns whether a tool has
    /// exactly a given name.
    pub(super) fn has(
        &self,
        names: &[&str],
        tags: &[String],
        exists: impl Fn(&str) -> bool,
    ) -> bool {
        let names = || names.iter().copied();
        let is_tagged = || tags.iter().any(|tag| self.tags.contains(tag));
        (any_grants(&self.tools, names(), &exists) || is_tagged())
            && !any_denies(&self.exclude, names(), &exists)
    }
}
