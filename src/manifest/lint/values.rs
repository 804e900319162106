//! Lint: values that do not fit their own schema, and schemas that no value fits.
//!
//! The values of an enum, a default, a const and examples are checked against the other keywords of
//! their schema. The validator is the one that checks calls. Only faults that this schema alone
//! decides are reported.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::Lints;
use super::schema_parts::{Applicability, Part, Role, ToolSchema};
use crate::manifest::node::{Data, Node};
use crate::manifest::rule::Rule;
use crate::schema::{Schema, SchemaOwner};
use crate::text::suggest;

/// Maximum number of reported values of one enum. A list of a thousand bad values is one mistake.
const MAX_REPORTED_VALUES: usize = 10;
/// Maximum number of checked values of one list.
const MAX_CHECKED_VALUES: usize = 1_000;

/// Pairs of bounds, the lower bound first.
const BOUNDS: [(&str, &str); 8] = [
    ("minimum", "maximum"),
    ("minimum", "exclusiveMaximum"),
    ("exclusiveMinimum", "maximum"),
    ("exclusiveMinimum", "exclusiveMaximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    ("minContains", "maxContains"),
];

/// Keywords and the types to which they apply. (`format` is used for numbers too.)
const KEYWORDS_BY_TYPE: [(&str, &[&str], &[&str]); 4] = [
    (
        "strings",
        &["string"],
        &["minLength", "maxLength", "pattern"],
    ),
    (
        "numbers",
        &["number", "integer"],
        &[
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ],
    ),
    (
        "arrays",
        &["array"],
        &[
            "items",
            "prefixItems",
            "minItems",
            "maxItems",
            "uniqueItems",
            "contains",
        ],
    ),
    (
        "objects",
        &["object"],
        &[
            "properties",
            "patternProperties",
            "additionalProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
        ],
    ),
];

/// Checks each part of a schema.
pub(super) fn check_values(schema: &ToolSchema<'_>, parts: &[Part<'_>], lints: &mut Lints) {
    let definitions = Definitions::from_schema(schema);
    let anywhere: HashSet<&str> = parts
        .iter()
        .filter_map(|part| part.role.property())
        .collect();
    for part in parts.iter().filter(|part| part.node.entries().is_some()) {
        check_bounds(part, lints);
        check_stray_keywords(part, lints);
        check_required(part, &anywhere, lints);
        check_enum(part, &definitions, lints);
        check_given_values(schema, part, &definitions, lints);
    }
}

fn check_bounds(part: &Part<'_>, lints: &mut Lints) {
    for (lower, upper) in BOUNDS {
        let number = |keyword: &str| part.get(keyword).and_then(|node| node.to_json().as_f64());
        let (Some(least), Some((location, _)), Some(most)) =
            (number(lower), part.keyword(lower), number(upper))
        else {
            continue;
        };
        let exclusive = lower.starts_with("exclusive") || upper.starts_with("exclusive");
        if least > most || (exclusive && least >= most) {
            let message = format!(
                "no value fits: {lower} {least} is above {upper} {most}; swap or widen them"
            );
            lints.warn(
                Rule::Contradiction,
                location,
                part.key_path(&[lower]),
                message,
            );
        }
    }
}

fn check_stray_keywords(part: &Part<'_>, lints: &mut Lints) {
    let types = part.types();
    if types.is_empty() {
        return;
    }
    for (about, of_types, keywords) in KEYWORDS_BY_TYPE {
        if of_types.iter().any(|one| types.contains(one)) {
            continue;
        }
        for &keyword in keywords {
            if let Some((location, _)) = part.keyword(keyword) {
                let types = types.join(" or ");
                let message = format!(
                    "has no effect: {keyword} applies to {about}, and the type here is {types}; change one or the other"
                );
                lints.warn(
                    Rule::StrayKeyword,
                    location,
                    part.key_path(&[keyword]),
                    message,
                );
            }
        }
    }
}

/// Finds names in `required` that `properties` lacks. A branch may name properties of an outer
/// schema, and an outer schema may name properties of a branch. Only with
/// `additionalProperties: false` must a schema contain all its names itself.
fn check_required(part: &Part<'_>, anywhere: &HashSet<&str>, lints: &mut Lints) {
    let Some(Node {
        data: Data::List(names),
        ..
    }) = part.get("required")
    else {
        return;
    };
    if part.applicability != Applicability::Always || part.has_any(&["patternProperties"]) {
        return;
    }
    let known: Vec<&str> = match part.get("properties") {
        Some(properties) => properties
            .entries()
            .unwrap_or_default()
            .iter()
            .map(|(key, _)| key.text.as_str())
            .collect(),
        None => Vec::new(),
    };
    let closed = part
        .get("additionalProperties")
        .is_some_and(|node| node.to_json() == Value::Bool(false));
    for (at, node) in names.iter().enumerate().take(MAX_CHECKED_VALUES) {
        let Data::Scalar(Value::String(name)) = &node.data else {
            continue;
        };
        if known.contains(&name.as_str()) || (!closed && anywhere.contains(name.as_str())) {
            continue;
        }
        let advice =
            match suggest::closest_name(name, known.iter().copied(), suggest::MIN_HINT_RATIO) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("add {name} to properties, or take it out here"),
            };
        let path = part.key_path(&["required", &at.to_string()]);
        if closed {
            let message =
                format!("no value fits: {name} is required and not among the properties; {advice}");
            lints.warn(Rule::Contradiction, &node.location, path, message);
        } else {
            let message = format!("{name} is not among the properties; {advice}");
            lints.warn(Rule::UnknownRequired, &node.location, path, message);
        }
    }
}

fn check_enum(part: &Part<'_>, definitions: &Definitions, lints: &mut Lints) {
    let Some((
        location,
        Node {
            data: Data::List(values),
            ..
        },
    )) = part.keyword("enum")
    else {
        return;
    };
    if values.is_empty() {
        let message = "no value fits: the list is empty; write the allowed values";
        lints.warn(
            Rule::Contradiction,
            location,
            part.key_path(&["enum"]),
            message,
        );
        return;
    }
    let rest = definitions.schema_without(part, &["enum"]);
    let mut seen = Vec::new();
    let mut reported = 0;
    for (at, node) in values.iter().enumerate().take(MAX_CHECKED_VALUES) {
        let value = node.to_json();
        let fault = if seen.contains(&value) {
            Some(("is listed twice".to_owned(), "leave one out"))
        } else {
            let fault = rest.as_ref().and_then(|rest| misfit_reason(rest, &value));
            fault.map(|fault| {
                (
                    format!("can never be given: it {fault}"),
                    "write one that fits, or take it out",
                )
            })
        };
        if let Some((fault, advice)) = fault.filter(|_| reported < MAX_REPORTED_VALUES) {
            reported += 1;
            let message = format!("{} {fault}; {advice}", abbreviate(&value));
            let path = part.key_path(&["enum", &at.to_string()]);
            lints.warn(Rule::UnreachableEnum, &node.location, path, message);
        }
        seen.push(value);
    }
}

fn check_given_values(
    schema: &ToolSchema<'_>,
    part: &Part<'_>,
    definitions: &Definitions,
    lints: &mut Lints,
) {
    // The loader refuses a default of a parameter that does not fit.
    let parameter = schema.is_input() && is_parameter(schema, part);
    for keyword in ["default", "const", "examples"] {
        let Some((location, node)) = part.keyword(keyword) else {
            continue;
        };
        if keyword == "default" && parameter {
            continue;
        }
        let Some(rest) = definitions.schema_without(
            part,
            if keyword == "const" {
                &["const", "enum"]
            } else {
                &[]
            },
        ) else {
            continue;
        };
        let values: Vec<Value> = match (&node.data, keyword) {
            (Data::List(items), "examples") => items
                .iter()
                .take(MAX_CHECKED_VALUES)
                .map(Node::to_json)
                .collect(),
            (_, "examples") => Vec::new(),
            _ => vec![node.to_json()],
        };
        if let Some((value, why)) = values
            .iter()
            .find_map(|value| Some((value, misfit_reason(&rest, value)?)))
        {
            let message = format!(
                "{} does not fit: it {why}; write a value that does",
                abbreviate(value)
            );
            lints.warn(
                Rule::UnfitValue,
                location,
                part.key_path(&[keyword]),
                message,
            );
        }
    }
}

/// Whether the part is a parameter of the tool, not a part inside one.
fn is_parameter(schema: &ToolSchema<'_>, part: &Part<'_>) -> bool {
    let Role::Property(name) = part.role else {
        return false;
    };
    let middle = if schema.shorthand {
        "."
    } else {
        ".properties."
    };
    part.path == format!("{}{middle}{name}", schema.path)
}

/// Why the value does not fit. The text continues a sentence that begins with "it".
fn misfit_reason(rest: &Schema, value: &Value) -> Option<String> {
    let violation = rest
        .violations(&json!({"value": value}))
        .into_iter()
        .next()?;
    let message = violation.message.trim_end_matches('.');
    let own = message.strip_prefix("`value` ").map(str::to_owned);
    Some(own.unwrap_or_else(|| format!("is refused: {message}")))
}

fn abbreviate(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 {
        text
    } else {
        format!("{}…", text.chars().take(39).collect::<String>())
    }
}

/// The definitions of a schema, for references in its parts.
struct Definitions {
    draft: Option<Value>,
    definitions: Map<String, Value>,
    /// Some references have other targets than definitions. Then parts cannot be checked
    /// separately.
    has_other_targets: bool,
}

impl Definitions {
    fn from_schema(schema: &ToolSchema<'_>) -> Self {
        let mut definitions = Map::new();
        for keyword in ["$defs", "definitions"]
            .into_iter()
            .filter(|_| !schema.shorthand)
        {
            if let Some(node) = schema.node.get(keyword) {
                definitions.insert(keyword.to_owned(), node.to_json());
            }
        }
        let draft = schema
            .node
            .get("$schema")
            .filter(|_| !schema.shorthand)
            .map(Node::to_json);
        let has_other_targets = definitions.values().any(has_other_target);
        Self {
            draft,
            definitions,
            has_other_targets,
        }
    }

    /// The part without these keywords, as the schema of a property `value`. `None` if the part
    /// cannot be checked separately.
    fn schema_without(&self, part: &Part<'_>, keywords: &[&str]) -> Option<Schema> {
        let mut alone = part.node.to_json();
        let keys = alone.as_object_mut()?;
        for &keyword in ["default", "examples", "$defs", "definitions", "$schema"]
            .iter()
            .chain(keywords)
        {
            keys.remove(keyword);
        }
        // The shorthand's `required: false`.
        if keys.get("required").is_some_and(Value::is_boolean) {
            keys.remove("required");
        }
        // Definitions are added only if needed: most parts have no references, and there may be
        // many definitions.
        let refers = alone.to_string().contains("$ref");
        if (refers && self.has_other_targets) || has_other_target(&alone) {
            return None;
        }
        let mut schema = if refers {
            self.definitions.clone()
        } else {
            Map::new()
        };
        schema.insert("properties".into(), json!({"value": alone}));
        if let Some(draft) = &self.draft {
            schema.insert("$schema".into(), draft.clone());
        }
        Schema::compile(Value::Object(schema).into(), SchemaOwner::Own).ok()
    }
}

/// Whether a reference has a target that is not a definition.
fn has_other_target(schema: &Value) -> bool {
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(keys) => {
                let to_definition = |target: &Value| {
                    let target = target.as_str().unwrap_or_default();
                    target.starts_with("#/$defs/") || target.starts_with("#/definitions/")
                };
                let anchored = ["$dynamicRef", "$recursiveRef", "$id", "$anchor"]
                    .iter()
                    .any(|key| keys.contains_key(*key));
                if anchored
                    || keys
                        .get("$ref")
                        .is_some_and(|target| !to_definition(target))
                {
                    return true;
                }
                open.extend(keys.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
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
    fn keywords_of_other_types_are_warnings() {
        assert_eq!(
            parameter_findings("type: string, minimum: 5"),
            ["warning stray-keyword minimum"]
        );
        assert_eq!(
            parameter_findings("type: integer, items: {type: string}"),
            ["warning stray-keyword items"]
        );
        assert_eq!(
            parameter_findings("type: [string, integer], minimum: 5, minLength: 1"),
            [""; 0]
        );
        assert_eq!(parameter_findings("minimum: 5, enum: [7]"), [""; 0]);
    }

    #[test]
    fn misfit_defaults_and_examples_are_warnings() {
        assert_eq!(
            parameter_findings("type: integer, examples: [5, many]"),
            ["warning unfit-value examples"]
        );
        assert_eq!(
            parameter_findings("type: integer, const: many"),
            ["warning unfit-value const"]
        );
        let nested = "type: object, additionalProperties: false, properties: {m: {type: integer, default: x, description: \
                      Rows at most}}";
        assert_eq!(
            parameter_findings(nested),
            ["warning unfit-value properties.m.default"]
        );
        // For a parameter itself this is an error, which is reported only once.
        assert_eq!(
            parameter_findings("type: integer, default: x"),
            ["error invalid default"]
        );
    }

    #[test]
    fn required_names_must_be_properties() {
        let closed = r#"{"type": "object", "additionalProperties": false, "properties": {"city": {"type": "string", "description": "City, country"}}, "required": ["citty"]}"#;
        assert_eq!(
            schema_findings(closed),
            ["warning contradiction required.0"]
        );
        assert_eq!(
            schema_findings(&closed.replace("false", "true")),
            ["warning unknown-required required.0"]
        );
        assert_eq!(schema_findings(&closed.replace("citty", "city")), [""; 0]);
        let branch = r#"{"type": "object", "additionalProperties": true, "required": ["a"], "then": {"properties": {"a": {"type": "string", "description": "Name of a row"}}}}"#;
        assert_eq!(schema_findings(branch), [""; 0]);
    }

    #[test]
    fn references_to_definitions_are_followed() {
        let schema = r##"{"type": "object", "additionalProperties": false, "$defs": {"unit": {"type": "string", "description": "Unit of weight"}},
            "properties": {"u": {"$ref": "#/$defs/unit", "enum": ["kg", 5]}}}"##;
        assert_eq!(
            schema_findings(schema),
            ["warning unreachable-enum properties.u.enum.1"]
        );
        // In a separate part, `#` would be another schema. So nothing is reported.
        let looped = r##"{"type": "object", "additionalProperties": false, "properties": {"u": {"$ref": "#", "enum": [5], "description": "Unit of weight"}}}"##;
        assert_eq!(schema_findings(looped), [""; 0]);
    }
}
