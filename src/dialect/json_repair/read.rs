//! Reads an object from a text.

use std::collections::BTreeSet;

use serde_json::Value;

use super::repair::{
    NotFound, Repair, compare_tokens, find_misplaced, find_object, find_odd_bare_key,
};
use super::tokens::{TokenFault, Tokens};
use crate::call::JsonObject;
use crate::call::UnreadableArguments;
use crate::call::json::{parse_strict, type_name};

const MISPLACED: &str = "this is not allowed here";

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
    let found = find_object(text).map_err(|why| match why {
        NotFound::NoObject => UnreadableArguments::no_object(text),
        NotFound::Doubtful(at) => UnreadableArguments::at_position(
            text,
            at,
            "it is not clear whether this belongs to the JSON object",
        ),
        NotFound::Fault(fault) => UnreadableArguments::from_fault(text, &fault),
    })?;
    repairs.extend(found.repair);
    let object = &text[found.start..found.end];
    let fault = |fault: TokenFault| {
        UnreadableArguments::from_fault(
            text,
            &TokenFault {
                at: found.start + fault.at,
                ..fault
            },
        )
    };

    let mut reading = Tokens::new(object);
    let original = reading
        .by_ref()
        .collect::<Result<Vec<_>, _>>()
        .map_err(fault)?;
    repairs.append(&mut reading.repairs);
    if !found.closed && (!may_close || reading.ends_in_comment) {
        return Err(UnreadableArguments::unclosed(text));
    }
    if let Some(at) = find_misplaced(&original) {
        return Err(UnreadableArguments::at_position(
            text,
            found.start + at,
            MISPLACED,
        ));
    }
    if let Some(at) = find_odd_bare_key(object, &original) {
        return Err(UnreadableArguments::at_position(
            text,
            found.start + at,
            "this key has no quotes, but other keys have",
        ));
    }
    let guess = jsonrepair_rs::jsonrepair(object).map_err(|error| {
        let at = object
            .char_indices()
            .nth(error.position)
            .map_or(object.len(), |(at, _)| at);
        UnreadableArguments::at_position(text, found.start + at, MISPLACED)
    })?;
    // The guess is strict JSON, so its tokens can be read unless the nesting is too deep. Tokens
    // take far more memory than the text, so they are read one by one.
    let mut is_read = true;
    let guessed =
        Tokens::new(&guess).map_while(|token| token.inspect_err(|_| is_read = false).ok());
    let compared = compare_tokens(&original, guessed, may_close && !found.closed);
    if !is_read {
        return Err(UnreadableArguments::at_position(
            text,
            found.start,
            "this is not a JSON object",
        ));
    }
    repairs.extend(compared.map_err(|difference| match difference {
        Some(at) => UnreadableArguments::at_position(text, found.start + at, MISPLACED),
        None => UnreadableArguments::unclosed(text),
    })?);
    drop(original);
    match parse_strict(guess.as_bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(UnreadableArguments::not_an_object(type_name(&other))),
        Err(error) => Err(UnreadableArguments::from_strict_error(&error)),
    }
}
