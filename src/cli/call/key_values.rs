//! Arguments of a call as `key=value`: a text where the tool takes a text, else JSON. `key:=value`
//! is always JSON.

use serde_json::{Map, Value};

use super::super::Failure;
use super::text_parameter::takes_text;
use crate::call::JsonObject;
use crate::call::json::parse_strict;

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
}
