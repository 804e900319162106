//! Agents, and the tools and coworkers that their names reach. A name that leads nowhere may be that of a tool that comes
//! later, so it is no error; but a model that is promised a tool and has none makes something up.

use serde_json::Value;
use wildmatch::WildMatch;

use super::Lints;
use crate::call::Kind;
use crate::manifest::load::WrittenTool;
use crate::manifest::node::{Data, Node};
use crate::manifest::rule::Rule;
use crate::similar;

/// All agents, and the tools that hand work to them. `all_known`: there are no tools but these.
pub(super) fn look(tools: &[WrittenTool], all_known: bool, lints: &mut Lints) {
    for written in tools {
        let name = &written.key.text;
        let Some(tool) = &written.tool else { continue };
        if tool.kind == Kind::Agent {
            if all_known {
                of_tools(&written.entry, name, tools, lints);
            }
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

fn builtin(written: &WrittenTool) -> String {
    let which = written.entry.get("use").map(Node::to_json);
    which.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_else(|| written.key.text.clone())
}

fn of_tools(entry: &Node, name: &str, tools: &[WrittenTool], lints: &mut Lints) {
    for (at, node, pattern) in texts(entry, "tools") {
        let fits = WildMatch::new(pattern);
        if !tools.iter().any(|tool| fits.matches(&tool.key.text)) {
            let message =
                format!("`{pattern}` matches no tool, so the agent has none of that name; {}", instead(pattern, tools));
            lints.warn(Rule::IdlePattern, &node.place, format!("tools.{name}.tools.{at}"), message);
        }
    }
}

fn coworkers(entry: &Node, under: &str, tools: &[WrittenTool], lints: &mut Lints) {
    for (at, node, name) in texts(entry, "coworkers") {
        let path = format!("{under}.coworkers.{at}");
        let kind = |tool: &WrittenTool| tool.tool.as_ref().map(|tool| tool.kind);
        match tools.iter().find(|tool| tool.key.text == name.trim()) {
            Some(tool) if kind(tool).is_none_or(|kind| kind == Kind::Agent) => takes_task(tool, node, &path, lints),
            Some(_) => {
                let message = format!("`{name}` is no agent: only tools of kind agent are coworkers");
                lints.warn(Rule::UnknownCoworker, &node.place, path, message);
            }
            None => {
                let agents: Vec<&str> = tools
                    .iter()
                    .filter(|tool| kind(tool) == Some(Kind::Agent))
                    .map(|tool| tool.key.text.as_str())
                    .collect();
                let instead = match similar::closest(name, agents.iter().copied(), similar::HINT) {
                    Some(near) => format!("did you mean {near}?"),
                    None if agents.is_empty() => "there are no agents".to_owned(),
                    None => format!("there are {}", agents.join(", ")),
                };
                let message = format!("there is no agent `{name}`; {instead}");
                lints.warn(Rule::UnknownCoworker, &node.place, path, message);
            }
        }
    }
}

/// What a coworker is told goes into its `task`.
fn takes_task(tool: &WrittenTool, node: &Node, path: &str, lints: &mut Lints) {
    let Some(tool) = &tool.tool else { return };
    let properties = tool.definition.input_schema.get("properties");
    if properties.is_none_or(|properties| properties.get("task").is_none()) {
        let name = tool.name();
        let message = format!("`{name}` has no parameter `task`, which is where work and questions go; give it one");
        lints.warn(Rule::UnknownCoworker, &node.place, path.to_owned(), message);
    }
}

/// A budget of time that the clock always ends first.
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

/// The texts of a list.
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

fn instead(pattern: &str, tools: &[WrittenTool]) -> String {
    match similar::closest(pattern, tools.iter().map(|tool| tool.key.text.as_str()), similar::HINT) {
        Some(near) => format!("did you mean {near}?"),
        None => "correct it, or leave it out".into(),
    }
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
        assert_eq!(of("coworkers: [poett, calculator, raw]"), [unknown(0), unknown(1), unknown(2)]);
    }

    #[test]
    fn the_tools_that_hand_work_over_are_looked_at_too() {
        let text = "tools:\n  ask: {kind: native, use: ask_question, with: {coworkers: [nobody]}}\n";
        assert_eq!(found(text, &[]), ["warning unknown-coworker tools.ask.with.coworkers.0 2"]);
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
