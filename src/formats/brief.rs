//! Definitions with less text, for lists that must be short (`?detail=brief`).
//!
//! What a model needs to call the tool stays: names, types, bounds and the first sentences. Calls are
//! checked against the whole schema.

use std::sync::Arc;

use serde_json::Value;

use crate::call::{Definition, words};

/// Most characters of a tool's description, and of any other description.
const TOOL_LENGTH: usize = 200;
const PART_LENGTH: usize = 100;

/// Keywords that say nothing that a call needs. `additionalProperties` is one if it is `false`: the
/// call is checked here.
const LEFT_OUT: [&str; 8] =
    words("$schema $comment title examples deprecated readOnly writeOnly additionalProperties");

/// Keywords with schemas by name, with one schema, and with a list of schemas.
const MAPS: [&str; 5] = words("properties $defs definitions patternProperties dependentSchemas");
const PARTS: [&str; 12] = words(
    "items additionalProperties not if then else contains propertyNames anyOf oneOf allOf
     prefixItems",
);

/// The definition with less text. It has no output schema and no examples.
pub(crate) fn brief_definition(definition: &Definition) -> Definition {
    let mut input_schema = Value::clone(&definition.input_schema);
    shorten_schema(&mut input_schema);
    Definition {
        description: first_sentences(&definition.description, TOOL_LENGTH),
        input_schema: Arc::new(input_schema),
        output_schema: None,
        examples: Vec::new(),
        ..definition.clone()
    }
}

fn shorten_schema(schema: &mut Value) {
    let keywords = match schema {
        Value::Array(schemas) => return schemas.iter_mut().for_each(shorten_schema),
        Value::Object(keywords) => keywords,
        _ => return,
    };
    keywords.retain(|keyword, value| {
        !LEFT_OUT.contains(&keyword.as_str())
            || (keyword == "additionalProperties" && *value != Value::Bool(false))
    });
    for (keyword, value) in keywords {
        let keyword = keyword.as_str();
        match value {
            Value::String(text) if keyword == "description" => {
                *text = first_sentences(text, PART_LENGTH);
            }
            Value::Object(schemas) if MAPS.contains(&keyword) => {
                schemas.values_mut().for_each(shorten_schema);
            }
            part if PARTS.contains(&keyword) => shorten_schema(part),
            _ => {}
        }
    }
}

/// The sentences of a text that fit, at least one. A sentence ends at a line break, too. A first
/// sentence that is much too long ends between two words.
fn first_sentences(text: &str, most: usize) -> String {
    let text = text.trim();
    let ends = text.match_indices(['.', '!', '?', '。', '\n']);
    let ends = ends.filter_map(|(at, mark)| {
        let end = at + mark.len();
        let rest = text.get(end..)?;
        let is_end = mark == "\n" || mark == "。" || rest.starts_with(char::is_whitespace);
        (is_end && !text.get(..end)?.ends_with("e.g.")).then_some(end)
    });
    let (mut end, length) = (None, |end: usize| {
        text.get(..end).map_or(0, |part| part.chars().count())
    });
    for next in ends.chain([text.len()]) {
        if end.is_some() && length(next) > most {
            break;
        }
        end = Some(next);
    }
    let shown = text.get(..end.unwrap_or(text.len())).unwrap_or(text).trim();
    match shown.char_indices().nth(most * 2) {
        None => shown.to_owned(),
        Some((cut, _)) => {
            let cut = shown.get(..cut).unwrap_or(shown);
            let cut = cut
                .rsplit_once(char::is_whitespace)
                .map_or(cut, |(words, _)| words);
            format!("{cut} …")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn descriptions_end_at_sentences() {
        let long = "word ".repeat(100);
        for (text, expected) in [
            ("One. Two is longer. Three.", "One. Two is longer."),
            (
                "Uses v1.2 of the API, e.g. x. More text follows.",
                "Uses v1.2 of the API, e.g. x.",
            ),
            ("First line\n\nSecond line of text", "First line"),
            (
                "A sentence that is longer than twenty.",
                "A sentence that is longer than twenty.",
            ),
            ("短い。長い長い長い長い長い長い長い長い長い文。", "短い。"),
            ("", ""),
            (&long, "word word word word word word word word …"),
        ] {
            assert_eq!(first_sentences(text, 20), expected);
        }
    }

    #[test]
    fn schema_keeps_what_a_call_needs() {
        let part = json!({"type": "object", "title": "P", "properties": {"title": {"type": "string", "title": "Title",
            "description": format!("The title. {}", "x".repeat(200)), "enum": ["title"]}},
            "additionalProperties": false, "required": ["title"]});
        let mut schema = json!({"$schema": "x", "type": "object", "properties": {"a": {"$ref": "#/$defs/P"},
            "b": {"anyOf": [part, {"type": "null"}], "default": null}}, "$defs": {"P": part},
            "additionalProperties": {"type": "string", "title": "T"}, "required": ["a"]});
        shorten_schema(&mut schema);
        let part = json!({"type": "object", "properties": {"title": {"type": "string", "description": "The title.",
            "enum": ["title"]}}, "required": ["title"]});
        let expected = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/P"},
            "b": {"anyOf": [part, {"type": "null"}], "default": null}}, "$defs": {"P": part},
            "additionalProperties": {"type": "string"}, "required": ["a"]});
        assert_eq!(schema, expected);
    }
}
