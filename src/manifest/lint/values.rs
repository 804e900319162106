//! Lint: schemas that no value fits, and enum values that can never be given.
//!
//! Every call with such a parameter is refused. The values of an enum are checked against the other
//! keywords of their schema, with the validator that checks calls.

use serde_json::{Value, json};

use super::Lints;
use super::schema_parts::{Applicability, Part, ToolSchema};
use crate::manifest::node::{Data, Node};
use crate::manifest::rule::Rule;
use crate::schema::{Schema, SchemaOwner};
use crate::text::suggest;

/// Maximum number of reported values of one enum. A list of a thousand bad values is one mistake.
const MAX_REPORTED_VALUES: usize = 10;
/// Maximum number of checked values of one list.
const MAX_CHECKED_VALUES: usize = 1_000;

/// Pairs of bounds, the lower bound first.
const BOUNDS: [(&str, &str); 6] = [
    ("minimum", "maximum"),
    ("minimum", "exclusiveMaximum"),
    ("exclusiveMinimum", "maximum"),
    ("exclusiveMinimum", "exclusiveMaximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
];

/// Checks each part of a schema.
pub(super) fn check_values(schema: &ToolSchema<'_>, parts: &[Part<'_>], lints: &mut Lints) {
    for part in parts.iter().filter(|part| part.node.entries().is_some()) {
        check_bounds(part, lints);
        check_required(part, lints);
        check_enum(schema, part, lints);
    }
}

fn check_bounds(part: &Part<'_>, lints: &mut Lints) {
    for (lower, upper) in BOUNDS {
        let number = |keyword: &str| part.get(keyword).and_then(|node| node.to_json().as_f64());
        let (Some(least), Some(most)) = (number(lower), number(upper)) else {
            continue;
        };
        let exclusive = lower.starts_with("exclusive") || upper.starts_with("exclusive");
        if least > most || (exclusive && least >= most) {
            let message = format!(
                "no value fits: {lower} {least} is above {upper} {most}; swap or widen them"
            );
            lints.warn_at(Rule::Contradiction, part, &[lower], message);
        }
    }
}

/// Finds names in `required` that the properties of a closed object lack.
fn check_required(part: &Part<'_>, lints: &mut Lints) {
    let is_closed = part
        .get("additionalProperties")
        .is_some_and(|node| node.to_json() == false);
    if part.applicability != Applicability::Always
        || !is_closed
        || part.get("patternProperties").is_some()
    {
        return;
    }
    let properties = part.get("properties").and_then(Node::entries);
    let known: Vec<&str> = properties
        .unwrap_or_default()
        .iter()
        .map(|(key, _)| key.text.as_str())
        .collect();
    let names = part.get("required").map(Node::items).unwrap_or_default();
    for (at, node) in names.iter().enumerate().take(MAX_CHECKED_VALUES) {
        let Some(name) = node.as_str().filter(|name| !known.contains(name)) else {
            continue;
        };
        let advice = match suggest::near_name(name, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("add {name} to properties, or take it out here"),
        };
        let message =
            format!("no value fits: {name} is required and not among the properties; {advice}");
        lints.warn_at(
            Rule::Contradiction,
            part,
            &["required", &at.to_string()],
            message,
        );
    }
}

fn check_enum(schema: &ToolSchema<'_>, part: &Part<'_>, lints: &mut Lints) {
    let Some(Node {
        data: Data::List(values),
        ..
    }) = part.get("enum")
    else {
        return;
    };
    if values.is_empty() {
        let message = "no value fits: the list is empty; write the allowed values";
        return lints.warn_at(Rule::Contradiction, part, &["enum"], message);
    }
    let rest = schema_without_enum(schema, part);
    let mut seen = Vec::new();
    let mut reported = 0;
    for (at, node) in values.iter().enumerate().take(MAX_CHECKED_VALUES) {
        let value = node.to_json();
        let fault = match seen.contains(&value) {
            true => Some("is listed twice; leave one out".to_owned()),
            false => rest.as_ref().and_then(|rest| misfit_reason(rest, &value)),
        };
        if let Some(fault) = fault.filter(|_| reported < MAX_REPORTED_VALUES) {
            reported += 1;
            let message = format!("{} {fault}", abbreviate(&value));
            lints.warn_at(
                Rule::UnreachableEnum,
                part,
                &["enum", &at.to_string()],
                message,
            );
        }
        seen.push(value);
    }
}

/// Why the value can never be given.
fn misfit_reason(rest: &Schema, value: &Value) -> Option<String> {
    let violation = rest
        .violations(&json!({"value": value}))
        .into_iter()
        .next()?;
    let message = violation.message.trim_end_matches('.');
    let reason = match message.strip_prefix("`value` ") {
        Some(reason) => reason.to_owned(),
        None => format!("is refused: {message}"),
    };
    Some(format!(
        "can never be given: it {reason}; write one that fits, or take it out"
    ))
}

fn abbreviate(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The part without its enum, as the schema of a property `value`. `None` if it has references:
/// separately, they would have other targets.
fn schema_without_enum(schema: &ToolSchema<'_>, part: &Part<'_>) -> Option<Schema> {
    let mut alone = part.node.to_json();
    let keys = alone.as_object_mut()?;
    for key in [
        "enum",
        "default",
        "examples",
        "$defs",
        "definitions",
        "$schema",
    ] {
        keys.remove(key);
    }
    // The shorthand's `required: false`.
    keys.retain(|key, value| key != "required" || !value.is_boolean());
    let text = alone.to_string();
    if ["Ref\"", "\"$ref\"", "\"$id\"", "\"$anchor\""]
        .iter()
        .any(|key| text.contains(key))
    {
        return None;
    }
    let mut whole = json!({"properties": {"value": alone}});
    if let Some(draft) = schema.node.get("$schema").filter(|_| !schema.shorthand) {
        whole["$schema"] = draft.to_json();
    }
    Schema::compile(whole.into(), SchemaOwner::Own).ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_text, schema_findings, tool_findings};

    /// The findings for one parameter `n`.
    fn parameter_findings(parameter: &str) -> Vec<String> {
        let found = tool_findings(&format!(
            "    parameters: {{n: {{description: Number of rows, {parameter}}}}}\n"
        ));
        found
            .into_iter()
            .map(|line| {
                line.replace("parameters.n.", "")
                    .trim_end_matches(" 6")
                    .to_owned()
            })
            .collect()
    }

    #[test]
    fn unreachable_enum_values_are_warnings() {
        assert_eq!(
            parameter_findings("type: string, enum: [a, b], default: a"),
            [""; 0]
        );
        assert_eq!(
            parameter_findings("type: string, enum: [a, 5]"),
            ["warning unreachable-enum enum.1"]
        );
        assert_eq!(
            parameter_findings("type: string, enum: [a, a]"),
            ["warning unreachable-enum enum.1"]
        );
        assert_eq!(
            parameter_findings("type: string, pattern: '^[a-z]+$', enum: [a, B]"),
            ["warning unreachable-enum enum.1"]
        );
        assert_eq!(
            parameter_findings("type: integer, minimum: 2, enum: [1, 2, 3]"),
            ["warning unreachable-enum enum.0"]
        );
        assert_eq!(
            parameter_findings("type: string, maxLength: 3, enum: [celsius]"),
            ["warning unreachable-enum enum.0"]
        );
        assert_eq!(
            parameter_findings("type: string, enum: []"),
            ["warning contradiction enum"]
        );
        assert_eq!(
            parameter_findings("type: [string, 'null'], enum: [a, null]"),
            [""; 0]
        );
        assert_eq!(
            parameter_findings("nullable: true, enum: [a, null]"),
            [""; 0]
        );
    }

    #[test]
    fn enum_message_has_value_reason_and_advice() {
        let text = "tools:\n  t:\n    kind: command\n    command: [/bin/true]\n    description: Counts rows of customers.\n    \
                    parameters: {n: {description: Number of rows, type: integer, enum: [1, two]}}\n";
        let found = check_text(text, &[]).findings;
        assert_eq!(
            found[0].to_string(),
            "t.yaml:6:76: warning: tools.t.parameters.n.enum.1: \"two\" can never be given: it must be an integer, not \
             this string; write one that fits, or take it out [unreachable-enum]"
        );
    }

    #[test]
    fn contradictory_bounds_are_warnings() {
        assert_eq!(
            parameter_findings("type: integer, minimum: 5, maximum: 4"),
            ["warning contradiction minimum"]
        );
        assert_eq!(
            parameter_findings("type: integer, exclusiveMinimum: 5, maximum: 5"),
            ["warning contradiction exclusiveMinimum"]
        );
        assert_eq!(
            parameter_findings("type: string, minLength: 5, maxLength: 4"),
            ["warning contradiction minLength"]
        );
        assert_eq!(
            parameter_findings("type: integer, minimum: 5, maximum: 5"),
            [""; 0]
        );
    }

    #[test]
    fn required_names_must_be_properties() {
        let closed = r#"{"type": "object", "additionalProperties": false, "properties": {"city": {"type": "string", "description": "City, country"}}, "required": ["citty"]}"#;
        assert_eq!(
            schema_findings(closed),
            ["warning contradiction required.0"]
        );
        assert_eq!(schema_findings(&closed.replace("false", "true")), [""; 0]);
        assert_eq!(schema_findings(&closed.replace("citty", "city")), [""; 0]);
        let branch = r#"{"type": "object", "additionalProperties": true, "required": ["a"], "then": {"properties": {"a": {"type": "string", "description": "Name of a row"}}}}"#;
        assert_eq!(schema_findings(branch), [""; 0]);
    }

    #[test]
    fn parts_with_references_are_not_judged() {
        let schema = r##"{"type": "object", "additionalProperties": false, "$defs": {"unit": {"type": "string", "description": "Unit of weight"}},
            "properties": {"u": {"$ref": "#/$defs/unit", "enum": ["kg", 5]}}}"##;
        assert_eq!(schema_findings(schema), [""; 0]);
    }
}
