//! Values that the schema marks `writeOnly`: they reach the tool and are not recorded.
//!
//! Rather one value too many than one too few: every branch of a combination counts, and a string that stands where a
//! marked value could be inside (an object sent as JSON text) is left out whole.

use std::collections::HashSet;

use serde_json::Value;

use crate::secrets::REDACTED;

/// Schemas looked at for one call, and how deep: a schema that refers to itself has no end, and looking uses the stack.
/// What lies beyond is left out too.
const MAX_STEPS: usize = 20_000;
const MAX_DEPTH: usize = 256;
/// Keywords that hold one schema for the same value.
const SAME_PLACE: [&str; 4] = ["if", "then", "else", "not"];
/// Keywords that hold a list of schemas for the same value.
const COMBINATIONS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that hold a schema for each of an object's or a list's parts.
const OF_PARTS: [&str; 5] = ["additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "contains"];

/// Whether anything in a schema is marked.
pub(super) fn mentions_write_only(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => is_marked(schema) || object.values().any(mentions_write_only),
        Value::Array(items) => items.iter().any(mentions_write_only),
        _ => false,
    }
}

/// Puts a mark in the place of every such value.
pub(super) fn hide_write_only(schema: &Value, value: &mut Value) {
    hide(schema, schema, value, &mut { MAX_STEPS }, 0);
}

fn is_marked(schema: &Value) -> bool {
    schema.get("writeOnly") == Some(&Value::Bool(true))
}

fn hide(root: &Value, schema: &Value, value: &mut Value, steps: &mut usize, depth: usize) {
    if *steps == 0 || depth > MAX_DEPTH {
        *value = REDACTED.into();
        return;
    }
    *steps -= 1;
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|target| root.pointer(target.strip_prefix('#')?));
    if is_marked(schema) || (value.is_string() && mentions_below(root, schema, &mut HashSet::new())) {
        *value = REDACTED.into();
        return;
    }
    if let Some(target) = target {
        hide(root, target, value, steps, depth + 1);
    }
    for same in SAME_PLACE.iter().filter_map(|keyword| schema.get(keyword)) {
        hide(root, same, value, steps, depth + 1);
    }
    for branch in COMBINATIONS.iter().filter_map(|keyword| schema.get(keyword)?.as_array()).flatten() {
        hide(root, branch, value, steps, depth + 1);
    }
    for dependent in schema.get("dependentSchemas").and_then(Value::as_object).into_iter().flat_map(|map| map.values())
    {
        hide(root, dependent, value, steps, depth + 1);
    }
    match value {
        Value::Object(object) => {
            for (name, inner) in object {
                if let Some(property) = schema.get("properties").and_then(|properties| properties.get(name)) {
                    hide(root, property, inner, steps, depth + 1);
                }
                let patterns = schema.get("patternProperties").and_then(Value::as_object);
                let any = patterns.into_iter().flat_map(|map| map.values());
                for part in any.chain(OF_PARTS.iter().filter_map(|keyword| schema.get(keyword))) {
                    if schema.get("properties").and_then(|properties| properties.get(name)).is_none() {
                        hide(root, part, inner, steps, depth + 1);
                    }
                }
            }
        }
        Value::Array(items) => {
            let prefix = schema.get("prefixItems").and_then(Value::as_array);
            for (at, item) in items.iter_mut().enumerate() {
                if let Some(own) = prefix.and_then(|prefix| prefix.get(at)) {
                    hide(root, own, item, steps, depth + 1);
                }
                for part in OF_PARTS.iter().filter_map(|keyword| schema.get(keyword)) {
                    hide(root, part, item, steps, depth + 1);
                }
            }
        }
        _ => {}
    }
}

/// Whether a marked value could stand inside one of this schema. Each reference is followed once.
fn mentions_below<'a>(root: &'a Value, schema: &'a Value, seen: &mut HashSet<&'a str>) -> bool {
    match schema {
        Value::Object(object) => {
            let target = object.get("$ref").and_then(Value::as_str).filter(|target| seen.insert(target));
            let target = target.and_then(|target| root.pointer(target.strip_prefix('#')?));
            is_marked(schema)
                || target.is_some_and(|target| mentions_below(root, target, seen))
                || object.values().any(|inner| mentions_below(root, inner, seen))
        }
        Value::Array(items) => items.iter().any(|item| mentions_below(root, item, seen)),
        _ => false,
    }
}
