//! Lint: callers, and the tools that their patterns match.

use std::path::Path;

use serde_json::Value;

use super::secrets::resolve_text;
use super::{Lints, limits};
use crate::access::tool_pattern::{ToolPattern, any_denies, any_grants};
use crate::call::ToolName;
use crate::manifest::node::{Data, Node};
use crate::manifest::parsed::ParsedTool;
use crate::manifest::references::ManifestInput;
use crate::manifest::rule::Rule;

struct Caller<'a> {
    node: &'a Node,
    path: String,
    /// `None`: the caller has no list and may use all tools.
    allow: Option<Vec<ToolPattern>>,
    deny: Vec<ToolPattern>,
    admin: bool,
    metrics: bool,
}

impl Caller<'_> {
    /// The same rule as in `crate::access::callers`.
    fn may_use(&self, tool: &ParsedTool) -> bool {
        let names = || {
            let aliases = tool
                .tool
                .iter()
                .flat_map(|tool| &tool.definition.aliases)
                .map(ToolName::as_str);
            std::iter::once(tool.key.text.as_str()).chain(aliases)
        };
        let is_allowed = self
            .allow
            .as_ref()
            .is_none_or(|allow| any_grants(allow, names(), |_| false));
        is_allowed && !any_denies(&self.deny, names(), |_| false)
    }
}

/// Checks `callers:` as a whole. `all_known`: there are no tools other than `tools`.
pub(super) fn check_callers(
    root: &Node,
    base: &Path,
    tools: &[ParsedTool],
    all_known: bool,
    input: &dyn ManifestInput,
    lints: &mut Lints,
) {
    let Some(Node {
        data: Data::List(items),
        location,
    }) = root.get("callers")
    else {
        return;
    };
    let callers: Vec<Caller<'_>> = items
        .iter()
        .enumerate()
        .map(|(at, node)| read_caller(at, node, &|node| resolve_text(node, base, input)))
        .collect();
    for caller in &callers {
        check_key(caller, lints);
        check_credentials(caller, lints);
        limits::check_limits(caller.node, &caller.path, true, lints);
    }
    if !callers.is_empty() && !callers.iter().any(|caller| caller.admin) {
        let message = "no caller has admin: true, so the operator's routes (enable, disable, reset, purge) cannot be used";
        lints.hint(Rule::NoAdmin, location, "callers", message);
    }
    if tools.is_empty() || callers.is_empty() {
        return;
    }
    for caller in callers.iter().filter(|_| all_known) {
        if !caller.admin && !caller.metrics && !tools.iter().any(|tool| caller.may_use(tool)) {
            let message = "may use no tool: allow matches none, or deny excludes all; correct them, or leave the caller out";
            lints.warn(
                Rule::UnusedCaller,
                &caller.node.location,
                caller.path.clone(),
                message,
            );
        }
    }
    for tool in tools {
        if !callers.iter().any(|caller| caller.may_use(tool)) {
            let message = "no caller may use it; add it to an allow list, or leave it out";
            lints.warn(
                Rule::UnreachableTool,
                &tool.key.location,
                tool.path.clone(),
                message,
            );
        }
    }
}

fn read_caller<'a>(
    at: usize,
    node: &'a Node,
    resolve: &dyn Fn(&Node) -> Option<String>,
) -> Caller<'a> {
    let path = format!("callers.{at}");
    let patterns = |key: &str| -> Vec<ToolPattern> {
        let Some(Node {
            data: Data::List(items),
            ..
        }) = node.get(key)
        else {
            return Vec::new();
        };
        items
            .iter()
            .filter_map(|node| Some(ToolPattern::new(&resolve(node)?)))
            .collect()
    };
    let is_true = |key: &str| node.get(key).is_some_and(|value| value.to_json() == true);
    let (admin, metrics) = (is_true("admin"), is_true("metrics"));
    Caller {
        allow: node.get("allow").map(|_| patterns("allow")),
        deny: patterns("deny"),
        node,
        path,
        admin,
        metrics,
    }
}

fn check_key(caller: &Caller<'_>, lints: &mut Lints) {
    let Some(node) = caller.node.get("key") else {
        return;
    };
    let Data::Scalar(Value::String(text)) = &node.data else {
        return;
    };
    let path = format!("{}.key", caller.path);
    if !text.contains("${") {
        let message = "a key in plain text, readable for everyone with this file; write ${env:NAME}, or key_sha256: \
                       with its hash";
        lints.warn(Rule::LiteralSecret, &node.location, path, message);
    }
}

fn check_credentials(caller: &Caller<'_>, lints: &mut Lints) {
    for (name, node) in caller
        .node
        .get("credentials")
        .and_then(Node::entries)
        .unwrap_or_default()
    {
        if let Data::Scalar(Value::String(text)) = &node.data
            && !text.contains("${")
        {
            let path = format!("{}.credentials.{}", caller.path, name.text);
            let message = "a credential in plain text, readable for everyone with this file; put it into a variable and \
                           write ${env:NAME}";
            lints.warn(Rule::LiteralSecret, &node.location, path, message);
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
            [
                "warning unreachable-tool tools.current_time 3",
                "hint no-admin callers 5"
            ]
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
        assert_eq!(
            caller_findings(
                "  - {name: a, key: \"${env:A}\", limits: [{calls: 9, per: hour}, {calls: 9, per: day}]}\n"
            ),
            ["warning idle-limit callers.1.limits.0 6"]
        );
    }
}
