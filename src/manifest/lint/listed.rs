//! Lints the tools that a source has listed: their names, descriptions and parameters, and what
//! providers refuse. The rules are those for tools in a manifest. What only the author of a schema
//! can decide is left out.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};

use super::schema_parts::ToolSchema;
use super::{Lints, descriptions, provider_refusals};
use crate::call::NameMatching;
use crate::formats::providers::Provider;
use crate::kinds::Tool;
use crate::manifest::finding::{Finding, Location, Severity};
use crate::manifest::node::{Key, Node};
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;

/// The most findings of one source that are kept. A hundred are enough to see what its author has
/// to change.
const MAX_FINDINGS: usize = 100;

/// The largest schema that is examined, and the most of one source, as bytes of JSON. Another party
/// may have written them, and the time for a schema with many references grows faster than its
/// size.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
const MAX_SOURCE_BYTES: usize = 4 << 20;
/// The longest name in a schema that is examined. The path of each part repeats the names above it.
const MAX_NAME_BYTES: usize = 256;
/// The longest message. Names in it may be of any length, because another party chose them.
const MAX_MESSAGE_CHARS: usize = 500;

/// What misleads models in the definition of a tool, or what a provider refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = FindingView)]
pub struct ListedFinding {
    /// Name of the tool.
    pub tool: String,
    /// The rule, as in `toolcrib check`.
    #[schema(value_type = String)]
    pub rule: Rule,
    /// The part of the definition, the fault and the correct form.
    pub message: String,
    /// Present and true if it may be intended.
    #[serde(rename = "hint", skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub is_hint: bool,
}

/// The findings about the tools of one source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedFindings {
    /// The warnings, then the hints, each in the order of the tools. At most a hundred.
    pub shown: Vec<ListedFinding>,
    /// The number of all warnings.
    pub warnings: usize,
}

impl ListedFindings {
    /// The same findings as hints.
    #[must_use]
    pub fn into_hints(mut self) -> Self {
        self.warnings = 0;
        for finding in &mut self.shown {
            finding.is_hint = true;
        }
        self
    }
}

/// Finds names, descriptions and parameters that mislead a model, or that a provider refuses.
pub fn lint_listed_tools<'t>(tools: impl Iterator<Item = &'t Tool>) -> ListedFindings {
    let mut bytes_left = MAX_SOURCE_BYTES;
    let parsed: Vec<ParsedTool> = tools
        .map(|tool| parse_tool(tool, &mut bytes_left))
        .collect();
    let mut shown: Vec<ListedFinding> = Vec::new();
    for tool in &parsed {
        let mut lints = Lints::default();
        lint_tool(tool, &mut lints);
        let findings = lints.into_findings().into_iter();
        shown.extend(findings.map(|finding| listed_finding(&tool.key.text, finding)));
    }
    // The lint of names compares all tools, so the path tells whose finding it is.
    let mut lints = Lints::default();
    provider_refusals::check_tool_names(&parsed, NameMatching::default(), &mut lints);
    let findings = lints.into_findings().into_iter();
    shown.extend(findings.map(|finding| listed_finding(&finding.path.clone(), finding)));
    shown.extend(hint_many_tools(&parsed));
    shown.sort_by_key(|finding| finding.is_hint);
    let warnings = shown.iter().filter(|finding| !finding.is_hint).count();
    shown.truncate(MAX_FINDINGS);
    ListedFindings { shown, warnings }
}

/// A hint if one provider refuses requests with that many tools. It is about the first tool above
/// the bound.
fn hint_many_tools(tools: &[ParsedTool]) -> Option<ListedFinding> {
    let (provider, most) = Provider::ALL
        .into_iter()
        .filter_map(|provider| Some((provider, provider.max_tools()?)))
        .min_by_key(|(_, most)| *most)?;
    Some(ListedFinding {
        tool: tools.get(most)?.key.text.clone(),
        rule: Rule::ManyTools,
        message: format!(
            "the source has {} tools, and {} refuses a request with more than {most}: choose with \
             include, exclude or the tools of a caller",
            tools.len(),
            provider.as_str()
        ),
        is_hint: true,
    })
}

fn listed_finding(tool: &str, finding: Finding) -> ListedFinding {
    let part = finding.path.strip_prefix(tool);
    let message = match part.and_then(|rest| rest.strip_prefix('.')) {
        Some(part) => format!("{part}: {}", finding.message),
        None => finding.message,
    };
    ListedFinding {
        tool: tool.to_owned(),
        rule: finding.rule,
        message: message.chars().take(MAX_MESSAGE_CHARS).collect(),
        is_hint: finding.severity == Severity::Hint,
    }
}

/// The tool as an entry of a manifest. A schema that is too large to be examined is left out.
fn parse_tool(tool: &Tool, bytes_left: &mut usize) -> ParsedTool {
    let definition = &tool.definition;
    let name = tool.name().to_owned();
    let mut entry = json!({"description": definition.description});
    let bytes = definition.input_schema.to_string().len();
    if bytes <= MAX_SCHEMA_BYTES.min(*bytes_left) && has_short_names(&definition.input_schema) {
        *bytes_left -= bytes;
        entry["input_schema"] = Value::clone(&definition.input_schema);
    }
    let location = Location::from_pointer("");
    ParsedTool {
        entry: Node::from_foreign_json(&entry, &location),
        key: Key {
            text: name.clone(),
            location,
        },
        path: name,
        tool: Some(tool.clone()),
        base: PathBuf::new(),
    }
}

fn has_short_names(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members
            .iter()
            .all(|(name, member)| name.len() <= MAX_NAME_BYTES && has_short_names(member)),
        Value::Array(items) => items.iter().all(has_short_names),
        _ => true,
    }
}

fn lint_tool(tool: &ParsedTool, lints: &mut Lints) {
    let is_missing = |tool: &Tool| tool.definition.description.trim().is_empty();
    if tool.tool.as_ref().is_some_and(is_missing) {
        let message = "no description: a model cannot know what the tool does; describe it at its source, or write \
                       description: below tools: of the source";
        let path = format!("{}.description", tool.path);
        lints.warn(Rule::MissingDescription, &tool.key.location, path, message);
    }
    descriptions::check_description(tool, lints);
    for schema in ToolSchema::from_entry(&tool.entry, &tool.path) {
        let parts = schema.parts();
        descriptions::check_parameters(&schema, &parts, lints);
        provider_refusals::check_parameter_names(&schema, lints);
        provider_refusals::check_roots(&parts, lints);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, description: &str, schema: Value) -> Tool {
        Tool::new(name, description)
            .input_schema(schema)
            .call_blocking(|_, _| Ok("done"))
    }

    fn lines(tools: &[Tool]) -> Vec<String> {
        let found = lint_listed_tools(tools.iter());
        assert_eq!(
            found.warnings,
            found
                .shown
                .iter()
                .filter(|finding| !finding.is_hint)
                .count()
        );
        let line = |finding: &ListedFinding| {
            let part = finding.message.split(": ").next().unwrap_or_default();
            let hint = if finding.is_hint { " hint" } else { "" };
            format!("{} {} {part}{hint}", finding.tool, finding.rule.as_str())
        };
        found.shown.iter().map(line).collect()
    }

    #[test]
    fn bare_function_gets_findings() {
        let schema = json!({"type": "object", "properties": {"name": {}, "times": {"default": 1}}});
        let found = lines(&[listed("greet", "greet", schema)]);
        let expected = [
            "greet vague-description description",
            "greet undescribed-parameter input_schema.properties.times",
            "greet undescribed-parameter input_schema.properties.name",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn provider_limits_are_found() {
        let text = "Finds the orders of a customer.";
        let property = json!({"type": "string", "description": "Id of the customer, e.g. c-17"});
        let schema =
            json!({"type": "object", "properties": {"filter[id]": property}, "anyOf": [{}]});
        let found = lines(&[
            listed("s_orders.find", text, schema),
            listed("s_fine", text, json!({"type": "object"})),
        ]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0]
                .starts_with("s_orders.find refused-parameter input_schema.properties.filter[id]"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("s_orders.find refused-schema input_schema.anyOf"),
            "{found:?}"
        );
        assert!(
            found[2].starts_with("s_orders.find refused-name") && found[2].ends_with("hint"),
            "{found:?}"
        );
    }

    #[test]
    fn more_tools_than_a_provider_accepts_are_a_hint() {
        let text = "Finds the orders of a customer.";
        let tools: Vec<Tool> = (0..129)
            .map(|at| listed(&format!("t{at:03}"), text, json!({"type": "object"})))
            .collect();
        assert_eq!(lines(&tools[..128]), [""; 0]);
        assert_eq!(
            lines(&tools),
            [
                "t128 many-tools the source has 129 tools, and OpenAI refuses a request with more than 128 hint"
            ]
        );
    }

    #[test]
    fn large_schemas_are_not_examined() {
        let many: Value = (0..10_000)
            .map(|at| (format!("p{at}"), json!({})))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let long = json!({"x".repeat(MAX_NAME_BYTES + 1): {}});
        for properties in [many, long] {
            let tool = listed(
                "t",
                "Finds the orders of a customer.",
                json!({"type": "object", "properties": properties}),
            );
            assert_eq!(lines(&[tool]), [""; 0]);
        }
    }

    #[test]
    fn findings_are_bounded() {
        let schema = json!({"type": "object", "properties": {"a": {}}});
        let tools: Vec<Tool> = (0..200)
            .map(|at| listed(&format!("t{at}"), "todo", schema.clone()))
            .collect();
        let found = lint_listed_tools(tools.iter());
        assert_eq!((found.shown.len(), found.warnings), (MAX_FINDINGS, 400));
    }
}
