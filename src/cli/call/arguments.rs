//! The arguments of a call as written on the command line: one JSON object, or `key=value` for
//! each.

use serde_json::{Value, json};

use super::super::Failure;
use super::super::failure::describe_io_error;
use super::key_values::{self, KeyValue};
use crate::call::json::parse_strict;

/// Arguments that are not complete without the tool's schema.
pub(super) enum WrittenArguments {
    /// One JSON object.
    Object(Value),
    /// Single arguments.
    KeyValues(Vec<KeyValue>),
}

impl WrittenArguments {
    /// Reads the words after the name of the tool. `-` stands for a JSON object on standard input.
    pub(super) fn from_words(words: &[String]) -> Result<Self, Failure> {
        match words {
            [] => Ok(Self::Object(json!({}))),
            [word] if word == "-" => parse_object(&read_stdin()?).map(Self::Object),
            [word] if looks_like_json(word) => parse_object(word).map(Self::Object),
            words
                if words
                    .iter()
                    .any(|word| word == "-" || word.trim_start().starts_with('{')) =>
            {
                Err(Failure::Usage(
                    "toolcrib: write either one JSON object or key=value for each argument".into(),
                ))
            }
            words => key_values::parse_all(words).map(Self::KeyValues),
        }
    }

    /// Whether the schema decides on types.
    pub(super) fn needs_schema(&self) -> bool {
        matches!(self, Self::KeyValues(_))
    }

    /// The arguments for a tool with this input schema.
    pub(super) fn complete(self, input_schema: &Value) -> Result<Value, Failure> {
        match self {
            Self::Object(object) => Ok(object),
            Self::KeyValues(written) => {
                key_values::build_arguments(written, input_schema).map(Value::Object)
            }
        }
    }
}

/// Whether a word is meant as JSON: it begins like an object, or is JSON of another type, such as
/// `[]`.
fn looks_like_json(word: &str) -> bool {
    word.trim_start().starts_with('{') || parse_strict(word.as_bytes()).is_ok()
}

pub(super) fn read_stdin() -> Result<String, Failure> {
    std::io::read_to_string(std::io::stdin()).map_err(|error| {
        Failure::Failed(format!(
            "toolcrib: standard input cannot be read: {}",
            describe_io_error(&error)
        ))
    })
}

fn parse_object(text: &str) -> Result<Value, Failure> {
    let message = match parse_strict(text.as_bytes()) {
        Ok(value @ Value::Object(_)) => return Ok(value),
        Ok(_) => "the arguments are a JSON object, e.g. '{\"expression\": \"6*7\"}', or key=value for each".to_owned(),
        Err(error) => format!(
            "the arguments are not JSON (line {}, column {}); in a shell, put the object in single quotes, or write \
             key=value for each argument",
            error.line(),
            error.column()
        ),
    };
    Err(Failure::Usage(format!("toolcrib: {message}")))
}
