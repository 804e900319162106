//! Whether a parameter takes a text, by the schema of the tool's arguments.

use serde_json::Value;

/// How many references and combinations are followed.
const MAX_DEPTH: usize = 16;

/// Whether the tool takes a text for this parameter. A parameter without a schema takes anything,
/// so also a text.
pub(super) fn takes_text(input_schema: &Value, parameter: &str) -> bool {
    match find_parameter(input_schema, input_schema, parameter, MAX_DEPTH) {
        Some(schema) => accepts_text(input_schema, schema, MAX_DEPTH),
        None => true,
    }
}

/// The schema of a parameter, at the root or in a schema that the root refers to or combines.
fn find_parameter<'s>(
    root: &'s Value,
    schema: &'s Value,
    parameter: &str,
    depth: usize,
) -> Option<&'s Value> {
    let depth = depth.checked_sub(1)?;
    if let Some(found) = schema
        .get("properties")
        .and_then(|properties| properties.get(parameter))
    {
        return Some(found);
    }
    let combined = ["allOf", "anyOf", "oneOf"]
        .into_iter()
        .flat_map(|key| schema[key].as_array().into_iter().flatten());
    let mut parts = resolve(root, schema).into_iter().chain(combined);
    let found = parts.find_map(|part| find_parameter(root, part, parameter, depth));
    found.or_else(|| {
        schema
            .get("additionalProperties")
            .filter(|schema| schema.is_object())
    })
}

/// Whether some text may be valid.
fn accepts_text(root: &Value, schema: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return true;
    };
    let is_type = match &schema["type"] {
        Value::String(name) => name == "string",
        Value::Array(names) => names.iter().any(|name| name == "string"),
        _ => true,
    };
    let is_value = match (schema.get("const"), schema["enum"].as_array()) {
        (Some(value), _) => value.is_string(),
        (None, Some(values)) => values.iter().any(Value::is_string),
        (None, None) => true,
    };
    let accepts = |part: &Value| accepts_text(root, part, depth);
    let all = schema["allOf"]
        .as_array()
        .is_none_or(|parts| parts.iter().all(accepts));
    let any = ["anyOf", "oneOf"].into_iter().all(|key| {
        schema[key]
            .as_array()
            .is_none_or(|parts| parts.iter().any(accepts))
    });
    is_type && is_value && all && any && resolve(root, schema).is_none_or(accepts)
}

/// The schema that `$ref` of this schema names, within the same document.
fn resolve<'s>(root: &'s Value, schema: &Value) -> Option<&'s Value> {
    root.pointer(&percent_decode(schema["$ref"].as_str()?.strip_prefix('#')?))
}

fn percent_decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_decide_on_texts() {
        for (schema, expected) in [
            (json!({"type": "string"}), true),
            (json!({"type": ["integer", "string"]}), true),
            (json!({"type": "integer"}), false),
            (json!({"type": ["integer", "null"]}), false),
            (json!({"enum": ["a", "b"]}), true),
            (json!({"enum": [1, 2]}), false),
            (json!({"const": 1}), false),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
                true,
            ),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
                false,
            ),
            (json!({"allOf": [{"type": "integer"}, {}]}), false),
            (json!({"$ref": "#/$defs/count"}), false),
            (json!({"$ref": "#/$defs/word"}), true),
            (json!({"$ref": "#/$defs/loop"}), true),
            (json!({}), true),
            (json!(true), true),
        ] {
            let defs = json!({"count": {"type": "number"}, "word": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}});
            let root = json!({"type": "object", "properties": {"x": schema}, "$defs": defs});
            assert_eq!(takes_text(&root, "x"), expected, "{root}");
        }
    }

    #[test]
    fn parameters_are_found_behind_references() {
        let root = json!({"$ref": "#/$defs/input", "$defs": {"input": {"allOf": [{"properties": {"n": {"type": "integer"}}}]}}});
        assert!(!takes_text(&root, "n"));
        assert!(takes_text(&root, "other"));
        assert!(!takes_text(
            &json!({"additionalProperties": {"type": "integer"}}),
            "other"
        ));
    }
}
