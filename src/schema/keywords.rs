//! The keywords of JSON Schema that have schemas as values.

use serde_json::Value;

use crate::call::json::escape_pointer_token;

/// Within one schema, all of these keywords have the same target.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The kind of value that a keyword has.
pub(super) enum KeywordKind {
    Schema,
    List,
    ByName,
    Data,
}

pub(super) fn keyword_kind(keyword: &str, value: &Value) -> KeywordKind {
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
        "items" if value.is_array() => KeywordKind::List,
        "items" => KeywordKind::Schema,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => KeywordKind::List,
        "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties"
        | "properties" => KeywordKind::ByName,
        _ => KeywordKind::Data,
    }
}

/// The direct subschemas of a schema, each with its pointer relative to the schema.
pub(super) fn subschemas(schema: &Value) -> impl Iterator<Item = (String, &Value)> {
    let keywords = schema.as_object().into_iter().flatten();
    keywords.flat_map(|(keyword, value)| {
        let at = format!("/{}", escape_pointer_token(keyword));
        let found: Vec<(String, &Value)> = match (keyword_kind(keyword, value), value) {
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
