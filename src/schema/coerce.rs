//! Reading strings that hold JSON where the schema wants an object, an array, a number or a boolean.
//!
//! Models often send `"5"` for `5` or a whole list as a string. Such a string is converted only if what it holds
//! fits the schema at that place; otherwise it stays and is reported as the string it is.

use std::collections::HashSet;

use jsonschema::Validator;
use serde_json::Value;

use crate::call::{Coercion, json};

/// Conversions may open others (a list in a string, holding numbers in strings); deeper nesting is no accident.
const ROUNDS: usize = 4;
/// Longest string that is tried.
const MAX_LEN: usize = 1 << 20;

/// The value with every fitting conversion made, and the list of them, sorted by pointer.
pub(super) fn coerce(validator: &Validator, mut value: Value) -> (Value, Vec<Coercion>) {
    let mut made: Vec<Coercion> = Vec::new();
    let mut refused = HashSet::new();
    for _ in 0..ROUNDS {
        let candidates: Vec<(String, Value)> = misfits(validator, &value)
            .into_iter()
            .filter(|pointer| !refused.contains(pointer))
            .filter_map(|pointer| {
                let inside = read(value.pointer(&pointer)?)?;
                Some((pointer, inside))
            })
            .collect();
        if candidates.is_empty() {
            break;
        }
        for (pointer, inside) in candidates {
            let Some(place) = value.pointer_mut(&pointer) else { continue };
            let to = json::type_name(&inside).to_owned();
            let text = std::mem::replace(place, inside);
            // What is below the place may still be mended in the next round; the place itself must fit now.
            let broken = misfits(validator, &value);
            if broken.contains(&pointer) {
                if let Some(place) = value.pointer_mut(&pointer) {
                    *place = text;
                }
                refused.insert(pointer);
            } else {
                made.push(Coercion { pointer, from: "string".into(), to });
            }
        }
    }
    // A conversion whose inside could not be mended is undone with everything below it.
    let broken = misfits(validator, &value);
    let spoilt: Vec<String> = made
        .iter()
        .map(|coercion| coercion.pointer.clone())
        .filter(|pointer| broken.iter().any(|at| at.starts_with(&format!("{pointer}/"))))
        .collect();
    made.retain(|c| !spoilt.iter().any(|at| c.pointer == *at || c.pointer.starts_with(&format!("{at}/"))));
    made.sort_by(|a, b| a.pointer.cmp(&b.pointer));
    (value, made)
}

/// Places that do not fit.
fn misfits(validator: &Validator, value: &Value) -> HashSet<String> {
    validator
        .iter_errors(value)
        .take(super::compiled::MAX_VIOLATIONS)
        .map(|error| error.instance_path().to_string())
        .collect()
}

/// What a string holds, if it is JSON of another type.
fn read(value: &Value) -> Option<Value> {
    let text = value.as_str().filter(|text| text.len() <= MAX_LEN)?;
    let inside = json::parse_strict(text.as_bytes()).ok()?;
    (!inside.is_string() && !inside.is_null()).then_some(inside)
}
