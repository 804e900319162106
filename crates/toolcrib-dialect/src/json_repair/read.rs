//! Reads an object from a text.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;

use super::find_object::{find_object, find_odd_bare_key};
use super::tokens::{Repair, Token, TokenKind, Tokens};
use super::unreadable_arguments::UnreadableArguments;
use crate::strict_json::{JsonObject, parse_strict, type_name};

/// Reads an object from a text: as strict JSON, or else after repairs. The repairs are added to
/// `repairs`.
pub(super) fn read_object(
    text: &str,
    may_close: bool,
    repairs: &mut BTreeSet<Repair>,
) -> Result<JsonObject, UnreadableArguments> {
    if text.trim().is_empty() {
        return Ok(JsonObject::new());
    }
    match parse_strict(text.as_bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Null) => Ok(JsonObject::new()),
        Ok(Value::String(inner))
            if inner.trim_start().starts_with('{') && repairs.insert(Repair::DoublyEncoded) =>
        {
            read_object(&inner, may_close, repairs)
        }
        Ok(other) => Err(UnreadableArguments::not_an_object(type_name(&other))),
        Err(_) => read_repaired(text, may_close, repairs),
    }
}

fn read_repaired(
    text: &str,
    may_close: bool,
    repairs: &mut BTreeSet<Repair>,
) -> Result<JsonObject, UnreadableArguments> {
    let found = find_object(text)?;
    repairs.extend(found.repair);
    if !found.closed && !may_close {
        return Err(UnreadableArguments::unclosed(text));
    }
    let object = found.start..found.end;
    let strict = write_strict(text, object.clone(), repairs)?;
    if let Some(at) = find_odd_bare_key(&text[object]) {
        return Err(UnreadableArguments::at_position(
            text,
            found.start + at,
            "this key has no quotes, but other keys have",
        ));
    }
    match parse_strict(strict.as_bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(UnreadableArguments::not_an_object(type_name(&other))),
        Err(error) => Err(UnreadableArguments::from_strict_error(&error)),
    }
}

/// What may follow, apart from a closing bracket.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    Key,
    Colon,
    Value,
    Comma,
}

/// Reads the lenient grammar: JSON in which a comma may be surplus or missing, and closing brackets may
/// be missing at the end. Only texts with one possible meaning belong to it.
///
/// Writes the object at a position of the text as strict JSON, and adds the repairs to `repairs`.
/// Its numbers may be too large and its keys may repeat: those are faults of strict JSON too.
fn write_strict(
    text: &str,
    object: Range<usize>,
    repairs: &mut BTreeSet<Repair>,
) -> Result<String, UnreadableArguments> {
    let mut strict = String::with_capacity(object.len());
    let mut tokens = Tokens::new(&text[object.clone()]);
    let misplaced = |token: Range<usize>| {
        let at = object.start + token.start;
        UnreadableArguments::at_position(text, at, "this is not allowed here")
    };
    // The brackets that are open, and the previous token.
    let (mut open, mut before) = (Vec::new(), None);
    let mut expected = Expected::Value;
    for token in tokens.by_ref() {
        let Token { kind, range } =
            token.map_err(|fault| UnreadableArguments::from_fault(text, object.start, &fault))?;
        let in_object = open.last() == Some(&b'{');
        let element = |in_object| match in_object {
            true => Expected::Key,
            false => Expected::Value,
        };
        if expected == Expected::Comma && is_comma_missing(before.as_ref(), &kind, in_object) {
            repairs.insert(Repair::MissingCommas);
            strict.push(',');
            expected = element(in_object);
        }
        expected = match (&kind, expected) {
            (TokenKind::Comma, Expected::Comma) => {
                strict.push(',');
                element(in_object)
            }
            (TokenKind::Colon, Expected::Colon) => {
                strict.push(':');
                Expected::Value
            }
            (TokenKind::Open(bracket), Expected::Value) => {
                strict.push(char::from(*bracket));
                open.push(*bracket);
                element(*bracket == b'{')
            }
            (TokenKind::Text(content), Expected::Key | Expected::Value) => {
                strict.push_str(&Value::from(content.as_ref()).to_string());
                match expected {
                    Expected::Key => Expected::Colon,
                    _ => Expected::Comma,
                }
            }
            (TokenKind::Number(word) | TokenKind::Literal(word), Expected::Value) => {
                strict.push_str(word);
                Expected::Comma
            }
            (TokenKind::Close(bracket), _) if (*bracket == b'}') == in_object => {
                match (expected, &before) {
                    (Expected::Comma, _) | (_, Some(TokenKind::Open(_))) => {}
                    (_, Some(TokenKind::Comma)) => {
                        repairs.insert(Repair::TrailingCommas);
                        strict.pop();
                    }
                    _ => return Err(misplaced(range)),
                }
                strict.push(char::from(*bracket));
                open.pop();
                Expected::Comma
            }
            _ => return Err(misplaced(range)),
        };
        before = Some(kind);
    }
    if !open.is_empty() {
        // A number or a literal at the end may be incomplete. After an opening bracket, a comma or
        // a colon, something is certainly missing.
        let is_complete = expected == Expected::Comma
            && matches!(before, Some(TokenKind::Text(_) | TokenKind::Close(_)));
        if !is_complete || tokens.ends_in_comment {
            return Err(UnreadableArguments::unclosed(text));
        }
        repairs.insert(Repair::MissingBrackets);
        let closing = |bracket| if bracket == b'{' { '}' } else { ']' };
        strict.extend(open.into_iter().rev().map(closing));
    }
    repairs.append(&mut tokens.repairs);
    Ok(strict)
}

/// Whether only a comma can be missing between `before` and a token. After a text that is
/// uncertain: its closing quote may belong inside the text.
fn is_comma_missing(
    before: Option<&TokenKind<'_>>,
    token: &TokenKind<'_>,
    in_object: bool,
) -> bool {
    match (before, token) {
        (Some(TokenKind::Close(_)), TokenKind::Open(_)) => !in_object,
        (
            Some(TokenKind::Close(_) | TokenKind::Number(_) | TokenKind::Literal(_)),
            TokenKind::Text(_),
        ) => in_object,
        _ => false,
    }
}
