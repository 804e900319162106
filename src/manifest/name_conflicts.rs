//! The names that entries have taken: each belongs to the first entry with it.
//!
//! Also finds names that tools of two servers could share, as far as this is known before any server
//! starts. Also finds names that a server's pinned tool shares with another tool.

use std::collections::HashMap;

use super::decode::Findings;
use super::finding::{Finding, Location, join_path};
use super::node::Key;
use super::parsed::{MCP_SERVERS, ParsedTool};
use super::rule::Rule;
use super::{DeclaredSource, Manifest};
use crate::call::Kind;

/// Reports conflicts of servers' names. `names` are all names in the manifest.
pub(super) fn report_conflicts(manifest: &Manifest, names: &TakenNames, findings: &Findings) {
    let declared: Vec<(&DeclaredSource, &Location)> = manifest
        .sources
        .iter()
        .filter(|source| source.settings.kind() == Kind::Mcp)
        .filter_map(|source| Some((source, names.sources.get(source.name())?)))
        .collect();
    for (at, (server, location)) in declared.iter().enumerate() {
        let entry_path = join_path(MCP_SERVERS, &[server.name()]);
        let prefix = &server.rules.prefix;
        let overlaps = |(other, _): &&(&DeclaredSource, &Location)| {
            let other = &other.rules.prefix;
            prefix.starts_with(other.as_str()) || other.starts_with(prefix.as_str())
        };
        if let Some((other, first)) = declared.iter().take(at).find(overlaps) {
            let (longer, of) = std::cmp::max_by_key(
                (prefix, server.name()),
                (&other.rules.prefix, other.name()),
                |(prefix, _)| prefix.len(),
            );
            let message = format!(
                "tool names of this server may overlap with those of server `{}` ({}): the name `{longer}…` always \
                 belongs to `{of}`, and the other server's tools with such a name are left out unless `tools` names \
                 them",
                other.name(),
                first
            );
            findings.push(
                Finding::warning((*location).clone(), &entry_path, message)
                    .with_rule(Rule::DuplicateName),
            );
        }
        let rules = &server.rules;
        for own in rules
            .expected_tools
            .iter()
            .filter(|own| !rules.tools.contains_key(*own))
        {
            let name = format!("{prefix}{own}");
            if let Some(taken) = names.tools.get(&name) {
                let message = format!(
                    "its tool `{own}` is pinned, and `{name}` is another tool's name: {taken}; it is left out until the server has \
                     another name, or `exclude` names the tool"
                );
                findings.push(
                    Finding::warning((*location).clone(), &entry_path, message)
                        .with_rule(Rule::DuplicateName),
                );
            }
        }
    }
}

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
