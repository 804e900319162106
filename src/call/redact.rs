//! What a runner may ask of whoever takes secrets out: for texts that it cuts itself, before anybody else sees them.

use std::borrow::Cow;

use super::units::Count;

/// Which ends of a text are cuts. A secret that a cut has torn is not found as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Torn {
    /// Something stood before the text.
    pub start: bool,
    /// Something followed it.
    pub end: bool,
}

impl Torn {
    /// Cut nowhere.
    pub const NOWHERE: Self = Self { start: false, end: false };
    /// The rest was left out.
    pub const END: Self = Self { start: false, end: true };
    /// What came before was left out.
    pub const START: Self = Self { start: true, end: false };
}

/// Takes secrets out.
pub trait Redact: Send + Sync {
    /// The text without control characters, without secrets and without what a cut has left of one.
    fn excerpt<'t>(&self, text: &'t str, torn: Torn) -> Cow<'t, str>;

    /// As `excerpt`, of a text that stands between two others. A secret that lies across one of its ends is seen whole, so
    /// nothing else is left out there. `torn` is about the outer ends, beyond `before` and `after`.
    fn excerpt_between<'t>(&self, before: &str, text: &'t str, after: &str, torn: Torn) -> Cow<'t, str>;

    /// Bytes that the longest secret has in its longest encoding: so much beside a text tells what lies across its ends.
    fn reach(&self) -> usize;

    /// Where a text of which more will come may be divided, at `end` or before it: no secret lies across that place,
    /// whatever follows.
    fn settled(&self, text: &str, end: usize) -> usize;
}

/// Bytes of a text as text. A character that a cut has torn is left out; others that are not UTF-8 are replaced.
pub(crate) fn decode(mut bytes: &[u8], torn: Torn) -> Cow<'_, str> {
    if torn.start {
        // A character has at most three bytes after its first.
        let rest = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
        bytes = &bytes[rest..];
    }
    if torn.end {
        bytes = &bytes[..whole_characters(bytes)];
    }
    String::from_utf8_lossy(bytes)
}

/// A part of some bytes, and so much of what stands beside it as is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Between<'b> {
    /// What stands before the part.
    pub(crate) before: &'b [u8],
    /// The part that is shown.
    pub(crate) part: &'b [u8],
    /// What follows the part.
    pub(crate) after: &'b [u8],
    /// Whether more stands before `before` and behind `after`, which is not known.
    pub(crate) torn: Torn,
}

impl Between<'_> {
    /// The part as text, by what takes secrets out. A character across an end of the part is left out of it.
    pub(crate) fn excerpt(self, redactor: Option<&dyn Redact>) -> String {
        let Self { before, part, after, torn } = self;
        let start = match before.is_empty() && !torn.start {
            true => 0,
            // A character has at most three bytes after its first.
            false => part.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count(),
        };
        let end = match after.is_empty() && !torn.end {
            true => part.len(),
            false => start + whole_characters(&part[start..]),
        };
        let text = String::from_utf8_lossy(&part[start..end]);
        let Some(redactor) = redactor else { return text.into_owned() };
        let before = [before, &part[..start]].concat();
        let after = [&part[end..], after].concat();
        let (before, after) =
            (decode(&before, Torn { end: false, ..torn }), decode(&after, Torn { start: false, ..torn }));
        redactor.excerpt_between(&before, &text, &after, torn).into_owned()
    }
}

/// How many of these bytes are whole characters: all of them, unless the last one is only begun.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let begun = last.map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(begun) {
        Err(error) if error.error_len().is_none() => bytes.len() - begun.len(),
        _ => bytes.len(),
    }
}

/// Cuts a text after `most` bytes, and says how much was left out.
pub fn shorten(text: &mut String, most: usize) {
    let end = text.floor_char_boundary(most);
    let rest = text.len() - end;
    if rest > 0 {
        text.truncate(end);
        text.push_str(&format!("[… {} left out …]", Count(rest as u64, "byte")));
    }
}
