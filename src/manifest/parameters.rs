//! Compiles the `parameters:` shorthand to a JSON Schema.

use serde_json::{Map, Value, json};

use super::decode::Entry;
use super::finding::join_path;
use super::node::{Data, Key, Node};
use crate::call::JsonObject;
use crate::call::words;

/// The keys of a parameter: those of JSON Schema, and `required`. Any other key is a typing error,
/// which JSON Schema would ignore.
pub(super) const PARAMETER_KEYS: [&str; 51] = words(
    "type description title enum const default required examples format pattern minLength
     maxLength minimum maximum exclusiveMinimum exclusiveMaximum multipleOf items
     prefixItems contains minItems maxItems uniqueItems properties additionalProperties
     minProperties maxProperties propertyNames patternProperties anyOf oneOf allOf not
     $ref writeOnly deprecated readOnly nullable $comment if then else
     contentEncoding contentMediaType contentSchema dependentRequired dependentSchemas
     minContains maxContains unevaluatedItems unevaluatedProperties",
);

/// Builds the schema. A parameter is required unless it has `required: false` or a default. Other
/// parameters are forbidden.
pub(super) fn compile_parameters(entry: Entry<'_>) -> Option<Value> {
    let node = entry.node;
    let Some(entries) = entry.require_names("parameters") else {
        return matches!(node.data, Data::List(_)).then(|| schema_of_names(node.items()));
    };
    if is_whole_schema(node) {
        entry.own_error("a JSON Schema of all parameters: write it below `input_schema:` instead");
        let mut schema = node.to_json();
        schema["type"] = "object".into();
        return Some(schema);
    }
    let (mut properties, mut required) = (JsonObject::new(), Vec::new());
    for (key, parameter) in entries {
        if key.text == "required" && matches!(parameter.data, Data::List(_)) {
            let message = "every parameter is required unless it has `required: false` or a default: leave this list out";
            entry.error(&["required"], message);
            continue;
        }
        let path = join_path(entry.path, &[&key.text]);
        let parameter = entry.findings.entry(parameter, &path);
        let as_schema = |word: &str| is_type(word).then(|| json!({"type": word}));
        if !parameter.require_map("type, description, enum, default …", as_schema) {
            // Its placeholders are not to be reported as unknown.
            properties.insert(key.text.clone(), json!({}));
            required.push(Value::from(key.text.as_str()));
            continue;
        }
        parameter.report_unknown_keys(&PARAMETER_KEYS);
        let mut schema = parameter.node.filtered(|_| true).to_json();
        let mut is_required = true;
        if let Some(object) = schema.as_object_mut() {
            match object.get("required") {
                Some(Value::Bool(flag)) => {
                    is_required = *flag;
                    object.shift_remove("required");
                }
                // A list belongs to the parameter's own schema: the required properties of an
                // object.
                Some(Value::Array(_)) | None => {}
                Some(_) => parameter.error(&["required"], "true or false is expected here"),
            }
            is_required &= !object.contains_key("default");
        }
        if is_required {
            required.push(Value::from(key.text.as_str()));
        }
        properties.insert(key.text.clone(), schema);
    }
    if node.location.is_json() {
        // The order of the list is part of the definition hash, and clients may write the members
        // in any order.
        required.sort_unstable_by(|one, other| one.as_str().cmp(&other.as_str()));
    }
    Some(json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    }))
}

/// Whether the map is one JSON Schema of all parameters. A parameter is a map, and the keys in it
/// are keywords.
fn is_whole_schema(node: &Node) -> bool {
    let is_list = |key: &str| matches!(node.get(key).map(|node| &node.data), Some(Data::List(_)));
    let is_text = |key: &str| node.get(key).is_some_and(|node| node.as_str().is_some());
    let has_type = match node.get("type") {
        Some(of) if is_list("type") => of.items().iter().any(|of| of.as_str() == Some("object")),
        of => of.and_then(Node::as_str) == Some("object"),
    };
    let properties = node.get("properties").and_then(Node::entries);
    let is_property = |(key, node): &(Key, Node)| {
        !PARAMETER_KEYS.contains(&key.text.as_str()) && node.entries().is_some()
    };
    has_type
        || is_text("$ref")
        || ["allOf", "anyOf", "oneOf"].into_iter().any(is_list)
        || properties.is_some_and(|all| !all.is_empty() && all.iter().all(is_property))
}

/// A schema with the names in a list that stands in place of the map, so that their placeholders
/// are not reported too.
fn schema_of_names(items: &[Node]) -> Value {
    let name = |item: &Node| match item.get("name").unwrap_or(item).to_json() {
        Value::String(name) => Some((name, json!({}))),
        _ => None,
    };
    let properties: Map<String, Value> = items.iter().filter_map(name).collect();
    let required: Vec<&String> = properties.keys().collect();
    json!({"type": "object", "required": required, "properties": properties})
}

pub(super) fn is_type(word: &str) -> bool {
    ["string", "integer", "number", "boolean", "array", "object"].contains(&word)
}
