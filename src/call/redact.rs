//! What a runner may ask of whoever takes secrets out: for texts that it cuts itself, before anybody else sees them.

use std::borrow::Cow;

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
        let last = bytes.utf8_chunks().last();
        let begun = last.map_or(&[][..], |chunk| chunk.invalid());
        if std::str::from_utf8(begun).is_err_and(|error| error.error_len().is_none()) {
            bytes = &bytes[..bytes.len() - begun.len()];
        }
    }
    String::from_utf8_lossy(bytes)
}

/// Cuts a text after `most` bytes, and says how much was left out.
pub fn shorten(text: &mut String, most: usize) {
    let end = text.floor_char_boundary(most);
    let rest = text.len() - end;
    if rest > 0 {
        text.truncate(end);
        text.push_str(&format!("[… {rest} bytes left out …]"));
    }
}
