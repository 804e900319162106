//! Reads the JSON that models write: strictly first, then with repairs that leave only one meaning.
//! JSON with two possible meanings is refused, with a message that the model can act on.
//!
//! A repair never guesses. The tokens may be written in lenient ways (`tokens`), and their order
//! follows a lenient grammar (`read`). Both allow only what has one meaning.
//! [`crate::strict_json::parse_strict`] parses the result.

mod find_object;
mod read;
mod tokens;
mod unreadable_arguments;

use std::collections::BTreeSet;

use serde_json::Value;

use super::message::RawArguments;
use crate::strict_json::{JsonObject, type_name};
pub(crate) use find_object::find_extent;
pub(crate) use tokens::{TokenKind, Tokens};
pub use unreadable_arguments::UnreadableArguments;

/// Whether some keys of a JSON text have quotes and others do not. Then it is unclear which texts
/// are keys.
pub(crate) fn has_mixed_keys(text: &str) -> bool {
    find_object::find_odd_bare_key(text).is_some()
}

/// Arguments that were read, possibly after repairs.
#[derive(Debug, Clone, PartialEq)]
pub struct Repaired {
    /// The arguments of the call.
    pub arguments: JsonObject,
    /// The repairs, one sentence each. Empty if the text was strict JSON.
    pub repairs: Vec<String>,
}

/// Reads the arguments of a call as an object. `cut_off`: the model stopped while it wrote them.
/// `may_close`: missing closing brackets at the very end may be added. It must be false for a tool
/// with effects.
///
/// # Errors
/// The arguments have two possible meanings, are not an object, or are incomplete for a tool with
/// effects.
pub fn read_arguments(
    raw: &RawArguments,
    cut_off: bool,
    may_close: bool,
) -> Result<Repaired, UnreadableArguments> {
    if cut_off && !may_close {
        return Err(UnreadableArguments::cut_off());
    }
    let mut repairs = BTreeSet::new();
    let arguments = match raw {
        RawArguments::Object(object) => object.clone(),
        RawArguments::Missing | RawArguments::Other(Value::Null) => JsonObject::new(),
        RawArguments::Other(other) => {
            return Err(UnreadableArguments::not_an_object(type_name(other)));
        }
        RawArguments::Text(text) | RawArguments::Input(text) => {
            read::read_object(text, may_close, &mut repairs)?
        }
    };
    let repairs = repairs
        .into_iter()
        .map(|repair| repair.describe().to_owned());
    Ok(Repaired {
        arguments,
        repairs: repairs.collect(),
    })
}

#[cfg(test)]
mod tests;
