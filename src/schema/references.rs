//! References (`$ref`) that cannot be followed.

use serde_json::Value;

use super::SchemaFault;
use crate::call::json;

/// The first reference that leads out of the schema.
pub(super) fn outside_reference(at: &Value, pointer: &str) -> Option<SchemaFault> {
    let below = |key: &str, value| outside_reference(value, &format!("{pointer}/{}", json::pointer_token(key)));
    match at {
        Value::Object(object) => {
            if let Some(target) = object.get("$ref").and_then(Value::as_str).filter(|target| !target.starts_with('#')) {
                let message = format!("`$ref: {target}` leads outside; only references within the schema are followed");
                return Some(SchemaFault { pointer: format!("{pointer}/$ref"), message });
            }
            object.iter().find_map(|(key, value)| below(key, value))
        }
        Value::Array(items) => items.iter().enumerate().find_map(|(at, item)| below(&at.to_string(), item)),
        _ => None,
    }
}

/// A reference that leads to itself without looking at the value (`{"$ref": "#"}`) would be followed for ever.
pub(super) fn endless_reference(root: &Value) -> Option<SchemaFault> {
    fn walk(root: &Value, at: &Value, path: &str) -> Option<SchemaFault> {
        match at {
            Value::Object(object) => {
                let mut seen = vec![std::ptr::from_ref(at)];
                let mut target = at;
                while let Some(pointer) = target.get("$ref").and_then(Value::as_str) {
                    let Some(next) = pointer.strip_prefix('#').and_then(|inside| root.pointer(inside)) else { break };
                    if seen.contains(&std::ptr::from_ref(next)) {
                        let message = format!("`{pointer}` leads back to itself and never ends");
                        return Some(SchemaFault { pointer: format!("{path}/$ref"), message });
                    }
                    seen.push(std::ptr::from_ref(next));
                    target = next;
                }
                object.iter().find_map(|(key, value)| walk(root, value, &format!("{path}/{key}")))
            }
            Value::Array(items) => items.iter().find_map(|item| walk(root, item, path)),
            _ => None,
        }
    }
    walk(root, root, "")
}
