//! A text without the characters that writers insert into a value: line breaks, invisible
//! characters, escapes of quoted-printable.
//!
//! Only regions that may contain a form are condensed and searched: see [`Grams`]. So ordinary
//! text, which also has line breaks, costs one lookup at each break.

use std::collections::HashSet;
use std::ops::Range;

use foldhash::fast::FixedState;

/// Number of consecutive bytes that are looked up around an insertion.
const GRAM_LENGTH: usize = 4;
/// Maximum number of backslashes before an escaped character. A text that was escaped three times
/// has seven.
const MAX_BACKSLASHES: usize = 8;
/// Number of bytes that are examined together.
const CHUNK_SIZE: usize = 32;

/// Which characters count as inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// Line breaks with the following indentation, also as escapes of JSON, and invisible
    /// characters. MIME (RFC 2045, section 6.8) and PEM (RFC 7468) break base64 into lines. `\/` is
    /// read as `/`, because some writers of JSON escape the slash.
    LinesJoined,
    /// Additionally the escapes and soft line breaks of quoted-printable (RFC 2045, section 6.7).
    QuotedPrintableDecoded,
}

/// Bytes of a text that are dropped, or that stand for one other byte.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    range: Range<usize>,
    byte: Option<u8>,
}

/// The condensed value for each view, where it differs from the value.
pub(super) fn condense_value(value: &str) -> impl Iterator<Item = String> + '_ {
    let views = [View::LinesJoined, View::QuotedPrintableDecoded].into_iter();
    views.filter_map(|view| {
        Some(String::from_utf8_lossy(&condense(value.as_bytes(), view, false)?).into_owned())
    })
}

/// The regions of a text in which a form with insertions may be. Each has `reach` bytes on both
/// sides. They are sorted and do not overlap.
pub(super) fn candidate_windows(
    text: &[u8],
    view: View,
    is_cut: bool,
    reach: usize,
    grams: &Grams,
) -> Vec<Range<usize>> {
    // A form with an insertion has at least one gram that crosses the insertion. So a token needs a
    // window only if a gram across it is one of a form. Adjacent windows are merged.
    let mut windows: Vec<Range<usize>> = Vec::new();
    if view == View::QuotedPrintableDecoded && !has_quoted_printable(text, is_cut) {
        return windows;
    }
    let mut tokens = tokens(text, view, is_cut).peekable();
    // The last bytes of the condensed text. The last byte is in the lowest bits.
    let (mut last, mut from) = (0_u32, 0);
    while let Some(Token { range, byte }) = tokens.next() {
        let Range { start, end } = range;
        let tail = &text[from.max(start.saturating_sub(GRAM_LENGTH))..start];
        last = push_bytes(last, tail);
        let mut may_hold = false;
        if let Some(byte) = byte {
            last = push_bytes(last, &[byte]);
            may_hold |= grams.contain(last);
        }
        let stop = tokens.peek().map_or(text.len(), |next| next.range.start);
        // Looks up all grams across this token, up to the next token. Later grams cross that token
        // too.
        let mut across = last;
        for byte in &text[end..stop.min(end + GRAM_LENGTH - 1)] {
            across = push_bytes(across, &[*byte]);
            may_hold |= grams.contain(across);
        }
        from = end;
        if may_hold {
            let window = start.saturating_sub(reach)..(end + reach).min(text.len());
            match windows.last_mut() {
                Some(before) if window.start <= before.end => before.end = window.end,
                _ => windows.push(window),
            }
        }
    }
    windows
}

/// Whether there is an escape or a soft line break of quoted-printable.
fn has_quoted_printable(text: &[u8], is_cut: bool) -> bool {
    let mut at = 0;
    while let Some(found) = text[at..].iter().position(|byte| *byte == b'=') {
        at += found + 1;
        if read_quoted_printable(&text[at..], is_cut).is_some() {
            return true;
        }
    }
    false
}

/// The condensed text in this view, if it differs from the text. `is_cut`: the text continues after
/// the end. An escape that is cut off there is left out.
pub(super) fn condense(text: &[u8], view: View, is_cut: bool) -> Option<Vec<u8>> {
    let mut tokens = tokens(text, view, is_cut).peekable();
    tokens.peek()?;
    let (mut condensed, mut from) = (Vec::with_capacity(text.len()), 0);
    for Token { range, byte } in tokens {
        condensed.extend_from_slice(&text[from..range.start]);
        condensed.extend(byte);
        from = range.end;
    }
    condensed.extend_from_slice(&text[from..]);
    Some(condensed)
}

/// Converts ranges of the condensed text to ranges of the original text.
pub(super) fn map_to_original(text: &[u8], view: View, is_cut: bool, ranges: &mut [Range<usize>]) {
    // Positions in the condensed text in order, each with the index of its range.
    let mut positions: Vec<(usize, usize, bool)> = Vec::with_capacity(2 * ranges.len());
    for (at, range) in ranges.iter().enumerate() {
        positions.push((range.start, at, true));
        // The last byte of the range.
        positions.push((range.end.saturating_sub(1), at, false));
    }
    positions.sort_unstable();
    let mut positions = positions.into_iter().peekable();
    let (mut from, mut position) = (0, 0);
    let end = Token {
        range: text.len()..text.len(),
        byte: None,
    };
    for Token { range: token, byte } in tokens(text, view, is_cut).chain([end]) {
        // The bytes before the token, then the one that it stands for.
        let plain = position..position + (token.start - from);
        let after = plain.end + usize::from(byte.is_some());
        while let Some((at, index, is_start)) = positions.next_if(|(at, ..)| *at < after) {
            let offset = from + (at - plain.start);
            let original = match plain.contains(&at) {
                true => offset..offset + 1,
                false => token.clone(),
            };
            if is_start {
                ranges[index].start = original.start;
            } else {
                ranges[index].end = original.end;
            }
        }
        (from, position) = (token.end, after);
    }
}

/// All tokens of a text.
fn tokens(text: &[u8], view: View, is_cut: bool) -> impl Iterator<Item = Token> {
    std::iter::successors(next_token(text, 0, view, is_cut), move |token| {
        next_token(text, token.range.end, view, is_cut)
    })
}

/// The first token at or after this position.
fn next_token(text: &[u8], from: usize, view: View, is_cut: bool) -> Option<Token> {
    let is_quoted = view == View::QuotedPrintableDecoded;
    // Without branches, so that the compiler can use vector instructions.
    let is_plain = |chunk: &[u8]| {
        let starts = |byte: u8| {
            (byte < 14) | (byte == b'\\') | (byte >= 0x80) | (is_quoted & (byte == b'='))
        };
        !chunk.iter().fold(false, |any, byte| any | starts(*byte))
    };
    let mut at = from;
    loop {
        while text.get(at..at + CHUNK_SIZE).is_some_and(is_plain) {
            at += CHUNK_SIZE;
        }
        at += text[at..]
            .iter()
            .position(|byte| TOKEN_STARTS[usize::from(*byte)])?;
        if let Some((length, byte)) = read_token(&text[at..], view, is_cut) {
            return Some(Token {
                range: at..at + length,
                byte,
            });
        }
        at += 1;
    }
}

/// Bytes with which a token may begin.
const TOKEN_STARTS: [bool; 256] = {
    let mut starts = [false; 256];
    let bytes = b"\r\n\\=\xc2\xcd\xd8\xe1\xe2\xef\xf3";
    let mut at = 0;
    while at < bytes.len() {
        starts[bytes[at] as usize] = true;
        at += 1;
    }
    starts
};

/// The length of the token at the start of the text, and the byte that it stands for.
fn read_token(text: &[u8], view: View, is_cut: bool) -> Option<(usize, Option<u8>)> {
    match text[0] {
        b'=' if view == View::QuotedPrintableDecoded => {
            read_quoted_printable(&text[1..], is_cut).map(|(length, byte)| (length + 1, byte))
        }
        b'=' => None,
        b'\\'
            if is_cut && text.len() < MAX_BACKSLASHES && text.iter().all(|byte| *byte == b'\\') =>
        {
            Some((text.len(), None))
        }
        b'\\' => match read_json_escape(text) {
            Some((length, Some(b'/'))) => Some((length, Some(b'/'))),
            Some((length, _)) => Some((length + line_indentation(&text[length..], is_cut), None)),
            None => None,
        },
        b'\r' | b'\n' => {
            let length = text
                .iter()
                .take_while(|byte| matches!(byte, b'\r' | b'\n'))
                .count();
            Some((length + line_indentation(&text[length..], is_cut), None))
        }
        _ => {
            // No character has more than four bytes.
            let character = text[..text.len().min(4)]
                .utf8_chunks()
                .next()?
                .valid()
                .chars()
                .next()?;
            is_inserted(character).then(|| (character.len_utf8(), None))
        }
    }
}

/// Reads what follows a `=` of quoted-printable.
fn read_quoted_printable(rest: &[u8], is_cut: bool) -> Option<(usize, Option<u8>)> {
    let spaces = count_spaces(rest);
    let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    match rest.get(spaces) {
        None => is_cut.then_some((spaces, None)),
        Some(b'\r') if rest.get(spaces + 1) == Some(&b'\n') => Some((spaces + 2, None)),
        Some(b'\r' | b'\n') => Some((spaces + 1, None)),
        Some(b'\\') => {
            let (first, byte) =
                read_json_escape(&rest[spaces..]).filter(|(_, byte)| byte.is_none())?;
            let second = rest[spaces + first..].strip_prefix(b"\\n").map_or(0, |_| 2);
            Some((spaces + first + second, byte))
        }
        Some(_) => match (digit(0)?, digit(1)) {
            (_, None) => (is_cut && rest.len() == 1).then_some((1, None)),
            (high, Some(low)) => Some((2, u8::try_from(high * 16 + low).ok())),
        },
    }
}

/// Reads an escape of JSON, also in a text that was escaped several times. It stands for nothing or
/// for a slash.
fn read_json_escape(text: &[u8]) -> Option<(usize, Option<u8>)> {
    let slashes = text
        .iter()
        .take(MAX_BACKSLASHES)
        .take_while(|byte| **byte == b'\\')
        .count();
    match text.get(slashes)? {
        b'n' | b'r' => Some((slashes + 1, None)),
        b'/' => Some((slashes + 1, Some(b'/'))),
        b'u' => {
            let digits = std::str::from_utf8(text.get(slashes + 1..slashes + 5)?).ok()?;
            let character = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
            (is_inserted(character) || matches!(character, '\r' | '\n'))
                .then_some((slashes + 5, None))
        }
        _ => None,
    }
}

fn is_inserted(character: char) -> bool {
    !character.is_ascii() && crate::text::sanitize::is_invisible(character)
}

/// The length of the indentation. A single space may belong to the value, unless the text is cut
/// right after it.
fn line_indentation(text: &[u8], is_cut: bool) -> usize {
    match count_spaces(text) {
        1 if text[0] == b' ' && !(is_cut && text.len() == 1) => 0,
        length => length,
    }
}

fn count_spaces(text: &[u8]) -> usize {
    text.iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count()
}

/// The set of all grams (four consecutive bytes) of the forms.
pub(super) struct Grams(HashSet<u32, FixedState>);

impl Grams {
    /// The grams of these forms.
    pub(super) fn from_forms<'a>(forms: impl Iterator<Item = &'a [u8]>) -> Self {
        let grams = forms.flat_map(|form| form.windows(GRAM_LENGTH));
        Self(grams.map(|gram| push_bytes(0, gram)).collect())
    }

    /// Whether a form contains these bytes. The last byte is in the lowest bits.
    fn contain(&self, gram: u32) -> bool {
        self.0.contains(&gram)
    }
}

/// Adds bytes at the end of a gram, of which only the last four bytes stay.
fn push_bytes(gram: u32, bytes: &[u8]) -> u32 {
    let push = |gram, byte: &u8| gram << 8 | u32::from(*byte);
    bytes.iter().fold(gram, push)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condensed(text: &str, view: View) -> String {
        condense(text.as_bytes(), view, false).map_or_else(
            || text.to_owned(),
            |bytes| String::from_utf8(bytes).unwrap(),
        )
    }

    #[test]
    fn condense_removes_breaks_and_invisible_characters() {
        for (text, unbroken) in [
            ("plain words, æøå 日本 ’quoted’", None),
            ("ab\ncd\r\n  ef\rgh", Some("abcdefgh")),
            ("ab\n cd\n\tef", Some("ab cdef")),
            (r"ab\ncd\r\n  ef\\ngh\u000aij", Some("abcdefghij")),
            (r"a\/b\\/c", Some("a/b/c")),
            ("a\u{ad}b\u{200b}c\u{feff}d\u{2060}e", Some("abcde")),
            (r"a\u00adb\u200Bc", Some("abc")),
            (r"a\tb\u0041\xe2 C:\dir", None),
            ("a=3Db =\tc", None),
        ] {
            assert_eq!(
                condensed(text, View::LinesJoined),
                unbroken.unwrap_or(text),
                "{text:?}"
            );
        }
        for (text, unquoted) in [
            (
                "a=3Db=c3=B8 =\r\n c= \t\nd=\\r\\ne",
                "a=bø c de".replace(" c d", "  cd"),
            ),
            ("a==b=x=1", "a==b=x=1".to_owned()),
        ] {
            assert_eq!(
                condensed(text, View::QuotedPrintableDecoded),
                unquoted,
                "{text:?}"
            );
        }
    }

    #[test]
    fn ranges_map_back_to_the_text() {
        let text = "..a\r\nb\u{ad}c=3Dd..";
        let condensed_text =
            condense(text.as_bytes(), View::QuotedPrintableDecoded, false).unwrap();
        assert_eq!(condensed_text, b"..abc=d..");
        for (range, expected) in [
            (2..3, "a"),
            (2..4, "a\r\nb"),
            (3..5, "b\u{ad}c"),
            (5..6, "=3D"),
            (4..7, "c=3Dd"),
            (0..9, text),
        ] {
            let mut ranges = vec![range.clone()];
            map_to_original(
                text.as_bytes(),
                View::QuotedPrintableDecoded,
                false,
                &mut ranges,
            );
            assert_eq!(&text[ranges[0].clone()], expected, "{range:?}");
        }
    }

    #[test]
    fn windows_surround_possible_forms() {
        let grams = Grams::from_forms([&b"abcd"[..]].into_iter());
        let around = |text: &str, view| candidate_windows(text.as_bytes(), view, false, 10, &grams);
        let dots = ".".repeat(50);
        for middle in [
            "ab\ncd",
            "abc\n\nd",
            "a\r\nbcd",
            "a\nb\nc\nd",
            "ab\u{200b}cd",
            r"ab\ncd",
        ] {
            let text = format!("{dots}{middle}{}{dots}", ".\n".repeat(50));
            let found = around(&text, View::LinesJoined);
            assert!(
                found.len() == 1 && found[0].start < 50 && found[0].end >= 60,
                "{middle:?}: {found:?}"
            );
        }
        assert!(around(&format!("{dots}ab\nxd{dots}abcd{dots}"), View::LinesJoined).is_empty());
        assert_eq!(
            around(&format!("{dots}ab=63d{dots}"), View::QuotedPrintableDecoded),
            vec![42..65]
        );
        assert!(
            around(
                &format!("{dots}ab\ncd=x{dots}"),
                View::QuotedPrintableDecoded
            )
            .is_empty(),
            "the other view finds it"
        );
        assert_eq!(
            around(&"ab\ncd".repeat(50), View::LinesJoined).len(),
            1,
            "no byte is searched twice"
        );
    }

    #[test]
    fn condense_drops_cut_escapes() {
        for (text, left) in [
            ("ab=", "ab"),
            ("ab=3", "ab"),
            ("ab\\", "ab"),
            ("ab\\\\", "ab"),
            ("ab= ", "ab"),
        ] {
            assert_eq!(
                condense(text.as_bytes(), View::QuotedPrintableDecoded, true).unwrap(),
                left.as_bytes(),
                "{text}"
            );
        }
    }

    #[test]
    fn repetitive_text_needs_one_pass() {
        for part in [
            "\\", "=", "= ", "\n", "a\n", "\u{2019}", "\\u00", "=\\", "\u{200b}",
        ] {
            let text = part.repeat((1 << 18) / part.len());
            for view in [View::LinesJoined, View::QuotedPrintableDecoded] {
                let grams = Grams::from_forms([&b"aaaa"[..]].into_iter());
                assert!(candidate_windows(text.as_bytes(), view, true, 100, &grams).len() <= 1);
                assert!(
                    condense(text.as_bytes(), view, true)
                        .is_none_or(|bytes| bytes.len() <= text.len())
                );
            }
        }
    }
}
