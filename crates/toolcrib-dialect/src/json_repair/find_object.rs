//! Finds the JSON object in a text.

use super::tokens::{Repair, TokenFault, TokenKind, Tokens, is_identifier};
use super::unreadable_arguments::UnreadableArguments;

/// The position of the only object in a text, and what surrounds it.
pub(super) struct ObjectSpan {
    pub(super) start: usize,
    /// The position after its last bracket, or the end of the text if that bracket is missing.
    pub(super) end: usize,
    pub(super) closed: bool,
    pub(super) repair: Option<Repair>,
}

/// Finds the only object in the text. Around it only a code fence, prose, or a second pair of its
/// own brackets is allowed.
pub(super) fn find_object(text: &str) -> Result<ObjectSpan, UnreadableArguments> {
    let start = text
        .find('{')
        .ok_or_else(|| UnreadableArguments::no_object(text))?;
    let length = find_extent(&text[start..])
        .map_err(|fault| UnreadableArguments::from_fault(text, start, &fault))?;
    let end = length.map_or(text.len(), |length| start + length);
    let (before, after) = (text[..start].trim(), text[end..].trim());
    let found = |around| {
        Ok(ObjectSpan {
            start,
            end,
            closed: length.is_some(),
            repair: around,
        })
    };
    if before.is_empty() && after.is_empty() {
        return found(None);
    }
    if before.is_empty() && after.bytes().all(|b| matches!(b, b'}' | b']')) {
        return found(Some(Repair::SurplusBrackets));
    }
    if matches!(before, "\"" | "'") && before == after {
        return found(Some(Repair::DoublyEncoded));
    }
    let doubtful = |at: usize| {
        let what = "it is not clear whether this belongs to the JSON object";
        Err(UnreadableArguments::at_position(text, at, what))
    };
    if !is_prose_before(before) {
        let last = before.chars().next_back().map_or(0, char::len_utf8);
        return doubtful(text[..start].trim_end().len() - last);
    }
    if !is_prose_after(after) {
        return doubtful(text.len() - text[end..].trim_start().len());
    }
    found(Some(Repair::Surroundings))
}

/// The length of the object or array at the start of the text. `None` if its end is missing.
pub(crate) fn find_extent(text: &str) -> Result<Option<usize>, TokenFault> {
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next() {
        let token = token?;
        if tokens.depth() == 0 {
            return Ok(Some(token.range.end));
        }
    }
    Ok(None)
}

/// Words that announce arguments. Any other word before a colon may be a key.
const LABELS: [&str; 8] = [
    "arguments",
    "args",
    "parameters",
    "params",
    "input",
    "action input",
    "json",
    "here is the json",
];

fn is_prose_before(text: &str) -> bool {
    let label = text.trim_end_matches([':', '=']).trim_end();
    let is_key = label.len() < text.len()
        && !label.contains(char::is_whitespace)
        && !LABELS.contains(&label.to_lowercase().as_str());
    !text.contains(['{', '}', '[', ']'])
        && !text.contains("\":")
        && !text.contains("':")
        && !text.ends_with([',', '"', '\''])
        && !is_key
}

fn is_prose_after(text: &str) -> bool {
    let starts_well = text.is_empty()
        || text.starts_with(|c: char| {
            c.is_alphabetic() || matches!(c, '`' | ')' | ';' | '(' | '<' | '#')
        })
        || text.starts_with("//")
        || text.starts_with("/*");
    starts_well
        && !text.contains(['{', '}', '[', ']'])
        && !text.contains("\":")
        && !text.contains("':")
}

/// The first unquoted key in a text that quotes other keys without need. Models do not mix styles
/// like this. Such a text is more likely the result of unescaped quotes inside a string
/// (`{"say": "", no: "", "to": ""}`).
pub(super) fn find_odd_bare_key(text: &str) -> Option<usize> {
    let (mut bare, mut quoted, mut before) = (None, false, None);
    for token in Tokens::new(text).map_while(Result::ok) {
        if token.kind == TokenKind::Colon
            && let Some((TokenKind::Text(key), start)) = &before
        {
            if !text[*start..].starts_with(['"', '\'', '“', '”', '‘', '’']) {
                bare = bare.or(Some(*start));
            } else if is_identifier(key) && !key.contains('-') {
                quoted = true;
            }
        }
        before = Some((token.kind, token.range.start));
    }
    bare.filter(|_| quoted)
}
