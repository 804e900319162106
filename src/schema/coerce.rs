//! Reading strings that hold JSON where the schema wants an object, an array, a number or a boolean.
//!
//! Models often send `"5"` for `5` or a whole list as a string. Such a string is converted only if what it holds
//! fits the schema at that place; otherwise it stays and is reported as the string it is.

use std::collections::HashSet;

use serde_json::Value;

use super::meter::{Meter, Stop};
use super::{Schema, Unfit};
use crate::call::{Coercion, json};

/// Conversions may open others (a list in a string, holding numbers in strings); deeper nesting is no accident.
const ROUNDS: usize = 4;
/// More misfits than this are not mended: looking at each costs time, and nobody makes so many by accident.
const MAX_MISFITS: usize = 10_000;

/// Memory for the errors of one pass: a misfit is a few errors if the schema has branches.
const ERROR_BYTES: usize = 24 << 20;

/// Texts that were replaced by what they hold, with the places where they stood, in the order in which they were read.
#[derive(Default)]
pub(super) struct Coerced(Vec<(String, Value)>);

impl Coerced {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was converted, sorted by pointer.
    pub(super) fn coercions(self, value: &Value) -> Vec<Coercion> {
        let made = self.0.into_iter().filter_map(|(pointer, _)| {
            let to = json::type_name(value.pointer(&pointer)?).to_owned();
            Some(Coercion { pointer, from: "string".into(), to })
        });
        let mut made: Vec<Coercion> = made.collect();
        made.sort_by(|a, b| a.pointer.cmp(&b.pointer));
        made
    }

    /// Puts the texts back. The last was read first: it may stand inside what another text held.
    pub(super) fn undo(self, value: &mut Value) {
        for (pointer, text) in self.0.into_iter().rev() {
            put(value, &pointer, text);
        }
    }
}

fn put(value: &mut Value, pointer: &str, text: Value) {
    if let Some(place) = value.pointer_mut(pointer) {
        *place = text;
    }
}

/// Makes every fitting conversion in the value. Two validations a round, however many places there are.
///
/// # Errors
/// Why validation ended early; then the value is as it was.
pub(super) fn coerce(schema: &Schema, value: &mut Value, meter: &Meter<'_>) -> Result<Coerced, Unfit> {
    let mut coerced = Coerced::default();
    match rounds(schema, value, meter, &mut coerced) {
        Ok(()) => Ok(coerced),
        Err(unfit) => {
            coerced.undo(value);
            Err(unfit)
        }
    }
}

fn rounds(schema: &Schema, value: &mut Value, meter: &Meter<'_>, coerced: &mut Coerced) -> Result<(), Unfit> {
    let mut refused: HashSet<String> = HashSet::new();
    for _ in 0..ROUNDS {
        // Where no text may be read, nothing is looked for.
        if !holds_json(value) {
            break;
        }
        let Some(misfits) = misfits(schema, value, meter)? else { break };
        let before = coerced.0.len();
        for pointer in misfits.into_iter().filter(|pointer| !refused.contains(pointer)) {
            if let Some(place) = value.pointer_mut(&pointer)
                && let Some(inside) = read(place)
            {
                coerced.0.push((pointer, std::mem::replace(place, inside)));
            }
        }
        if coerced.0.len() == before {
            break;
        }
        // What is below a place may still be mended in the next round; the place itself must fit now.
        let broken = self::misfits(schema, value, meter)?;
        for (pointer, text) in coerced.0.split_off(before) {
            if broken.as_ref().is_none_or(|broken| broken.contains(&pointer)) {
                put(value, &pointer, text);
                refused.insert(pointer);
            } else {
                coerced.0.push((pointer, text));
            }
        }
    }
    Ok(())
}

/// Places that do not fit; `None` when there are too many.
fn misfits(schema: &Schema, value: &Value, meter: &Meter<'_>) -> Result<Option<HashSet<String>>, Unfit> {
    let errors = schema.errors(value, meter, ERROR_BYTES).take(MAX_MISFITS + 1);
    let places: HashSet<String> = errors.map(|error| error.instance_path().to_string()).collect();
    match meter.stopped() {
        None => Ok(Some(places).filter(|places| places.len() <= MAX_MISFITS)),
        Some(Stop::Errors) => Ok(None),
        Some(stop) => Err(Unfit::Stopped(stop)),
    }
}

/// What a string holds, if it is JSON of another type.
fn read(value: &Value) -> Option<Value> {
    let text = value.as_str().filter(|text| may_be_json(text))?;
    json::parse_strict(text.as_bytes()).ok()
}

/// By its beginning: an object, a list, a number, true or false. `null` stays a text, and a text in a text does too.
fn may_be_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '-', 't', 'f', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
}

fn holds_json(value: &Value) -> bool {
    match value {
        Value::String(text) => may_be_json(text),
        Value::Array(items) => items.iter().any(holds_json),
        Value::Object(members) => members.values().any(holds_json),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
