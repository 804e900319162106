//! Reads an object from a text.

use std::collections::BTreeSet;

use serde_json::Value;

use super::find_object::{find_object, find_odd_bare_key};
use super::grammar::write_strict;
use super::tokens::Repair;
use super::unreadable_arguments::UnreadableArguments;
use crate::strict_json::{JsonObject, parse_strict, type_name};

/// Reads an object from a text: as strict JSON, or else after repairs. The repairs are added to
/// `repairs`.
pub(super) fn read_object(
    text: &str,
    may_close: bool,
    repairs: &mut BTreeSet<Repair>,
) -> Result<JsonObject, UnreadableArguments> {
    if text.trim().is_empty() {
        return Ok(JsonObject::new());
    }
    match parse_strict(text.as_bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Null) => Ok(JsonObject::new()),
        Ok(Value::String(inner))
            if inner.trim_start().starts_with('{') && repairs.insert(Repair::DoublyEncoded) =>
        {
            read_object(&inner, may_close, repairs)
        }
        Ok(other) => Err(UnreadableArguments::not_an_object(type_name(&other))),
        Err(_) => read_repaired(text, may_close, repairs),
    }
}

fn read_repaired(
    text: &str,
    may_close: bool,
    repairs: &mut BTreeSet<Repair>,
) -> Result<JsonObject, UnreadableArguments> {
    let found = find_object(text)?;
    repairs.extend(found.repair);
    if !found.closed && !may_close {
        return Err(UnreadableArguments::unclosed(text));
    }
    let object = found.start..found.end;
    let strict = write_strict(text, object.clone(), repairs)?;
    if let Some(at) = find_odd_bare_key(&text[object]) {
        return Err(UnreadableArguments::at_position(
            text,
            found.start + at,
            "this key has no quotes, but other keys have",
        ));
    }
    match parse_strict(strict.as_bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(UnreadableArguments::not_an_object(type_name(&other))),
        Err(error) => Err(UnreadableArguments::from_strict_error(&error)),
    }
}
