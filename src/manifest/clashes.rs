//! Finds names that tools of two servers could share, as far as this is known before any server starts. Also finds
//! names that a server's pinned tool shares with another tool.

use std::collections::HashMap;

use super::decode::join;
use super::finding::{Finding, Place};
use super::load::SERVERS;
use super::rule::Rule;
use super::{DeclaredSource, Manifest};
use crate::call::Kind;

/// Reports conflicts of servers' names. `servers` contains the positions of their keys, `tools` the positions of all
/// tool names in the manifest.
pub(super) fn look(
    manifest: &Manifest,
    servers: &HashMap<String, Place>,
    tools: &HashMap<String, Place>,
    findings: &mut Vec<Finding>,
) {
    let declared: Vec<(&DeclaredSource, &Place)> = manifest
        .sources
        .iter()
        .filter(|source| source.settings.kind() == Kind::Mcp)
        .filter_map(|source| Some((source, servers.get(source.name())?)))
        .collect();
    for (at, (server, place)) in declared.iter().enumerate() {
        let under = join(SERVERS, &[server.name().to_owned()]);
        let prefix = &server.rules.prefix;
        let overlaps = |(other, _): &&(&DeclaredSource, &Place)| {
            let other = &other.rules.prefix;
            prefix.starts_with(other.as_str()) || other.starts_with(prefix.as_str())
        };
        if let Some((other, first)) = declared.iter().take(at).find(overlaps) {
            let (longer, of) =
                std::cmp::max_by_key((prefix, server.name()), (&other.rules.prefix, other.name()), |(prefix, _)| {
                    prefix.len()
                });
            let message = format!(
                "the name runs together with that of server `{}` ({}): a tool named `{longer}…` is always one of `{of}`, and \
                 the other's tools that would be named so are left out unless `tools` names them",
                other.name(),
                at_place(first)
            );
            findings.push(Finding::warning((*place).clone(), &under, message).rule(Rule::DuplicateName));
        }
        let rules = &server.rules;
        for own in rules.asked.iter().filter(|own| !rules.tools.contains_key(*own)) {
            let name = format!("{prefix}{own}");
            if let Some(taken) = tools.get(&name) {
                let message = format!(
                    "its tool `{own}` is pinned, and `{name}` is another tool's name: {}; it is left out until the server has \
                     another name, or `exclude` names the tool",
                    at_place(taken)
                );
                findings.push(Finding::warning((*place).clone(), &under, message).rule(Rule::DuplicateName));
            }
        }
    }
}

fn at_place(place: &Place) -> String {
    format!("{}:{}:{}", place.file.display(), place.line, place.column)
}
