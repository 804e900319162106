//! Lint: context fields that a tool takes without using them, or that its cache key lacks.

use super::Lints;
use super::secrets::{Text, texts};
use crate::call::{Effect, Kind};
use crate::manifest::decode::join;
use crate::manifest::load::WrittenTool;
use crate::manifest::node::Node;
use crate::manifest::rule::Rule;

/// Checks one tool.
pub(super) fn look(written: &WrittenTool, under: &str, lints: &mut Lints) {
    let Some(tool) = &written.tool else { return };
    let fields = tool.definition.context.as_deref().unwrap_or_default();
    // A command has each field as a variable, and other kinds pass the context on as a whole.
    let by_name =
        matches!(tool.kind, Kind::Http | Kind::Sql) || (tool.kind == Kind::Agent && !tool.runner.calls_tools());
    if by_name && let Some(node) = written.entry.get("context") {
        let texts = texts(&written.entry, under, &|key| key == "context");
        for (at, field) in fields.iter().enumerate().filter(|(_, field)| !is_used(&texts, field)) {
            let form =
                if tool.kind == Kind::Sql { format!(":context.{field}") } else { format!("{{{{ context.{field} }}}}") };
            let message = format!("`{field}` is taken and not used; write {form} where it belongs, or leave it out");
            let path = [at.to_string()];
            lints.warn(
                Rule::UnusedContext,
                node.locate(&path),
                join(under, &["context".into(), at.to_string()]),
                message,
            );
        }
    }
    keyed(written, tool.policy.effect, fields, under, lints);
}

fn is_used(texts: &[Text<'_>], field: &str) -> bool {
    let name = format!("context.{field}");
    texts.iter().any(|text| {
        let ends = |at: usize| !text.text[at..].starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-'));
        text.text.match_indices(&name).any(|(at, found)| ends(at + found.len()))
    })
}

/// Finds a cache whose own list lacks fields that the tool gets. Callers that differ in these fields would share one
/// result.
fn keyed(written: &WrittenTool, effect: Effect, fields: &[String], under: &str, lints: &mut Lints) {
    let Some(node) = written.entry.get("cache").and_then(|cache| cache.get("context")) else { return };
    let keyed: Vec<String> = match Node::to_json(node) {
        serde_json::Value::Array(names) => names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect(),
        _ => return,
    };
    let missing: Vec<&str> = fields.iter().filter(|field| !keyed.contains(field)).map(String::as_str).collect();
    if effect == Effect::Read && !missing.is_empty() {
        let message = format!(
            "an answer for one value of {} is given for another; add what answers depend on, or leave this list out to have \
             all that the tool takes",
            missing.join(", ")
        );
        lints.warn(Rule::SharedContext, &node.place, format!("{under}.cache.context"), message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, of_tool};

    fn http(keys: &str) -> Vec<String> {
        let text = format!(
            "tools:\n  t:\n    kind: http\n    description: Counts the rows of a table that a customer owns.\n    effect: read\n{keys}"
        );
        found(&text, &[]).into_iter().filter(|line| !line.contains("uncached-read")).collect()
    }

    #[test]
    fn taken_fields_are_used() {
        let url = |path: &str| format!("    context: [tenant]\n    request: {{url: 'https://a.example/{path}'}}\n");
        assert_eq!(http(&url("{{ context.tenant }}")), [""; 0]);
        assert_eq!(http(&url("x")), ["warning unused-context tools.t.context.0 6"]);
        assert_eq!(http(&url("{{ context.tenants }}")).len(), 1, "an error of its own");
        assert_eq!(of_tool("    context: [tenant]\n"), [""; 0], "a variable of the program");
    }

    #[test]
    fn caches_tell_taken_fields_apart() {
        let cache = |list: &str| {
            of_tool(&format!("    effect: read\n    context: [tenant, user]\n    cache: {{ttl: 1m{list}}}\n"))
        };
        assert_eq!(cache(""), [""; 0]);
        assert_eq!(cache(", context: [tenant, user, region]"), [""; 0]);
        assert_eq!(cache(", context: [tenant]"), ["warning shared-context cache.context 8"]);
        assert_eq!(cache(", context: []"), ["warning shared-context cache.context 8"]);
    }
}
