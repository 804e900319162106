//! Splits a text that should be JSON into tokens, each with one meaning. It knows no grammar: the
//! parser checks the order of the tokens.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Number;

use crate::mended_json::escaped_unit;

/// The deepest nesting that is read. It is the bound of serde_json.
const MAX_DEPTH: usize = 128;

/// A token and its position in bytes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token<'a> {
    /// The meaning of the token.
    pub(crate) kind: TokenKind<'a>,
    /// The byte range of the token in the text.
    pub(crate) range: Range<usize>,
}

/// The meaning of a token, independent of its spelling.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind<'a> {
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

/// A token with more than one possible meaning, and its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenFault {
    /// The start of the token, in bytes.
    pub(crate) at: usize,
    /// The kind of fault.
    pub(crate) kind: FaultKind,
}

impl TokenFault {
    /// Whether the fault is a missing end, which shows only at the end of the text.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(
            self.kind,
            FaultKind::EndlessText | FaultKind::EndlessComment
        )
    }

    /// Whether more text could have corrected the fault, because the text ends within this token.
    pub(crate) fn is_at_end(&self, text: &str) -> bool {
        let part =
            |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | '+' | '.' | '\\' | '/');
        self.is_endless()
            || text
                .get(self.at..)
                .is_some_and(|rest| rest.chars().all(part))
    }
}

/// The kinds of faults in one token, each in words.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum FaultKind {
    /// A text that begins here never ends.
    #[error("the text that begins here never ends")]
    EndlessText,
    /// A comment that begins here never ends.
    #[error("the comment that begins here never ends")]
    EndlessComment,
    /// A backslash before a character that needs none.
    #[error("{0} is not a JSON escape")]
    Escape(String),
    /// A control character that is neither a line end nor a tab.
    #[error("the control character {} must be escaped", .0.escape_unicode())]
    Control(char),
    /// A word that is not a number, a literal or a key.
    #[error("{0} is neither in quotes nor a number, true, false or null")]
    Word(String),
    /// A character that cannot begin a token.
    #[error("{0} is not allowed here")]
    Character(char),
    /// More than [`MAX_DEPTH`] brackets inside each other.
    #[error("more than 128 brackets are open inside each other")]
    TooDeep,
}

/// Reads tokens one by one. It ends at the first fault.
#[derive(Debug, Default)]
pub(crate) struct Tokens<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// The previous token is `{` or `,`, so an unquoted word may be a key.
    key_may_follow: bool,
    /// A comment extends to the end of the text, so it may hide part of the JSON.
    pub(super) ends_in_comment: bool,
    /// Repairs that were needed to read the tokens so far.
    pub(super) repairs: BTreeSet<Repair>,
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }

    /// The number of open brackets after the last token.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    fn remaining(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips white space and comments.
    fn skip_blanks(&mut self) -> Result<(), FaultKind> {
        loop {
            let rest = self.remaining();
            self.at += rest.len() - rest.trim_start().len();
            let rest = self.remaining();
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

    fn read_token(&mut self, first: char) -> Result<TokenKind<'a>, FaultKind> {
        let kind = match first {
            '{' | '[' => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(FaultKind::TooDeep);
                }
                TokenKind::Open(first as u8)
            }
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                TokenKind::Close(first as u8)
            }
            ',' => TokenKind::Comma,
            ':' => TokenKind::Colon,
            '"' | '\'' | '“' | '”' | '‘' | '’' => {
                return self.read_quoted(first).map(TokenKind::Text);
            }
            _ => return self.read_bare(first),
        };
        self.at += first.len_utf8();
        Ok(kind)
    }

    /// Reads a quoted text. It ends at the first quote that can end it. If the text has unescaped
    /// quotes inside, the token after that quote is misplaced, and the text is refused for that.
    fn read_quoted(&mut self, opening: char) -> Result<Cow<'a, str>, FaultKind> {
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
            let next = self.text[at..]
                .chars()
                .next()
                .ok_or(FaultKind::EndlessText)?;
            if closing.contains(&next) {
                self.at = at + next.len_utf8();
                break;
            }
            if next == '\\' {
                let (character, length) =
                    read_escape(&self.text[at..]).inspect_err(|_| self.at = at)?;
                if self.text[at..].starts_with("\\'") {
                    self.repairs.insert(Repair::Escapes);
                }
                if character == char::REPLACEMENT_CHARACTER {
                    self.repairs.insert(Repair::Surrogates);
                }
                let text = owned.get_or_insert_default();
                text.push_str(&self.text[plain..at]);
                text.push(character);
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

    /// Reads a number, a literal, or a key without quotes.
    fn read_bare(&mut self, first: char) -> Result<TokenKind<'a>, FaultKind> {
        let rest = self.remaining();
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | '+' | '.');
        let word = &rest[..rest.find(|c| !part(c)).unwrap_or(rest.len())];
        if word.is_empty() {
            return Err(FaultKind::Character(first));
        }
        let is_key = self.key_may_follow && rest[word.len()..].trim_start().starts_with(':');
        let kind = match word {
            "true" if !is_key => TokenKind::Literal("true"),
            "false" if !is_key => TokenKind::Literal("false"),
            "null" if !is_key => TokenKind::Literal("null"),
            "True" | "False" | "None" if !is_key => {
                self.repairs.insert(Repair::Python);
                TokenKind::Literal(match word {
                    "True" => "true",
                    "False" => "false",
                    _ => "null",
                })
            }
            _ if !is_key && word.len() < 400 && serde_json::from_str::<Number>(word).is_ok() => {
                TokenKind::Number(word)
            }
            _ if is_key && is_identifier(word) => {
                self.repairs.insert(Repair::BareKeys);
                TokenKind::Text(Cow::Borrowed(word))
            }
            _ => return Err(FaultKind::Word(word.chars().take(40).collect())),
        };
        self.at += word.len();
        Ok(kind)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Result<Token<'a>, TokenFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let skipped = self.skip_blanks();
        let start = self.at;
        let kind = match (skipped, self.remaining().chars().next()) {
            (Ok(()), None) => return None,
            (Ok(()), Some(first)) => self.read_token(first),
            (Err(what), _) => Err(what),
        };
        Some(match kind {
            Ok(kind) => {
                self.key_may_follow = matches!(kind, TokenKind::Open(b'{') | TokenKind::Comma);
                Ok(Token {
                    kind,
                    range: start..self.at,
                })
            }
            Err(what) => {
                let at = self.at;
                self.at = self.text.len();
                Err(TokenFault { at, kind: what })
            }
        })
    }
}

/// Reads one escape and its length, from the backslash on. An escape that JSON does not know is
/// refused, because the backslash may be meant literally (`\d`, `C:\dir`). Only `\'` has one
/// meaning.
fn read_escape(text: &str) -> Result<(char, usize), FaultKind> {
    let unknown = |length: usize| FaultKind::Escape(text.chars().take(length).collect());
    let simple = match text[1..].chars().next() {
        None => return Err(FaultKind::EndlessText),
        Some(quote @ ('"' | '\'' | '\\' | '/')) => quote,
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => return read_unicode_escape(text).ok_or_else(|| unknown(6)),
        Some(_) => return Err(unknown(2)),
    };
    Ok((simple, 2))
}

/// Reads `\uXXXX`, or two of them if they are a surrogate pair. Half of a pair is U+FFFD.
fn read_unicode_escape(text: &str) -> Option<(char, usize)> {
    let bytes = text.as_bytes();
    let first = escaped_unit(bytes)?;
    if let Some(single) = char::from_u32(first.into()) {
        return Some((single, 6));
    }
    let second = bytes.get(6..).and_then(escaped_unit);
    let pair = second.and_then(|second| char::decode_utf16([first, second]).next()?.ok());
    Some(pair.map_or((char::REPLACEMENT_CHARACTER, 6), |pair| (pair, 12)))
}

/// Whether the word can be a key without quotes.
pub(super) fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$')
        && word
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '-'))
        && !matches!(word, "true" | "false" | "null" | "True" | "False" | "None")
}

/// A repair that leaves only one meaning.
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
    Surrogates,
    Comments,
    TrailingCommas,
    MissingCommas,
    SurplusBrackets,
    MissingBrackets,
}

impl Repair {
    /// A description of the repair, for `meta.warnings`.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::DoublyEncoded => "the arguments were JSON inside a JSON string",
            Self::Surroundings => "the text around the JSON of the arguments was left out",
            Self::SingleQuotes => "single quotes in the arguments were read as double quotes",
            Self::CurlyQuotes => "curly quotes in the arguments were read as double quotes",
            Self::BareKeys => "keys without quotes in the arguments were quoted",
            Self::Python => "True, False or None in the arguments was read as true, false or null",
            Self::LineEnds => "line ends or tabs inside texts of the arguments were escaped",
            Self::Escapes => "\\' in the arguments was read as '",
            Self::Surrogates => "half of a surrogate pair in the arguments became U+FFFD",
            Self::Comments => "comments in the arguments were left out",
            Self::TrailingCommas => "commas before closing brackets in the arguments were left out",
            Self::MissingCommas => "missing commas in the arguments were added",
            Self::SurplusBrackets => {
                "closing brackets after the end of the arguments were left out"
            }
            Self::MissingBrackets => {
                "closing brackets missing at the end of the arguments were added"
            }
        }
    }
}
