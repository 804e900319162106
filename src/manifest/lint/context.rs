//! Lint: context fields that a tool takes without using them, or that its cache key lacks.

use super::Lints;
use super::secrets::{FoundText, collect_texts};
use crate::call::{Effect, Kind};
use crate::manifest::decode::join_path;
use crate::manifest::node::Node;
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;

/// Checks one tool.
pub(super) fn check_context(parsed: &ParsedTool, entry_path: &str, lints: &mut Lints) {
    let Some(tool) = &parsed.tool else { return };
    let fields = tool.definition.context.as_deref().unwrap_or_default();
    // A command has each field as a variable, and other kinds pass the context on as a whole.
    let by_name = matches!(tool.kind, Kind::Http | Kind::Sql)
        || (tool.kind == Kind::Agent && !tool.runner.traits().calls_tools);
    if by_name && let Some(node) = parsed.entry.get("context") {
        let texts = collect_texts(&parsed.entry, entry_path, &|key| key == "context");
        for (at, field) in fields
            .iter()
            .enumerate()
            .filter(|(_, field)| !is_field_used(&texts, field))
        {
            let form = if tool.kind == Kind::Sql {
                format!(":context.{field}")
            } else {
                format!("{{{{ context.{field} }}}}")
            };
            let message = format!(
                "`{field}` is declared and not used; write {form} where it belongs, or leave it out"
            );
            let path = [at.to_string()];
            lints.warn(
                Rule::UnusedContext,
                node.locate(&path),
                join_path(entry_path, &["context".into(), at.to_string()]),
                message,
            );
        }
    }
    check_cache_key(parsed, tool.policy.effect, fields, entry_path, lints);
}

fn is_field_used(texts: &[FoundText<'_>], field: &str) -> bool {
    let name = format!("context.{field}");
    texts.iter().any(|text| {
        let ends = |at: usize| {
            !text.text[at..].starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-'))
        };
        text.text
            .match_indices(&name)
            .any(|(at, found)| ends(at + found.len()))
    })
}

/// Finds a cache whose own list lacks fields that the tool gets. Callers that differ in these
/// fields would share one result.
fn check_cache_key(
    parsed: &ParsedTool,
    effect: Effect,
    fields: &[String],
    entry_path: &str,
    lints: &mut Lints,
) {
    let Some(node) = parsed
        .entry
        .get("cache")
        .and_then(|cache| cache.get("context"))
    else {
        return;
    };
    let keyed: Vec<String> = match Node::to_json(node) {
        serde_json::Value::Array(names) => names
            .iter()
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect(),
        _ => return,
    };
    let missing: Vec<&str> = fields
        .iter()
        .filter(|field| !keyed.contains(field))
        .map(String::as_str)
        .collect();
    if effect == Effect::Read && !missing.is_empty() {
        let message = format!(
            "a result for one value of {} is also served for other values; add the fields that results depend on, \
             or leave this list out to use all fields of the tool",
            missing.join(", ")
        );
        lints.warn(
            Rule::SharedContext,
            &node.location,
            format!("{entry_path}.cache.context"),
            message,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{finding_lines, tool_findings};

    fn http_tool_findings(keys: &str) -> Vec<String> {
        let text = format!(
            "tools:\n  t:\n    kind: http\n    description: Counts the rows of a table that a customer owns.\n    effect: read\n{keys}"
        );
        finding_lines(&text, &[])
            .into_iter()
            .filter(|line| !line.contains("uncached-read"))
            .collect()
    }

    #[test]
    fn unused_context_fields_are_warnings() {
        let url = |path: &str| {
            format!("    context: [tenant]\n    request: {{url: 'https://a.example/{path}'}}\n")
        };
        assert_eq!(http_tool_findings(&url("{{ context.tenant }}")), [""; 0]);
        assert_eq!(
            http_tool_findings(&url("x")),
            ["warning unused-context tools.t.context.0 6"]
        );
        assert_eq!(
            http_tool_findings(&url("{{ context.tenants }}")).len(),
            1,
            "an error of its own"
        );
        assert_eq!(
            tool_findings("    context: [tenant]\n"),
            [""; 0],
            "a variable of the program"
        );
    }

    #[test]
    fn cache_keys_need_all_taken_fields() {
        let cache = |list: &str| {
            tool_findings(&format!(
                "    effect: read\n    context: [tenant, user]\n    cache: {{ttl: 1m{list}}}\n"
            ))
        };
        assert_eq!(cache(""), [""; 0]);
        assert_eq!(cache(", context: [tenant, user, region]"), [""; 0]);
        assert_eq!(
            cache(", context: [tenant]"),
            ["warning shared-context cache.context 8"]
        );
        assert_eq!(
            cache(", context: []"),
            ["warning shared-context cache.context 8"]
        );
    }
}
