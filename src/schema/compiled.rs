//! A compiled schema and its operations.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::{DateTime, Time};
use jsonschema::error::{ValidationError, ValidationErrorKind};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use super::bounded_pattern::BoundedPattern;
use super::bounds::{self, Weights};
use super::coerce::{self, Coerced};
use super::definition_faults::{
    describe_fault, find_definition_faults, find_endless_reference, find_outside_reference,
};
use super::explain::{self, ViolationCollector};
use super::fault::SchemaFault;
use super::meter::{MAX_STEPS, Meter, StopReason};
use super::metered::{Metered, MeteredValue, is_examined};
use super::owner::SchemaOwner;
use super::relax::relax;
use super::whole_numbers;
use super::write_only::WriteOnly;
use crate::call::{Coercion, JsonObject, Violation, json};

/// Maximum number of violations that are reported. A list of a million bad items is one mistake,
/// not a million.
const MAX_VIOLATIONS: usize = 50;
/// Memory for the errors from which violations are made. Each branch of a combination has its own
/// errors.
const ERROR_BYTES: usize = 4 << 20;
/// Memory for the errors if only the first violation is needed.
const FIRST_ERROR_BYTES: usize = 64 << 10;

/// A compiled JSON Schema.
pub struct Schema {
    schema: Arc<Value>,
    /// The form that values are checked against: [`relax`] of the schema.
    checked: Arc<Value>,
    owner: SchemaOwner,
    validator: Validator<Metered>,
    weights: Weights,
    defaults: JsonObject,
    write_only: Option<WriteOnly>,
}

/// Why arguments violate a schema.
#[derive(Debug)]
pub enum FitError {
    /// The violations of the schema.
    Violations(Vec<Violation>),
    /// Validation ended early.
    Stopped(StopReason),
}

impl Schema {
    /// Compiles a schema. References are never fetched, and the cost of validation is bounded.
    /// Patterns run in linear time, except those that need backtracking (`bounded_pattern.rs`).
    ///
    /// # Errors
    /// The fault in the schema, and its position.
    pub fn compile(schema: Arc<Value>, owner: SchemaOwner) -> Result<Self, SchemaFault> {
        Self::compile_with(schema, owner, true)
    }

    /// Compiles an output schema. In a foreign one, `format` is an annotation.
    ///
    /// # Errors
    /// As [`Schema::compile`].
    pub fn compile_output(schema: Arc<Value>, owner: SchemaOwner) -> Result<Self, SchemaFault> {
        Self::compile_with(schema, owner, !owner.is_foreign())
    }

    fn compile_with(
        schema: Arc<Value>,
        owner: SchemaOwner,
        checks_formats: bool,
    ) -> Result<Self, SchemaFault> {
        let weights = bounds::measure_schema(&schema)?;
        if let Some(fault) = find_endless_reference(&schema) {
            return Err(fault);
        }
        let checked = match owner.is_foreign() || weights.has_unjudged {
            true => {
                let mut relaxed = Value::clone(&schema);
                relax(&mut relaxed, owner);
                if relaxed == *schema {
                    schema.clone()
                } else {
                    Arc::new(relaxed)
                }
            }
            false => schema.clone(),
        };
        let mut options = jsonschema::options_for::<Metered>()
            .should_validate_formats(checks_formats)
            .with_pattern_options(PatternOptions::regex())
            .offline();
        if weights.backtracks {
            options = options.with_keyword("pattern", move |_, value, _| {
                Ok(Box::new(BoundedPattern::from_keyword(value, owner)?))
            });
        }
        if owner != SchemaOwner::Own {
            options = options
                .with_format("date-time", is_date_time)
                .with_format("time", is_time);
        }
        if schema.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft202012);
        }
        let validator = options
            .build(&checked)
            .map_err(|error| match error.kind() {
                ValidationErrorKind::Referencing(_) => {
                    find_outside_reference(&schema).unwrap_or_else(|| describe_fault(&error))
                }
                _ => describe_fault(&error),
            })?;
        let mut compiled = Self {
            defaults: JsonObject::new(),
            write_only: WriteOnly::from_schema(&schema),
            validator,
            weights,
            checked,
            schema,
            owner,
        };
        let mut defaults = compiled.written_defaults();
        if !defaults.is_empty() {
            let misfits = compiled.find_misfit_members(&Value::Object(defaults.clone()));
            defaults.retain(|name, default| {
                let is_left_out = owner.is_foreign() && lacks_offset(default);
                !is_left_out && !misfits.contains(name)
            });
            compiled.defaults = defaults;
        }
        Ok(compiled)
    }

    /// Who wrote the schema.
    pub fn owner(&self) -> SchemaOwner {
        self.owner
    }

    /// The defaults of the parameters, as the schema has them.
    fn written_defaults(&self) -> JsonObject {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        let defaults = properties
            .into_iter()
            .flatten()
            .filter_map(|(name, property)| Some((name.clone(), property.get("default")?.clone())));
        defaults.collect()
    }

    /// The members of an object whose values do not fit.
    fn find_misfit_members(&self, value: &Value) -> HashSet<String> {
        let meter = Meter::new(MAX_STEPS, None);
        self.iter_errors(value, &meter, ERROR_BYTES)
            .filter_map(|error| json::parse_pointer(error.instance_path().as_str()).next())
            .collect()
    }

    /// Whether this is the compiled form of that schema.
    pub(crate) fn is_of(&self, schema: &Arc<Value>, owner: SchemaOwner) -> bool {
        Arc::ptr_eq(&self.schema, schema) && self.owner == owner
    }

    /// All faults of a schema of draft 2020-12. Empty if compilation finds other faults only, or
    /// for another draft.
    pub fn definition_faults(schema: &Value) -> Vec<SchemaFault> {
        find_definition_faults(schema)
    }

    /// The part of a schema that is too large, if any.
    pub fn check_size(schema: &Value) -> Option<SchemaFault> {
        bounds::measure_schema(schema).err()
    }

    /// Compiles an input schema. Its root must have `type: object`.
    ///
    /// # Errors
    /// As [`Schema::compile`].
    pub fn compile_input(schema: Arc<Value>, owner: SchemaOwner) -> Result<Self, SchemaFault> {
        match schema.get("type") {
            Some(Value::String(root)) if root == "object" => Self::compile(schema, owner),
            _ => Err(SchemaFault::new(
                "",
                "the root must be `type: object`: arguments are always an object",
            )),
        }
    }

    /// Fits arguments to the schema. It fills in the defaults that fit. Unless `strict`, it also converts
    /// strings that contain JSON where the schema requires another type. It spends at most the
    /// steps of `meter`.
    ///
    /// The arguments are changed in place, because a copy of large arguments takes fifty times the
    /// memory of their text. If validation ends early, only defaults have been added.
    ///
    /// # Errors
    /// The violations, or the reason why validation ended early.
    pub fn fit_arguments(
        &self,
        arguments: &mut JsonObject,
        strict: bool,
        meter: &Meter<'_>,
    ) -> Result<Vec<Coercion>, FitError> {
        for (name, default) in &self.defaults {
            if !arguments.contains_key(name) {
                arguments.insert(name.clone(), default.clone());
            }
        }
        let mut value = Value::Object(std::mem::take(arguments));
        let coercions = self.fit_value(&mut value, strict, meter);
        if coercions.is_ok() {
            whole_numbers::write_integers(&self.schema, &mut value);
        }
        if let Value::Object(object) = value {
            *arguments = object;
        }
        coercions
    }

    fn fit_value(
        &self,
        value: &mut Value,
        strict: bool,
        meter: &Meter<'_>,
    ) -> Result<Vec<Coercion>, FitError> {
        if self.is_valid(value, meter).map_err(FitError::Stopped)? {
            return Ok(Vec::new());
        }
        // Conversions are kept only if the whole value then fits. Otherwise the caller gets
        // violations that refer to the converted value, and the value itself is restored.
        let coerced = match strict {
            true => Coerced::default(),
            false => coerce::coerce_strings(self, value, meter).map_err(FitError::Stopped)?,
        };
        let is_valid = match coerced.is_empty() {
            true => Ok(false),
            false => self.is_valid(value, meter),
        };
        let violations = match is_valid {
            Ok(true) => return Ok(coerced.coercions(value)),
            Ok(false) => self.explain_violations(value, meter, MAX_VIOLATIONS),
            Err(stop) => Err(stop),
        };
        coerced.undo(value);
        Err(violations.map_or_else(FitError::Stopped, FitError::Violations))
    }

    /// Describes the first violation of a result, if there is one. A text that stands for a number
    /// with more digits than a number holds here is judged as that number.
    ///
    /// # Errors
    /// The reason why validation ended early.
    pub fn first_violation(
        &self,
        value: &Value,
        meter: &Meter<'_>,
    ) -> Result<Option<Violation>, StopReason> {
        if self.is_valid(value, meter)? {
            return Ok(None);
        }
        let with_numbers = whole_numbers::read_long_numbers(&self.schema, value);
        let value = with_numbers.as_ref().unwrap_or(value);
        if with_numbers.is_some() && self.is_valid(value, meter)? {
            return Ok(None);
        }
        let violations = self.explain_violations(value, meter, 1)?;
        Ok(violations.into_iter().next())
    }

    /// Parameters whose default does not fit and so is never filled in, and the reason.
    pub fn misfit_defaults(&self) -> Vec<(String, String)> {
        let written = self.written_defaults();
        if written.len() == self.defaults.len() {
            return Vec::new();
        }
        let violations = self.violations(&Value::Object(written.clone()));
        let of = |name: &str, violation: &Violation| {
            let own = format!("/{}", json::escape_pointer_token(name));
            violation.pointer == own || violation.pointer.starts_with(&format!("{own}/"))
        };
        let misfit = |name: &String| {
            let found = violations.iter().find(|violation| of(name, violation))?;
            Some((
                name.clone(),
                format!("the default does not fit: {}", found.message),
            ))
        };
        written.keys().filter_map(misfit).collect()
    }

    /// Whether any part of the schema is marked `writeOnly`.
    pub fn has_write_only(&self) -> bool {
        self.write_only.is_some()
    }

    /// The arguments for the record, without values that the schema marks `writeOnly`.
    pub fn redact_write_only<'a>(&self, arguments: &'a JsonObject) -> Cow<'a, JsonObject> {
        let Some(write_only) = &self.write_only else {
            return Cow::Borrowed(arguments);
        };
        let mut value = Value::Object(arguments.clone());
        write_only.redact(&self.schema, &mut value);
        match value {
            Value::Object(object) => Cow::Owned(object),
            _ => Cow::Owned(JsonObject::new()),
        }
    }

    /// The first violations of a value, at most fifty. It is for values that do not come from a
    /// caller. Values that are marked `writeOnly` are not quoted.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let meter = Meter::new(MAX_STEPS, None);
        let found = match self.is_valid(value, &meter) {
            Ok(true) => return Vec::new(),
            Ok(false) => self.explain_violations(value, &meter, MAX_VIOLATIONS),
            Err(stopped) => Err(stopped),
        };
        found.unwrap_or_else(|_| vec![explain::too_costly("the value")])
    }

    fn is_valid(&self, value: &Value, meter: &Meter<'_>) -> Result<bool, StopReason> {
        let is_valid = self.validator.is_valid(self.begin_pass(value, meter, 0));
        meter.stop_reason().map_or(Ok(is_valid), Err)
    }

    /// Prepares a value for one validation, which may keep errors of `error_bytes` bytes.
    fn begin_pass<'v>(
        &self,
        value: &'v Value,
        meter: &'v Meter<'v>,
        error_bytes: usize,
    ) -> MeteredValue<'v> {
        meter.begin_pass(error_bytes);
        meter.text_weight.set(self.weights.text);
        meter.name_weight.set(self.weights.name);
        MeteredValue::new(value, meter)
    }

    /// The errors of a value, as far as memory allows. Errors made after the end of validation are
    /// not genuine (`is_examined`).
    pub(super) fn iter_errors<'v>(
        &'v self,
        value: &'v Value,
        meter: &'v Meter<'v>,
        error_bytes: usize,
    ) -> impl Iterator<Item = ValidationError<'v>> {
        self.validator
            .iter_errors(self.begin_pass(value, meter, error_bytes))
    }

    /// Makes at most `most` violations of a value that does not fit.
    fn explain_violations(
        &self,
        value: &Value,
        meter: &Meter<'_>,
        most: usize,
    ) -> Result<Vec<Violation>, StopReason> {
        let error_bytes = if most == 1 {
            FIRST_ERROR_BYTES
        } else {
            ERROR_BYTES
        };
        let mut shown = None;
        let mut shows = |write_only: &WriteOnly, error: &ValidationError<'_>| {
            let shown = shown.get_or_insert_with(|| {
                let mut shown = value.clone();
                write_only.redact(&self.schema, &mut shown);
                shown
            });
            shown.pointer(error.instance_path().as_str()) == Some(error.instance())
        };
        let mut collector = ViolationCollector::new(&self.checked, most);
        for error in self.iter_errors(value, meter, error_bytes) {
            if collector.is_full() {
                break;
            }
            if !is_examined(error.instance()) {
                // Validation ended inside the branches of this combination. The combination itself
                // is known to fail, so it is reported.
                let is_combination = matches!(
                    error.kind(),
                    ValidationErrorKind::AnyOf { .. } | ValidationErrorKind::OneOfNotValid { .. }
                );
                if collector.is_empty()
                    && is_combination
                    && meter.stop_reason() == Some(StopReason::Errors)
                {
                    collector.add_error(&error, false);
                }
                break;
            }
            let quotes = self
                .write_only
                .as_ref()
                .is_none_or(|write_only| shows(write_only, &error));
            collector.add_error(&error, quotes);
        }
        match (collector.into_violations(), meter.stop_reason()) {
            (violations, _) if !violations.is_empty() => Ok(violations),
            (_, Some(StopReason::Errors) | None) => Ok(vec![explain::unexplained()]),
            (_, Some(stop)) => Err(stop),
        }
    }
}

/// Whether this is a date with a time, with or without an offset.
pub(super) fn is_date_time(text: &str) -> bool {
    without_utc_mark(text).parse::<DateTime>().is_ok()
}

/// Whether this is a time of day, with or without an offset.
pub(super) fn is_time(text: &str) -> bool {
    without_utc_mark(text).parse::<Time>().is_ok()
}

/// Whether a value is a date with a time, or a time of day, in a zone that only its writer knows.
pub(super) fn lacks_offset(value: &Value) -> bool {
    let Some(text) = value.as_str() else {
        return false;
    };
    let moment = match is_time(text) && !is_date_time(text) {
        true => format!("2000-01-01T{text}"),
        false => text.to_owned(),
    };
    is_date_time(&moment) && moment.contains(':') && moment.parse::<Timestamp>().is_err()
}

/// jiff reads a local time beside an offset, but refuses the mark of UTC.
fn without_utc_mark(text: &str) -> &str {
    text.strip_suffix(['Z', 'z']).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_may_be_missing() {
        for good in [
            "2024-05-05T10:00:00",
            "2024-05-05T10:00:00.25",
            "2024-05-05 10:00:00",
            "2024-05-05T10:00:00Z",
            "2024-05-05T10:00:00+02:00",
        ] {
            assert!(is_date_time(good), "{good}");
        }
        for good in ["07:30:00", "07:30", "07:30:00Z", "07:30:00+02:00"] {
            assert!(is_time(good), "{good}");
        }
        for bad in [
            "",
            "soon",
            "2024-13-05T10:00:00",
            "10:00:00",
            "2024-05-05T25:00:00",
        ] {
            assert!(!is_date_time(bad), "{bad}");
        }
        for (text, lacks) in [
            ("2024-05-05T10:00:00", true),
            ("07:30:00", true),
            ("2024-05-05T10:00:00Z", false),
            ("07:30:00+02:00", false),
            ("2024-05-05", false),
            ("soon", false),
            ("1030", false),
        ] {
            assert_eq!(lacks_offset(&text.into()), lacks, "{text}");
        }
        for bad in ["", "noon", "25:00:00"] {
            assert!(!is_time(bad), "{bad}");
        }
    }
}
