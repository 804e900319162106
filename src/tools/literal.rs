//! Marks text that came by reference, so that it stays text.
//!
//! A template is parsed after its references are replaced, because a reference may hold a whole URL. A referenced
//! value must not add placeholders. So each character of a value that could start a placeholder is replaced by a
//! noncharacter. Unicode reserves these for use inside a program (The Unicode Standard, 23.7). The parsers restore
//! the character.

use std::borrow::Cow;

/// Replaces a `{` of a value.
const BRACE: char = '\u{fdd0}';
/// Replaces a `:` of a value in a statement.
pub(super) const COLON: char = '\u{fdd1}';
/// Marks the start of a value in a statement, if the text before it may be an incomplete placeholder.
pub(super) const EDGE: char = '\u{fdd2}';

/// The value with every `{` replaced, for [`Template::parse`](super::template::Template::parse).
pub(crate) fn in_template(value: &str) -> Cow<'_, str> {
    replaced(value, '{', BRACE)
}

/// The value with every `:` replaced, for a statement. `before` is the text in front of the value.
pub(crate) fn in_statement<'v>(before: &str, value: &'v str) -> Cow<'v, str> {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    match before.trim_end_matches(name).ends_with([':', COLON]) {
        true => format!("{EDGE}{}", replaced(value, ':', COLON)).into(),
        false => replaced(value, ':', COLON),
    }
}

/// The text with its marks replaced by the original characters.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains([BRACE, COLON, EDGE]) {
        return Cow::Borrowed(text);
    }
    let character = |c: char| match c {
        BRACE => Some('{'),
        COLON => Some(':'),
        EDGE => None,
        other => Some(other),
    };
    text.chars().filter_map(character).collect::<String>().into()
}

/// Restores the original characters in all texts of a JSON value.
pub(crate) fn plain_json(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) => {
            if let Cow::Owned(plain) = plain(text) {
                *text = plain;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain_json),
        Value::Object(entries) => entries.values_mut().for_each(plain_json),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn replaced(value: &str, character: char, mark: char) -> Cow<'_, str> {
    match value.contains(character) {
        true => value.replace(character, mark.encode_utf8(&mut [0; 4])).into(),
        false => Cow::Borrowed(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn marks_are_taken_out_again() {
        for value in ["{{ x }}", "{", "a:b::c", "plain", "{{:x}}"] {
            assert!(!in_template(value).contains('{'), "{value}");
            assert_eq!(plain(&in_template(value)), value);
            assert!(!in_statement("a = :", value).contains(':'), "{value}");
            assert_eq!(plain(&in_statement("a = :", value)), value);
        }
        let mut nested = json!({"a": [in_template("{{ x }}"), 1, null]});
        plain_json(&mut nested);
        assert_eq!(nested, json!({"a": ["{{ x }}", 1, null]}));
    }

    #[test]
    fn names_are_not_continued() {
        for before in ["a = :", "a = :ci", "x:"] {
            assert!(in_statement(before, "ty").starts_with(EDGE), "{before}");
        }
        for before in ["", "select * from ", "a: b"] {
            assert_eq!(in_statement(before, "ty"), "ty", "{before}");
        }
    }
}
