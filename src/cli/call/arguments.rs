//! The arguments of a call as written on the command line: one JSON object, or `key=value` for
//! each.

use serde_json::{Map, Value, json};

use super::super::Failure;
use super::super::failure::describe_io_error;
use crate::call::JsonObject;
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
            words => parse_all(words).map(Self::KeyValues),
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
            Self::KeyValues(written) => build_arguments(written, input_schema).map(Value::Object),
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

/// One argument as written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeyValue {
    key: String,
    value: WrittenValue,
}

#[derive(Debug, Clone, PartialEq)]
enum WrittenValue {
    /// `key=value`: the schema decides.
    Plain(String),
    /// `key:=value`
    Json(Value),
}

/// Splits arguments at their first `=`.
///
/// # Errors
/// A usage error: an argument has no `=`, a key is empty or given twice, or the text after `:=` is
/// not JSON.
pub(super) fn parse_all(texts: &[String]) -> Result<Vec<KeyValue>, Failure> {
    let mut parsed: Vec<KeyValue> = Vec::new();
    for text in texts {
        let Some((key, value)) = text.split_once('=') else {
            return Err(usage(&format!(
                "`{text}` is no argument: write key=value, or all arguments as one JSON object"
            )));
        };
        let argument = match key.strip_suffix(':') {
            Some(key) => KeyValue {
                key: key.into(),
                value: WrittenValue::Json(parse_json(key, value)?),
            },
            None => KeyValue {
                key: key.into(),
                value: WrittenValue::Plain(value.into()),
            },
        };
        if argument.key.is_empty() {
            return Err(usage(&format!("`{text}` has no key before the `=`")));
        }
        if parsed.iter().any(|other| other.key == argument.key) {
            return Err(usage(&format!(
                "`{}` is given twice: a list is written as JSON, {}:='[1, 2]'",
                argument.key, argument.key
            )));
        }
        parsed.push(argument);
    }
    Ok(parsed)
}

/// The arguments for a tool with this input schema.
///
/// # Errors
/// A usage error: a value is not JSON, and the tool takes no text there.
pub(super) fn build_arguments(
    written: Vec<KeyValue>,
    input_schema: &Value,
) -> Result<JsonObject, Failure> {
    let mut arguments = Map::new();
    for KeyValue { key, value } in written {
        let value = match value {
            WrittenValue::Json(value) => value,
            WrittenValue::Plain(text) if takes_text(input_schema, &key) => Value::String(text),
            WrittenValue::Plain(text) => parse_json(&key, &text)?,
        };
        arguments.insert(key, value);
    }
    Ok(arguments)
}

fn parse_json(key: &str, text: &str) -> Result<Value, Failure> {
    parse_strict(text.as_bytes()).map_err(|_| {
        usage(&format!("{key}: `{text}` is not JSON, as it must be here: a number, true, false, null, [list], {{object}} or \"text\""))
    })
}

fn usage(message: &str) -> Failure {
    Failure::Usage(format!("toolcrib: {message}"))
}

/// How many references and combinations are followed.
const MAX_DEPTH: usize = 16;

/// Whether the tool takes a text for this parameter. A parameter without a schema takes anything,
/// so also a text.
pub(super) fn takes_text(input_schema: &Value, parameter: &str) -> bool {
    match find_parameter(input_schema, input_schema, parameter, MAX_DEPTH) {
        Some(schema) => accepts_text(input_schema, schema, MAX_DEPTH),
        None => true,
    }
}

/// The schema of a parameter, at the root or in a schema that the root refers to or combines.
fn find_parameter<'s>(
    root: &'s Value,
    schema: &'s Value,
    parameter: &str,
    depth: usize,
) -> Option<&'s Value> {
    let depth = depth.checked_sub(1)?;
    if let Some(found) = schema
        .get("properties")
        .and_then(|properties| properties.get(parameter))
    {
        return Some(found);
    }
    let combined = ["allOf", "anyOf", "oneOf"]
        .into_iter()
        .flat_map(|key| schema[key].as_array().into_iter().flatten());
    let mut parts = resolve(root, schema).into_iter().chain(combined);
    let found = parts.find_map(|part| find_parameter(root, part, parameter, depth));
    found.or_else(|| {
        schema
            .get("additionalProperties")
            .filter(|schema| schema.is_object())
    })
}

/// Whether some text may be valid.
fn accepts_text(root: &Value, schema: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return true;
    };
    let is_type = match &schema["type"] {
        Value::String(name) => name == "string",
        Value::Array(names) => names.iter().any(|name| name == "string"),
        _ => true,
    };
    let is_value = match (schema.get("const"), schema["enum"].as_array()) {
        (Some(value), _) => value.is_string(),
        (None, Some(values)) => values.iter().any(Value::is_string),
        (None, None) => true,
    };
    let accepts = |part: &Value| accepts_text(root, part, depth);
    let all = schema["allOf"]
        .as_array()
        .is_none_or(|parts| parts.iter().all(accepts));
    let any = ["anyOf", "oneOf"].into_iter().all(|key| {
        schema[key]
            .as_array()
            .is_none_or(|parts| parts.iter().any(accepts))
    });
    is_type && is_value && all && any && resolve(root, schema).is_none_or(accepts)
}

/// The schema that `$ref` of this schema names, within the same document.
fn resolve<'s>(root: &'s Value, schema: &Value) -> Option<&'s Value> {
    root.pointer(&percent_decode(schema["$ref"].as_str()?.strip_prefix('#')?))
}

fn percent_decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(texts: &[&str], schema: &Value) -> Result<Value, String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let built = parse_all(&texts).and_then(|written| build_arguments(written, schema));
        built.map(Value::Object).map_err(|failure| match failure {
            Failure::Usage(message) => message.trim_start_matches("toolcrib: ").to_owned(),
            _ => String::new(),
        })
    }

    #[test]
    fn schema_decides_on_plain_values() {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"},
                        "tags": {"type": "array"}, "flag": {"type": "boolean"}}});
        assert_eq!(
            arguments(
                &[
                    "text=5",
                    "count=5",
                    "tags=[\"a\"]",
                    "flag=true",
                    "other=x=y"
                ],
                &schema
            ),
            Ok(json!({"text": "5", "count": 5, "tags": ["a"], "flag": true, "other": "x=y"}))
        );
        assert_eq!(
            arguments(&["text=", "count:=7"], &schema),
            Ok(json!({"text": "", "count": 7}))
        );
        assert_eq!(arguments(&["text:=[1]"], &schema), Ok(json!({"text": [1]})));
    }

    #[test]
    fn faults_say_what_to_write() {
        let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}}});
        for (text, expected) in [
            (
                &["count"][..],
                "`count` is no argument: write key=value, or all arguments as one JSON object",
            ),
            (&["=5"], "`=5` has no key before the `=`"),
            (&[":=5"], "`:=5` has no key before the `=`"),
            (
                &["count=1", "count=2"],
                "`count` is given twice: a list is written as JSON, count:='[1, 2]'",
            ),
            (
                &["count=ten"],
                "count: `ten` is not JSON, as it must be here: a number, true, false, null, [list], {object} or \"text\"",
            ),
            (
                &["x:=ten"],
                "x: `ten` is not JSON, as it must be here: a number, true, false, null, [list], {object} or \"text\"",
            ),
        ] {
            assert_eq!(arguments(text, &schema), Err(expected.to_owned()));
        }
    }

    #[test]
    fn types_decide_on_texts() {
        for (schema, expected) in [
            (json!({"type": "string"}), true),
            (json!({"type": ["integer", "string"]}), true),
            (json!({"type": "integer"}), false),
            (json!({"type": ["integer", "null"]}), false),
            (json!({"enum": ["a", "b"]}), true),
            (json!({"enum": [1, 2]}), false),
            (json!({"const": 1}), false),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
                true,
            ),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
                false,
            ),
            (json!({"allOf": [{"type": "integer"}, {}]}), false),
            (json!({"$ref": "#/$defs/count"}), false),
            (json!({"$ref": "#/$defs/word"}), true),
            (json!({"$ref": "#/$defs/loop"}), true),
            (json!({}), true),
            (json!(true), true),
        ] {
            let defs = json!({"count": {"type": "number"}, "word": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}});
            let root = json!({"type": "object", "properties": {"x": schema}, "$defs": defs});
            assert_eq!(takes_text(&root, "x"), expected, "{root}");
        }
    }

    #[test]
    fn parameters_are_found_behind_references() {
        let root = json!({"$ref": "#/$defs/input", "$defs": {"input": {"allOf": [{"properties": {"n": {"type": "integer"}}}]}}});
        assert!(!takes_text(&root, "n"));
        assert!(takes_text(&root, "other"));
        assert!(!takes_text(
            &json!({"additionalProperties": {"type": "integer"}}),
            "other"
        ));
    }
}
