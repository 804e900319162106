//! A compiled schema and its operations.

use std::borrow::Cow;
use std::sync::Arc;

use jsonschema::error::{ValidationError, ValidationErrorKind};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use super::bounds::{self, Weights};
use super::coerce::{self, Coerced};
use super::explain::{self, Explain};
use super::meter::{MAX_STEPS, Meter, Stop};
use super::metered::{Look, Metered, is_genuine};
use super::references::{endless_reference, outside_reference};
use super::write_only::WriteOnly;
use crate::call::{Coercion, JsonObject, Violation, json};

/// Maximum number of violations that are reported. A list of a million bad items is one mistake, not a million.
const MAX_VIOLATIONS: usize = 50;
/// Memory for the errors from which violations are made. Each branch of a combination has its own errors.
const ERROR_BYTES: usize = 4 << 20;
/// Memory for the errors if only the first violation is needed.
const FIRST_ERROR_BYTES: usize = 64 << 10;

/// A compiled JSON Schema.
pub struct Schema {
    schema: Arc<Value>,
    validator: Validator<Metered>,
    weights: Weights,
    defaults: JsonObject,
    write_only: Option<WriteOnly>,
}

/// A fault in a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", if pointer.is_empty() { String::new() } else { format!("{pointer}: ") })]
pub struct SchemaFault {
    /// JSON Pointer into the schema.
    pub pointer: String,
    /// The fault and the correct form.
    pub message: String,
    /// The schema is valid but too large.
    pub is_too_large: bool,
}

/// Why arguments do not fit a schema.
#[derive(Debug)]
pub enum Unfit {
    /// The violations of the schema.
    Violations(Vec<Violation>),
    /// Validation ended early.
    Stopped(Stop),
}

impl Schema {
    /// Compiles a schema. References are never fetched, patterns run in linear time, and the cost of validation is
    /// bounded.
    ///
    /// # Errors
    /// The fault in the schema, and its position.
    pub fn compile(schema: Arc<Value>) -> Result<Self, SchemaFault> {
        let weights = bounds::measure(&schema)?;
        if let Some(fault) = endless_reference(&schema) {
            return Err(fault);
        }
        let mut options = jsonschema::options_for::<Metered>()
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::regex())
            .offline();
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
        Ok(Self { defaults: defaults.collect(), write_only: WriteOnly::of(&schema), validator, weights, schema })
    }

    /// The part of a schema that is too large, if any.
    pub fn too_large(schema: &Value) -> Option<SchemaFault> {
        bounds::measure(schema).err()
    }

    /// Compiles an input schema. Its root must have `type: object`.
    ///
    /// # Errors
    /// As [`Schema::compile`].
    pub fn compile_input(schema: Arc<Value>) -> Result<Self, SchemaFault> {
        match schema.get("type") {
            Some(Value::String(root)) if root == "object" => Self::compile(schema),
            _ => Err(SchemaFault::new("", "the root must be `type: object`: arguments are always an object")),
        }
    }

    /// Fits arguments to the schema. It fills in defaults. Unless `strict`, it also converts strings that contain
    /// JSON where the schema requires another type. It spends at most the steps of `meter`.
    ///
    /// The arguments are changed in place, because a copy of large arguments takes fifty times the memory of their
    /// text. If validation ends early, only defaults have been added.
    ///
    /// # Errors
    /// The violations, or the reason why validation ended early.
    pub fn fit(&self, arguments: &mut JsonObject, strict: bool, meter: &Meter<'_>) -> Result<Vec<Coercion>, Unfit> {
        for (name, default) in &self.defaults {
            if !arguments.contains_key(name) {
                arguments.insert(name.clone(), default.clone());
            }
        }
        let mut value = Value::Object(std::mem::take(arguments));
        let coercions = self.fit_value(&mut value, strict, meter);
        if let Value::Object(object) = value {
            *arguments = object;
        }
        coercions
    }

    fn fit_value(&self, value: &mut Value, strict: bool, meter: &Meter<'_>) -> Result<Vec<Coercion>, Unfit> {
        if self.is_valid(value, meter)? {
            return Ok(Vec::new());
        }
        // Conversions are kept only if the whole value then fits. Otherwise the caller gets violations that refer to
        // the converted value, and the value itself is restored.
        let read = if strict { Coerced::default() } else { coerce::coerce(self, value, meter)? };
        let judged = match read.is_empty() {
            true => Ok(false),
            false => self.is_valid(value, meter),
        };
        let judged = judged.and_then(|is_valid| match is_valid {
            true => Ok(()),
            false => Err(Unfit::Violations(self.explained(value, meter, MAX_VIOLATIONS)?)),
        });
        match judged {
            Ok(()) => Ok(read.coercions(value)),
            Err(unfit) => {
                read.undo(value);
                Err(unfit)
            }
        }
    }

    /// Describes the first violation of a value, if there is one.
    ///
    /// # Errors
    /// The reason why validation ended early.
    pub fn first_violation(&self, value: &Value, meter: &Meter<'_>) -> Result<Option<Violation>, Stop> {
        match self.is_valid(value, meter) {
            Ok(true) => Ok(None),
            Ok(false) => match self.explained(value, meter, 1) {
                Ok(violations) => Ok(violations.into_iter().next()),
                Err(Unfit::Violations(violations)) => Ok(violations.into_iter().next()),
                Err(Unfit::Stopped(stop)) => Err(stop),
            },
            Err(Unfit::Violations(violations)) => Ok(violations.into_iter().next()),
            Err(Unfit::Stopped(stop)) => Err(stop),
        }
    }

    /// Parameters whose default does not fit, and the reason. Every call without such a parameter would be refused.
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

    /// Whether any part of the schema is marked `writeOnly`.
    pub fn has_write_only(&self) -> bool {
        self.write_only.is_some()
    }

    /// The arguments for the record, without values that the schema marks `writeOnly`.
    pub fn recordable<'a>(&self, arguments: &'a JsonObject) -> Cow<'a, JsonObject> {
        let Some(write_only) = &self.write_only else { return Cow::Borrowed(arguments) };
        let mut value = Value::Object(arguments.clone());
        write_only.hide(&self.schema, &mut value);
        match value {
            Value::Object(object) => Cow::Owned(object),
            _ => Cow::Owned(JsonObject::new()),
        }
    }

    /// The first violations of a value, at most fifty. It is for values that do not come from a caller. Values that
    /// are marked `writeOnly` are not quoted.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let meter = Meter::new(MAX_STEPS, None);
        let found = match self.is_valid(value, &meter) {
            Ok(true) => return Vec::new(),
            Ok(false) => self.explained(value, &meter, MAX_VIOLATIONS),
            Err(stopped) => Err(stopped),
        };
        found.unwrap_or_else(|_| vec![explain::too_much("the value")])
    }

    fn is_valid(&self, value: &Value, meter: &Meter<'_>) -> Result<bool, Unfit> {
        let is_valid = self.validator.is_valid(self.look(value, meter, 0));
        meter.stopped().map_or(Ok(is_valid), |stop| Err(Unfit::Stopped(stop)))
    }

    /// Prepares a value for one validation, which may keep errors of `error_bytes` bytes.
    fn look<'v>(&self, value: &'v Value, meter: &'v Meter<'v>, error_bytes: usize) -> Look<'v> {
        meter.begin(error_bytes);
        meter.text_weight.set(self.weights.text);
        meter.name_weight.set(self.weights.name);
        Look::at(value, meter)
    }

    /// The errors of a value, as far as memory allows. Errors made after the end of validation are not genuine
    /// (`is_genuine`).
    pub(super) fn errors<'v>(
        &'v self,
        value: &'v Value,
        meter: &'v Meter<'v>,
        error_bytes: usize,
    ) -> impl Iterator<Item = ValidationError<'v>> {
        self.validator.iter_errors(self.look(value, meter, error_bytes))
    }

    /// Makes at most `most` violations of a value that does not fit.
    fn explained(&self, value: &Value, meter: &Meter<'_>, most: usize) -> Result<Vec<Violation>, Unfit> {
        let error_bytes = if most == 1 { FIRST_ERROR_BYTES } else { ERROR_BYTES };
        let mut shown = None;
        let mut shows = |write_only: &WriteOnly, error: &ValidationError<'_>| {
            let shown = shown.get_or_insert_with(|| {
                let mut shown = value.clone();
                write_only.hide(&self.schema, &mut shown);
                shown
            });
            shown.pointer(error.instance_path().as_str()) == Some(error.instance())
        };
        let mut explain = Explain::new(&self.schema, most);
        for error in self.errors(value, meter, error_bytes) {
            if explain.is_full() {
                break;
            }
            if !is_genuine(error.instance()) {
                // Validation ended inside the branches of this combination. The combination itself is known to fail,
                // so it is reported.
                let is_combination = matches!(
                    error.kind(),
                    ValidationErrorKind::AnyOf { .. } | ValidationErrorKind::OneOfNotValid { .. }
                );
                if explain.is_empty() && is_combination && meter.stopped() == Some(Stop::Errors) {
                    explain.add(&error, false);
                }
                break;
            }
            let quotes = self.write_only.as_ref().is_none_or(|write_only| shows(write_only, &error));
            explain.add(&error, quotes);
        }
        match (explain.into_violations(), meter.stopped()) {
            (violations, _) if !violations.is_empty() => Ok(violations),
            (_, Some(Stop::Errors) | None) => Ok(vec![explain::unexplained()]),
            (_, Some(stop)) => Err(Unfit::Stopped(stop)),
        }
    }
}

impl SchemaFault {
    pub(super) fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into(), is_too_large: false }
    }

    pub(super) fn too_large(pointer: String, message: String) -> Self {
        Self { pointer, message, is_too_large: true }
    }
}

fn fault(error: &ValidationError<'_>) -> SchemaFault {
    SchemaFault::new(error.instance_path().as_str(), error.to_string())
}
