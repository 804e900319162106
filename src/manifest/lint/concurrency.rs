//! Lint: tools that may use all permits of the service. A tool that hangs keeps its permits as long
//! as its calls may take. If these are all permits of the service, no other tool can run.

use super::Lints;
use crate::call::Concurrency;
use crate::manifest::ServerSettings;
use crate::manifest::finding::Location;
use crate::manifest::node::Node;
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;

/// Compares the permits of every tool with those of the service.
pub(super) fn check_bulkheads(root: &Node, tools: &[ParsedTool], lints: &mut Lints) {
    let server = root.get("server");
    let bound = server.and_then(|server| integer_with_location(server, "max_in_flight"));
    let all = bound
        .as_ref()
        .map_or(ServerSettings::default().max_in_flight, |(_, all)| *all);
    if let Some((location, parallel)) = root
        .get("calls")
        .and_then(|calls| integer_with_location(calls, "parallel"))
        && parallel > all
    {
        let message = format!(
            "has no effect beyond {all}: server.max_in_flight lets no more calls run at once; write {all} or less"
        );
        lints.warn(Rule::Ineffective, &location, "calls.parallel", message);
    }
    check_caller_shares(root, tools, lints);
    if tools.len() < 2 {
        return;
    }
    for parsed in tools {
        let Some(most) = parsed
            .tool
            .as_ref()
            .map(|tool| tool.policy.concurrency.max)
            .filter(|most| *most >= all)
        else {
            continue;
        };
        let max = |policy: &'_ Node| {
            policy
                .get("concurrency")
                .and_then(|concurrency| integer_with_location(concurrency, "max"))
        };
        let message = format!(
            "one tool that hangs may use all {all} permits of server.max_in_flight, and other tools then wait; \
             write less than {all}"
        );
        if let Some((location, _)) = max(&parsed.entry) {
            lints.hint(
                Rule::GreedyTool,
                &location,
                format!("{}.concurrency.max", parsed.path),
                message,
            );
        } else if let Some((location, _)) = root.get("defaults").and_then(max) {
            lints.hint(
                Rule::GreedyTool,
                &location,
                "defaults.concurrency.max",
                message,
            );
        } else if let Some((location, _)) = &bound {
            let message = format!(
                "one tool that hangs may use all {all} permits, and other tools then wait: each tool may use \
                 {most}; write more than {most}, or give the tools a lower concurrency.max"
            );
            lints.hint(Rule::GreedyTool, location, "server.max_in_flight", message);
        }
    }
}

/// Finds a caller's share that is not smaller than the tool's total.
fn check_caller_shares(root: &Node, tools: &[ParsedTool], lints: &mut Lints) {
    let mut check_share = |entry: &Node, entry_path: &str, max: usize| {
        let share = entry
            .get("concurrency")
            .and_then(|concurrency| integer_with_location(concurrency, "per_caller"));
        if let Some((location, _)) = share.filter(|(_, share)| *share >= max) {
            let message = format!(
                "has no effect: at most {max} calls of this tool run at once, of all callers together; write less \
                 than {max}, or leave it out"
            );
            lints.warn(
                Rule::Ineffective,
                &location,
                format!("{entry_path}.concurrency.per_caller"),
                message,
            );
        }
    };
    for parsed in tools {
        if let Some(tool) = &parsed.tool {
            check_share(&parsed.entry, &parsed.path, tool.policy.concurrency.max);
        }
    }
    if let Some(defaults) = root.get("defaults") {
        let max = defaults
            .get("concurrency")
            .and_then(|concurrency| integer_with_location(concurrency, "max"));
        check_share(
            defaults,
            "defaults",
            max.map_or(Concurrency::default().max, |(_, max)| max),
        );
    }
}

/// An integer and the position of its key.
fn integer_with_location(section: &Node, name: &str) -> Option<(Location, usize)> {
    let (key, node) = section
        .entries()?
        .iter()
        .find(|(key, _)| key.text == name)?;
    Some((
        key.location.clone(),
        usize::try_from(node.to_json().as_u64()?).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::finding_lines;

    #[test]
    fn share_as_large_as_max_is_ineffective() {
        let tool = |concurrency: &str| {
            finding_lines(&format!("{TWO}, concurrency: {{{concurrency}}}}}\n"), &[])
        };
        let warning = ["warning ineffective tools.current_time.concurrency.per_caller 3"];
        assert_eq!(tool("max: 4, per_caller: 4"), warning);
        assert_eq!(tool("per_caller: 16"), warning, "16 is the default");
        assert_eq!(tool("max: 4, per_caller: 3"), [""; 0]);
        let defaults = |concurrency: &str| {
            finding_lines(
                &format!(
                    "defaults: {{concurrency: {{{concurrency}}}}}\n{TWO}, concurrency: {{max: 2}}}}\n"
                ),
                &[],
            )
        };
        assert_eq!(
            defaults("max: 8, per_caller: 8"),
            ["warning ineffective defaults.concurrency.per_caller 1"]
        );
        assert_eq!(
            defaults("max: 8, per_caller: 4"),
            [""; 0],
            "a tool that has less for all is right"
        );
    }

    const TWO: &str = "tools:\n  calculator: {kind: native}\n  current_time: {kind: native";

    #[test]
    fn tool_with_all_permits_is_a_hint() {
        let tool =
            |max: usize| finding_lines(&format!("{TWO}, concurrency: {{max: {max}}}}}\n"), &[]);
        assert_eq!(
            tool(256),
            ["hint greedy-tool tools.current_time.concurrency.max 3"]
        );
        assert_eq!(tool(255), [""; 0]);
        let all = |all: usize| {
            finding_lines(&format!("server: {{max_in_flight: {all}}}\n{TWO}}}\n"), &[])
        };
        assert_eq!(
            all(16),
            ["hint greedy-tool server.max_in_flight 1"],
            "once, whatever the number of tools"
        );
        assert_eq!(all(17), [""; 0]);
        let defaults = finding_lines(
            &format!("defaults: {{concurrency: {{max: 300}}}}\n{TWO}}}\n"),
            &[],
        );
        assert_eq!(defaults, ["hint greedy-tool defaults.concurrency.max 1"]);
        let parallel =
            |most: usize| finding_lines(&format!("calls: {{parallel: {most}}}\n{TWO}}}\n"), &[]);
        assert_eq!(parallel(257), ["warning ineffective calls.parallel 1"]);
        assert_eq!(parallel(256), [""; 0]);
        let alone = "server: {max_in_flight: 1}\ntools:\n  calculator: {kind: native}\n";
        assert_eq!(finding_lines(alone, &[]), [""; 0]);
    }
}
