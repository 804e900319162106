//! Tools in the format of MCP Toolbox for Databases.
//!
//! Its clients know six types of parameters: `string`, `integer`, `float`, `boolean`, `array` and
//! `object`. A parameter without one of these types is a string here. Keywords that the format does
//! not have, such as `enum`, become a part of the description, so that models still see them.

use serde_json::{Value, json};

use super::shape::portable_parameters;
use crate::call::words;
use crate::call::{Definition, JsonObject};

/// Longest JSON Schema in the description of a parameter, in bytes.
const LONGEST_SCHEMA: usize = 2000;
/// Most parts of a schema whose references are replaced. What follows is left out.
const MAX_PARTS: usize = 2000;
/// Deepest chain of references that is followed.
const MAX_REFERENCES: usize = 8;

/// Keywords that say nothing about the value, or that the format has.
const KNOWN_KEYWORDS: [&str; 13] = words(
    "type title description default examples deprecated readOnly writeOnly $comment
     $schema $id $defs x-mcp-header",
);

/// A type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
enum ParameterType {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
}

impl ParameterType {
    fn of_value(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => return None,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if number.is_f64() => Self::Number,
            Value::Number(_) => Self::Integer,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        })
    }

    /// The one type of all these, if there is one.
    fn common(types: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let join = |one: Self, other: Self| match (one, other) {
            _ if one == other => Some(one),
            (Self::Integer, Self::Number) | (Self::Number, Self::Integer) => Some(Self::Number),
            _ => None,
        };
        let mut types = types.into_iter();
        let first = types.next()??;
        types.try_fold(first, |found, next| join(found, next?))
    }

    fn is_scalar(self) -> bool {
        !matches!(self, Self::Array | Self::Object)
    }

    /// The word of JSON Schema.
    fn schema_word(self) -> &'static str {
        self.into()
    }

    /// The word of the format.
    fn word(self) -> &'static str {
        match self {
            Self::Number => "float",
            other => other.schema_word(),
        }
    }
}

/// The message for a toolset that does not exist.
pub(crate) fn no_toolset(name: &str) -> String {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    format!(
        "there is no toolset `{shown}`: the name of a toolset is one of the manifest's `toolsets`, or a tag of tools"
    )
}

/// The description of a tool, with its parameters as a list.
pub(crate) fn render_tool(definition: &Definition) -> Value {
    let schema = portable_parameters(&definition.input_schema);
    let parameters: Vec<Value> = properties(&schema)
        .map(|(name, schema, required)| Value::Object(render_parameter(name, &schema, required)))
        .collect();
    json!({"description": definition.description, "parameters": parameters, "authRequired": []})
}

/// The same schema, in which each parameter has exactly one type, with the keywords that the format
/// does not have in its description. The clients refuse a whole list because of one other type.
pub(crate) fn with_single_types(input_schema: &Value) -> Value {
    let mut shown = input_schema.clone();
    for (name, schema, _) in properties(input_schema) {
        let Some(property) = shown
            .pointer_mut("/properties")
            .and_then(|properties| properties.get_mut(name))
        else {
            continue;
        };
        set_single_type(property, &schema);
        if let Some(property) = property.as_object_mut() {
            property.insert("description".into(), describe(&schema).into());
        }
    }
    shown
}

/// The parameters: the name, the schema without references, and whether it is required.
fn properties(input_schema: &Value) -> impl Iterator<Item = (&str, JsonObject, bool)> {
    let required = input_schema.get("required").and_then(Value::as_array);
    let properties = input_schema.get("properties").and_then(Value::as_object);
    let mut references = References {
        root: input_schema,
        parts: MAX_PARTS,
    };
    properties.into_iter().flatten().map(move |(name, schema)| {
        let is_required = required.is_some_and(|names| names.iter().any(|other| other == name));
        let schema = match references.replace(schema, 0) {
            Value::Object(schema) => without_null(schema),
            _ => JsonObject::new(),
        };
        (name.as_str(), schema, is_required)
    })
}

fn render_parameter(name: &str, schema: &JsonObject, required: bool) -> JsonObject {
    let default = schema.get("default").filter(|default| !default.is_null());
    let mut parameter = JsonObject::new();
    let mut insert = |key: &str, value: Value| parameter.insert(key.into(), value);
    let shown_type = type_of(schema).unwrap_or(ParameterType::String);
    insert("name", name.into());
    insert("type", shown_type.word().into());
    insert("required", (required && default.is_none()).into());
    insert("description", describe(schema).into());
    insert("authServices", json!([]));
    match shown_type {
        // Older clients refuse a list without the type of its items.
        ParameterType::Array => {
            let items = render_parameter("item", &items_of(schema), true);
            insert("items", items.into());
        }
        ParameterType::Object => {
            let values = match value_type(schema) {
                Some(values) => json!({"type": values.word()}),
                None => true.into(),
            };
            insert("additionalProperties", values);
        }
        _ => {}
    }
    if let Some(default) = default {
        insert("default", default.clone());
    }
    parameter
}

fn set_single_type(shown: &mut Value, schema: &JsonObject) {
    if !shown.is_object() {
        *shown = json!({});
    }
    let Some(shown) = shown.as_object_mut() else {
        return;
    };
    let shown_type = type_of(schema).unwrap_or(ParameterType::String);
    shown.insert("type".into(), shown_type.schema_word().into());
    match shown_type {
        ParameterType::Array => {
            let mut items = shown.get("items").cloned().unwrap_or_else(|| json!({}));
            set_single_type(&mut items, &items_of(schema));
            shown.insert("items".into(), items);
        }
        ParameterType::Object
            if shown
                .get("additionalProperties")
                .is_some_and(Value::is_object) =>
        {
            let values = match value_type(schema) {
                Some(values) => json!({"type": values.schema_word()}),
                None => true.into(),
            };
            shown.insert("additionalProperties".into(), values);
        }
        _ => {}
    }
}

/// The description of a parameter, with the keywords that the format does not have.
fn describe(schema: &JsonObject) -> String {
    let text = schema.get("description").and_then(Value::as_str);
    let text = text.unwrap_or_default().trim_end();
    let rest = unsaid_keywords(schema);
    let rest = match rest.is_empty() {
        true => String::new(),
        false => Value::Object(rest).to_string(),
    };
    if rest.is_empty() || rest.len() > LONGEST_SCHEMA {
        return text.to_owned();
    }
    let end = match text.chars().last() {
        None => "",
        Some('.' | '!' | '?' | ':' | ';') => " ",
        Some(_) => ". ",
    };
    format!("{text}{end}JSON Schema: {rest}")
}

/// The keywords that the format does not have.
fn unsaid_keywords(schema: &JsonObject) -> JsonObject {
    let shown_type = type_of(schema);
    let is_said = |key: &str, value: &Value| match key {
        // Without one type, the keyword is the only word about the type.
        "type" => shown_type.is_some(),
        "items" => {
            let items = items_of(schema);
            shown_type == Some(ParameterType::Array)
                && (value == &json!({})
                    || (type_of(&items).is_some() && unsaid_keywords(&items).is_empty()))
        }
        "additionalProperties" => {
            shown_type == Some(ParameterType::Object)
                && (value.is_boolean() || value_type(schema).is_some())
        }
        key => KNOWN_KEYWORDS.contains(&key),
    };
    let rest = schema.iter().filter(|(key, value)| !is_said(key, value));
    rest.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn items_of(schema: &JsonObject) -> JsonObject {
    let items = schema.get("items").and_then(Value::as_object).cloned();
    items.map(without_null).unwrap_or_default()
}

/// The one simple type of the values of an object.
fn value_type(schema: &JsonObject) -> Option<ParameterType> {
    let values = schema.get("additionalProperties")?.as_object()?.clone();
    type_of(&without_null(values)).filter(|values| values.is_scalar())
}

/// The one type of the values that fit, besides null.
fn type_of(schema: &JsonObject) -> Option<ParameterType> {
    match schema.get("type") {
        Some(Value::String(word)) => return word.parse().ok(),
        Some(Value::Array(words)) => {
            let words = words.iter().filter_map(Value::as_str);
            let words = words.filter(|word| *word != "null");
            return ParameterType::common(words.map(|word| word.parse().ok()));
        }
        _ => {}
    }
    let of_list = |key: &str| schema.get(key).and_then(Value::as_array);
    if let Some(values) = of_list("enum") {
        return ParameterType::common(values.iter().map(ParameterType::of_value));
    }
    if let Some(value) = schema.get("const") {
        return ParameterType::of_value(value);
    }
    if let Some(branches) = of_list("anyOf").or_else(|| of_list("oneOf")) {
        let branches = branches.iter().filter(|branch| !is_null(branch));
        return ParameterType::common(branches.map(|branch| type_of(branch.as_object()?)));
    }
    if schema.contains_key("properties") {
        return Some(ParameterType::Object);
    }
    schema.contains_key("items").then_some(ParameterType::Array)
}

fn is_null(schema: &Value) -> bool {
    schema.get("type") == Some(&Value::from("null")) || schema.get("const") == Some(&Value::Null)
}

/// The schema of the other values, if the schema is a choice between them and null. The format says
/// the same with `required`.
fn without_null(mut schema: JsonObject) -> JsonObject {
    for key in ["anyOf", "oneOf", "allOf"] {
        let Some(Value::Array(branches)) = schema.get(key) else {
            continue;
        };
        let mut others = branches.iter().filter(|branch| !is_null(branch));
        if let (Some(Value::Object(only)), None) = (others.next(), others.next()) {
            let mut merged = only.clone();
            schema.shift_remove(key);
            merged.extend(schema);
            return without_null(merged);
        }
    }
    schema
}

/// Replaces references inside one schema, within bounds.
struct References<'a> {
    root: &'a Value,
    parts: usize,
}

impl<'a> References<'a> {
    fn replace(&mut self, schema: &Value, followed: usize) -> Value {
        if self.parts == 0 || followed > MAX_REFERENCES {
            return json!({});
        }
        self.parts -= 1;
        match schema {
            Value::Object(object) => {
                let target = object.get("$ref").and_then(Value::as_str);
                let target = target.and_then(|target| self.find(target));
                let target = target.map(|target| self.replace(target, followed + 1));
                let mut replaced = match target {
                    Some(Value::Object(target)) => target,
                    _ => JsonObject::new(),
                };
                for (key, value) in object {
                    if key != "$ref" || !value.is_string() {
                        replaced.insert(key.clone(), self.replace(value, followed));
                    }
                }
                replaced.into()
            }
            Value::Array(values) => values
                .iter()
                .map(|value| self.replace(value, followed))
                .collect(),
            plain => plain.clone(),
        }
    }

    fn find(&self, target: &str) -> Option<&'a Value> {
        let pointer = percent_encoding::percent_decode_str(target.strip_prefix('#')?);
        self.root.pointer(&pointer.decode_utf8().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Tool;

    fn parameters(schema: Value) -> Vec<Value> {
        let tool = Tool::new("t", "Does it.").input_schema(schema);
        let definition = tool.call(|_, _| async { Ok(json!({})) }).definition;
        let rendered = render_tool(&definition);
        assert_eq!(rendered["description"], "Does it.");
        rendered["parameters"].as_array().unwrap().clone()
    }

    #[test]
    fn each_type_has_its_word() {
        let shown = parameters(json!({
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "First"},
                "b": {"type": "number", "description": "Second", "default": 2.5},
                "c": {"type": "array", "items": {"type": "string", "description": "A word"}},
                "d": {"type": "object", "additionalProperties": {"type": "number"}},
                "e": {"type": "object"},
                "f": {"type": "boolean"},
            },
            "required": ["a", "b", "c"],
        }));
        assert_eq!(
            json!(shown),
            json!([
                {"name": "a", "type": "integer", "required": true, "description": "First", "authServices": []},
                {"name": "b", "type": "float", "required": false, "description": "Second", "authServices": [], "default": 2.5},
                {"name": "c", "type": "array", "required": true, "description": "", "authServices": [],
                    "items": {"name": "item", "type": "string", "required": true, "description": "A word", "authServices": []}},
                {"name": "d", "type": "object", "required": false, "description": "", "authServices": [], "additionalProperties": {"type": "float"}},
                {"name": "e", "type": "object", "required": false, "description": "", "authServices": [], "additionalProperties": true},
                {"name": "f", "type": "boolean", "required": false, "description": "", "authServices": []},
            ])
        );
    }

    #[test]
    fn other_keywords_stand_in_the_description() {
        let schema = json!({
            "type": "object",
            "properties": {
                "unit": {"enum": ["c", "f"], "description": "Unit"},
                "maybe": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": null, "title": "Maybe"},
                "either": {"type": ["string", "integer"], "description": "Id."},
                "place": {"$ref": "#/$defs/Place"},
                "any": {},
                "loop": {"$ref": "#/$defs/Loop"},
            },
            "$defs": {
                "Place": {"type": "object", "properties": {"lat": {"type": "number"}}},
                "Loop": {"type": "array", "items": {"$ref": "#/$defs/Loop"}},
            },
        });
        let shown = parameters(schema.clone());
        let facts: Vec<_> = shown
            .iter()
            .map(|shown| json!([shown["type"], shown["description"]]))
            .collect();
        let place = r#"JSON Schema: {"properties":{"lat":{"type":"number"}}}"#;
        assert_eq!(
            facts[..5],
            [
                json!(["string", r#"Unit. JSON Schema: {"enum":["c","f"]}"#]),
                json!(["integer", r#"JSON Schema: {"minimum":1}"#]),
                json!([
                    "string",
                    r#"Id. JSON Schema: {"type":["string","integer"]}"#
                ]),
                json!(["object", place]),
                json!(["string", ""]),
            ]
        );
        assert_eq!(facts[5][0], "array");

        let single = with_single_types(&schema);
        let of = |name: &str| single["properties"][name]["type"].clone();
        assert_eq!(
            ["unit", "maybe", "either", "place", "any", "loop"].map(of),
            ["string", "integer", "string", "object", "string", "array"]
        );
        assert_eq!(single["properties"]["unit"]["enum"], json!(["c", "f"]));
        assert_eq!(single["properties"]["place"]["description"], place);
        assert_eq!(single["$defs"], schema["$defs"]);
    }

    /// Each level names the next one twice, so the whole schema would have a million parts.
    #[test]
    fn references_are_replaced_within_bounds() {
        let mut definitions = JsonObject::new();
        for level in 0..20 {
            let next = format!("#/$defs/L{}", level + 1);
            let both = json!({"properties": {"a": {"$ref": next}, "b": {"$ref": next}}});
            definitions.insert(format!("L{level}"), both);
        }
        let schema = json!({"properties": {"x": {"$ref": "#/$defs/L0"}}, "$defs": definitions});
        let (_, replaced, _) = properties(&schema).next().unwrap();
        assert!(Value::Object(replaced).to_string().len() < 100_000);
        assert_eq!(parameters(schema)[0]["type"], "object");
    }
}
