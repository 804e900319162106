//! Lint: agents and their coworkers. Unknown names in their lists are found together with those of
//! all lists of tools.

use super::{Lints, Located};
use crate::access::tool_pattern::{ToolPattern, any_grants};
use crate::call::Kind;
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;
use crate::manifest::tool_lists::builtin_name;

/// Checks all agents, and the tools that hand work to them.
pub(super) fn check_agents(tools: &[ParsedTool], lints: &mut Lints) {
    for parsed in tools {
        let entry = Located::new(&parsed.entry, &parsed.path);
        let Some(tool) = &parsed.tool else { continue };
        if tool.kind == Kind::Agent {
            check_coworkers(&entry, tools, lints);
        }
        if tool.kind == Kind::Native
            && let Some(with) = entry.get("with")
            && ["delegate_work", "ask_question"].contains(&builtin_name(parsed).as_str())
        {
            check_coworkers(&with, tools, lints);
        }
    }
}

fn check_coworkers(entry: &Located<'_>, tools: &[ParsedTool], lints: &mut Lints) {
    for coworker in entry.items("coworkers") {
        let Some(name) = coworker.node.as_str().filter(|name| !name.contains("${")) else {
            continue;
        };
        let pattern = [ToolPattern::new(name)];
        let means = |tool: &&ParsedTool| any_grants(&pattern, tool.names(), |_| false);
        // The lists of tools report names that are no tools.
        let Some(Some(tool)) = tools.iter().find(means).map(|tool| &tool.tool) else {
            continue;
        };
        let properties = tool.definition.input_schema.get("properties");
        if tool.kind != Kind::Agent {
            let message =
                format!("`{name}` is not an agent: only tools of kind agent can be coworkers");
            lints.warn_of(Rule::UnknownCoworker, &coworker, message);
        } else if properties.is_none_or(|properties| properties.get("task").is_none()) {
            let name = tool.name();
            let message = format!(
                "`{name}` has no parameter `task`, which receives work and questions; add it"
            );
            lints.warn_of(Rule::UnknownCoworker, &coworker, message);
        }
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
