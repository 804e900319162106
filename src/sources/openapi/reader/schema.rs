//! Turns a schema of an OpenAPI document into a JSON Schema of its own (2020-12).
//!
//! References are replaced by what they refer to, because many models read no references. A schema
//! that contains itself keeps its reference, to a part in `$defs`. If the result would be very
//! large, all references are kept.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use super::document::{Document, Members};
use super::sentences::append_sentence;
use crate::call::JsonObject;
use crate::call::json::plain_text;
use crate::call::words;

/// The most values of a schema whose references are replaced.
const MOST_VALUES: usize = 4_000;
/// The most values of an output schema, which is only a description.
const MOST_OUTPUT_VALUES: usize = 2_000;
/// The most values of any schema.
const HARD_LIMIT: usize = 60_000;
/// The deepest nesting: the bound of the service on schemas is 128 levels.
const DEEPEST: usize = 100;

/// Keywords with one schema.
const SCHEMA: [&str; 11] = words(
    "items additionalProperties not if then else contains propertyNames unevaluatedItems
     unevaluatedProperties contentSchema",
);
/// Keywords with a list of schemas.
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords with a map of schemas.
const MAPS: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];
/// Keywords that are copied.
const PLAIN: [&str; 24] = words(
    "type enum const format pattern title description multipleOf minimum maximum
     exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems uniqueItems
     minProperties maxProperties minContains maxContains dependentRequired contentEncoding
     contentMediaType",
);

/// The side of a call that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Arguments. Properties that are `readOnly` are left out.
    Input,
    /// A result. Properties that are `writeOnly` are left out. The result of a real API often
    /// differs from its document in detail, so only types and names are kept.
    Output,
}

/// Converts the schemas of one operation. Parts that several schemas refer to are collected in
/// `parts`.
pub(super) struct Converter<'d> {
    document: &'d Document,
    side: Side,
    /// Whether references are replaced where that is possible.
    inlines: bool,
    /// The name in `$defs` of each reference that is kept.
    names: BTreeMap<&'d str, String>,
    /// References that are kept and not converted yet.
    open: Vec<&'d str>,
    count: usize,
    depth: usize,
}

/// Why a schema was not converted.
pub(super) enum Failure {
    /// It has too many values.
    TooLarge,
    /// A reference cannot be followed: a sentence.
    Reference(String),
}

impl<'d> Converter<'d> {
    pub(super) fn new(document: &'d Document, side: Side, inlines: bool) -> Self {
        Self {
            document,
            side,
            inlines,
            names: BTreeMap::new(),
            open: Vec::new(),
            count: 0,
            depth: 0,
        }
    }

    /// The `$defs` for all schemas that were converted so far; empty if no reference is kept.
    pub(super) fn take_parts(&mut self) -> Result<JsonObject, Failure> {
        let mut parts = JsonObject::new();
        while let Some(reference) = self.open.pop() {
            let target = self
                .document
                .target(reference)
                .map_err(Failure::Reference)?;
            let schema = self.convert(target)?;
            if let Some(name) = self.names.get(reference) {
                parts.insert(name.clone(), schema);
            }
        }
        parts.sort_keys();
        Ok(parts)
    }

    /// One schema.
    pub(super) fn convert(&mut self, schema: &'d Value) -> Result<Value, Failure> {
        self.count += 1;
        let most = match (self.side, self.inlines) {
            (Side::Output, _) => MOST_OUTPUT_VALUES,
            (Side::Input, true) => MOST_VALUES,
            (Side::Input, false) => HARD_LIMIT,
        };
        if self.count > most || self.depth > DEEPEST {
            return Err(Failure::TooLarge);
        }
        let Some(fields) = schema.as_object() else {
            return Ok(if schema.is_boolean() {
                schema.clone()
            } else {
                json!({})
            });
        };
        self.depth += 1;
        let converted = match fields.text("$ref") {
            Some(reference) => self.convert_reference(reference, fields),
            None => self.convert_fields(fields, &[]),
        };
        self.depth -= 1;
        converted
    }

    /// A reference and the keywords beside it.
    fn convert_reference(
        &mut self,
        reference: &'d str,
        fields: &'d JsonObject,
    ) -> Result<Value, Failure> {
        let target = self
            .document
            .target(reference)
            .map_err(Failure::Reference)?;
        let mut converted = if self.inlines && !self.is_recursive(reference, target)? {
            self.convert(target)?
        } else {
            let name = self.name_part(reference);
            json!({"$ref": format!("#/$defs/{name}")})
        };
        // OpenAPI 3.0 ignores keywords beside a reference. Authors write these all the same, and
        // mean them.
        for word in ["description", "title"] {
            if let (Some(text), Value::Object(converted)) = (fields.get(word), &mut converted) {
                converted.insert(word.into(), text.clone());
            }
        }
        if fields.get("nullable") == Some(&Value::Bool(true)) {
            converted = or_null(converted);
        }
        let handled = ["$ref", "description", "title", "nullable"];
        let has_constraint = fields
            .keys()
            .any(|key| !handled.contains(&key.as_str()) && is_constraint(key));
        if !self.document.is_30 && has_constraint {
            let own = self.convert_fields(fields, &handled)?;
            return Ok(json!({"allOf": [converted, own]}));
        }
        Ok(converted)
    }

    /// Whether the target of a reference contains a reference to itself.
    fn is_recursive(&self, reference: &'d str, target: &'d Value) -> Result<bool, Failure> {
        let lock = || self.document.recursive.lock();
        if let Some(known) = lock().get(reference) {
            return Ok(*known);
        }
        let mut seen = HashSet::new();
        let mut open = vec![target];
        let mut is_recursive = false;
        while let Some(value) = open.pop() {
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(fields) => {
                    if let Some(other) = fields.get("$ref").and_then(Value::as_str) {
                        is_recursive |= other == reference;
                        if seen.insert(other) {
                            open.push(self.document.target(other).map_err(Failure::Reference)?);
                        }
                    }
                    let is_schema_like = |key: &str| {
                        !["example", "examples", "default", "enum", "const"].contains(&key)
                    };
                    open.extend(
                        fields
                            .iter()
                            .filter(|(key, _)| is_schema_like(key))
                            .map(|(_, value)| value),
                    );
                }
                _ => {}
            }
            if is_recursive {
                break;
            }
        }
        lock().insert(reference.to_owned(), is_recursive);
        Ok(is_recursive)
    }

    /// The name in `$defs` for a reference.
    fn name_part(&mut self, reference: &'d str) -> String {
        if let Some(name) = self.names.get(reference) {
            return name.clone();
        }
        let last = reference.rsplit('/').next().unwrap_or_default();
        let plain = last.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let mut name = plain.clone();
        for number in 2.. {
            if !self.names.values().any(|taken| *taken == name) {
                break;
            }
            name = format!("{plain}_{number}");
        }
        self.names.insert(reference, name.clone());
        self.open.push(reference);
        name
    }

    fn convert_fields(
        &mut self,
        fields: &'d JsonObject,
        without: &[&str],
    ) -> Result<Value, Failure> {
        let mut converted = Map::new();
        let mut hidden: Vec<&str> = Vec::new();
        for (key, value) in fields
            .iter()
            .filter(|(key, _)| !without.contains(&key.as_str()))
        {
            let key = key.as_str();
            if self.side == Side::Output && !describes_only(key, value) {
                continue;
            }
            if MAPS.contains(&key) {
                let Some(entries) = value.as_object() else {
                    continue;
                };
                let mut schemas = Map::new();
                for (name, schema) in entries {
                    if key == "properties" && self.is_hidden(schema) {
                        hidden.push(name);
                        continue;
                    }
                    schemas.insert(name.clone(), self.convert(schema)?);
                }
                converted.insert(key.into(), schemas.into());
            } else if LISTS.contains(&key) || (key == "items" && value.is_array()) {
                let Some(items) = value.as_array().filter(|items| !items.is_empty()) else {
                    continue;
                };
                let schemas: Vec<Value> = items
                    .iter()
                    .map(|schema| self.convert(schema))
                    .collect::<Result<_, _>>()?;
                let key = match key {
                    "items" => "prefixItems",
                    // Relaxed alternatives overlap, so exactly one of them is too strict.
                    "oneOf" if self.side == Side::Output => "anyOf",
                    other => other,
                };
                converted.insert(key.into(), schemas.into());
            } else if SCHEMA.contains(&key) {
                converted.insert(key.into(), self.convert(value)?);
            } else if PLAIN.contains(&key) {
                converted.insert(key.into(), value.clone());
            }
        }
        if self.side == Side::Input {
            let shown = |name: &&Value| name.as_str().is_some_and(|name| !hidden.contains(&name));
            let required: Vec<Value> = fields.items("required").filter(shown).cloned().collect();
            if !required.is_empty() && !without.contains(&"required") {
                converted.insert("required".into(), required.into());
            }
            describe_default(&mut converted, fields);
            if let Some(example) = fields.get("example") {
                converted.insert("examples".into(), json!([example]));
            } else if let Some(examples) = fields
                .get("examples")
                .filter(|examples| examples.is_array())
            {
                converted.insert("examples".into(), examples.clone());
            }
            if fields.get("writeOnly") == Some(&Value::Bool(true)) {
                converted.insert("writeOnly".into(), true.into());
            }
        }
        normalize(&mut converted, fields);
        let is_nullable =
            fields.get("nullable") == Some(&Value::Bool(true)) || self.side == Side::Output;
        Ok(if is_nullable {
            or_null(converted.into())
        } else {
            converted.into()
        })
    }

    /// Whether a property does not exist on this side.
    pub(super) fn is_hidden(&self, schema: &Value) -> bool {
        let word = if self.side == Side::Input {
            "readOnly"
        } else {
            "writeOnly"
        };
        let is_marked = |schema: &Value| schema.get(word) == Some(&Value::Bool(true));
        is_marked(schema) || self.document.resolve(schema).is_ok_and(is_marked)
    }
}

/// Keywords that a relaxed schema keeps: those that say what a value is.
/// `additionalProperties: false` is not one of them: APIs add fields.
fn describes_only(key: &str, value: &Value) -> bool {
    match key {
        "additionalProperties" => value.is_object(),
        "type" | "title" | "description" | "properties" | "items" | "prefixItems" | "anyOf"
        | "oneOf" | "allOf" => true,
        _ => false,
    }
}

/// Whether a keyword beside a reference restricts the value.
fn is_constraint(key: &str) -> bool {
    SCHEMA.contains(&key)
        || LISTS.contains(&key)
        || MAPS.contains(&key)
        || PLAIN.contains(&key)
        || key == "required"
}

/// Puts a default into the description. As a `default` it would be sent with every call, and some
/// APIs refuse parameters together although each has a default.
fn describe_default(converted: &mut JsonObject, fields: &JsonObject) {
    let Some(default) = fields
        .get("default")
        .filter(|default| !default.is_null() && !default.is_object())
    else {
        return;
    };
    let text = plain_text(default);
    if text.is_empty() {
        return;
    }
    let description = converted.text("description").unwrap_or_default().trim_end();
    if description.to_lowercase().contains("default") {
        return;
    }
    let text = append_sentence(description, &format!("Default: {text}."));
    converted.insert("description".into(), text.into());
}

/// Replaces what OpenAPI 3.0 writes in another way than JSON Schema, and what is no JSON Schema at
/// all.
fn normalize(converted: &mut JsonObject, fields: &JsonObject) {
    for (exclusive, bound) in [
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ] {
        match converted.get(exclusive) {
            Some(Value::Bool(true)) => match converted.shift_remove(bound) {
                Some(value) => drop(converted.insert(exclusive.into(), value)),
                None => drop(converted.shift_remove(exclusive)),
            },
            Some(Value::Bool(false)) => drop(converted.shift_remove(exclusive)),
            _ => {}
        }
    }
    // An array whose `enum` lists the values of its items can have no value.
    if converted.get("type") == Some(&json!("array"))
        && converted
            .get("enum")
            .and_then(Value::as_array)
            .is_some_and(|options| options.iter().all(|value| !value.is_array()))
        && let Some(options) = converted.shift_remove("enum")
    {
        let items = converted.entry("items").or_insert_with(|| json!({}));
        if items.is_object() {
            items["enum"] = options;
        }
    }
    let is_type = |value: &Value| value.as_str().is_some_and(is_type_name);
    let known = match converted.get("type") {
        Some(Value::Array(types)) => types.iter().all(is_type) && !types.is_empty(),
        Some(value) => is_type(value),
        None => true,
    };
    if !known {
        // Some documents write `type: file`, `type: any` or `type: date`.
        converted.shift_remove("type");
    }
    if fields.get("format").and_then(Value::as_str) == Some("binary")
        && fields.get("contentEncoding").is_none()
    {
        converted.insert("contentEncoding".into(), "base64".into());
        converted.shift_remove("format");
    }
    converted.retain(|key, value| match key.as_str() {
        "enum" => value.as_array().is_some_and(|options| !options.is_empty()),
        "title" | "description" | "format" | "pattern" | "contentEncoding" | "contentMediaType" => {
            value.is_string()
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
            value.is_number()
        }
        word if word.starts_with("min") || word.starts_with("max") => value.is_u64(),
        "uniqueItems" => value.is_boolean(),
        _ => true,
    });
}

fn is_type_name(name: &str) -> bool {
    [
        "null", "boolean", "object", "array", "number", "string", "integer",
    ]
    .contains(&name)
}

/// The schema, or null.
fn or_null(schema: Value) -> Value {
    let Value::Object(mut fields) = schema else {
        return schema;
    };
    if let Some(Value::Array(options)) = fields.get_mut("enum")
        && !options.contains(&Value::Null)
    {
        options.push(Value::Null);
    }
    match fields.get("type").cloned() {
        Some(Value::String(name)) if name != "null" => {
            fields.insert("type".into(), json!([name, "null"]));
            let is_combined = ["allOf", "anyOf", "oneOf", "const"]
                .iter()
                .any(|key| fields.contains_key(*key));
            if !is_combined {
                return fields.into();
            }
            fields.insert("type".into(), name.into());
        }
        Some(Value::Array(mut types)) => {
            if !types.contains(&"null".into()) {
                types.push("null".into());
            }
            fields.insert("type".into(), types.into());
            return fields.into();
        }
        Some(_) => return fields.into(),
        None => {}
    }
    let combines = ["$ref", "allOf", "anyOf", "oneOf", "not", "const"]
        .iter()
        .any(|key| fields.contains_key(*key));
    if !combines {
        return fields.into();
    }
    let mut outer = Map::new();
    for word in ["title", "description"] {
        if let Some(text) = fields.shift_remove(word) {
            outer.insert(word.into(), text);
        }
    }
    outer.insert("anyOf".into(), json!([fields, {"type": "null"}]));
    outer.into()
}
