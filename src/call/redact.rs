//! The interface to the redactor, for runners that cut texts themselves before another part of the
//! service sees them.

use std::borrow::Cow;

use serde_json::Value;

use super::units::OmissionNote;

/// Which ends of a text are cuts. A secret that a cut has divided is not found as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutEnds {
    /// Whether text before the start was left out.
    pub start: bool,
    /// Whether text after the end was left out.
    pub end: bool,
}

impl CutEnds {
    /// The text is whole.
    pub const NONE: Self = Self {
        start: false,
        end: false,
    };
    /// The end was left out.
    pub const END: Self = Self {
        start: false,
        end: true,
    };
    /// The beginning was left out.
    pub const START: Self = Self {
        start: true,
        end: false,
    };
}

/// Removes secrets.
pub trait Redact: Send + Sync {
    /// The text without control characters, without secrets, and without the part of a secret that
    /// a cut has left.
    fn excerpt<'t>(&self, text: &'t str, cut_ends: CutEnds) -> Cow<'t, str>;

    /// Like `excerpt`, for a text between two known texts. A secret across one of its ends is seen
    /// as a whole, so nothing else is removed there. `cut_ends` describes the outer ends of
    /// `before` and `after`.
    fn excerpt_between<'t>(
        &self,
        before: &str,
        text: &'t str,
        after: &str,
        cut_ends: CutEnds,
    ) -> Cow<'t, str>;

    /// Length of the longest secret in its longest encoding, in bytes. This much context beside a
    /// text shows every secret across its ends.
    fn max_secret_len(&self) -> usize;

    /// Where a text that will grow may be divided: at `end` or before it, so that no secret lies
    /// across the position, whatever follows.
    fn safe_split(&self, text: &str, end: usize) -> usize;

    /// Removes secrets from progress data.
    fn redact_progress(&self, data: &mut Value);
}

/// Decodes bytes of a text. A character that a cut has divided is left out; other invalid UTF-8 is
/// replaced.
pub(crate) fn decode_lossy(mut bytes: &[u8], cut_ends: CutEnds) -> Cow<'_, str> {
    if cut_ends.start {
        bytes = &bytes[continuation_len(bytes)..];
    }
    if cut_ends.end {
        bytes = &bytes[..complete_utf8_len(bytes)];
    }
    String::from_utf8_lossy(bytes)
}

/// A part of some bytes, with the known bytes beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SurroundedPart<'b> {
    /// The bytes before the part.
    pub(crate) before: &'b [u8],
    /// The part that is shown.
    pub(crate) part: &'b [u8],
    /// The bytes after the part.
    pub(crate) after: &'b [u8],
    /// Whether unknown bytes exist before `before` and after `after`.
    pub(crate) cut_ends: CutEnds,
}

impl SurroundedPart<'_> {
    /// The part as text, without secrets. A character across an end of the part is left out.
    pub(crate) fn excerpt(self, redactor: Option<&dyn Redact>) -> String {
        let Self {
            before,
            part,
            after,
            cut_ends,
        } = self;
        let start = match before.is_empty() && !cut_ends.start {
            true => 0,
            false => continuation_len(part),
        };
        let end = match after.is_empty() && !cut_ends.end {
            true => part.len(),
            false => start + complete_utf8_len(&part[start..]),
        };
        let text = String::from_utf8_lossy(&part[start..end]);
        let Some(redactor) = redactor else {
            return text.into_owned();
        };
        let before = [before, &part[..start]].concat();
        let after = [&part[end..], after].concat();
        let (mut before_ends, mut after_ends) = (cut_ends, cut_ends);
        (before_ends.end, after_ends.start) = (false, false);
        let before = decode_lossy(&before, before_ends);
        let after = decode_lossy(&after, after_ends);
        redactor
            .excerpt_between(&before, &text, &after, cut_ends)
            .into_owned()
    }
}

/// The number of bytes at the start that continue a character: at most three.
fn continuation_len(bytes: &[u8]) -> usize {
    let is_continuation = |byte: &&u8| **byte & 0xC0 == 0x80;
    bytes.iter().take(3).take_while(is_continuation).count()
}

/// The number of bytes that form whole characters: all, unless the last character is incomplete.
fn complete_utf8_len(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let incomplete = last.map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(incomplete) {
        Err(error) if error.error_len().is_none() => bytes.len() - incomplete.len(),
        _ => bytes.len(),
    }
}

/// Cuts a text after `max_bytes` bytes, and appends how much was left out.
pub fn shorten_text(text: &mut String, max_bytes: usize) {
    let end = text.floor_char_boundary(max_bytes);
    let rest = text.len() - end;
    if rest > 0 {
        text.truncate(end);
        text.push_str(&OmissionNote(rest, "byte").to_string());
    }
}
