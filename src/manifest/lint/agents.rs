//! Lint: agents and their coworkers. Unknown names in their lists are found together with those of all lists of
//! tools.

use serde_json::Value;

use super::Lints;
use crate::call::{Kind, ToolName};
use crate::manifest::load::WrittenTool;
use crate::manifest::node::{Data, Node};
use crate::manifest::rule::Rule;
use crate::manifest::tool_lists::builtin;
use crate::tool_pattern::{ToolPattern, any_grants};

/// Checks all agents, and the tools that hand work to them.
pub(super) fn look(tools: &[WrittenTool], lints: &mut Lints) {
    for written in tools {
        let name = &written.key.text;
        let Some(tool) = &written.tool else { continue };
        if tool.kind == Kind::Agent {
            coworkers(&written.entry, &format!("tools.{name}"), tools, lints);
            budget(written, lints);
        }
        if tool.kind == Kind::Native
            && let Some(with) = written.entry.get("with")
            && ["delegate_work", "ask_question"].contains(&builtin(written).as_str())
        {
            coworkers(with, &format!("tools.{name}.with"), tools, lints);
        }
    }
}

fn coworkers(entry: &Node, under: &str, tools: &[WrittenTool], lints: &mut Lints) {
    for (at, node, name) in texts(entry, "coworkers") {
        let path = format!("{under}.coworkers.{at}");
        let kind = |tool: &WrittenTool| tool.tool.as_ref().map(|tool| tool.kind);
        let pattern = [ToolPattern::new(name)];
        let means = |tool: &&WrittenTool| {
            let aliases = tool.tool.iter().flat_map(|tool| &tool.definition.aliases).map(ToolName::as_str);
            any_grants(&pattern, std::iter::once(tool.key.text.as_str()).chain(aliases), |_| false)
        };
        match tools.iter().find(means) {
            Some(tool) if kind(tool).is_none_or(|kind| kind == Kind::Agent) => takes_task(tool, node, &path, lints),
            Some(_) => {
                let message = format!("`{name}` is no agent: only tools of kind agent are coworkers");
                lints.warn(Rule::UnknownCoworker, &node.place, path, message);
            }
            // The lists of tools report this.
            None => {}
        }
    }
}

/// Checks that a coworker has a parameter `task`, which receives the work.
fn takes_task(tool: &WrittenTool, node: &Node, path: &str, lints: &mut Lints) {
    let Some(tool) = &tool.tool else { return };
    let properties = tool.definition.input_schema.get("properties");
    if properties.is_none_or(|properties| properties.get("task").is_none()) {
        let name = tool.name();
        let message = format!("`{name}` has no parameter `task`, which is where work and questions go; give it one");
        lints.warn(Rule::UnknownCoworker, &node.place, path.to_owned(), message);
    }
}

/// Finds a time budget that the deadline always ends first.
fn budget(written: &WrittenTool, lints: &mut Lints) {
    let (Some(tool), Some(node)) = (&written.tool, written.entry.get("budget").and_then(|budget| budget.get("time")))
    else {
        return;
    };
    let Some(budget) = node.to_json().as_str().and_then(|text| crate::call::units::Time::parse(text).ok()) else {
        return;
    };
    let least = tool.policy.deadline.map_or(tool.policy.timeout, |deadline| deadline.min(tool.policy.timeout));
    if budget.0 >= least {
        let least = humantime::format_duration(least);
        let message =
            format!("has no effect: timeout or deadline end the call after {least}; write less, or raise them");
        lints.warn(Rule::Ineffective, &node.place, format!("tools.{}.budget.time", written.key.text), message);
    }
}

/// The texts of a list, without texts that contain a reference.
fn texts<'a>(entry: &'a Node, key: &str) -> impl Iterator<Item = (usize, &'a Node, &'a str)> {
    let items = match entry.get(key) {
        Some(Node { data: Data::List(items), .. }) => items.as_slice(),
        _ => &[],
    };
    items.iter().enumerate().filter_map(|(at, node)| match &node.data {
        Data::Scalar(Value::String(text)) if !text.contains("${") => Some((at, node, text.as_str())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    const MODEL: &str = "model: {base_url: 'http://127.0.0.1:1/v1', name: m}";
    const DESCRIPTION: &str = "description: Answers questions about rows that customers own.";

    fn of(keys: &str) -> Vec<String> {
        let mut found = found(
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
    fn names_lead_somewhere() {
        assert_eq!(of("tools: [calculator, 'calc*', boss, '*'], coworkers: [poet, boss]"), [""; 0]);
        assert_eq!(
            of("tools: [calculatr, 'x_*']"),
            ["warning idle-pattern tools.boss.tools.0 5", "warning idle-pattern tools.boss.tools.1 5"]
        );
        let unknown = |at: usize| format!("warning unknown-coworker tools.boss.coworkers.{at} 5");
        assert_eq!(
            of("coworkers: [poett, calculator, raw]"),
            ["error unknown-coworker tools.boss.coworkers.0 5".to_owned(), unknown(1), unknown(2)]
        );
    }

    #[test]
    fn the_tools_that_hand_work_over_are_looked_at_too() {
        let text = "tools:\n  ask: {kind: native, use: ask_question, with: {coworkers: [nobody]}}\n";
        assert_eq!(found(text, &[]), ["error unknown-coworker tools.ask.with.coworkers.0 2"]);
    }

    #[test]
    fn a_budget_of_time_ends_before_the_clock() {
        assert_eq!(of("budget: {time: 60s}"), [""; 0], "its timeout is longer by itself");
        let idle = ["warning ineffective tools.boss.budget.time 5"];
        assert_eq!(of("budget: {time: 60s}, timeout: 60s"), idle);
        assert_eq!(of("budget: {time: 60s}, deadline: 20s, timeout: 10s"), idle);
    }

    #[test]
    fn a_cache_that_does_not_say_what_of_the_context_counts_is_none() {
        let cached = |cache: &str| of(&format!("tools: [calculator], effect: read, cache: {cache}"));
        assert_eq!(cached("{ttl: 5m}"), ["warning ineffective tools.boss.cache 5"]);
        assert_eq!(cached("{ttl: 5m, context: []}"), [""; 0]);
        assert_eq!(of("effect: read, cache: {ttl: 5m}"), [""; 0], "without tools it is handed no context");
    }
}
