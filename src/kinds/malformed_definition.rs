//! Tools of a listing that cannot be decoded. Each of them is left out by name, and the other tools
//! are served.

use serde::Deserialize;
use serde_json::value::RawValue;

/// The name in a tool's definition, whatever else the definition holds.
///
/// # Errors
/// The definition is not a JSON object, or has no name.
pub(crate) fn read_tool_name(definition: &RawValue) -> serde_json::Result<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    serde_json::from_str(definition.get()).map(|Named { name }| name)
}

/// Why the definition cannot be decoded: the text after "left out: ".
pub(crate) fn describe_decode_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.starts_with("recursion limit") {
        true => "its definition is nested more than 128 levels deep".to_owned(),
        false => format!("its definition is not valid JSON: {message}"),
    }
}
