//! Reading strings that hold JSON where the schema wants an object, an array, a number or a boolean.
//!
//! Models often send `"5"` for `5` or a whole list as a string. Such a string is converted only if what it holds
//! fits the schema at that place; otherwise it stays and is reported as the string it is.

use std::collections::{HashMap, HashSet};

use jsonschema::Validator;
use serde_json::Value;

use crate::call::{Coercion, json};

/// Conversions may open others (a list in a string, holding numbers in strings); deeper nesting is no accident.
const ROUNDS: usize = 4;
/// More misfits than this are not mended: looking at each costs time, and nobody makes so many by accident.
const MAX_MISFITS: usize = 10_000;

/// The value with every fitting conversion made, and the list of them, sorted by pointer. Two validations a round,
/// however many places there are.
pub(super) fn coerce(validator: &Validator, mut value: Value) -> (Value, Vec<Coercion>) {
    let mut made: Vec<Coercion> = Vec::new();
    let mut refused: HashSet<String> = HashSet::new();
    for _ in 0..ROUNDS {
        let misfits = misfits(validator, &value);
        if misfits.len() > MAX_MISFITS {
            break;
        }
        let mut tried: HashMap<String, Value> = HashMap::new();
        for pointer in misfits.into_iter().filter(|pointer| !refused.contains(pointer)) {
            if let Some(place) = value.pointer_mut(&pointer)
                && let Some(inside) = read(place)
            {
                tried.insert(pointer, std::mem::replace(place, inside));
            }
        }
        if tried.is_empty() {
            break;
        }
        // What is below a place may still be mended in the next round; the place itself must fit now.
        let broken = self::misfits(validator, &value);
        for (pointer, text) in tried {
            let Some(place) = value.pointer_mut(&pointer) else { continue };
            if broken.contains(&pointer) {
                *place = text;
                refused.insert(pointer);
            } else {
                let to = json::type_name(place).to_owned();
                made.push(Coercion { pointer, from: "string".into(), to });
            }
        }
    }
    made.sort_by(|a, b| a.pointer.cmp(&b.pointer));
    (value, made)
}

/// Places that do not fit.
fn misfits(validator: &Validator, value: &Value) -> HashSet<String> {
    let errors = validator.iter_errors(value).take(MAX_MISFITS + 1);
    errors.map(|error| error.instance_path().to_string()).collect()
}

/// What a string holds, if it is JSON of another type.
fn read(value: &Value) -> Option<Value> {
    let inside = json::parse_strict(value.as_str()?.as_bytes()).ok()?;
    (!inside.is_string() && !inside.is_null()).then_some(inside)
}
