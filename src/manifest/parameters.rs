//! Compiles the `parameters:` shorthand to a JSON Schema.

use serde_json::{Value, json};

use super::decode::{Findings, join_path};
use super::node::Node;
use crate::call::JsonObject;

/// The keys of a parameter: those of JSON Schema, and `required`. Any other key is a typing error, which JSON Schema
/// would ignore.
const PARAMETER_KEYS: [&str; 38] = [
    "type",
    "description",
    "title",
    "enum",
    "const",
    "default",
    "required",
    "examples",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "items",
    "prefixItems",
    "contains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "properties",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "patternProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "$ref",
    "writeOnly",
    "deprecated",
    "readOnly",
    "nullable",
];

/// Builds the schema. A parameter is required unless it has `required: false` or a default. Other parameters are
/// forbidden.
pub(super) fn compile_parameters(node: &Node, entry_path: &str, findings: &mut Findings) -> Option<Value> {
    let Some(entries) = node.entries() else {
        findings.error(node, &[], entry_path, "a map of parameters is expected here");
        return None;
    };
    let (mut properties, mut required) = (JsonObject::new(), Vec::new());
    for (key, parameter) in entries {
        let path = join_path(entry_path, std::slice::from_ref(&key.text));
        if parameter.entries().is_none() {
            findings.error(parameter, &[], &path, "a map is expected here, e.g. {type: string, description: …}");
            continue;
        }
        findings.report_unknown_keys(parameter, &path, &PARAMETER_KEYS);
        let mut schema = parameter.filtered(|_| true).to_json();
        let mut is_required = true;
        if let Some(object) = schema.as_object_mut() {
            match object.get("required") {
                Some(Value::Bool(flag)) => {
                    is_required = *flag;
                    object.shift_remove("required");
                }
                // A list belongs to the parameter's own schema: the required properties of an object.
                Some(Value::Array(_)) | None => {}
                Some(_) => findings.error(parameter, &["required".into()], &path, "true or false is expected here"),
            }
            is_required &= !object.contains_key("default");
        }
        if is_required {
            required.push(Value::from(key.text.as_str()));
        }
        properties.insert(key.text.clone(), schema);
    }
    if node.location.is_json() {
        // The order of the list is part of the definition hash, and clients may write the members in any order.
        required.sort_unstable_by(|one, other| one.as_str().cmp(&other.as_str()));
    }
    Some(json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    }))
}
