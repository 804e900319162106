//! Schemas, compiled once when a tool is registered: checking arguments, mending them, and explaining what is wrong.

mod coerce;
mod explain;

use std::sync::Arc;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use crate::call::{Coercion, JsonObject, Violation};

/// At most so many violations are reported; a list of a million bad items is one mistake, not a million.
const MAX_VIOLATIONS: usize = 50;

/// A compiled JSON Schema.
pub struct Schema {
    schema: Arc<Value>,
    validator: Validator,
    defaults: JsonObject,
}

/// What is wrong with a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", if pointer.is_empty() { String::new() } else { format!("{pointer}: ") })]
pub struct SchemaFault {
    /// JSON Pointer into the schema.
    pub pointer: String,
    /// What, and what would be right.
    pub message: String,
}

/// Arguments that fit, and what had to be changed.
#[derive(Debug, Clone)]
pub struct Fitting {
    /// The arguments, defaults filled in.
    pub arguments: JsonObject,
    /// What was converted.
    pub coercions: Vec<Coercion>,
}

impl Schema {
    /// Compiles a schema. References are never fetched, patterns run in linear time.
    ///
    /// # Errors
    /// What is wrong with the schema, and where.
    pub fn compile(schema: Arc<Value>) -> Result<Self, SchemaFault> {
        if let Some(fault) = endless_reference(&schema) {
            return Err(fault);
        }
        let mut options =
            jsonschema::options().should_validate_formats(true).with_pattern_options(PatternOptions::regex()).offline();
        if schema.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft202012);
        }
        let validator = options
            .build(&schema)
            .map_err(|error| SchemaFault { pointer: error.instance_path().to_string(), message: error.to_string() })?;
        let properties = schema.get("properties").and_then(Value::as_object);
        let defaults = properties
            .into_iter()
            .flatten()
            .filter_map(|(name, property)| property.get("default").map(|default| (name.clone(), default.clone())));
        Ok(Self { defaults: defaults.collect(), validator, schema })
    }

    /// Compiles an input schema: its root must be an object's.
    ///
    /// # Errors
    /// As [`Schema::compile`].
    pub fn compile_input(schema: Arc<Value>) -> Result<Self, SchemaFault> {
        match schema.get("type") {
            Some(Value::String(root)) if root == "object" => Self::compile(schema),
            _ => Err(SchemaFault {
                pointer: String::new(),
                message: "the root must be `type: object`: arguments are always an object".into(),
            }),
        }
    }

    /// Fits arguments to the schema: fills in defaults and, unless `strict`, reads strings that hold JSON where the
    /// schema wants something else.
    ///
    /// # Errors
    /// Every violation.
    pub fn fit(&self, arguments: &JsonObject, strict: bool) -> Result<Fitting, Vec<Violation>> {
        let mut value = Value::Object(arguments.clone());
        if let Some(object) = value.as_object_mut() {
            for (name, default) in &self.defaults {
                if !object.contains_key(name) {
                    object.insert(name.clone(), default.clone());
                }
            }
        }
        let mut coercions = Vec::new();
        if !self.validator.is_valid(&value) {
            if !strict {
                (value, coercions) = coerce::coerce(&self.validator, value);
            }
            let violations = self.violations(&value);
            if !violations.is_empty() {
                return Err(violations);
            }
        }
        let Value::Object(arguments) = value else { return Err(self.violations(&value)) };
        Ok(Fitting { arguments, coercions })
    }

    /// Everything in which a value breaks the schema.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let errors = self.validator.iter_errors(value);
        errors.flat_map(|error| explain::explain(&error, &self.schema)).take(MAX_VIOLATIONS).collect()
    }
}

/// A reference that leads to itself without looking at the value (`{"$ref": "#"}`) would be followed for ever.
fn endless_reference(root: &Value) -> Option<SchemaFault> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(value: Value) -> Schema {
        Schema::compile_input(Arc::new(value)).unwrap()
    }

    fn fit(schema: &Schema, arguments: Value) -> Result<Fitting, Vec<Violation>> {
        schema.fit(arguments.as_object().unwrap(), false)
    }

    #[test]
    fn every_violation_is_reported_with_its_pointer() {
        let schema = schema(json!({
            "type": "object", "additionalProperties": false, "required": ["city", "when"],
            "properties": {
                "city": {"type": "string"}, "when": {"type": "string", "format": "date"},
                "days": {"type": "integer", "minimum": 1}, "units": {"enum": ["c", "f"]},
                "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}}
            }
        }));
        let bad = json!({"when": "soon", "days": 0, "units": "k", "tags": ["ok", "NO"], "ctiy": "Oslo"});
        let mut found: Vec<_> =
            fit(&schema, bad).unwrap_err().into_iter().map(|v| (v.pointer, v.keyword, v.message)).collect();
        found.sort();
        let places: Vec<_> = found.iter().map(|(pointer, keyword, _)| (pointer.as_str(), keyword.as_str())).collect();
        assert_eq!(
            places,
            [
                ("/city", "required"),
                ("/ctiy", "additionalProperties"),
                ("/days", "minimum"),
                ("/tags/1", "pattern"),
                ("/units", "enum"),
                ("/when", "format")
            ]
        );
        assert!(found[1].2.contains("did you mean `city`?"), "{}", found[1].2);
    }

    #[test]
    fn strings_that_hold_json_are_read_where_the_schema_wants_something_else() {
        let schema = schema(json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "integer"}},
                "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "text": {"type": "string"}
            }
        }));
        let fitting = fit(&schema, json!({"n": "5", "list": "[1, \"2\"]", "maybe": "true", "text": "5"})).unwrap();
        assert_eq!(Value::Object(fitting.arguments), json!({"n": 5, "list": [1, 2], "maybe": true, "text": "5"}));
        let pointers: Vec<_> = fitting.coercions.iter().map(|c| (c.pointer.as_str(), c.to.as_str())).collect();
        assert_eq!(pointers, [("/list", "array"), ("/list/1", "integer"), ("/maybe", "boolean"), ("/n", "integer")]);
    }

    #[test]
    fn a_conversion_that_does_not_fit_is_not_made() {
        let schema = schema(json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 10}}}));
        let violations = fit(&schema, json!({"n": "5"})).unwrap_err();
        assert_eq!((violations[0].keyword.as_str(), violations.len()), ("type", 1));
        assert!(schema.fit(json!({"n": "15"}).as_object().unwrap(), true).is_err());
    }

    #[test]
    fn defaults_are_filled_in() {
        let schema = schema(json!({"type": "object", "properties": {"units": {"default": "c"}, "x": {}}}));
        assert_eq!(Value::Object(fit(&schema, json!({})).unwrap().arguments), json!({"units": "c"}));
    }

    #[test]
    fn schemas_that_cannot_work_are_refused() {
        for (bad, says) in [
            (json!({"type": "object", "properties": {"a": {"type": "strin"}}}), "/properties/a/type"),
            (json!({"type": "array"}), "type: object"),
            (json!({"type": "object", "$ref": "#"}), "never ends"),
            (json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/x.json"}}}), "example.com"),
            (json!({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}), "passwd"),
            (json!({"type": "object", "properties": {"a": {"pattern": "(a{1000}){1000}{1000}"}}}), "a{1000}"),
            (json!({"type": "object", "properties": {"a": {"pattern": "("}}}), "("),
        ] {
            let said = Schema::compile_input(Arc::new(bad)).err().unwrap().to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn recursive_schemas_work() {
        let tree = schema(json!({
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#"}}, "name": {"type": "string"}}
        }));
        assert!(fit(&tree, json!({"children": [{"children": [], "name": "a"}]})).is_ok());
        let violations = fit(&tree, json!({"children": [{"children": [{"name": {}}]}]})).unwrap_err();
        assert_eq!(violations[0].pointer, "/children/0/children/0/name");
    }

    #[test]
    fn a_pattern_built_to_explode_answers_at_once() {
        let schema = schema(json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}));
        let began = std::time::Instant::now();
        assert!(fit(&schema, json!({"a": format!("{}!", "a".repeat(50_000))})).is_err());
        assert!(began.elapsed().as_secs() < 2);
    }
}
