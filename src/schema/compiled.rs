//! A compiled schema and what it can be asked.

use std::sync::Arc;

use jsonschema::error::{ValidationError, ValidationErrorKind};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use super::references::{endless_reference, outside_reference};
use super::write_only::{hide_write_only, mentions_write_only};
use super::{coerce, explain};
use crate::call::{Coercion, JsonObject, Violation, json};

/// At most so many violations are reported; a list of a million bad items is one mistake, not a million.
pub(super) const MAX_VIOLATIONS: usize = 50;

/// A compiled JSON Schema.
pub struct Schema {
    schema: Arc<Value>,
    validator: Validator,
    defaults: JsonObject,
    has_write_only: bool,
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
        let validator = options.build(&schema).map_err(|error| match error.kind() {
            ValidationErrorKind::Referencing(_) => outside_reference(&schema, "").unwrap_or_else(|| fault(&error)),
            _ => fault(&error),
        })?;
        let properties = schema.get("properties").and_then(Value::as_object);
        let defaults = properties
            .into_iter()
            .flatten()
            .filter_map(|(name, property)| property.get("default").map(|default| (name.clone(), default.clone())));
        Ok(Self { defaults: defaults.collect(), has_write_only: mentions_write_only(&schema), validator, schema })
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

    /// Parameters whose default does not fit, and why: every call without them would be refused.
    pub fn misfit_defaults(&self) -> Vec<(String, String)> {
        let violations = self.violations(&Value::Object(self.defaults.clone()));
        let of = |name: &str, violation: &Violation| {
            let own = format!("/{}", json::pointer_token(name));
            violation.pointer == own || violation.pointer.starts_with(&format!("{own}/"))
        };
        let misfit = |name: &String| {
            let found = violations.iter().find(|violation| of(name, violation))?;
            Some((name.clone(), format!("the default does not fit: {}", found.message)))
        };
        self.defaults.keys().filter_map(misfit).collect()
    }

    /// Whether it marks anything `writeOnly`.
    pub fn has_write_only(&self) -> bool {
        self.has_write_only
    }

    /// The arguments as they may be recorded: what the schema marks `writeOnly` is left out.
    pub fn recordable(&self, arguments: &Arc<JsonObject>) -> Arc<JsonObject> {
        if !self.has_write_only {
            return arguments.clone();
        }
        let mut value = Value::Object(JsonObject::clone(arguments));
        hide_write_only(&self.schema, &mut value);
        match value {
            Value::Object(object) => Arc::new(object),
            _ => Arc::default(),
        }
    }

    /// Everything in which a value breaks the schema. What is marked `writeOnly` is not quoted.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let mut shown = None;
        let mut shows = |error: &ValidationError<'_>| {
            let shown = shown.get_or_insert_with(|| {
                let mut shown = value.clone();
                hide_write_only(&self.schema, &mut shown);
                shown
            });
            shown.pointer(error.instance_path().as_str()) == Some(error.instance())
        };
        let errors = self.validator.iter_errors(value).map(|error| {
            let quotes = !self.has_write_only || shows(&error);
            explain::explain(&error, &self.schema, quotes)
        });
        errors.flatten().take(MAX_VIOLATIONS).collect()
    }
}

fn fault(error: &ValidationError<'_>) -> SchemaFault {
    SchemaFault { pointer: error.instance_path().to_string(), message: error.to_string() }
}
