//! The form of a schema that values are checked against, where it differs from the written form:
//! parts that cannot be judged, and the leniency towards foreign schemas
//! ([`SchemaOwner`]).

use serde_json::{Map, Value, json};

use super::keywords::parts_mut;
use super::owner::SchemaOwner;
use super::patterns::{PatternUse, pattern_use};
use crate::call::json::children;
use crate::sources::openapi::reader::append_sentence;

/// Changes a schema into the form that values are checked against.
pub fn relax(schema: &mut Value, owner: SchemaOwner) {
    visit(schema, &mut |fields| {
        if is_unjudged(fields, owner) {
            fields.shift_remove("pattern");
        }
        if owner.is_foreign() {
            accept_several_forms(fields);
            accept_both_spellings(fields);
            drop_unjudged_names(fields);
        }
    });
}

/// The schema with each pattern that is no constraint in the description beside it, where a model
/// can follow it. `None` if there is no such pattern.
pub fn describe_unjudged_patterns(schema: &Value, owner: SchemaOwner) -> Option<Value> {
    if !has_key(schema, "pattern") {
        return None;
    }
    let (mut described, mut is_changed) = (schema.clone(), false);
    visit(&mut described, &mut |fields| {
        if is_unjudged(fields, owner)
            && let Some(Value::String(pattern)) = fields.shift_remove("pattern")
        {
            let description = fields.get("description").and_then(Value::as_str);
            let sentence = format!("Pattern: {pattern}");
            let text = append_sentence(description.unwrap_or_default(), &sentence);
            fields.insert("description".into(), text.into());
            is_changed = true;
        }
    });
    is_changed.then_some(described)
}

fn has_key(value: &Value, key: &str) -> bool {
    value.get(key).is_some() || children(value).any(|inner| has_key(inner, key))
}

/// Whether a schema has a pattern that is no constraint, because no engine here can judge it. An
/// own pattern that is no regular expression at all is a fault of its author instead.
fn is_unjudged(fields: &Map<String, Value>, owner: SchemaOwner) -> bool {
    let pattern = fields.get("pattern").and_then(Value::as_str);
    pattern.is_some_and(|pattern| match pattern_use(pattern) {
        PatternUse::Linear(_) | PatternUse::Backtracking { .. } => false,
        PatternUse::Unsupported => true,
        PatternUse::Invalid => owner.is_foreign(),
    })
}

/// `oneOf` as `anyOf`: documents write it for forms of which several fit.
fn accept_several_forms(fields: &mut Map<String, Value>) {
    let Some(forms) = fields.shift_remove("oneOf") else {
        return;
    };
    if !fields.contains_key("anyOf") {
        fields.insert("anyOf".into(), forms);
        return;
    }
    let all = fields.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.push(json!({"anyOf": forms}));
    }
}

/// An enum with values of another type than `type` (`type: string, enum: [4.1]`) takes both
/// spellings of such a value: 4.1 and "4.1".
fn accept_both_spellings(fields: &mut Map<String, Value>) {
    let Some(types) = fields.get("type").cloned() else {
        return;
    };
    let Some(Value::Array(options)) = fields.get("enum") else {
        return;
    };
    let is_permitted = |value: &Value| match &types {
        Value::Array(types) => types.iter().any(|name| has_type(value, name)),
        name => has_type(value, name),
    };
    let mut accepted = Vec::new();
    let mut is_mixed = false;
    for option in options {
        let other = other_spelling(option).filter(|_| !is_permitted(option));
        match other.filter(&is_permitted) {
            Some(other) => {
                is_mixed = true;
                accepted.extend([option.clone(), other]);
            }
            None if is_permitted(option) => accepted.push(option.clone()),
            None => {}
        }
    }
    if is_mixed {
        accepted.dedup();
        fields.shift_remove("type");
        fields.insert("enum".into(), accepted.into());
    }
}

/// The text of a number or boolean; the number or boolean that a text writes.
fn other_spelling(value: &Value) -> Option<Value> {
    match value {
        Value::Number(_) | Value::Bool(_) => Some(value.to_string().into()),
        Value::String(text) => serde_json::from_str(text).ok(),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("string") => value.is_string(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    }
}

/// Names whose pattern cannot be judged may belong to it, so no rule for further names applies.
fn drop_unjudged_names(fields: &mut Map<String, Value>) {
    let Some(Value::Object(patterns)) = fields.get_mut("patternProperties") else {
        return;
    };
    let count = patterns.len();
    patterns.retain(|pattern, _| matches!(pattern_use(pattern), PatternUse::Linear(_)));
    if patterns.len() < count {
        fields.shift_remove("additionalProperties");
        fields.shift_remove("unevaluatedProperties");
    }
}

/// Changes a schema and each schema inside it, the inner ones first.
fn visit(schema: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    let Value::Object(fields) = schema else {
        return;
    };
    for (keyword, value) in fields.iter_mut() {
        for part in parts_mut(keyword, value) {
            visit(part, change);
        }
    }
    change(fields);
}
