//! Lint: agents and their coworkers. Unknown names in their lists are found together with those of
//! all lists of tools.

use serde_json::Value;

use super::Lints;
use crate::access::tool_pattern::{ToolPattern, any_grants};
use crate::call::{Kind, ToolName};
use crate::manifest::node::{Data, Node};
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
            check_time_budget(parsed, lints);
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
    for (at, node, name) in list_texts(entry, "coworkers") {
        let path = format!("{entry_path}.coworkers.{at}");
        let kind = |tool: &ParsedTool| tool.tool.as_ref().map(|tool| tool.kind);
        let pattern = [ToolPattern::new(name)];
        let means = |tool: &&ParsedTool| {
            let aliases = tool
                .tool
                .iter()
                .flat_map(|tool| &tool.definition.aliases)
                .map(ToolName::as_str);
            any_grants(
                &pattern,
                std::iter::once(tool.key.text.as_str()).chain(aliases),
                |_| false,
            )
        };
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

/// Finds a time budget that the deadline always ends first.
fn check_time_budget(parsed: &ParsedTool, lints: &mut Lints) {
    let (Some(tool), Some(node)) = (
        &parsed.tool,
        parsed
            .entry
            .get("budget")
            .and_then(|budget| budget.get("time")),
    ) else {
        return;
    };
    let Some(budget) = node
        .to_json()
        .as_str()
        .and_then(|text| crate::call::units::HumanDuration::parse(text).ok())
    else {
        return;
    };
    let least = tool
        .policy
        .deadline
        .map_or(tool.policy.timeout, |deadline| {
            deadline.min(tool.policy.timeout)
        });
    if budget.0 >= least {
        let least = humantime::format_duration(least);
        let message = format!(
            "has no effect: timeout or deadline end the call after {least}; write less, or raise them"
        );
        lints.warn(
            Rule::Ineffective,
            &node.location,
            format!("tools.{}.budget.time", parsed.key.text),
            message,
        );
    }
}

/// The texts of a list, without texts that contain a reference.
fn list_texts<'a>(entry: &'a Node, key: &str) -> impl Iterator<Item = (usize, &'a Node, &'a str)> {
    let items = match entry.get(key) {
        Some(Node {
            data: Data::List(items),
            ..
        }) => items.as_slice(),
        _ => &[],
    };
    items
        .iter()
        .enumerate()
        .filter_map(|(at, node)| match &node.data {
            Data::Scalar(Value::String(text)) if !text.contains("${") => {
                Some((at, node, text.as_str()))
            }
            _ => None,
        })
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
    fn time_budget_must_be_below_the_deadline() {
        assert_eq!(
            agent_findings("budget: {time: 60s}"),
            [""; 0],
            "its timeout is longer by itself"
        );
        let idle = ["warning ineffective tools.boss.budget.time 5"];
        assert_eq!(agent_findings("budget: {time: 60s}, timeout: 60s"), idle);
        assert_eq!(
            agent_findings("budget: {time: 60s}, deadline: 20s, timeout: 10s"),
            idle
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
