//! The keyword `pattern` for schemas with patterns that need backtracking: ECMA-262 has lookaheads,
//! lookbehinds and references to groups.
//!
//! The time of such a match has no linear bound. So the engine may go back only so often, and the
//! length of the text counts as work. A match that ends early is not judged: an own schema refuses
//! the text, and a foreign one accepts it with a warning.

use fancy_regex::Regex;
use jsonschema::json::Node;
use jsonschema::{Keyword, ValidationError};
use serde_json::Value;

use super::fault::abbreviate;
use super::metered::{Metered, MeteredValue};
use super::owner::SchemaOwner;
use super::patterns::{PatternUse, compile_backtracking, pattern_use};

/// How often the engine may go back in one text.
const MAX_BACKTRACKS: usize = 10_000;
/// The same for a pattern that another party wrote.
const MAX_FOREIGN_BACKTRACKS: usize = 2_000;
/// The longest text that is compared with a pattern of another party, or that is a name.
const MAX_TEXT: usize = 4 << 10;

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
        let regex = compile_backtracking(pattern, max_backtracks)
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
