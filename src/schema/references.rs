//! Finds references (`$ref`) that cannot be followed.

use std::collections::HashSet;

use serde_json::Value;

use super::SchemaFault;
use crate::call::json;

/// The first reference that leads outside the schema.
pub(super) fn find_outside_reference(at: &Value, pointer: &str) -> Option<SchemaFault> {
    let below = |key: &str, value| {
        find_outside_reference(
            value,
            &format!("{pointer}/{}", json::escape_pointer_token(key)),
        )
    };
    match at {
        Value::Object(object) => {
            if let Some(target) = object
                .get("$ref")
                .and_then(Value::as_str)
                .filter(|target| !target.starts_with('#'))
            {
                let message = format!(
                    "`$ref: {target}` leads outside; only references within the schema are followed"
                );
                return Some(SchemaFault::new(format!("{pointer}/$ref"), message));
            }
            object.iter().find_map(|(key, value)| below(key, value))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| below(&at.to_string(), item)),
        _ => None,
    }
}

/// The first reference that leads to itself for the same value (`{"$ref": "#"}`). Following it
/// would never end.
pub(super) fn find_endless_reference(root: &Value) -> Option<SchemaFault> {
    // Schemas from which every chain of references ends. Each is examined once, even if many
    // references lead to it.
    let mut ends: HashSet<*const Value> = HashSet::new();
    follow_references(root, root, "", &mut ends)
        .or_else(|| find_endless_below(root, root, &mut String::new(), &mut ends))
}

/// Examines everything below a position.
fn find_endless_below(
    root: &Value,
    at: &Value,
    path: &mut String,
    ends: &mut HashSet<*const Value>,
) -> Option<SchemaFault> {
    let mut below = |token: &str, value: &Value| {
        let length = path.len();
        path.push('/');
        path.push_str(&json::escape_pointer_token(token));
        let found = follow_references(root, value, path, ends)
            .or_else(|| find_endless_below(root, value, path, ends));
        path.truncate(length);
        found
    };
    match at {
        Value::Object(object) => object.iter().find_map(|(key, value)| below(key, value)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| below(&at.to_string(), item)),
        _ => None,
    }
}

/// Follows the references of one schema until the chain ends or returns to a schema that it has
/// passed.
fn follow_references(
    root: &Value,
    at: &Value,
    path: &str,
    ends: &mut HashSet<*const Value>,
) -> Option<SchemaFault> {
    let mut seen = HashSet::from([std::ptr::from_ref(at)]);
    let mut target = at;
    while let Some(reference) = target.get("$ref").and_then(Value::as_str) {
        let Some(next) = reference
            .strip_prefix('#')
            .and_then(|inside| root.pointer(inside))
        else {
            break;
        };
        if ends.contains(&std::ptr::from_ref(next)) {
            break;
        }
        if !seen.insert(std::ptr::from_ref(next)) {
            return Some(SchemaFault::new(
                format!("{path}/$ref"),
                format!("`{reference}` leads back to itself and never ends"),
            ));
        }
        target = next;
    }
    ends.extend(seen);
    None
}
