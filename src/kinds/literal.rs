//! Marks text that came by reference, so that it stays text.
//!
//! A template is parsed after its references are replaced, because a reference may hold a whole
//! URL. A referenced value must not add placeholders. So each character of a value that could start
//! a placeholder is replaced by a noncharacter. Unicode reserves these for use inside a program
//! (The Unicode Standard, 23.7). The parsers restore the character.

use std::borrow::Cow;

/// Replaces a `{` of a value.
const BRACE_MARK: char = '\u{fdd0}';
/// Replaces a `:` of a value in a statement.
pub(super) const COLON_MARK: char = '\u{fdd1}';
/// Marks the start of a value in a statement, if the text before it may be an incomplete
/// placeholder.
pub(super) const EDGE_MARK: char = '\u{fdd2}';

/// Stand around the name of a caller's credential that a text refers to.
const CREDENTIAL_START: char = '\u{fdd3}';
const CREDENTIAL_END: char = '\u{fdd4}';

/// A piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'t> {
    /// A text.
    Text(&'t str),
    /// The name of a credential of the caller.
    Credential(&'t str),
}

/// The form of `${caller:NAME}` in the text of a manifest whose references are replaced.
pub(crate) fn caller_reference(name: &str) -> String {
    format!("{CREDENTIAL_START}{name}{CREDENTIAL_END}")
}

/// Whether the text refers to a credential of the caller.
pub(crate) fn has_caller_reference(text: &str) -> bool {
    text.contains([CREDENTIAL_START, CREDENTIAL_END])
}

/// The text without the marks of references to credentials, so that a foreign text refers to none.
pub(crate) fn remove_caller_references(text: &str) -> Cow<'_, str> {
    match has_caller_reference(text) {
        true => text.replace([CREDENTIAL_START, CREDENTIAL_END], "").into(),
        false => Cow::Borrowed(text),
    }
}

/// The pieces of a text, none of them empty.
pub(crate) fn split_caller_references(mut text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    while let Some((before, rest)) = text.split_once(CREDENTIAL_START)
        && let Some((name, after)) = rest.split_once(CREDENTIAL_END)
    {
        pieces.extend(Some(Piece::Text(before)).filter(|_| !before.is_empty()));
        pieces.push(Piece::Credential(name));
        text = after;
    }
    pieces.extend(Some(Piece::Text(text)).filter(|_| !text.is_empty()));
    pieces
}

/// The value with every `{` replaced, for [`Template::parse`](super::template::Template::parse).
pub(crate) fn escape_for_template(value: &str) -> Cow<'_, str> {
    replace_char(value, '{', BRACE_MARK)
}

/// The value with every `:` replaced, for a statement. `before` is the text in front of the value.
pub(crate) fn escape_for_statement<'v>(before: &str, value: &'v str) -> Cow<'v, str> {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    match before.trim_end_matches(name).ends_with([':', COLON_MARK]) {
        true => format!("{EDGE_MARK}{}", replace_char(value, ':', COLON_MARK)).into(),
        false => replace_char(value, ':', COLON_MARK),
    }
}

/// The text with its marks replaced by the original characters.
pub(crate) fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains([BRACE_MARK, COLON_MARK, EDGE_MARK]) {
        return Cow::Borrowed(text);
    }
    let character = |c: char| match c {
        BRACE_MARK => Some('{'),
        COLON_MARK => Some(':'),
        EDGE_MARK => None,
        other => Some(other),
    };
    text.chars()
        .filter_map(character)
        .collect::<String>()
        .into()
}

/// Restores the original characters in all texts of a JSON value.
pub(crate) fn unescape_json(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) => {
            if let Cow::Owned(plain) = unescape(text) {
                *text = plain;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(unescape_json),
        Value::Object(entries) => entries.values_mut().for_each(unescape_json),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn replace_char(value: &str, character: char, mark: char) -> Cow<'_, str> {
    match value.contains(character) {
        true => value
            .replace(character, mark.encode_utf8(&mut [0; 4]))
            .into(),
        false => Cow::Borrowed(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unescape_reverses_escape() {
        for value in ["{{ x }}", "{", "a:b::c", "plain", "{{:x}}"] {
            assert!(!escape_for_template(value).contains('{'), "{value}");
            assert_eq!(unescape(&escape_for_template(value)), value);
            assert!(
                !escape_for_statement("a = :", value).contains(':'),
                "{value}"
            );
            assert_eq!(unescape(&escape_for_statement("a = :", value)), value);
        }
        let mut nested = json!({"a": [escape_for_template("{{ x }}"), 1, null]});
        unescape_json(&mut nested);
        assert_eq!(nested, json!({"a": ["{{ x }}", 1, null]}));
    }

    #[test]
    fn caller_references_are_split_off() {
        let text = format!("a{}{}b", caller_reference("X"), caller_reference("Y"));
        let expected = [
            Piece::Text("a"),
            Piece::Credential("X"),
            Piece::Credential("Y"),
            Piece::Text("b"),
        ];
        assert_eq!(split_caller_references(&text), expected);
        assert_eq!(remove_caller_references(&text), "aXYb");
        assert!(has_caller_reference(&text) && !has_caller_reference("${caller:X}"));
        assert_eq!(split_caller_references(""), []);
    }

    #[test]
    fn value_never_extends_a_parameter_name() {
        for before in ["a = :", "a = :ci", "x:"] {
            assert!(
                escape_for_statement(before, "ty").starts_with(EDGE_MARK),
                "{before}"
            );
        }
        for before in ["", "select * from ", "a: b"] {
            assert_eq!(escape_for_statement(before, "ty"), "ty", "{before}");
        }
    }
}
