//! Lint: agents and their coworkers. Unknown names in their lists are found together with those of
//! all lists of tools.

use super::Lints;
use crate::access::tool_pattern::{ToolPattern, any_grants};
use crate::call::Kind;
use crate::manifest::node::Node;
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;
use crate::manifest::tool_lists::builtin_name;

/// Checks all agents, and the tools that hand work to them.
pub(super) fn check_agents(tools: &[ParsedTool], lints: &mut Lints) {
    for parsed in tools {
        let name = &parsed.key.text;
        let Some(tool) = &parsed.tool else { continue };
        if tool.kind == Kind::Agent {
            check_coworkers(&parsed.entry, &format!("tools.{name}"), tools, lints);
        }
        if tool.kind == Kind::Native
            && let Some(with) = parsed.entry.get("with")
            && ["delegate_work", "ask_question"].contains(&builtin_name(parsed).as_str())
        {
            check_coworkers(with, &format!("tools.{name}.with"), tools, lints);
        }
    }
}

fn check_coworkers(entry: &Node, entry_path: &str, tools: &[ParsedTool], lints: &mut Lints) {
    let items = entry.get("coworkers").map(Node::items).unwrap_or_default();
    for (at, node) in items.iter().enumerate() {
        let Some(name) = node.as_str().filter(|name| !name.contains("${")) else {
            continue;
        };
        let path = format!("{entry_path}.coworkers.{at}");
        let kind = |tool: &ParsedTool| tool.tool.as_ref().map(|tool| tool.kind);
        let pattern = [ToolPattern::new(name)];
        let means = |tool: &&ParsedTool| any_grants(&pattern, tool.names(), |_| false);
        match tools.iter().find(means) {
            Some(tool) if kind(tool).is_none_or(|kind| kind == Kind::Agent) => {
                check_task_parameter(tool, node, &path, lints);
            }
            Some(_) => {
                let message =
                    format!("`{name}` is not an agent: only tools of kind agent can be coworkers");
                lints.warn(Rule::UnknownCoworker, &node.location, path, message);
            }
            // The lists of tools report this.
            None => {}
        }
    }
}

/// Checks that a coworker has a parameter `task`, which receives the work.
fn check_task_parameter(tool: &ParsedTool, node: &Node, path: &str, lints: &mut Lints) {
    let Some(tool) = &tool.tool else { return };
    let properties = tool.definition.input_schema.get("properties");
    if properties.is_none_or(|properties| properties.get("task").is_none()) {
        let name = tool.name();
        let message =
            format!("`{name}` has no parameter `task`, which receives work and questions; add it");
        lints.warn(
            Rule::UnknownCoworker,
            &node.location,
            path.to_owned(),
            message,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::finding_lines;

    const MODEL: &str = "model: {base_url: 'http://127.0.0.1:1/v1', name: m}";
    const DESCRIPTION: &str = "description: Answers questions about rows that customers own.";

    fn agent_findings(keys: &str) -> Vec<String> {
        let mut found = finding_lines(
            &format!(
                "tools:\n  calculator: {{kind: native}}\n  poet: {{kind: agent, {DESCRIPTION}, {MODEL}}}\n  raw: {{kind: \
                 agent, {DESCRIPTION}, {MODEL}, parameters: {{n: {{type: integer, description: How many rows it is}}}}}}\n  \
                 boss: {{kind: agent, {DESCRIPTION}, {MODEL}, {keys}}}\n"
            ),
            &[],
        );
        found.retain(|line| !line.starts_with("hint"));
        found
    }

    #[test]
    fn unknown_tools_and_coworkers_are_reported() {
        assert_eq!(
            agent_findings("tools: [calculator, 'calc*', boss, '*'], coworkers: [poet, boss]"),
            [""; 0]
        );
        assert_eq!(
            agent_findings("tools: [calculatr, 'x_*']"),
            [
                "warning idle-pattern tools.boss.tools.0 5",
                "warning idle-pattern tools.boss.tools.1 5"
            ]
        );
        let unknown = |at: usize| format!("warning unknown-coworker tools.boss.coworkers.{at} 5");
        assert_eq!(
            agent_findings("coworkers: [poett, calculator, raw]"),
            [
                "error unknown-coworker tools.boss.coworkers.0 5".to_owned(),
                unknown(1),
                unknown(2)
            ]
        );
    }

    #[test]
    fn delegating_tools_are_checked_too() {
        let text =
            "tools:\n  ask: {kind: native, use: ask_question, with: {coworkers: [nobody]}}\n";
        assert_eq!(
            finding_lines(text, &[]),
            ["error unknown-coworker tools.ask.with.coworkers.0 2"]
        );
    }

    #[test]
    fn agent_cache_needs_a_context_list() {
        let cached = |cache: &str| {
            agent_findings(&format!(
                "tools: [calculator], effect: read, cache: {cache}"
            ))
        };
        assert_eq!(
            cached("{ttl: 5m}"),
            ["warning ineffective tools.boss.cache 5"]
        );
        assert_eq!(cached("{ttl: 5m, context: []}"), [""; 0]);
        assert_eq!(
            agent_findings("effect: read, cache: {ttl: 5m}"),
            [""; 0],
            "without tools it is handed no context"
        );
    }
}
