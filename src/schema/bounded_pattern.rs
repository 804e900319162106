//! The keyword `pattern` for schemas with patterns that need backtracking: ECMA-262 has lookaheads,
//! lookbehinds and references to groups.
//!
//! The time of such a match has no linear bound. So the engine may go back only so often, and the
//! length of the text counts as work. A match that ends early is not judged: an own schema refuses
//! the text, and a foreign one accepts it with a warning.

use fancy_regex::{Regex, RegexBuilder};
use jsonschema::json::Node;
use jsonschema::{Keyword, ValidationError};
use serde_json::Value;

use super::compiled::SchemaOwner;
use super::explain::abbreviate;
use super::metered::{Metered, MeteredValue};
use super::patterns::{PatternUse, pattern_use};

/// How often the engine may go back in one text.
const MAX_BACKTRACKS: usize = 10_000;
/// The same for a pattern that another party wrote.
const MAX_FOREIGN_BACKTRACKS: usize = 2_000;
/// The longest text that is compared with a pattern of another party, or that is a name.
const MAX_TEXT: usize = 4 << 10;
/// The compiled size of each part of a pattern, in bytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A compiled `pattern`.
pub(super) struct BoundedPattern {
    pattern: String,
    regex: Regex,
    /// Whether the match may backtrack. Otherwise it takes linear time.
    backtracks: bool,
    owner: SchemaOwner,
}

/// The outcome of a match.
enum Match {
    Fits,
    DoesNotFit,
    /// The match took too long.
    Unjudged,
}

impl BoundedPattern {
    /// Compiles the value of the keyword.
    ///
    /// # Errors
    /// It is not a pattern that can be matched.
    pub(super) fn from_keyword(
        value: &Value,
        owner: SchemaOwner,
    ) -> Result<Self, ValidationError<'static>> {
        let pattern = value.as_str().unwrap_or_default();
        let max_backtracks = match owner.is_foreign() {
            true => MAX_FOREIGN_BACKTRACKS,
            false => MAX_BACKTRACKS,
        };
        let regex = compile(pattern, max_backtracks)
            .ok_or_else(|| ValidationError::schema("this is not a regular expression"))?;
        Ok(Self {
            backtracks: matches!(pattern_use(pattern), PatternUse::Backtracking { .. }),
            pattern: pattern.to_owned(),
            regex,
            owner,
        })
    }

    fn match_text(&self, instance: MeteredValue<'_>) -> Match {
        let Some(text) = instance.as_string() else {
            return Match::Fits;
        };
        let is_bounded = self.owner.is_foreign() || instance.is_name();
        if self.backtracks && is_bounded && text.len() > MAX_TEXT {
            return Match::Unjudged;
        }
        let length = text.len() as u64;
        let steps = match self.backtracks {
            true => length * 16 + length * length / 16,
            false => 0,
        };
        // After the end of the validation, the text is empty.
        if !instance.spend(steps) {
            return Match::Fits;
        }
        match self.regex.is_match(&*text) {
            Ok(true) => Match::Fits,
            Ok(false) => Match::DoesNotFit,
            Err(_) => Match::Unjudged,
        }
    }

    /// Whether the text is accepted although it was not judged. It is then told.
    fn accepts_unjudged(&self, instance: MeteredValue<'_>) -> bool {
        let accepts = self.owner.is_foreign();
        if accepts {
            instance.report_unjudged(&self.pattern);
        }
        accepts
    }
}

impl<'i> Keyword<'i, Metered> for BoundedPattern {
    fn is_valid(&self, instance: MeteredValue<'i>) -> bool {
        match self.match_text(instance) {
            Match::Fits => true,
            Match::DoesNotFit => false,
            Match::Unjudged => self.accepts_unjudged(instance),
        }
    }

    fn validate(&self, instance: MeteredValue<'i>) -> Result<(), ValidationError<'i>> {
        let pattern = || abbreviate(&self.pattern);
        let message = match self.match_text(instance) {
            Match::Fits => return Ok(()),
            Match::Unjudged if self.accepts_unjudged(instance) => return Ok(()),
            Match::Unjudged => format!(
                "takes too long to compare with the pattern {}; send a shorter text",
                pattern()
            ),
            Match::DoesNotFit => format!("must match the pattern {}", pattern()),
        };
        // The library copies the value of such an error.
        match instance.reserve_copy() {
            true => Err(ValidationError::custom(message)),
            false => Ok(()),
        }
    }
}

/// Compiles a pattern in the syntax of JSON Schema. `None` if that is not possible.
pub(super) fn compile(pattern: &str, max_backtracks: usize) -> Option<Regex> {
    let translated = match jsonschema_regex::to_rust_regex(pattern) {
        Ok(translated) => translated,
        // The translation does not know references to groups by name.
        Err(()) if pattern.contains("\\k<") => pattern.into(),
        Err(()) => return None,
    };
    RegexBuilder::new(&to_ascii_classes(&translated))
        .backtrack_limit(max_backtracks)
        .delegate_size_limit(MAX_COMPILED_BYTES)
        .build()
        .ok()
}

/// Replaces `\d` and `\w` by what they mean in ECMA-262. The translation leaves a pattern with a
/// lookaround as it is, and here they would mean all of Unicode.
fn to_ascii_classes(pattern: &str) -> String {
    let (mut out, mut in_class) = (String::with_capacity(pattern.len()), false);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            in_class = (in_class || c == '[') && c != ']';
            out.push(c);
            continue;
        }
        match (chars.next(), in_class) {
            (Some('d'), false) => out.push_str("[0-9]"),
            (Some('D'), false) => out.push_str("[^0-9]"),
            (Some('w'), false) => out.push_str("[A-Za-z0-9_]"),
            (Some('W'), false) => out.push_str("[^A-Za-z0-9_]"),
            (Some('d'), true) => out.push_str("0-9"),
            (Some('w'), true) => out.push_str("A-Za-z0-9_"),
            (Some('/'), _) => out.push('/'),
            (escaped, _) => {
                out.push('\\');
                out.extend(escaped);
            }
        }
    }
    out
}
