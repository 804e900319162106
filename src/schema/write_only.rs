//! Values that the schema marks `writeOnly`: they reach the tool and are not recorded.

use serde_json::Value;

use crate::secrets::REDACTED;

pub(super) fn mentions_write_only(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            object.get("writeOnly") == Some(&Value::Bool(true)) || object.values().any(mentions_write_only)
        }
        Value::Array(items) => items.iter().any(mentions_write_only),
        _ => false,
    }
}

/// Puts a mark in the place of every such value.
///
/// Follows properties and items, and looks into every branch of a combination: rather one value too many.
pub(super) fn hide_write_only(schema: &Value, value: &mut Value) {
    if schema.get("writeOnly") == Some(&Value::Bool(true)) {
        *value = REDACTED.into();
        return;
    }
    for branches in ["allOf", "anyOf", "oneOf"] {
        for branch in schema.get(branches).and_then(Value::as_array).into_iter().flatten() {
            hide_write_only(branch, value);
        }
    }
    match value {
        Value::Object(object) => {
            for (name, inner) in object {
                if let Some(property) = schema.get("properties").and_then(|properties| properties.get(name)) {
                    hide_write_only(property, inner);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of_items) = schema.get("items") {
                items.iter_mut().for_each(|item| hide_write_only(of_items, item));
            }
        }
        _ => {}
    }
}
