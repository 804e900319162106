//! Lint: policies whose parts do not fit together. Findings of loading about `retry` and `cache` without effect are
//! not repeated.

use std::time::Duration;

use super::{Lints, limits};
use crate::call::units::Time;
use crate::call::{Effect, Kind};
use crate::manifest::finding::Place;
use crate::manifest::load::WrittenTool;
use crate::manifest::node::Node;
use crate::manifest::rule::Rule;

/// Checks the policy of one tool.
pub(super) fn look(written: &WrittenTool, under: &str, lints: &mut Lints) {
    let entry = &written.entry;
    own_keys(entry, under, lints);
    let Some(tool) = &written.tool else { return };
    let policy = &tool.policy;
    if let (Some((place, _)), Some(deadline)) = (key(entry, "retry"), policy.deadline) {
        let tries = u32::try_from(deadline.as_nanos().div_ceil(policy.timeout.as_nanos().max(1))).unwrap_or(u32::MAX);
        if policy.attempts() > tries {
            let (attempts, deadline, timeout) = (policy.attempts(), long(deadline), long(policy.timeout));
            let message = format!(
                "{attempts} attempts of {timeout} do not fit into the deadline of {deadline}: after timeouts there are \
                 {tries}; shorten timeout, or lengthen deadline"
            );
            lints.hint(Rule::CrowdedDeadline, place, format!("{under}.retry"), message);
        }
    }
    // A built-in decides itself whether its results can be cached. A disabled tool has no results.
    let may_cache = policy.effect == Effect::Read && tool.kind != Kind::Native && policy.enabled;
    if may_cache && policy.cache.is_none() {
        let place = key(entry, "effect").map_or(&written.key.place, |(place, _)| place);
        let message = "answers are not kept; if one stays right for a while, cache: {ttl: 5m} saves the next call";
        lints.hint(Rule::UncachedRead, place, format!("{under}.effect"), message);
    }
}

/// Checks `defaults:`, which has the same keys.
pub(super) fn of_defaults(root: &Node, lints: &mut Lints) {
    if let Some(defaults) = root.get("defaults") {
        own_keys(defaults, "defaults", lints);
    }
}

/// Checks what the entry alone shows.
fn own_keys(entry: &Node, under: &str, lints: &mut Lints) {
    limits::look(entry, under, false, lints);
    if let (Some((place, timeout)), Some((_, deadline))) = (key(entry, "timeout"), key(entry, "deadline"))
        && let (Some(timeout), Some(deadline)) = (time(timeout), time(deadline))
        && timeout > deadline
        && !deadline.is_zero()
    {
        let (timeout, deadline) = (long(timeout), long(deadline));
        let message = format!(
            "has no effect: the deadline of {deadline} ends the call before {timeout}; write less than {deadline}"
        );
        lints.warn(Rule::Ineffective, place, format!("{under}.timeout"), message);
    }
    if let Some((place, ttl)) = entry.get("cache").and_then(|cache| key(cache, "ttl"))
        && time(ttl).is_some_and(|ttl| ttl.is_zero())
    {
        let message = "has no effect: nothing is kept for no time; write e.g. 5m, or leave cache out";
        lints.warn(Rule::Ineffective, place, format!("{under}.cache.ttl"), message);
    }
    if let Some(concurrency) = entry.get("concurrency")
        && let Some((place, _)) = key(concurrency, "wait")
        && concurrency.get("queue").is_some_and(|queue| queue.to_json() == 0)
    {
        let message = "has no effect: with queue: 0 nobody waits; leave it out, or let some queue";
        lints.warn(Rule::Ineffective, place, format!("{under}.concurrency.wait"), message);
    }
}

fn key<'a>(entry: &'a Node, name: &str) -> Option<(&'a Place, &'a Node)> {
    entry.entries()?.iter().find(|(key, _)| key.text == name).map(|(key, node)| (&key.place, node))
}

fn time(node: &Node) -> Option<Duration> {
    Time::parse(node.to_json().as_str()?).ok().map(|time| time.0)
}

fn long(time: Duration) -> String {
    humantime::format_duration(time).to_string().replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, of_tool};

    #[test]
    fn a_read_tool_may_keep_its_answers() {
        assert_eq!(of_tool("    effect: read\n"), ["hint uncached-read effect 6"]);
        assert_eq!(of_tool("    effect: read\n    cache: {ttl: 5m}\n"), [""; 0]);
        assert_eq!(of_tool("    effect: idempotent\n"), [""; 0]);
        assert_eq!(found("tools:\n  calculator: {kind: native}\n", &[]), [""; 0]);
        assert_eq!(found("tools:\n  current_time: {kind: native}\n", &[]), [""; 0]);
    }

    #[test]
    fn times_that_do_not_go_together() {
        assert_eq!(of_tool("    timeout: 30s\n    deadline: 10s\n"), ["warning ineffective timeout 6"]);
        assert_eq!(of_tool("    timeout: 10s\n    deadline: 25s\n"), [""; 0]);
        let retry = |deadline: &str| {
            of_tool(&format!(
                "    effect: idempotent\n    timeout: 10s\n    deadline: {deadline}\n    retry: {{attempts: 3}}\n"
            ))
        };
        assert_eq!(retry("25s"), [""; 0], "the third begins after 20 s");
        assert_eq!(retry("20s"), ["hint crowded-deadline retry 9"]);
    }

    #[test]
    fn settings_that_do_nothing() {
        assert_eq!(of_tool("    effect: read\n    cache: {ttl: 0s}\n"), ["warning ineffective cache.ttl 7"]);
        assert_eq!(of_tool("    concurrency: {queue: 0, wait: 1s}\n"), ["warning ineffective concurrency.wait 6"]);
        assert_eq!(of_tool("    retry: {attempts: 3}\n"), ["warning ineffective retry 6"], "said by loading, once");
        let reader = "tools:\n  read_cache:\n    kind: native\n    cache: {ttl: 5m, context: []}\n";
        assert_eq!(found(reader, &[]), ["warning ineffective tools.read_cache.cache 4"], "it reads what is stored");
        let defaults = "defaults:\n  timeout: 2m\n  deadline: 1m\ntools:\n  calculator: {kind: native}\n";
        assert_eq!(found(defaults, &[]), ["warning ineffective defaults.timeout 2"]);
    }
}
