//! Callers, and the tools that their patterns reach.

use std::path::Path;

use serde_json::Value;
use wildmatch::WildMatch;

use super::secrets::resolved;
use super::{Lints, limits};
use crate::manifest::load::WrittenTool;
use crate::manifest::node::{Data, Node};
use crate::manifest::references::Source;
use crate::manifest::rule::Rule;
use crate::similar;

/// Keys are kept as a fast hash (`crate::callers`), so that only their length keeps them from being guessed: 16
/// characters of base64 are 96 bits.
const SHORTEST_KEY: usize = 16;

struct Caller<'a> {
    node: &'a Node,
    path: String,
    /// `None`: it does not say, and may use all.
    allow: Option<Vec<Pattern<'a>>>,
    deny: Vec<Pattern<'a>>,
    admin: bool,
    metrics: bool,
}

struct Pattern<'a> {
    node: &'a Node,
    path: String,
    text: &'a str,
    fits: WildMatch,
}

impl Caller<'_> {
    /// As `crate::callers` has it.
    fn may_use(&self, tool: &str) -> bool {
        let fits = |patterns: &[Pattern<'_>]| patterns.iter().any(|pattern| pattern.fits.matches(tool));
        self.allow.as_deref().is_none_or(fits) && !fits(&self.deny)
    }
}

/// `callers:` as a whole. `all_known`: there are no tools but these.
pub(super) fn look(
    root: &Node,
    base: &Path,
    tools: &[WrittenTool],
    all_known: bool,
    source: &dyn Source,
    lints: &mut Lints,
) {
    let Some(Node { data: Data::List(items), place }) = root.get("callers") else { return };
    let callers: Vec<Caller<'_>> =
        items.iter().enumerate().map(|(at, node)| read(at, node, &|node| resolved(node, base, source))).collect();
    for caller in &callers {
        key(caller, base, source, lints);
        limits::look(caller.node, &caller.path, true, lints);
    }
    if !callers.is_empty() && !callers.iter().any(|caller| caller.admin) {
        let message =
            "nobody has admin: true, so the operator's routes (enable, disable, reset, purge) cannot be reached";
        lints.hint(Rule::NoAdmin, place, "callers", message);
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool.key.text.as_str()).collect();
    if names.is_empty() || callers.is_empty() {
        return;
    }
    for caller in callers.iter().filter(|_| all_known) {
        patterns(caller, &names, tools, lints);
        if !caller.admin && !caller.metrics && !names.iter().any(|name| caller.may_use(name)) {
            let message =
                "may use no tool: allow matches none, or deny takes all away; correct them, or leave the caller out";
            lints.warn(Rule::UnusedCaller, &caller.node.place, caller.path.clone(), message);
        }
    }
    for tool in tools {
        let name = &tool.key.text;
        if !callers.iter().any(|caller| caller.may_use(name)) {
            let message = "no caller may use it; add it to an allow list, or leave it out";
            lints.warn(Rule::UnreachableTool, &tool.key.place, tool.under.clone(), message);
        }
    }
}

fn read<'a>(at: usize, node: &'a Node, resolve: &dyn Fn(&Node) -> Option<String>) -> Caller<'a> {
    let path = format!("callers.{at}");
    let pattern = |key: &str, at: usize, node: &'a Node| {
        let Data::Scalar(Value::String(text)) = &node.data else { return None };
        // What is matched may come by reference; what is shown is what is written.
        Some(Pattern { node, path: format!("{path}.{key}.{at}"), text, fits: WildMatch::new(&resolve(node)?) })
    };
    let patterns = |key: &str| -> Vec<Pattern<'a>> {
        let Some(Node { data: Data::List(items), .. }) = node.get(key) else { return Vec::new() };
        items.iter().enumerate().filter_map(|(at, node)| pattern(key, at, node)).collect()
    };
    let is_true = |key: &str| node.get(key).is_some_and(|said| said.to_json() == true);
    let (admin, metrics) = (is_true("admin"), is_true("metrics"));
    Caller {
        allow: node.get("allow").map(|_| patterns("allow")),
        deny: patterns("deny"),
        node,
        path: path.clone(),
        admin,
        metrics,
    }
}

/// Patterns that match no tool. In `deny` that may be caution; not when a tool's name is close.
fn patterns(caller: &Caller<'_>, names: &[&str], tools: &[WrittenTool], lints: &mut Lints) {
    let idle = |pattern: &&Pattern<'_>| pattern.text != "*" && !names.iter().any(|name| pattern.fits.matches(name));
    for pattern in caller.allow.iter().flatten().filter(idle) {
        let instead = instead(pattern, names, tools).unwrap_or_else(|| "correct it, or leave it out".into());
        let message = format!("`{}` matches no tool; {instead}", pattern.text);
        lints.warn(Rule::IdlePattern, &pattern.node.place, pattern.path.clone(), message);
    }
    for pattern in caller.deny.iter().filter(idle) {
        let instead = instead(pattern, names, tools).unwrap_or_else(|| "as a precaution that is fine".into());
        let message = format!("`{}` matches no tool; {instead}", pattern.text);
        lints.hint(Rule::IdlePattern, &pattern.node.place, pattern.path.clone(), message);
    }
}

/// What was probably meant.
fn instead(pattern: &Pattern<'_>, names: &[&str], tools: &[WrittenTool]) -> Option<String> {
    let by_alias = tools.iter().find(|tool| {
        let aliases = tool.tool.as_ref().map(|tool| tool.definition.aliases.as_slice()).unwrap_or_default();
        aliases.iter().any(|alias| pattern.fits.matches(alias.as_str()))
    });
    if let Some(tool) = by_alias {
        return Some(format!("it is an alias, and patterns are held against names: write {}", tool.key.text));
    }
    let near = similar::closest(pattern.text, names.iter().copied(), similar::HINT)?;
    Some(format!("did you mean {near}?"))
}

fn key(caller: &Caller<'_>, base: &Path, source: &dyn Source, lints: &mut Lints) {
    let Some(node) = caller.node.get("key") else { return };
    let Data::Scalar(Value::String(text)) = &node.data else { return };
    let path = format!("{}.key", caller.path);
    if !text.contains("${") {
        let message = "a key written out, for all who read this file; write ${env:NAME}, or key_sha256: with its hash";
        lints.warn(Rule::LiteralSecret, &node.place, path.clone(), message);
    }
    let length = resolved(node, base, source).map(|key| key.trim().chars().count());
    if length.is_some_and(|length| (1..SHORTEST_KEY).contains(&length)) {
        let message = format!(
            "shorter than {SHORTEST_KEY} characters, so it could be guessed; make one with `openssl rand -base64 32`"
        );
        lints.warn(Rule::ShortKey, &node.place, path, message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{checked, found};

    const KEYS: &[(&str, &str)] =
        &[("A", "a-key-0123456789abcdef"), ("B", "b-key-0123456789abcdef"), ("SHORT", "hunter2hunter2")];

    /// Two tools, and these callers beside an operator.
    fn of(callers: &str) -> Vec<String> {
        let text = format!(
            "tools:\n  calculator: {{kind: native}}\n  current_time: {{kind: native, aliases: [clock]}}\ncallers:\n  - \
             {{name: root, key: \"${{env:B}}\", admin: true}}\n{callers}"
        );
        found(&text, KEYS)
    }

    #[test]
    fn callers_that_can_use_something() {
        assert_eq!(of("  - {name: a, key: \"${env:A}\", allow: [calc*], deny: [delete_everything_twice]}\n").len(), 1);
        assert_eq!(of("  - {name: a, key: \"${env:A}\", allow: ['*'], deny: [current_*]}\n"), [""; 0]);
    }

    #[test]
    fn callers_that_cannot() {
        let nothing = "  - {name: a, key: \"${env:A}\", allow: [calc*], deny: ['*']}\n";
        assert_eq!(of(nothing), ["warning unused-caller callers.1 6"]);
        let misspelt = "  - {name: a, key: \"${env:A}\", allow: [calculater]}\n";
        assert_eq!(of(misspelt), ["warning unused-caller callers.1 6", "warning idle-pattern callers.1.allow.0 6"]);
    }

    #[test]
    fn patterns_that_match_nothing() {
        let deny = "  - {name: a, key: \"${env:A}\", deny: [delete_everything_twice]}\n";
        assert_eq!(of(deny), ["hint idle-pattern callers.1.deny.0 6"]);
        let text = "tools:\n  calculator: {kind: native}\n  current_time: {kind: native, aliases: [clock]}\ncallers:\n  - \
                    {name: a, key: \"${env:A}\", admin: true, allow: [calculater, clock, '*e*']}\n";
        let said: Vec<String> = checked(text, KEYS).findings.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|line| line.contains("did you mean calculator?")), "{said:?}");
        assert!(said.iter().any(|line| line.contains("held against names: write current_time")), "{said:?}");
    }

    #[test]
    fn tools_that_nobody_may_use_and_routes_that_nobody_reaches() {
        let text = "tools:\n  calculator: {kind: native}\n  current_time: {kind: native}\ncallers:\n  - {name: a, key: \
                    \"${env:A}\", allow: [calculator]}\n";
        assert_eq!(found(text, KEYS), ["warning unreachable-tool tools.current_time 3", "hint no-admin callers 5"]);
    }

    #[test]
    fn keys_are_long_and_not_written_out() {
        assert_eq!(of("  - {name: a, key: \"${env:SHORT}\"}\n"), ["warning short-key callers.1.key 6"]);
        assert_eq!(of("  - {name: a, key: a-key-0123456789abcdef}\n"), ["warning literal-secret callers.1.key 6"]);
        assert_eq!(of("  - {name: a, key: \"${env:MISSING}\"}\n"), ["error missing-secret callers.1.key 6"]);
        assert_eq!(
            of("  - {name: a, key: \"${env:A}\", limits: [{calls: 9, per: hour}, {calls: 9, per: day}]}\n"),
            ["warning idle-limit callers.1.limits.0 6"]
        );
    }
}
