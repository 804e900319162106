//! Checks that a text in the path of a URL cannot lead to another path.
//!
//! The service sends `.` and `..` encoded, but a server behind it may decode more than once.
//! Lenient servers also drop parameters (`..;x`), white space and control characters, or read
//! compatibility characters as ASCII. A text is refused if any of these servers would read it as a
//! dot segment. The check takes linear time: the text is bounded, and so is the number of passes.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};

/// The longest value, in bytes. nginx (`large_client_header_buffers`) and Apache
/// (`LimitRequestLine`) refuse a request line above 8 KiB by default, so few servers would accept a
/// longer value.
pub(super) const MAX_VALUE_BYTES: usize = 8 * 1024;
/// How many times a text may be percent-encoded: once by its author, and once for each of two
/// proxies that decode.
pub(super) const MAX_ENCODING_LAYERS: usize = 3;

/// Why a text is not permitted in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InvalidPathValue {
    /// The text has more than [`MAX_VALUE_BYTES`] bytes.
    TooLong,
    /// The text can still be decoded after [`MAX_ENCODING_LAYERS`] layers.
    TooManyLayers,
    /// A server may read one of its segments as `.` or `..`.
    DotSegment,
}

/// Checks a value for a path, including its length.
pub(super) fn check_value(text: &str) -> Result<(), InvalidPathValue> {
    if text.len() > MAX_VALUE_BYTES {
        return Err(InvalidPathValue::TooLong);
    }
    check_segments(text)
}

/// Checks the segments of a text of any length.
pub(super) fn check_segments(text: &str) -> Result<(), InvalidPathValue> {
    let mut layer = Cow::Borrowed(text);
    for decoded in 0.. {
        // Without these bytes the text contains no dot in any form, and no percent-encoding.
        if layer
            .bytes()
            .all(|byte| byte.is_ascii() && !matches!(byte, b'.' | b'%'))
        {
            return Ok(());
        }
        let folded = to_nfkc(&layer);
        if folded.split(is_separator).any(leads_elsewhere) {
            return Err(InvalidPathValue::DotSegment);
        }
        let next = percent_decode_str(&folded).decode_utf8_lossy();
        if next == folded {
            return Ok(());
        }
        if decoded == MAX_ENCODING_LAYERS {
            return Err(InvalidPathValue::TooManyLayers);
        }
        layer = Cow::Owned(next.into_owned());
    }
    Ok(())
}

/// The text in Unicode's compatibility form (NFKC). It turns full-width forms, small forms and dot
/// leaders into ASCII.
fn to_nfkc(text: &str) -> Cow<'_, str> {
    match is_nfkc_quick(text.chars()) {
        IsNormalized::Yes => Cow::Borrowed(text),
        IsNormalized::No | IsNormalized::Maybe => Cow::Owned(text.nfkc().collect()),
    }
}

/// Whether the character is a slash, or one that legacy code pages turn into a slash although NFKC
/// does not.
fn is_separator(c: char) -> bool {
    matches!(c, '/' | '\\' | '\u{2044}' | '\u{2215}' | '\u{2216}')
}

/// Whether a server may read the segment as `.` or `..`.
fn leads_elsewhere(segment: &str) -> bool {
    // Parameters begin with `;`. The other characters end a path, a line, or a string in C.
    let cut = segment
        .split([';', '?', '#', '\0', '\r', '\n'])
        .next()
        .unwrap_or_default();
    is_dots(segment) || is_dots(cut)
}

/// Whether only one or two dots remain after the characters that servers drop are removed.
fn is_dots(segment: &str) -> bool {
    let mut seen = segment.chars().filter(|&c| !is_dropped(c)).take(3);
    matches!(
        (seen.next(), seen.next(), seen.next()),
        (Some('.'), None | Some('.'), None)
    )
}

/// White space, control characters, and characters with Unicode's property
/// `Default_Ignorable_Code_Point`.
#[rustfmt::skip]
fn is_dropped(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_rejected_in_all_encodings() {
        for text in [
            ".",
            "..",
            "a/..",
            "a\\..\\b",
            "..;",
            "..;/admin",
            "..;a=b/x",
            ".;x",
            ";/../x",
            "..\0",
            "..\0.png",
            "\0..",
            ".\0.",
            " ..",
            "..\t",
            ". .",
            ".. /x",
            "..\r\n",
            "..\u{a0}",
            "..\u{200b}",
            ".\u{ad}.",
            "\u{feff}..",
            "\u{ff0e}\u{ff0e}",
            "\u{2025}",
            "\u{2024}\u{2024}",
            "\u{fe52}.",
            "a\u{ff0f}..\u{ff3c}b",
            "..\u{ff1b}x",
            "x\u{2215}..",
            "..?a",
            "..#a",
            "%2e%2e",
            "..%3bx",
            "%2e%2e%3b",
            "%252e",
            "%25%32%65",
            "%ef%bc%8e%ef%bc%8e",
            "\u{ff05}2e",
            "%20..",
            "..%00",
            "..%2500x",
            "%25252e%25252e",
            "x%2f..%2fy",
            "x%5c.%5cy",
        ] {
            assert_eq!(
                check_value(text),
                Err(InvalidPathValue::DotSegment),
                "{text:?}"
            );
        }
    }

    #[test]
    fn texts_without_dot_segments_are_accepted() {
        for text in [
            "",
            "...",
            "a..b",
            ".hidden",
            "file.",
            "a.b/c",
            "v1;a=.",
            "100%",
            "50%25",
            "%",
            "%zz",
            "ø.é",
            "…",
            "; ..a",
            "a b",
            "日本。",
            "..a;x",
            "\u{2026}",
            "x%2fy",
            "%25",
            "%2525",
            "%ff",
            "1.5",
            "ﷺ",
        ] {
            assert_eq!(check_value(text), Ok(()), "{text:?}");
        }
    }

    #[test]
    fn more_than_three_layers_are_rejected() {
        assert_eq!(check_value("%252525"), Ok(()));
        assert_eq!(
            check_value("%25252525"),
            Err(InvalidPathValue::TooManyLayers)
        );
        assert_eq!(
            check_value("%2525252e"),
            Err(InvalidPathValue::TooManyLayers)
        );
        assert_eq!(
            check_value(&format!("%{}", "25".repeat(4000))),
            Err(InvalidPathValue::TooManyLayers)
        );
    }

    #[test]
    fn too_long_values_are_rejected() {
        assert_eq!(check_value(&"x".repeat(MAX_VALUE_BYTES)), Ok(()));
        assert_eq!(
            check_value(&"x".repeat(MAX_VALUE_BYTES + 1)),
            Err(InvalidPathValue::TooLong)
        );
        assert_eq!(
            check_value(&"é".repeat(MAX_VALUE_BYTES / 2 + 1)),
            Err(InvalidPathValue::TooLong)
        );
    }

    /// The time bound is generous: a quadratic algorithm takes minutes for the longest of these
    /// texts.
    #[test]
    fn long_texts_take_linear_time() {
        let started = std::time::Instant::now();
        for part in [
            "%25",
            "25",
            "%",
            "..",
            "../",
            "\u{fdfa}",
            "%ef%bc%8e",
            ";",
            "\u{ff05}25",
            "a\u{301}",
            "%2",
        ] {
            let _ = check_segments(&format!("%{}", part.repeat((1 << 17) / part.len())));
        }
        assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    }
}
