//! Lint: policies whose parts do not fit together. Findings of loading about `retry` and `cache`
//! without effect are not repeated.

use std::time::Duration;

use serde_json::Value;

use super::{Lints, limits};
use crate::call::units::HumanDuration;
use crate::call::{Capture, Effect, Kind};
use crate::manifest::finding::Location;
use crate::manifest::node::{Data, Node};
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;
use crate::schema;

/// Checks the policy of one tool.
pub(super) fn check_tool_policy(parsed: &ParsedTool, entry_path: &str, lints: &mut Lints) {
    let entry = &parsed.entry;
    check_policy_keys(entry, entry_path, lints);
    let Some(tool) = &parsed.tool else { return };
    let policy = &tool.policy;
    if let (Some((location, _)), Some(deadline)) = (find_key(entry, "retry"), policy.deadline) {
        let attempts_in_time = u32::try_from(
            deadline
                .as_nanos()
                .div_ceil(policy.timeout.as_nanos().max(1)),
        )
        .unwrap_or(u32::MAX);
        if policy.max_attempts() > attempts_in_time {
            let (attempts, deadline, timeout) = (
                policy.max_attempts(),
                format_time(deadline),
                format_time(policy.timeout),
            );
            let message = format!(
                "{attempts} attempts of {timeout} do not fit into the deadline of {deadline}: if each attempt times \
                 out, there are {attempts_in_time}; shorten timeout, or lengthen deadline"
            );
            lints.hint(
                Rule::CrowdedDeadline,
                location,
                format!("{entry_path}.retry"),
                message,
            );
        }
    }
    let hides_arguments = || schema::has_write_only(&tool.definition.input_schema);
    if let Some((location, _)) = find_key(entry, "approval")
        && policy.approval.is_some()
        && (policy.capture == Some(Capture::Digest) || hides_arguments())
    {
        let message = "the arguments of this tool must not be stored (capture: digest, or writeOnly in the schema), \
                       so calls wait for approval in memory, and expire at a restart";
        lints.hint(
            Rule::MemoryApproval,
            location,
            format!("{entry_path}.approval"),
            message,
        );
    }
    // A built-in decides itself whether its results can be cached. A disabled tool has no results.
    let may_cache = policy.effect == Effect::Read && tool.kind != Kind::Native && policy.enabled;
    if may_cache && policy.cache.is_none() && !policy.limits.is_empty() {
        let location =
            find_key(entry, "effect").map_or(&parsed.key.location, |(location, _)| location);
        let message = "calls are limited, and results are not cached; if a result stays valid for a while, cache: \
                       {ttl: 5m} answers further calls at no cost";
        lints.hint(
            Rule::UncachedRead,
            location,
            format!("{entry_path}.effect"),
            message,
        );
    }
}

/// What joins commands in a shell. A tool's program gets it as an argument.
const SHELL_WORDS: [&str; 9] = ["|", "||", "&&", ";", "&", ">", ">>", "<", "2>&1"];

/// Checks that no argument of a command is meant for a shell.
pub(super) fn check_shell_syntax(parsed: &ParsedTool, entry_path: &str, lints: &mut Lints) {
    let Some(Data::List(command)) = parsed.entry.get("command").map(|node| &node.data) else {
        return;
    };
    for (at, item) in command.iter().enumerate().skip(1) {
        if let Data::Scalar(Value::String(word)) = &item.data
            && SHELL_WORDS.contains(&word.as_str())
        {
            let message = format!(
                "no shell reads this, so the program gets `{word}` as an argument; for a pipeline, write \
                 [sh, -c, \"… {word} …\"] without placeholders in the script"
            );
            let path = format!("{entry_path}.command.{at}");
            lints.hint(Rule::ShellSyntax, &item.location, path, message);
        }
    }
}

/// Checks `defaults:`, which has the same keys.
pub(super) fn check_default_policy(root: &Node, lints: &mut Lints) {
    if let Some(defaults) = root.get("defaults") {
        check_policy_keys(defaults, "defaults", lints);
    }
}

/// Checks what the entry alone shows.
fn check_policy_keys(entry: &Node, entry_path: &str, lints: &mut Lints) {
    limits::check_limits(entry, entry_path, false, lints);
    if let (Some((location, timeout)), Some((_, deadline))) =
        (find_key(entry, "timeout"), find_key(entry, "deadline"))
        && let (Some(timeout), Some(deadline)) = (parse_time(timeout), parse_time(deadline))
        && timeout > deadline
        && !deadline.is_zero()
    {
        let (timeout, deadline) = (format_time(timeout), format_time(deadline));
        let message = format!(
            "has no effect: the deadline of {deadline} ends the call before {timeout}; write less than {deadline}"
        );
        lints.warn(
            Rule::Ineffective,
            location,
            format!("{entry_path}.timeout"),
            message,
        );
    }
    // `cache: 0s` is the short form.
    let ttl = |cache| find_key(cache, "ttl").or_else(|| find_key(entry, "cache"));
    if let Some((location, ttl)) = entry.get("cache").and_then(ttl)
        && parse_time(ttl).is_some_and(|ttl| ttl.is_zero())
    {
        let message =
            "has no effect: a ttl of zero caches nothing; write e.g. 5m, or leave cache out";
        lints.warn(
            Rule::Ineffective,
            location,
            format!("{entry_path}.cache.ttl"),
            message,
        );
    }
    if let Some(concurrency) = entry.get("concurrency")
        && let Some((location, _)) = find_key(concurrency, "wait")
        && concurrency
            .get("queue")
            .is_some_and(|queue| queue.to_json() == 0)
    {
        let message = "has no effect: with queue: 0 no call waits; leave wait out, or raise queue";
        lints.warn(
            Rule::Ineffective,
            location,
            format!("{entry_path}.concurrency.wait"),
            message,
        );
    }
}

fn find_key<'a>(entry: &'a Node, name: &str) -> Option<(&'a Location, &'a Node)> {
    entry
        .entries()?
        .iter()
        .find(|(key, _)| key.text == name)
        .map(|(key, node)| (&key.location, node))
}

fn parse_time(node: &Node) -> Option<Duration> {
    HumanDuration::parse(node.to_json().as_str()?)
        .ok()
        .map(|time| time.0)
}

fn format_time(time: Duration) -> String {
    humantime::format_duration(time)
        .to_string()
        .replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{finding_lines, tool_findings};

    #[test]
    fn words_for_a_shell_are_hints() {
        let findings = |command: &str| {
            let text = format!(
                "tools:\n  t:\n    kind: command\n    description: Counts the lines of all orders of a day.\n    command: {command}\n"
            );
            finding_lines(&text, &[])
        };
        assert_eq!(
            findings("[cat, a.txt, '|', wc, -l]"),
            ["hint shell-syntax tools.t.command.2 5"]
        );
        assert_eq!(findings("[sh, -c, 'cat a.txt | wc -l']"), [""; 0]);
        assert_eq!(findings("[awk, '-F|', a.txt]"), [""; 0]);
    }

    #[test]
    fn approvals_in_memory_are_hints() {
        let findings = |more: &str| tool_findings(&format!("    effect: write\n{more}"));
        assert_eq!(findings("    approval: true\n"), [""; 0]);
        assert_eq!(
            findings("    approval: true\n    capture: digest\n"),
            ["hint memory-approval approval 7"]
        );
    }

    #[test]
    fn uncached_read_tools_are_hints() {
        let limits = "    limits: {calls: 9, per: day}\n";
        let findings = |keys: &str| tool_findings(&format!("{keys}{limits}"));
        assert_eq!(
            findings("    effect: read\n"),
            ["hint uncached-read effect 6"]
        );
        assert_eq!(
            findings("    effect: read\n    cache: {ttl: 5m}\n"),
            [""; 0]
        );
        assert_eq!(findings("    effect: idempotent\n"), [""; 0]);
        assert_eq!(tool_findings("    effect: read\n"), [""; 0], "no limit");
        assert_eq!(
            finding_lines("tools:\n  calculator: {kind: native}\n", &[]),
            [""; 0]
        );
        assert_eq!(
            finding_lines("tools:\n  current_time: {kind: native}\n", &[]),
            [""; 0]
        );
    }

    #[test]
    fn timeouts_must_fit_the_deadline() {
        assert_eq!(
            tool_findings("    timeout: 30s\n    deadline: 10s\n"),
            ["warning ineffective timeout 6"]
        );
        assert_eq!(
            tool_findings("    timeout: 10s\n    deadline: 25s\n"),
            [""; 0]
        );
        let retry = |deadline: &str| {
            tool_findings(&format!(
                "    effect: idempotent\n    timeout: 10s\n    deadline: {deadline}\n    retry: {{attempts: 3}}\n"
            ))
        };
        assert_eq!(retry("25s"), [""; 0], "the third begins after 20 s");
        assert_eq!(retry("20s"), ["hint crowded-deadline retry 9"]);
    }

    #[test]
    fn settings_without_effect_are_warnings() {
        assert_eq!(
            tool_findings("    effect: read\n    cache: {ttl: 0s}\n"),
            ["warning ineffective cache.ttl 7"]
        );
        assert_eq!(
            tool_findings("    concurrency: {queue: 0, wait: 1s}\n"),
            ["warning ineffective concurrency.wait 6"]
        );
        assert_eq!(
            tool_findings("    retry: {attempts: 3}\n"),
            ["warning ineffective retry 6"],
            "reported by loading, once"
        );
        let reader = "tools:\n  read_cache:\n    kind: native\n    cache: {ttl: 5m, context: []}\n";
        assert_eq!(
            finding_lines(reader, &[]),
            ["warning ineffective tools.read_cache.cache 4"],
            "it reads what is stored"
        );
        let defaults =
            "defaults:\n  timeout: 2m\n  deadline: 1m\ntools:\n  calculator: {kind: native}\n";
        assert_eq!(
            finding_lines(defaults, &[]),
            ["warning ineffective defaults.timeout 2"]
        );
    }
}
