//! Reading what models write as JSON: strictly first, then with the repairs that leave one meaning. What could be read in
//! two ways is refused, with words that the model can act on.
//!
//! jsonrepair-rs repairs, and guesses where it must; so nothing it says is believed: `repair::hold_against` proves that
//! its text says what was written, and [`crate::call::json::parse_strict`] reads it.

mod read;
mod repair;
mod tokens;
mod unreadable;

use std::collections::BTreeSet;

use serde_json::Value;

use super::message::Written;
use crate::call::json::type_name;
use crate::call::{JsonObject, Unreadable};
pub(in crate::dialect) use repair::extent;
pub(in crate::dialect) use tokens::{Kind, Tokens};

/// Whether only some of the keys of a text of JSON have quotes, so that it is not clear which of them are keys.
pub(in crate::dialect) fn has_mixed_keys(text: &str) -> bool {
    let tokens: Vec<_> = Tokens::new(text).map_while(Result::ok).collect();
    repair::unlike_the_others(text, &tokens).is_some()
}

/// Arguments that could be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Mended {
    /// The arguments.
    pub arguments: JsonObject,
    /// What had to be repaired, one sentence each; none if it was JSON as it came.
    pub repairs: Vec<String>,
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
            let arguments = read::read(text, may_close, &mut repairs)?;
            Ok(Mended { arguments, repairs: repairs.into_iter().map(|repair| repair.sentence().to_owned()).collect() })
        }
    }
}

#[cfg(test)]
mod tests;
