//! The keywords of JSON Schema that have schemas as values.

use serde_json::Value;

use crate::call::json::escape_pointer_token;

/// Within one schema, all of these keywords have the same target.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The kind of value that a keyword has.
#[derive(Clone, Copy)]
pub enum KeywordKind {
    /// A schema.
    Schema,
    /// A list of schemas.
    List,
    /// Schemas by name.
    ByName,
    /// Anything else.
    Data,
}

/// The kind of value that a keyword has. `is_list`: the value is a list.
pub fn keyword_kind(keyword: &str, is_list: bool) -> KeywordKind {
    match keyword {
        "additionalItems"
        | "additionalProperties"
        | "contains"
        | "contentSchema"
        | "else"
        | "if"
        | "not"
        | "propertyNames"
        | "then"
        | "unevaluatedItems"
        | "unevaluatedProperties" => KeywordKind::Schema,
        // In drafts up to 2019-09, a list here means the same as `prefixItems` in 2020-12.
        "items" if is_list => KeywordKind::List,
        "items" => KeywordKind::Schema,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => KeywordKind::List,
        "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties"
        | "properties" => KeywordKind::ByName,
        _ => KeywordKind::Data,
    }
}

/// The schemas in the value of a keyword.
pub(super) fn parts_mut<'s>(keyword: &str, value: &'s mut Value) -> Vec<&'s mut Value> {
    match (keyword_kind(keyword, value.is_array()), value) {
        (KeywordKind::Schema, part) => vec![part],
        (KeywordKind::List, Value::Array(parts)) => parts.iter_mut().collect(),
        (KeywordKind::ByName, Value::Object(parts)) => parts.values_mut().collect(),
        _ => Vec::new(),
    }
}

/// The direct subschemas of a schema, each with its pointer relative to the schema.
pub(super) fn subschemas(schema: &Value) -> impl Iterator<Item = (String, &Value)> {
    let keywords = schema.as_object().into_iter().flatten();
    keywords.flat_map(|(keyword, value)| {
        let at = format!("/{}", escape_pointer_token(keyword));
        let found: Vec<(String, &Value)> = match (keyword_kind(keyword, value.is_array()), value) {
            (KeywordKind::Schema, _) => vec![(at, value)],
            (KeywordKind::List, Value::Array(list)) => list
                .iter()
                .enumerate()
                .map(|(index, one)| (format!("{at}/{index}"), one))
                .collect(),
            (KeywordKind::ByName, Value::Object(by_name)) => by_name
                .iter()
                .map(|(name, one)| (format!("{at}/{}", escape_pointer_token(name)), one))
                .collect(),
            _ => Vec::new(),
        };
        found
    })
}

/// The schema that a reference within the root leads to.
pub(crate) fn local_target<'s>(root: &'s Value, schema: &Value) -> Option<&'s Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

/// The parts of a schema that may apply to the same value, apart from `not`.
pub(super) fn same_value_parts(schema: &Value) -> impl Iterator<Item = &Value> {
    let branches = ["allOf", "anyOf", "oneOf"].into_iter();
    let branches = branches.filter_map(|keyword| schema.get(keyword)?.as_array());
    let conditions = ["if", "then", "else"].into_iter();
    let conditions = conditions.filter_map(|keyword| schema.get(keyword));
    let dependent = schema.get("dependentSchemas").and_then(Value::as_object);
    let dependent = dependent.into_iter().flat_map(|map| map.values());
    branches.flatten().chain(conditions).chain(dependent)
}

/// The parts of a schema for the property with this name.
pub(super) fn member_schemas<'s>(schema: &'s Value, name: &str) -> Vec<&'s Value> {
    if let Some(own) = schema.get("properties").and_then(|map| map.get(name)) {
        return vec![own];
    }
    let patterns = schema.get("patternProperties").and_then(Value::as_object);
    let patterns = patterns.into_iter().flat_map(|map| map.values());
    patterns.chain(rest_schemas(schema)).collect()
}

/// The parts of a schema for the item at this position.
pub(super) fn item_schemas(schema: &Value, at: usize) -> Vec<&Value> {
    // Until draft 2019-09 the schemas of the first items were the list `items`.
    for prefix in ["prefixItems", "items"] {
        let own = schema.get(prefix).and_then(|list| list.as_array()?.get(at));
        if let Some(own) = own {
            return vec![own];
        }
    }
    let items = schema.get("items").filter(|items| items.is_object());
    items.into_iter().chain(rest_schemas(schema)).collect()
}

/// The schemas for the parts that no other keyword names.
fn rest_schemas(schema: &Value) -> impl Iterator<Item = &Value> {
    [
        "additionalProperties",
        "unevaluatedProperties",
        "additionalItems",
        "unevaluatedItems",
    ]
    .into_iter()
    .filter_map(|keyword| schema.get(keyword))
}
