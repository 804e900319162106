//! What stands in a text that is to be JSON: its tokens, each in one reading. No grammar: order is the parser's business.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Number;

use super::repair::Repair;

/// Deepest nesting that is looked at: serde_json's own bound.
const MOST_DEPTH: usize = 128;

/// A token and where it stands, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::dialect) struct Token<'a> {
    /// What it says.
    pub(in crate::dialect) kind: Kind<'a>,
    /// Where it is spelled.
    pub(in crate::dialect) at: Range<usize>,
}

/// What a token says, however it is spelled.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::dialect) enum Kind<'a> {
    /// `{` or `[`.
    Open(u8),
    /// `}` or `]`.
    Close(u8),
    /// `,`.
    Comma,
    /// `:`.
    Colon,
    /// A text or a key, unescaped.
    Text(Cow<'a, str>),
    /// A number, as written.
    Number(&'a str),
    /// `true`, `false` or `null`.
    Literal(&'static str),
}

/// What has no single reading, and where.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::dialect) struct Fault {
    /// Where it begins, in bytes.
    pub(in crate::dialect) at: usize,
    /// What it is.
    pub(in crate::dialect) what: FaultKind,
}

impl Fault {
    /// It is known only at the end of the text.
    pub(in crate::dialect) fn is_endless(&self) -> bool {
        matches!(self.what, FaultKind::EndlessText | FaultKind::EndlessComment)
    }

    /// More of the text could have made it good: it was written up to here and no further.
    pub(in crate::dialect) fn is_at_end(&self, text: &str) -> bool {
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | '+' | '.' | '\\' | '/');
        self.is_endless() || text.get(self.at..).is_some_and(|rest| rest.chars().all(part))
    }
}

/// What can be wrong with one token.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::dialect) enum FaultKind {
    /// A text that begins here never ends.
    EndlessText,
    /// A comment that begins here never ends.
    EndlessComment,
    /// A backslash before what needs none.
    Escape(String),
    /// A control character that is neither a line end nor a tab.
    Control(char),
    /// Neither a number nor a literal nor a key.
    Word(String),
    /// A character that begins nothing.
    Character(char),
    /// More than [`MOST_DEPTH`] brackets inside each other.
    TooDeep,
}

/// Reads tokens one after the other. It ends at the first fault.
#[derive(Debug)]
pub(in crate::dialect) struct Tokens<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// What stands before is `{` or `,`, so a bare word may be a key.
    key_may_follow: bool,
    /// A comment runs up to the end of the text: what else is in it nobody knows.
    pub(super) ends_in_comment: bool,
    /// What had to be read with good will.
    pub(super) repairs: BTreeSet<Repair>,
}

impl<'a> Tokens<'a> {
    pub(in crate::dialect) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0, key_may_follow: false, ends_in_comment: false, repairs: BTreeSet::new() }
    }

    /// How many brackets are open behind the last token.
    pub(in crate::dialect) fn depth(&self) -> usize {
        self.depth
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Over white space and comments.
    fn skip(&mut self) -> Result<(), FaultKind> {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            let rest = self.rest();
            if rest.starts_with("//") || rest.starts_with('#') {
                self.ends_in_comment = !rest.contains('\n');
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                self.at += comment.find("*/").ok_or(FaultKind::EndlessComment)? + 4;
            } else {
                return Ok(());
            }
            self.repairs.insert(Repair::Comments);
        }
    }

    fn kind(&mut self, first: char) -> Result<Kind<'a>, FaultKind> {
        let kind = match first {
            '{' | '[' => {
                self.depth += 1;
                if self.depth > MOST_DEPTH {
                    return Err(FaultKind::TooDeep);
                }
                Kind::Open(first as u8)
            }
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                Kind::Close(first as u8)
            }
            ',' => Kind::Comma,
            ':' => Kind::Colon,
            '"' | '\'' | '“' | '”' | '‘' | '’' => return self.quoted(first).map(Kind::Text),
            _ => return self.bare(first),
        };
        self.at += first.len_utf8();
        Ok(kind)
    }

    /// A text between quotes. The first quote that could end it does: a text that has its own quotes inside, unescaped,
    /// is followed by something that does not belong there, and is refused for that.
    fn quoted(&mut self, opening: char) -> Result<Cow<'a, str>, FaultKind> {
        let closing: &[char] = match opening {
            '“' | '”' => &['“', '”'],
            '‘' | '’' => &['‘', '’'],
            '\'' => &['\''],
            _ => &['"'],
        };
        let start = self.at + opening.len_utf8();
        let mut owned: Option<String> = None;
        let mut plain = start;
        let mut at = start;
        let mut raw_line_end = false;
        loop {
            let next = self.text[at..].chars().next().ok_or(FaultKind::EndlessText)?;
            if closing.contains(&next) {
                self.at = at + next.len_utf8();
                break;
            }
            if next == '\\' {
                let (said, length) = escape(&self.text[at..]).inspect_err(|_| self.at = at)?;
                if self.text[at..].starts_with("\\'") {
                    self.repairs.insert(Repair::Escapes);
                }
                let text = owned.get_or_insert_default();
                text.push_str(&self.text[plain..at]);
                text.push(said);
                at += length;
                plain = at;
                continue;
            }
            match next {
                '\n' | '\r' | '\t' => raw_line_end = true,
                '\0'..='\u{1f}' => {
                    self.at = at;
                    return Err(FaultKind::Control(next));
                }
                _ => {}
            }
            at += next.len_utf8();
        }
        if raw_line_end {
            self.repairs.insert(Repair::LineEnds);
        }
        match opening {
            '"' => {}
            '\'' => _ = self.repairs.insert(Repair::SingleQuotes),
            _ => _ = self.repairs.insert(Repair::CurlyQuotes),
        }
        let last = &self.text[plain..at];
        Ok(match owned {
            Some(text) => Cow::Owned(text + last),
            None => Cow::Borrowed(last),
        })
    }

    /// A number, a literal, or a key without quotes.
    fn bare(&mut self, first: char) -> Result<Kind<'a>, FaultKind> {
        let rest = self.rest();
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | '+' | '.');
        let word = &rest[..rest.find(|c| !part(c)).unwrap_or(rest.len())];
        if word.is_empty() {
            return Err(FaultKind::Character(first));
        }
        let is_key = self.key_may_follow && rest[word.len()..].trim_start().starts_with(':');
        let kind = match word {
            "true" if !is_key => Kind::Literal("true"),
            "false" if !is_key => Kind::Literal("false"),
            "null" if !is_key => Kind::Literal("null"),
            "True" | "False" | "None" if !is_key => {
                self.repairs.insert(Repair::Python);
                Kind::Literal(match word {
                    "True" => "true",
                    "False" => "false",
                    _ => "null",
                })
            }
            _ if !is_key && word.len() < 400 && serde_json::from_str::<Number>(word).is_ok() => Kind::Number(word),
            _ if is_key && is_identifier(word) => {
                self.repairs.insert(Repair::BareKeys);
                Kind::Text(Cow::Borrowed(word))
            }
            _ => return Err(FaultKind::Word(word.chars().take(40).collect())),
        };
        self.at += word.len();
        Ok(kind)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Result<Token<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let skipped = self.skip();
        let start = self.at;
        let kind = match (skipped, self.rest().chars().next()) {
            (Ok(()), None) => return None,
            (Ok(()), Some(first)) => self.kind(first),
            (Err(what), _) => Err(what),
        };
        Some(match kind {
            Ok(kind) => {
                self.key_may_follow = matches!(kind, Kind::Open(b'{') | Kind::Comma);
                Ok(Token { kind, at: start..self.at })
            }
            Err(what) => {
                let at = self.at;
                self.at = self.text.len();
                Err(Fault { at, what })
            }
        })
    }
}

/// One escape and its length, from its backslash on. An escape that JSON does not know may mean the character or the
/// backslash too (`\d`, `C:\dir`), so it is refused; only `\'` can mean one thing.
fn escape(text: &str) -> Result<(char, usize), FaultKind> {
    let unknown = |length: usize| FaultKind::Escape(text.chars().take(length).collect());
    let simple = match text[1..].chars().next() {
        None => return Err(FaultKind::EndlessText),
        Some(quote @ ('"' | '\'' | '\\' | '/')) => quote,
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => return unicode_escape(text).ok_or_else(|| unknown(6)),
        Some(_) => return Err(unknown(2)),
    };
    Ok((simple, 2))
}

/// `\uXXXX`, or two of them where the first is a surrogate.
fn unicode_escape(text: &str) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let hex = text.get(from..from + 6)?.strip_prefix("\\u")?;
        hex.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u16::from_str_radix(hex, 16).ok())?
    };
    let first = unit(0)?;
    if let Some(single) = char::from_u32(first.into()) {
        return Some((single, 6));
    }
    let pair = char::decode_utf16([first, unit(6)?]).next()?.ok()?;
    Some((pair, 12))
}

/// It can be a key without quotes.
pub(super) fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$')
        && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '-'))
        && !matches!(word, "true" | "false" | "null" | "True" | "False" | "None")
}
