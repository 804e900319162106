//! Lint: callers, and the tools that their patterns match.

use std::path::Path;

use super::secrets::resolve_text;
use super::{Lints, Located};
use crate::access::tool_pattern::{ToolPattern, any_denies, any_grants};
use crate::manifest::node::Node;
use crate::manifest::parsed::ParsedTool;
use crate::manifest::references::ManifestInput;
use crate::manifest::rule::Rule;

struct Caller<'a> {
    at: Located<'a>,
    /// `None`: the caller has no list and may use all tools.
    allow: Option<Vec<ToolPattern>>,
    deny: Vec<ToolPattern>,
    admin: bool,
    metrics: bool,
}

impl Caller<'_> {
    /// The same rule as in `crate::access::callers`.
    fn may_use(&self, tool: &ParsedTool) -> bool {
        let allow = self.allow.as_ref();
        allow.is_none_or(|allow| any_grants(allow, tool.names(), |_| false))
            && !any_denies(&self.deny, tool.names(), |_| false)
    }
}

/// Checks `callers:` as a whole. `all_known`: there are no tools other than `tools`.
pub(super) fn check_callers(
    root: &Located<'_>,
    base: &Path,
    tools: &[ParsedTool],
    all_known: bool,
    input: &dyn ManifestInput,
    lints: &mut Lints,
) {
    let resolve = |node: &Node| resolve_text(node, base, input);
    let callers = root.items("callers").into_iter();
    let callers: Vec<Caller<'_>> = callers.map(|at| read_caller(at, &resolve)).collect();
    for caller in &callers {
        check_secrets(&caller.at, lints);
    }
    if tools.is_empty() || callers.is_empty() {
        return;
    }
    for caller in callers.iter().filter(|_| all_known) {
        if !caller.admin && !caller.metrics && !tools.iter().any(|tool| caller.may_use(tool)) {
            let message = "may use no tool: allow matches none, or deny excludes all; correct them, or leave the caller out";
            lints.warn_of(Rule::UnusedCaller, &caller.at, message);
        }
    }
    for tool in tools {
        if !callers.iter().any(|caller| caller.may_use(tool)) {
            let message = "no caller may use it; add it to an allow list, or leave it out";
            let location = &tool.key.location;
            lints.warn(Rule::UnreachableTool, location, &*tool.path, message);
        }
    }
}

fn read_caller<'a>(at: Located<'a>, resolve: &dyn Fn(&Node) -> Option<String>) -> Caller<'a> {
    let patterns = |key: &str| -> Vec<ToolPattern> {
        let items = at.items(key);
        let texts = items.iter().filter_map(|item| resolve(item.node));
        texts.map(|text| ToolPattern::new(&text)).collect()
    };
    let is_true = |key: &str| {
        at.node
            .get(key)
            .is_some_and(|value| value.to_json() == true)
    };
    Caller {
        allow: at.node.get("allow").map(|_| patterns("allow")),
        deny: patterns("deny"),
        admin: is_true("admin"),
        metrics: is_true("metrics"),
        at,
    }
}

fn check_secrets(caller: &Located<'_>, lints: &mut Lints) {
    let is_plain = |at: &Located<'_>| at.node.as_str().is_some_and(|text| !text.contains("${"));
    if let Some(key) = caller.get("key").filter(is_plain) {
        let message = "a key in plain text, readable for everyone with this file; write ${env:NAME}, or key_sha256: \
                       with its hash";
        lints.warn_of(Rule::LiteralSecret, &key, message);
    }
    let credentials = caller.get("credentials");
    for (_, credential) in credentials.iter().flat_map(Located::entries) {
        if is_plain(&credential) {
            let message = "a credential in plain text, readable for everyone with this file; put it into a variable and \
                           write ${env:NAME}";
            lints.warn_of(Rule::LiteralSecret, &credential, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::finding_lines;

    const KEYS: &[(&str, &str)] = &[
        ("A", "a-key-0123456789abcdef"),
        ("B", "b-key-0123456789abcdef"),
        ("SHORT", "hunter2hunter2"),
    ];

    /// Findings for two tools, and these callers beside an operator.
    fn caller_findings(callers: &str) -> Vec<String> {
        let text = format!(
            "tools:\n  calculator: {{kind: native}}\n  current_time: {{kind: native, aliases: [clock]}}\ncallers:\n  - \
             {{name: root, key: \"${{env:B}}\", admin: true}}\n{callers}"
        );
        finding_lines(&text, KEYS)
    }

    #[test]
    fn usable_patterns_have_no_findings() {
        assert_eq!(
            caller_findings(
                "  - {name: a, key: \"${env:A}\", allow: [calc*], deny: ['delete_everything_*']}\n"
            )
            .len(),
            1
        );
        assert_eq!(
            caller_findings("  - {name: a, key: \"${env:A}\", allow: ['*'], deny: [current_*]}\n"),
            [""; 0]
        );
    }

    #[test]
    fn callers_without_tools_are_warnings() {
        let nothing = "  - {name: a, key: \"${env:A}\", allow: [calc*], deny: ['*']}\n";
        assert_eq!(
            caller_findings(nothing),
            ["warning unused-caller callers.1 6"]
        );
        let misspelt = "  - {name: a, key: \"${env:A}\", allow: [calculater]}\n";
        assert_eq!(
            caller_findings(misspelt),
            [
                "warning unused-caller callers.1 6",
                "warning idle-pattern callers.1.allow.0 6"
            ]
        );
    }

    #[test]
    fn unreachable_tools_and_routes_are_reported() {
        let text = "tools:\n  calculator: {kind: native}\n  current_time: {kind: native}\ncallers:\n  - {name: a, key: \
                    \"${env:A}\", allow: [calculator]}\n";
        assert_eq!(
            finding_lines(text, KEYS),
            ["warning unreachable-tool tools.current_time 3"]
        );
    }

    #[test]
    fn weak_and_literal_keys_are_reported() {
        assert_eq!(
            caller_findings("  - {name: a, key: \"${env:SHORT}\"}\n"),
            ["warning short-key callers.1.key 6"]
        );
        assert_eq!(
            caller_findings("  - {name: a, key: a-key-0123456789abcdef}\n"),
            ["warning literal-secret callers.1.key 6"]
        );
        assert_eq!(
            caller_findings("  - {name: a, key: \"${env:MISSING}\"}\n"),
            ["error missing-secret callers.1.key 6"]
        );
    }
}
