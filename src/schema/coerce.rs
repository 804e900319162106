//! Converts strings that contain JSON, where the schema requires an object, an array, a number or a
//! boolean.
//!
//! Models often send `"5"` for `5`, or a whole list as a string. Such a string is converted only if
//! its content fits the schema at that position. Otherwise the string stays and is reported as a
//! string.

use std::collections::HashSet;

use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde_json::Value;

use super::Schema;
use super::meter::{Meter, StopReason};
use crate::call::{Coercion, json};

/// Maximum number of rounds. A conversion may reveal further strings (a list in a string that
/// contains numbers in strings). Deeper nesting is not an accident of a model.
const MAX_ROUNDS: usize = 4;
/// If more positions do not fit, nothing is converted: each costs time, and so many are not an
/// accident of a model.
const MAX_MISFITS: usize = 10_000;

/// Memory for the errors of one pass. A position that does not fit causes several errors if the
/// schema has branches.
const ERROR_BYTES: usize = 24 << 20;

/// The strings that were replaced by their content, with their JSON Pointers, in the order of
/// conversion.
#[derive(Default)]
pub(super) struct Coerced(Vec<(String, Value)>);

impl Coerced {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conversions, sorted by pointer.
    pub(super) fn coercions(self, value: &Value) -> Vec<Coercion> {
        let made = self.0.into_iter().filter_map(|(pointer, _)| {
            let to = json::type_name(value.pointer(&pointer)?).to_owned();
            Some(Coercion {
                pointer,
                from: "string".into(),
                to,
            })
        });
        let mut made: Vec<Coercion> = made.collect();
        made.sort_by(|a, b| a.pointer.cmp(&b.pointer));
        made
    }

    /// Restores the strings in reverse order, because a later string may be inside the content of
    /// an earlier one.
    pub(super) fn undo(self, value: &mut Value) {
        for (pointer, text) in self.0.into_iter().rev() {
            replace_at(value, &pointer, text);
        }
    }
}

fn replace_at(value: &mut Value, pointer: &str, text: Value) {
    if let Some(target) = value.pointer_mut(pointer) {
        *target = text;
    }
}

/// Makes every conversion that fits. Each round needs two validations, independent of the number of
/// positions.
///
/// # Errors
/// The reason why validation ended early. The value is then unchanged.
pub(super) fn coerce_strings(
    schema: &Schema,
    value: &mut Value,
    meter: &Meter<'_>,
) -> Result<Coerced, StopReason> {
    let mut coerced = Coerced::default();
    match coerce_in_rounds(schema, value, meter, &mut coerced) {
        Ok(()) => Ok(coerced),
        Err(stop) => {
            coerced.undo(value);
            Err(stop)
        }
    }
}

fn coerce_in_rounds(
    schema: &Schema,
    value: &mut Value,
    meter: &Meter<'_>,
    coerced: &mut Coerced,
) -> Result<(), StopReason> {
    // Each round converts all positions that do not fit, and validates again. A position that still
    // does not fit gets its string back and is never converted again. The next round finds strings
    // inside the converted content.
    let mut refused: HashSet<String> = HashSet::new();
    for _ in 0..MAX_ROUNDS {
        // Without a string that may contain JSON, validation would be useless.
        if !contains_json_text(value) {
            break;
        }
        let Some(misfits) = find_misfits(schema, value, meter)? else {
            break;
        };
        let before = coerced.0.len();
        for pointer in misfits
            .into_iter()
            .filter(|pointer| !refused.contains(pointer))
        {
            if let Some(target) = value.pointer_mut(&pointer)
                && let Some(inside) = parse_text(target)
            {
                coerced.0.push((pointer, std::mem::replace(target, inside)));
            }
        }
        if coerced.0.len() == before {
            break;
        }
        // Values below the position may be converted in the next round, but the position itself
        // must fit now.
        let broken = self::find_misfits(schema, value, meter)?;
        for (pointer, text) in coerced.0.split_off(before) {
            if broken
                .as_ref()
                .is_none_or(|broken| broken.contains(&pointer))
            {
                replace_at(value, &pointer, text);
                refused.insert(pointer);
            } else {
                coerced.0.push((pointer, text));
            }
        }
    }
    Ok(())
}

/// The positions that do not fit. `None` if there are too many.
fn find_misfits(
    schema: &Schema,
    value: &Value,
    meter: &Meter<'_>,
) -> Result<Option<HashSet<String>>, StopReason> {
    let errors = schema
        .iter_errors(value, meter, ERROR_BYTES)
        .take(MAX_MISFITS + 1);
    let mut pointers = HashSet::new();
    errors.for_each(|error| add_positions(&error, &mut pointers));
    match meter.stop_reason() {
        None => Ok(Some(pointers).filter(|pointers| pointers.len() <= MAX_MISFITS)),
        Some(StopReason::Errors) => Ok(None),
        Some(stop) => Err(stop),
    }
}

/// Adds the position of an error. An error of `anyOf` or `oneOf` stands for those of its forms: if
/// the value is of one form except for parts of it, the positions of these parts are added instead.
fn add_positions(error: &ValidationError<'_>, pointers: &mut HashSet<String>) {
    let own = error.instance_path();
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } =
        error.kind()
    {
        let mut errors = context
            .iter()
            .filter(|form| form.iter().all(|error| error.instance_path() != own))
            .flatten()
            .peekable();
        if errors.peek().is_some() {
            errors.for_each(|error| add_positions(error, pointers));
            return;
        }
    }
    pointers.insert(own.to_string());
}

/// The content of a string, if it is JSON of another type.
fn parse_text(value: &Value) -> Option<Value> {
    let text = value.as_str().filter(|text| may_be_json(text))?;
    json::parse_strict(text.as_bytes()).ok()
}

/// Decides by the first character: an object, a list, a number, true or false. `null` stays a
/// string, and so does a JSON string inside a string.
fn may_be_json(text: &str) -> bool {
    text.trim_start().starts_with([
        '{', '[', '-', 't', 'f', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9',
    ])
}

fn contains_json_text(value: &Value) -> bool {
    match value {
        Value::String(text) => may_be_json(text),
        other => json::children(other).any(contains_json_text),
    }
}
