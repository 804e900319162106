//! Chooses tool names that providers accept.
//!
//! A model calls a tool by the name that it was shown. So a changed name must still lead to the
//! same tool. It must be an alias, or another spelling that no other tool has.

use std::borrow::Cow;

use crate::call::{NameMatching, ToolName};
use crate::formats::providers::Provider;
use crate::text::names::Spellings;

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
