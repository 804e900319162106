//! Tools as functions of Python, for models.

use serde_json::Value;

use crate::call::{Definition, JsonObject};

/// Levels of lists in a type that are written out.
const MAX_LEVELS: usize = 2;
/// Choices of a parameter that are written out.
const MAX_CHOICES: usize = 8;
const MAX_PURPOSE_CHARS: usize = 100;

/// The tool's signature, and the beginning of its description.
pub(super) fn signature(tool: &Definition) -> String {
    let schema = &*tool.input_schema;
    let required = schema["required"].as_array();
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let (first, rest): (Vec<_>, Vec<_>) = properties(schema)
        .into_iter()
        .flatten()
        .partition(|(name, _)| is_required(name));
    let needed = first
        .into_iter()
        .map(|(name, schema)| format!("{name}: {}", type_of(schema, MAX_LEVELS)));
    let optional = rest.into_iter().map(|(name, schema)| {
        let default = schema.get("default").map_or("...".to_owned(), literal);
        format!("{name}: {} = {default}", type_of(schema, MAX_LEVELS))
    });
    let parameters: Vec<String> = needed.chain(optional).collect();
    let purpose = tool
        .description
        .split(['\n', '.'])
        .next()
        .unwrap_or_default();
    let purpose: String = purpose.chars().take(MAX_PURPOSE_CHARS).collect();
    let name = function_name(tool.name.as_str());
    format!("{name}({})  # {}", parameters.join(", "), purpose.trim())
}

/// The names of the parameters, in the order in which a call may give them without names.
pub(super) fn parameters(tool: &Definition) -> Vec<String> {
    let names = properties(&tool.input_schema).into_iter().flatten();
    names.map(|(name, _)| name.clone()).collect()
}

/// The name of a tool as Python can write it.
pub(super) fn function_name(tool: &str) -> String {
    tool.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_")
}

fn properties(schema: &Value) -> Option<&JsonObject> {
    schema.get("properties")?.as_object()
}

fn type_of(schema: &Value, levels: usize) -> String {
    let choices = schema.get("enum").and_then(Value::as_array);
    if let Some(choices) = choices.filter(|choices| choices.len() <= MAX_CHOICES) {
        let choices: Vec<String> = choices.iter().map(literal).collect();
        return format!("Literal[{}]", choices.join(", "));
    }
    let name = schema.get("type").and_then(Value::as_str);
    match (name, levels.checked_sub(1)) {
        (Some("string"), _) => "str".into(),
        (Some("integer"), _) => "int".into(),
        (Some("number"), _) => "float".into(),
        (Some("boolean"), _) => "bool".into(),
        (Some("object"), _) => "dict".into(),
        (Some("array"), Some(levels)) => format!("list[{}]", type_of(&schema["items"], levels)),
        (Some("array"), None) => "list".into(),
        (Some(_) | None, _) => "Any".into(),
    }
}

/// A value as Python writes it. Lists and objects are written as JSON, which differs only in constants.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Tool;

    #[test]
    fn signature_has_types_defaults_and_choices() {
        let schema = json!({"type": "object", "required": ["id", "tags"], "properties": {
            "unit": {"enum": ["C", "F"], "default": "C"}, "id": {"type": "integer"}, "deep": {"type": "boolean", "default": false},
            "tags": {"type": "array", "items": {"type": "array", "items": {"type": "array"}}}, "more": {"type": ["string", "null"]},
        }});
        let tool = Tool::new("get-order", "Reads one order. Not for lists.").input_schema(schema);
        assert_eq!(
            signature(&tool.definition),
            "get_order(id: int, tags: list[list[list]], unit: Literal[\"C\", \"F\"] = \"C\", deep: bool = False, more: Any = ...)  # Reads one order"
        );
        assert_eq!(
            parameters(&tool.definition),
            ["unit", "id", "deep", "tags", "more"]
        );
    }
}
