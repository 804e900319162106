//! Which repairs there are, and the proof that a repaired text says what the written one said.

use std::collections::BTreeSet;

use super::tokens::{Fault, Kind, Token, Tokens, is_identifier};

/// A repair that leaves one meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Repair {
    DoublyEncoded,
    Surroundings,
    SingleQuotes,
    CurlyQuotes,
    BareKeys,
    Python,
    LineEnds,
    Escapes,
    Comments,
    TrailingCommas,
    MissingCommas,
    SurplusBrackets,
    MissingBrackets,
}

impl Repair {
    /// What was done, for `meta.warnings`.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::DoublyEncoded => "the arguments were JSON inside a JSON string",
            Self::Surroundings => "the text around the JSON of the arguments was left out",
            Self::SingleQuotes => "single quotes in the arguments were read as double quotes",
            Self::CurlyQuotes => "curly quotes in the arguments were read as double quotes",
            Self::BareKeys => "keys without quotes in the arguments were quoted",
            Self::Python => "True, False or None in the arguments was read as true, false or null",
            Self::LineEnds => "line ends or tabs inside texts of the arguments were escaped",
            Self::Escapes => "\\' in the arguments was read as '",
            Self::Comments => "comments in the arguments were left out",
            Self::TrailingCommas => "commas before closing brackets in the arguments were left out",
            Self::MissingCommas => "missing commas in the arguments were added",
            Self::SurplusBrackets => "closing brackets after the end of the arguments were left out",
            Self::MissingBrackets => "closing brackets missing at the end of the arguments were added",
        }
    }
}

/// Where in a text its one object stands, and what is around it.
pub(super) struct Found {
    pub(super) start: usize,
    /// Behind its last bracket; the text's end if that is missing.
    pub(super) end: usize,
    pub(super) closed: bool,
    pub(super) around: Option<Repair>,
}

/// Why there is no one object to be found.
pub(super) enum NotFound {
    /// No `{`.
    NoObject,
    /// What is around it could belong to it, or to another one.
    Doubtful(usize),
    /// What is inside has no single reading.
    Fault(Fault),
}

/// The one object in the text. What is around it may only be a fence, words, or its own brackets once too often.
pub(super) fn find_object(text: &str) -> Result<Found, NotFound> {
    let start = text.find('{').ok_or(NotFound::NoObject)?;
    let length = extent(&text[start..]).map_err(|fault| NotFound::Fault(Fault { at: start + fault.at, ..fault }))?;
    let end = length.map_or(text.len(), |length| start + length);
    let (before, after) = (text[..start].trim(), text[end..].trim());
    let found = |around| Ok(Found { start, end, closed: length.is_some(), around });
    if before.is_empty() && after.is_empty() {
        return found(None);
    }
    if before.is_empty() && after.bytes().all(|b| matches!(b, b'}' | b']')) {
        return found(Some(Repair::SurplusBrackets));
    }
    if matches!(before, "\"" | "'") && before == after {
        return found(Some(Repair::DoublyEncoded));
    }
    if !is_prose_before(before) {
        let last = before.chars().next_back().map_or(0, char::len_utf8);
        return Err(NotFound::Doubtful(text[..start].trim_end().len() - last));
    }
    if !is_prose_after(after) {
        return Err(NotFound::Doubtful(end + text[end..].len() - text[end..].trim_start().len()));
    }
    found(Some(Repair::Surroundings))
}

/// How long the object or array is with which the text begins; nothing if it does not end.
pub(in crate::dialect) fn extent(text: &str) -> Result<Option<usize>, Fault> {
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next() {
        let token = token?;
        if tokens.depth() == 0 {
            return Ok(Some(token.at.end));
        }
    }
    Ok(None)
}

/// Words that announce arguments. Another word before a colon may be a key.
const LABELS: [&str; 8] =
    ["arguments", "args", "parameters", "params", "input", "action input", "json", "here is the json"];

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
        || text.starts_with(|c: char| c.is_alphabetic() || matches!(c, '`' | ')' | ';' | '(' | '<' | '#'))
        || text.starts_with("//")
        || text.starts_with("/*");
    starts_well && !text.contains(['{', '}', '[', ']']) && !text.contains("\":") && !text.contains("':")
}

/// The first comma or colon that no repair can give a meaning: the place of a fault that a guess would hide.
pub(super) fn misplaced(written: &[Token<'_>]) -> Option<usize> {
    let is_misplaced = |pair: &&[Token<'_>]| match (&pair[0].kind, &pair[1].kind) {
        (Kind::Open(_) | Kind::Comma | Kind::Colon, Kind::Comma) => true,
        (before, Kind::Colon) => !matches!(before, Kind::Text(_)),
        _ => false,
    };
    written.windows(2).find(is_misplaced).map(|pair| pair[1].at.start)
}

/// The first key without quotes in a text that quotes others which need none. Nobody writes so: a text with quotes of its
/// own, unescaped, may look like it (`{"say": "", no: "", "to": ""}`).
pub(super) fn unlike_the_others(text: &str, written: &[Token<'_>]) -> Option<usize> {
    let is_bare = |token: &Token<'_>| !text[token.at.start..].starts_with(['"', '\'', '“', '”', '‘', '’']);
    let (mut bare, mut quoted) = (None, false);
    for pair in written.windows(2) {
        let [token @ Token { kind: Kind::Text(key), .. }, Token { kind: Kind::Colon, .. }] = pair else { continue };
        if is_bare(token) {
            bare = bare.or(Some(token.at.start));
        } else if is_identifier(key) && !key.contains('-') {
            quoted = true;
        }
    }
    bare.filter(|_| quoted)
}

/// Holds the repaired text's tokens against the written one's: the same brackets, texts, numbers and literals in the same
/// order, nothing added and nothing left out but what has one meaning.
///
/// # Errors
/// Where in the written text they part.
pub(super) fn hold_against<'a>(
    written: &[Token<'_>],
    mut repaired: impl Iterator<Item = Token<'a>>,
    may_close: bool,
) -> Result<BTreeSet<Repair>, Option<usize>> {
    let mut repairs = BTreeSet::new();
    let (mut i, mut next) = (0_usize, repaired.next());
    loop {
        let before = i.checked_sub(1).map(|i| &written[i].kind);
        match (written.get(i), &next) {
            (None, None) => return Ok(repairs),
            (Some(a), Some(b)) if a.kind == b.kind => {
                i += 1;
                next = repaired.next();
            }
            (Some(Token { kind: Kind::Comma, .. }), Some(Token { kind: Kind::Close(_), .. }))
                if matches!(written.get(i + 1), Some(Token { kind: Kind::Close(_), .. }))
                    && !matches!(before, Some(Kind::Comma | Kind::Open(_))) =>
            {
                repairs.insert(Repair::TrailingCommas);
                i += 1;
            }
            (Some(_), Some(Token { kind: Kind::Comma, .. })) if comma_is_missing(before, &written[i..]) => {
                repairs.insert(Repair::MissingCommas);
                next = repaired.next();
            }
            // A number or a literal at the end may have had more to it, and what comes after an opening bracket, a
            // comma or a colon is missing for certain.
            (None, Some(Token { kind: Kind::Close(_), .. }))
                if may_close && matches!(before, Some(Kind::Text(_) | Kind::Close(_))) =>
            {
                repairs.insert(Repair::MissingBrackets);
                next = repaired.next();
            }
            (part, _) => return Err(part.map(|token| token.at.start)),
        }
    }
}

/// Between `before` and what follows nothing but a comma can be missing. After a text that is not so: its quote may be
/// one that belongs inside.
fn comma_is_missing(before: Option<&Kind<'_>>, follows: &[Token<'_>]) -> bool {
    let follows_key = matches!(follows, [Token { kind: Kind::Text(_), .. }, Token { kind: Kind::Colon, .. }, ..]);
    match before {
        Some(Kind::Close(_)) => follows_key || matches!(follows, [Token { kind: Kind::Open(_), .. }, ..]),
        Some(Kind::Number(_) | Kind::Literal(_)) => follows_key,
        _ => false,
    }
}
