//! Reading what models write as JSON: strictly first, then with the repairs that leave one meaning. What could be read in
//! two ways is refused, with words that the model can act on.
//!
//! jsonrepair-rs repairs, and guesses where it must; so nothing it says is believed: [`repair::hold_against`] proves that
//! its text says what was written, and [`parse_strict`] reads it.

mod repair;
mod tokens;
mod unreadable;

use std::collections::BTreeSet;

use serde_json::Value;

use super::message::Written;
use crate::call::JsonObject;
use crate::call::json::{parse_strict, type_name};
pub(in crate::dialect) use repair::extent;
use repair::{NotFound, Repair, find_object, hold_against};
use tokens::Fault;
pub(in crate::dialect) use tokens::{Kind, Tokens};

/// Arguments that could be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Mended {
    /// The arguments.
    pub arguments: JsonObject,
    /// What had to be repaired, one sentence each; none if it was JSON as it came.
    pub repairs: Vec<String>,
}

/// Arguments that cannot be read, or must not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Unreadable {
    /// What is wrong, for people: a sentence without its full stop.
    pub what: String,
    /// What to do about it, for the model: whole sentences.
    pub correction: String,
}

/// A call's arguments as an object. `cut_off`: the model was stopped while it wrote them. `may_close`: closing brackets
/// that are missing at the very end may be added; never for a tool with effects.
///
/// # Errors
/// What could be read in two ways, what is no object, and the truncated arguments of a tool with effects.
pub fn arguments(written: &Written, cut_off: bool, may_close: bool) -> Result<Mended, Unreadable> {
    if cut_off && !may_close {
        return Err(Unreadable::cut_off());
    }
    match written {
        Written::Object(object) => Ok(Mended { arguments: object.clone(), repairs: Vec::new() }),
        Written::Nothing => Ok(Mended { arguments: JsonObject::new(), repairs: Vec::new() }),
        Written::Other(Value::Null) => Ok(Mended { arguments: JsonObject::new(), repairs: Vec::new() }),
        Written::Other(other) => Err(Unreadable::not_an_object(type_name(other))),
        Written::Text(text) => {
            let mut repairs = BTreeSet::new();
            let arguments = read(text, may_close, &mut repairs)?;
            Ok(Mended { arguments, repairs: repairs.into_iter().map(|repair| repair.sentence().to_owned()).collect() })
        }
    }
}

fn read(text: &str, may_close: bool, repairs: &mut BTreeSet<Repair>) -> Result<JsonObject, Unreadable> {
    if text.trim().is_empty() {
        return Ok(JsonObject::new());
    }
    match parse_strict(text.as_bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Null) => Ok(JsonObject::new()),
        Ok(Value::String(inner)) if inner.trim_start().starts_with('{') && repairs.insert(Repair::DoublyEncoded) => {
            read(&inner, may_close, repairs)
        }
        Ok(other) => Err(Unreadable::not_an_object(type_name(&other))),
        Err(_) => repaired(text, may_close, repairs),
    }
}

fn repaired(text: &str, may_close: bool, repairs: &mut BTreeSet<Repair>) -> Result<JsonObject, Unreadable> {
    let found = find_object(text).map_err(|why| match why {
        NotFound::NoObject => Unreadable::no_object(text),
        NotFound::Doubtful(at) => Unreadable::at(text, at, "it is not clear whether this belongs to the JSON object"),
        NotFound::Fault(fault) => Unreadable::fault(text, &fault),
    })?;
    repairs.extend(found.around);
    let object = &text[found.start..found.end];
    let fault = |fault: Fault| Unreadable::fault(text, &Fault { at: found.start + fault.at, ..fault });

    let mut reading = Tokens::new(object);
    let written = reading.by_ref().collect::<Result<Vec<_>, _>>().map_err(fault)?;
    repairs.append(&mut reading.repairs);
    if !found.closed && (!may_close || reading.ends_in_comment) {
        return Err(Unreadable::unclosed(text));
    }
    let guess = jsonrepair_rs::jsonrepair(object).map_err(|_| Unreadable::no_object(text))?;
    // What a guess added is no JSON that was written, so its faults have no place in the text.
    let guessed = Tokens::new(&guess).collect::<Result<Vec<_>, _>>().map_err(|_| Unreadable::no_object(text))?;
    let changed = hold_against(&written, &guessed, may_close && !found.closed).map_err(|parted| match parted {
        Some(at) => Unreadable::at(text, found.start + at, "this cannot stand here"),
        None => Unreadable::unclosed(text),
    })?;
    repairs.extend(changed);
    match parse_strict(guess.as_bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(Unreadable::not_an_object(type_name(&other))),
        Err(error) => Err(Unreadable::strict(&error)),
    }
}
