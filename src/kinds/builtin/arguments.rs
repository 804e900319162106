//! Reads the texts in the arguments of a call.

use serde_json::Value;

use crate::call::JsonObject;
use crate::kinds::{Placeholder, ValueFault};

/// The text in this argument; empty if the call does not have the argument.
pub(super) fn text_argument<'a>(arguments: &'a JsonObject, name: &str) -> &'a str {
    let text = arguments.get(name).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// The fault of the argument `name`, if `checked` has one.
pub(super) fn argument_faults<T>(name: &str, checked: Result<T, String>) -> Vec<ValueFault> {
    let fault = |message| Placeholder::Argument(name.to_owned()).fault("format", message);
    checked.err().map(fault).into_iter().collect()
}
