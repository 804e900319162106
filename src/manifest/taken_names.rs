//! The names that entries of a manifest have taken. Each belongs to the first entry with it.

use std::collections::HashMap;

use super::finding::{Finding, Location};
use super::node::Key;
use super::parsed::ParsedTool;
use super::rule::Rule;

/// The names, each with the position where it first occurred.
#[derive(Default)]
pub(super) struct TakenNames {
    /// Names and aliases of tools.
    pub(super) tools: HashMap<String, Location>,
    /// Names of sources.
    pub(super) sources: HashMap<String, Location>,
}

impl TakenNames {
    /// Takes the aliases of a tool. Reports those that were taken before.
    pub(super) fn take_aliases(&mut self, parsed_tool: &ParsedTool) -> Vec<Finding> {
        let ParsedTool {
            key, path, tool, ..
        } = parsed_tool;
        let aliases = tool.iter().flat_map(|tool| &tool.definition.aliases);
        let taken = aliases.filter_map(|alias| {
            let first = self.tools.insert(alias.to_string(), key.location.clone())?;
            let message = format!("the alias `{alias}` is taken: {first}");
            let taken = Finding::error(key.location.clone(), format!("{path}.aliases"), message);
            Some(taken.with_rule(Rule::DuplicateName))
        });
        taken.collect()
    }
}

/// Takes a name for an entry.
///
/// # Errors
/// Another entry has the name.
pub(super) fn take_name(
    names: &mut HashMap<String, Location>,
    key: &Key,
    entry_path: &str,
) -> Result<(), Finding> {
    if let Some(first) = names.get(&key.text) {
        let message = format!("the name is taken: {first}");
        let taken = Finding::error(key.location.clone(), entry_path, message);
        return Err(taken.with_rule(Rule::DuplicateName));
    }
    names.insert(key.text.clone(), key.location.clone());
    Ok(())
}
