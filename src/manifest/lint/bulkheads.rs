//! Lint: tools that may use all permits of the service. A tool that hangs keeps its permits as long as its calls may
//! take. If these are all permits of the service, no other tool can run.

use super::Lints;
use crate::call::Concurrency;
use crate::http::ServerSettings;
use crate::manifest::finding::Place;
use crate::manifest::load::WrittenTool;
use crate::manifest::node::Node;
use crate::manifest::rule::Rule;

/// Compares the permits of every tool with those of the service.
pub(super) fn look(root: &Node, tools: &[WrittenTool], lints: &mut Lints) {
    let server = root.get("server");
    let bound = server.and_then(|server| value(server, "max_in_flight"));
    let all = bound.as_ref().map_or(ServerSettings::default().max_in_flight, |(_, all)| *all);
    if let Some((place, parallel)) = root.get("calls").and_then(|calls| value(calls, "parallel"))
        && parallel > all
    {
        let message = format!(
            "has no effect beyond {all}: server.max_in_flight lets no more calls run at once; write {all} or less"
        );
        lints.warn(Rule::Ineffective, &place, "calls.parallel", message);
    }
    shares(root, tools, lints);
    if tools.len() < 2 {
        return;
    }
    for written in tools {
        let Some(most) = written.tool.as_ref().map(|tool| tool.policy.concurrency.max).filter(|most| *most >= all)
        else {
            continue;
        };
        let max = |policy: &'_ Node| policy.get("concurrency").and_then(|places| value(places, "max"));
        let message = format!(
            "all {all} places of server.max_in_flight may go to one tool that hangs, and the others then wait for them; \
             write less than {all}"
        );
        if let Some((place, _)) = max(&written.entry) {
            lints.hint(Rule::GreedyTool, &place, format!("{}.concurrency.max", written.under), message);
        } else if let Some((place, _)) = root.get("defaults").and_then(max) {
            lints.hint(Rule::GreedyTool, &place, "defaults.concurrency.max", message);
        } else if let Some((place, _)) = &bound {
            let message = format!(
                "all {all} places may go to one tool that hangs, and the others then wait for them: each tool may have \
                 {most}; write more than {most}, or give the tools a lower concurrency.max"
            );
            lints.hint(Rule::GreedyTool, place, "server.max_in_flight", message);
        }
    }
}

/// Finds a caller's share that is not smaller than the tool's total.
fn shares(root: &Node, tools: &[WrittenTool], lints: &mut Lints) {
    let mut look = |entry: &Node, under: &str, max: usize| {
        let share = entry.get("concurrency").and_then(|places| value(places, "per_caller"));
        if let Some((place, _)) = share.filter(|(_, share)| *share >= max) {
            let message = format!(
                "has no effect: of this tool {max} calls run at once, whoever makes them; write less than {max}, or leave it out"
            );
            lints.warn(Rule::Ineffective, &place, format!("{under}.concurrency.per_caller"), message);
        }
    };
    for written in tools {
        if let Some(tool) = &written.tool {
            look(&written.entry, &written.under, tool.policy.concurrency.max);
        }
    }
    if let Some(defaults) = root.get("defaults") {
        let max = defaults.get("concurrency").and_then(|places| value(places, "max"));
        look(defaults, "defaults", max.map_or(Concurrency::default().max, |(_, max)| max));
    }
}

/// An integer and the position of its key.
fn value(section: &Node, name: &str) -> Option<(Place, usize)> {
    let (key, node) = section.entries()?.iter().find(|(key, _)| key.text == name)?;
    Some((key.place.clone(), usize::try_from(node.to_json().as_u64()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    #[test]
    fn shares_as_large_as_the_whole() {
        let tool = |concurrency: &str| found(&format!("{TWO}, concurrency: {{{concurrency}}}}}\n"), &[]);
        let warning = ["warning ineffective tools.current_time.concurrency.per_caller 3"];
        assert_eq!(tool("max: 4, per_caller: 4"), warning);
        assert_eq!(tool("per_caller: 16"), warning, "16 run when nobody says otherwise");
        assert_eq!(tool("max: 4, per_caller: 3"), [""; 0]);
        let defaults = |concurrency: &str| {
            found(&format!("defaults: {{concurrency: {{{concurrency}}}}}\n{TWO}, concurrency: {{max: 2}}}}\n"), &[])
        };
        assert_eq!(defaults("max: 8, per_caller: 8"), ["warning ineffective defaults.concurrency.per_caller 1"]);
        assert_eq!(defaults("max: 8, per_caller: 4"), [""; 0], "a tool that has less for all is right");
    }

    const TWO: &str = "tools:\n  calculator: {kind: native}\n  current_time: {kind: native";

    #[test]
    fn one_tool_must_leave_places_to_the_others() {
        let tool = |max: usize| found(&format!("{TWO}, concurrency: {{max: {max}}}}}\n"), &[]);
        assert_eq!(tool(256), ["hint greedy-tool tools.current_time.concurrency.max 3"]);
        assert_eq!(tool(255), [""; 0]);
        let all = |all: usize| found(&format!("server: {{max_in_flight: {all}}}\n{TWO}}}\n"), &[]);
        assert_eq!(all(16), ["hint greedy-tool server.max_in_flight 1"], "once, whatever the number of tools");
        assert_eq!(all(17), [""; 0]);
        let defaults = found(&format!("defaults: {{concurrency: {{max: 300}}}}\n{TWO}}}\n"), &[]);
        assert_eq!(defaults, ["hint greedy-tool defaults.concurrency.max 1"]);
        let parallel = |most: usize| found(&format!("calls: {{parallel: {most}}}\n{TWO}}}\n"), &[]);
        assert_eq!(parallel(257), ["warning ineffective calls.parallel 1"]);
        assert_eq!(parallel(256), [""; 0]);
        let alone = "server: {max_in_flight: 1}\ntools:\n  calculator: {kind: native}\n";
        assert_eq!(found(alone, &[]), [""; 0]);
    }
}
