//! The faults of a schema itself, in words for people who write schemas by hand.

use std::collections::HashSet;

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind};
use jsonschema::types::JsonType;
use serde_json::{Value, json};

use super::graph::Graph;
use super::keywords::local_target;
use super::patterns::{PatternUse, pattern_use};
use super::{SchemaFault, bounds};
use crate::settings::to_flow;
use crate::text::suggest;

/// Maximum number of faults of one schema.
const MAX_FAULTS: usize = 50;
/// The types of JSON Schema.
const TYPES: [&str; 7] = [
    "string", "integer", "number", "boolean", "array", "object", "null",
];
/// Names of types elsewhere, and what to write.
const OTHER_TYPES: [(&str, &str); 19] = [
    ("int", "did you mean integer?"),
    ("long", "did you mean integer?"),
    ("float", "did you mean number?"),
    ("double", "did you mean number?"),
    ("decimal", "did you mean number?"),
    ("str", "did you mean string?"),
    ("text", "did you mean string?"),
    ("bool", "did you mean boolean?"),
    ("list", "did you mean array?"),
    ("tuple", "did you mean array?"),
    ("map", "did you mean object?"),
    ("dict", "did you mean object?"),
    ("json", "did you mean object?"),
    ("date", "write `type: string, format: date`"),
    ("time", "write `type: string, format: time`"),
    ("datetime", "write `type: string, format: date-time`"),
    ("uuid", "write `type: string, format: uuid`"),
    ("enum", "write `type: string, enum: [a, b]`"),
    ("any", "leave `type` out to allow any value"),
];

/// All faults of a schema of draft 2020-12 without `$schema`. An empty list: the schema has no
/// fault, or another draft.
pub(super) fn find_definition_faults(schema: &Value) -> Vec<SchemaFault> {
    if schema.get("$schema").is_some() || bounds::measure_schema(schema).is_err() {
        return Vec::new();
    }
    let validator = jsonschema::draft202012::meta::validator();
    let mut faults: Vec<SchemaFault> = Vec::new();
    for error in validator.iter_errors(schema) {
        let fault = describe_fault(&error);
        // The parts of the draft's own schema may report one fault several times.
        if !faults.contains(&fault) {
            faults.push(fault);
        }
        if faults.len() == MAX_FAULTS {
            break;
        }
    }
    faults
}

/// One fault of a schema.
pub(super) fn describe_fault(error: &ValidationError<'_>) -> SchemaFault {
    let pointer = error.instance_path().as_str();
    let keyword = pointer
        .rsplit('/')
        .find(|token| token.parse::<usize>().is_err())
        .unwrap_or_default();
    let value: &Value = error.instance();
    let message = match error.kind() {
        ValidationErrorKind::AnyOf { .. } if keyword == "type" => describe_type(value),
        ValidationErrorKind::Enum { .. } if keyword == "type" => describe_type(value),
        ValidationErrorKind::Type { kind } => describe_wrong_type(kind, keyword, value),
        ValidationErrorKind::Minimum { limit } => format!("{limit} or more is expected here"),
        ValidationErrorKind::ExclusiveMinimum { limit } => {
            format!("more than {limit} is expected here")
        }
        ValidationErrorKind::MinItems { .. } => {
            "the list is empty: write at least one item, or leave it out".into()
        }
        ValidationErrorKind::UniqueItems => "the list has an item twice".into(),
        ValidationErrorKind::Format { format } if format == "regex" => {
            let is_valid = value
                .as_str()
                .is_some_and(|pattern| pattern_use(pattern) != PatternUse::Invalid);
            match is_valid {
                true => "a pattern for names cannot look around or refer to a group".into(),
                false => format!("{} is not a regular expression", to_flow(value)),
            }
        }
        _ => error.to_string(),
    };
    SchemaFault::new(pointer, message)
}

fn describe_type(value: &Value) -> String {
    let words = match value {
        Value::Array(words) => words.as_slice(),
        word => std::slice::from_ref(word),
    };
    let is_type = |word: &Value| word.as_str().is_some_and(|word| TYPES.contains(&word));
    let Some(word) = words.iter().find(|word| !is_type(word)) else {
        return "each type may stand in the list once".into();
    };
    let Some(word) = word.as_str() else {
        return format!("a type is expected here, one of {}", TYPES.join(", "));
    };
    let lower = word.to_lowercase();
    let other = OTHER_TYPES
        .iter()
        .find(|(name, _)| *name == lower)
        .map(|(_, advice)| (*advice).to_owned());
    let near = || suggest::near_name(&lower, TYPES).map(|near| format!("did you mean {near}?"));
    let advice = other
        .or_else(near)
        .unwrap_or_else(|| format!("there are {}", TYPES.join(", ")));
    format!("there is no type `{word}`; {advice}")
}

fn describe_wrong_type(kind: &TypeKind, keyword: &str, value: &Value) -> String {
    let expects = |word: JsonType| match kind {
        TypeKind::Single(expected) => *expected == word,
        TypeKind::Multiple(expected) => expected.contains(word),
    };
    let keyed = |value: &Value| format!("{keyword}: {}", to_flow(value));
    if expects(JsonType::Object) && expects(JsonType::Boolean) {
        let right = value
            .as_str()
            .filter(|word| TYPES.contains(word))
            .unwrap_or("string");
        return format!(
            "a schema is expected here, e.g. `{}`",
            keyed(&json!({"type": right}))
        );
    }
    if expects(JsonType::Array) {
        return match value {
            Value::Object(_) | Value::Null => "a list is expected here".into(),
            item => format!("a list is expected here: write `{}`", keyed(&json!([item]))),
        };
    }
    let number = value
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok())
        .filter(Value::is_number);
    let noun = if expects(JsonType::Integer) {
        "a whole number"
    } else if expects(JsonType::Number) {
        "a number"
    } else if expects(JsonType::String) {
        "a text"
    } else if expects(JsonType::Boolean) {
        "true or false"
    } else {
        "a map"
    };
    match number.filter(|_| expects(JsonType::Integer) || expects(JsonType::Number)) {
        Some(number) => format!("{noun} is expected here: write `{}`", keyed(&number)),
        None => format!("{noun} is expected here"),
    }
}

/// A reference that leads outside the schema.
pub(super) fn find_outside_reference(schema: &Value) -> Option<SchemaFault> {
    let graph = Graph::build(schema, usize::MAX, usize::MAX).ok()?;
    graph.objects().find_map(|(at, part)| {
        let target = part.get("$ref")?.as_str()?;
        let message = format!(
            "`$ref: {target}` leads outside; only references within the schema are followed"
        );
        let fault = SchemaFault::new(format!("{}/$ref", graph.pointer(at)), message);
        (!target.starts_with('#')).then_some(fault)
    })
}

/// A reference that leads to itself for the same value (`{"$ref": "#"}`). Following it would never
/// end.
pub(super) fn find_endless_reference(root: &Value) -> Option<SchemaFault> {
    let graph = Graph::build(root, usize::MAX, usize::MAX).ok()?;
    // Schemas from which every chain of references ends. Each is examined once, even if many
    // references lead to it.
    let mut ends: HashSet<*const Value> = HashSet::new();
    graph.objects().find_map(|(at, part)| {
        let mut seen = HashSet::from([std::ptr::from_ref(part)]);
        let mut target = part;
        while let Some(next) = local_target(root, target) {
            if ends.contains(&std::ptr::from_ref(next)) {
                break;
            }
            if !seen.insert(std::ptr::from_ref(next)) {
                let reference = target["$ref"].as_str().unwrap_or_default();
                return Some(SchemaFault::new(
                    format!("{}/$ref", graph.pointer(at)),
                    format!("`{reference}` leads back to itself and never ends"),
                ));
            }
            target = next;
        }
        ends.extend(seen);
        None
    })
}
