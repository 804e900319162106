//! Sends random secrets in random encodings through all code that cuts texts. No part of a secret
//! may remain.

use base64::Engine as _;
use base64::prelude::{
    BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::call::{Content, CutEnds, Detail, Page, Redact, ToolError, ToolResult, cut_result};
use crate::kinds::http::response::ResponseReader;
use crate::kinds::http::tests::{response_in_one_chunk, test_context};

/// The number of consecutive characters of a secret that may not remain.
const RUN_LENGTH: usize = 8;

/// Secrets of several alphabets. They contain no character of `any_surrounding`.
pub(crate) fn any_secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9]{8,200}",
        "[0-9a-f]{8,64}",
        "sk-[a-zA-Z0-9_-]{8,48}",
        "[!-~&&[^.,]]{8,60}",
        "[a-zæøåß日本]{8,40}",
        "[a-z]{4,9}( [a-z]{4,9}){3,6}",
        "[A-Z]{8,40}(\n[A-Za-z0-9+/]{20,64}){2,4}",
        // Repetitive secrets, whose parts are similar.
        "(ab){4,30}",
    ]
}

/// Text without characters of a secret.
pub(crate) fn any_surrounding() -> impl Strategy<Value = String> {
    "[.,]{0,90}"
}

/// The secret in an encoding.
pub(crate) fn encode_secret(secret: &str, encoding: usize) -> String {
    let json = Value::from(secret).to_string();
    match encoding {
        0 => secret.to_owned(),
        1 => BASE64_STANDARD.encode(secret),
        2 => BASE64_URL_SAFE_NO_PAD.encode(secret),
        3 => hex::encode(secret),
        4 => hex::encode_upper(secret),
        5 => utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
        6 => json[1..json.len() - 1].to_owned(),
        7 => secret
            .chars()
            .flat_map(|c| {
                c.encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|u| format!("\\u{u:04x}"))
                    .collect::<Vec<_>>()
            })
            .collect(),
        8 => secret
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;")
            .replace('\'', "&#x27;"),
        // Within a longer text, at each of the three positions in a group, in both alphabets.
        9..=11 => BASE64_STANDARD.encode(format!("{}{secret}..", &"..."[..encoding - 9])),
        12..=14 => BASE64_URL_SAFE_NO_PAD.encode(format!("{}{secret}.", &"..."[..encoding - 12])),
        15 => BASE64_STANDARD_NO_PAD.encode(BASE64_URL_SAFE.encode(format!(".{secret}"))),
        16 => secret.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        17 => {
            const PATH: &AsciiSet = &NON_ALPHANUMERIC
                .remove(b'/')
                .remove(b'-')
                .remove(b'.')
                .remove(b'_')
                .remove(b'~');
            utf8_percent_encode(secret, PATH).to_string()
        }
        18 => secret
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&#34;")
            .replace('\'', "&#39;")
            .replace('+', "&#43;"),
        19 => secret
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_string()
                } else {
                    format!("&#x{:X};", u32::from(c))
                }
            })
            .collect(),
        20 => BASE64_STANDARD.encode(
            secret
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect::<Vec<u8>>(),
        ),
        21 => break_lines(&BASE64_STANDARD.encode(secret), 19, "\n"),
        22 => break_lines(&BASE64_STANDARD.encode(secret), 19, "\r\n"),
        23 => break_lines(&BASE64_URL_SAFE.encode(secret), 19, "\\r\\n"),
        24 => encode_quoted_printable(secret),
        25 => break_lines(&hex::encode(secret), 10, "\n    "),
        26 => break_lines(secret, 7, "\u{200b}"),
        27 => break_lines(secret, 5, "\r"),
        _ => break_lines(secret, 1, "\u{ad}"),
    }
}
pub(crate) const ENCODINGS: usize = 29;
/// The number of encodings without insertions.
const ENCODINGS_WITHOUT_INSERTIONS: usize = 21;

fn break_lines(text: &str, width: usize, end: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(width)
        .map(|line| line.iter().collect::<String>())
        .collect::<Vec<_>>()
        .join(end)
}

/// RFC 2045, section 6.7, with short lines.
fn encode_quoted_printable(text: &str) -> String {
    let encoded = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b' ' => char::from(byte).to_string(),
        _ => format!("={byte:02X}"),
    };
    let encoded: Vec<String> = text.bytes().map(encoded).collect();
    encoded
        .chunks(11)
        .map(<[String]>::concat)
        .collect::<Vec<_>>()
        .join("=\r\n")
}

/// The text without the escapes of quoted-printable.
fn decode_quoted_printable(text: &str) -> String {
    let text = text.replace("=\r\n", "").replace("=\n", "");
    let mut parts = text.split('=');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
        {
            Some(byte) => bytes.extend([&[byte], &part.as_bytes()[2..]].concat()),
            None => bytes.extend([b"=", part.as_bytes()].concat()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first run of characters of the secret that is in the text, in this encoding. The first and
/// last characters of base64 also depend on the text around the secret, so they are ignored.
pub(crate) fn find_leak(shown: &str, secret: &str, encoding: usize) -> Option<String> {
    // Inserted characters are not part of the secret.
    let bare = |text: &str| match encoding < ENCODINGS_WITHOUT_INSERTIONS {
        true => text.to_owned(),
        false => decode_quoted_printable(text)
            .replace("\\r\\n", "")
            .replace(|c: char| "\r\n \u{200b}\u{ad}".contains(c), ""),
    };
    let text = encode_secret(secret, encoding);
    let text = bare(&crate::text::sanitize::clean_text(&text));
    let shown = bare(shown);
    let margin: usize = match encoding {
        9..=14 => 4,
        15 => 8,
        _ => 0,
    };
    let characters: Vec<char> = text.chars().collect();
    let inner = &characters[margin..characters.len() - margin];
    let mut runs = inner.windows(RUN_LENGTH);
    runs.find_map(|run| {
        let run: String = run.iter().collect();
        shown.contains(&run).then_some(run)
    })
}

fn redacted_text(result: Result<ToolResult, ToolError>, redactor: &Redactor) -> String {
    let mut result = result.unwrap_or_else(|error| ToolResult::error(error.to_string()));
    crate::text::sanitize::clean_result(&mut result);
    redactor.redact_result(&mut result);
    result.as_text()
}

async fn read_redacted_response(
    status: u16,
    body: String,
    redactor: &std::sync::Arc<Redactor>,
) -> String {
    let response = response_in_one_chunk(status, body).await;
    let (context, _call) = test_context();
    let reading = ResponseReader::with_cap(6000, "max_output");
    redacted_text(
        reading
            .read_result(response, &context.with_redactor(redactor.clone()))
            .await,
        redactor,
    )
}

#[tokio::test]
async fn cut_body_keeps_a_harmless_prefix() {
    let redactor = std::sync::Arc::new(Redactor::new(["sk-scripted-0123456789abcdef"]));
    for (status, max_bytes) in [(404, 4096), (200, 6000)] {
        let body = format!("{}sk-scripted-", ".".repeat(max_bytes - 12));
        let text = read_redacted_response(
            status,
            format!("{body} is how a key begins{}", ".".repeat(200)),
            &redactor,
        )
        .await;
        assert!(
            text.ends_with("..sk-scripted-"),
            "{}",
            &text[text.len() - 30..]
        );
    }
}

#[tokio::test]
async fn cut_body_contains_no_partial_secret() {
    let secret = "c4n4ryHTTP-9f8e7d6c5b4a39281706ABCDEFG";
    let redactor = std::sync::Arc::new(Redactor::new([secret]));
    for (status, max_bytes) in [(404, 4096), (200, 6000)] {
        for before in max_bytes - secret.len() - 1..=max_bytes {
            let body = format!("{}{secret}{}", ".".repeat(before), ".".repeat(5000));
            let text = read_redacted_response(status, body, &redactor).await;
            let dots = text.chars().filter(|c| *c == '.').count();
            assert!(
                !text.contains("c4") && !text.contains("ABCDEFG"),
                "{before}: {}",
                &text[text.len() - 60..]
            );
            assert!(
                dots >= before.min(max_bytes) && text.len() < max_bytes + 40,
                "{before}"
            );
        }
    }
}

/// Base32 (RFC 4648, section 6) without padding.
fn base32(bytes: &[u8]) -> String {
    let bit = |at: usize| {
        bytes
            .get(at / 8)
            .map_or(0, |byte| (byte >> (7 - at % 8)) & 1)
    };
    let character =
        |at: usize| (at * 5..at * 5 + 5).fold(0, |index, at| index << 1 | usize::from(bit(at)));
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    (0..(bytes.len() * 8).div_ceil(5))
        .map(|at| char::from(alphabet[character(at)]))
        .collect()
}

#[test]
fn neighbors_of_an_encoded_secret_are_redacted() {
    let secret = "hunter2-hunter2-\u{3ff}>?";
    let redactor = Redactor::new([secret]);
    for before in ["", "1", "12", "123", "1234", "12345"] {
        let text = format!("{before}{secret}");
        for form in [
            BASE64_STANDARD.encode(&text),
            BASE64_URL_SAFE.encode(&text),
            BASE64_STANDARD_NO_PAD.encode(&text),
        ] {
            let left = &form[..before.len() * 8 / 6];
            assert_eq!(
                redactor.redact_text(&form),
                format!("{left}{REDACTED}"),
                "{form}"
            );
            assert_eq!(
                redactor.redact_text(&format!("{form}.==")),
                format!("{left}{REDACTED}.=="),
                "{form}"
            );
        }
        let longer = BASE64_STANDARD.encode(format!("{text}12345"));
        let right = &longer[(text.len() * 8).div_ceil(6)..];
        let left = &longer[..before.len() * 8 / 6];
        assert_eq!(
            redactor.redact_text(&longer),
            format!("{left}{REDACTED}{right}")
        );
        let form = base32(text.as_bytes());
        for form in [form.to_lowercase(), form] {
            assert_eq!(
                redactor.redact_text(&form),
                format!("{}{REDACTED}", &form[..before.len() * 8 / 5]),
                "{form}"
            );
        }
    }
    // The character with bits of the text before the secret is cut off.
    let form = &BASE64_STANDARD.encode(format!("1{secret}"))[2..];
    assert_eq!(
        redactor.redact_text(&format!(".{form}")),
        format!(".{REDACTED}")
    );
}

#[test]
fn secret_broken_into_lines_is_found() {
    let (secret, other) = ("c4n4ry-9f8e7d6c5b4a39281706", "p@ss=w0rd/with+signs");
    let redactor = Redactor::new([secret, other]);
    for before in 0..100 {
        let text = format!("{}{secret}{}", "x".repeat(before), "y".repeat(60));
        for (width, end) in [
            (76, "\r\n"),
            (76, "\n"),
            (64, "\n"),
            (64, "\\n"),
            (60, "\\r\\n"),
            (70, "\n    "),
        ] {
            let form = break_lines(&BASE64_STANDARD.encode(&text), width, end);
            let shown = redactor.redact_text(&form);
            assert_eq!(
                shown.matches(REDACTED).count(),
                1,
                "{before} {width} {end:?}: {shown}"
            );
            let unbroken = redactor.redact_text(&BASE64_STANDARD.encode(&text)).len();
            assert!(
                shown.len() <= unbroken + shown.matches(end).count() * end.len() + 2,
                "{shown}"
            );
            assert!(redactor.is_secret_in(form.as_bytes()).unwrap());
        }
    }
    for form in [
        "p@ss=3Dw0rd/with+signs",
        "p=40ss=3dw0rd/w=\r\nith+signs",
        r"p@ss=w0rd\/with+signs",
        "p@ss=w0rd/with\r+signs",
        "p@ss=w0rd/w\u{ad}ith+signs",
        r"p@ss=w0rd/w\u200bith+signs",
        "p@ss=\nw0rd/with+signs",
        "\u{feff}p\u{200d}@ss=w0rd/with+sign\u{2060}s",
    ] {
        let shown = redactor.redact_text(form);
        assert!(
            shown.contains(REDACTED) && !shown.contains("ss") && !shown.contains("ith"),
            "{form:?}: {shown:?}"
        );
    }
}

#[test]
fn multiline_secret_with_other_breaks_is_found() {
    let secret = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQ==\n-----END KEY-----";
    let redactor = Redactor::new([secret]);
    for end in ["\r\n", "\n  ", "\\n", "\\r\\n", "\r\n\r\n", ""] {
        assert_eq!(
            redactor.redact_text(&secret.replace('\n', end)),
            REDACTED,
            "{end:?}"
        );
    }
}

#[test]
fn ordinary_lines_are_not_redacted() {
    let redactor = Redactor::new(["correct-horse-battery", "0123456789abcdef"]);
    let text = "correct\n-horse\nbattery=3D\n0123\n4567\n89ab\r\ncde=\ng\\nf \u{ad}horse-battery";
    assert!(matches!(
        redactor.redact_text(text),
        std::borrow::Cow::Borrowed(_)
    ));
}

#[test]
fn short_secret_is_found_in_long_encodings() {
    let redactor = Redactor::with_min_length(3, ["abcde", "fghijk", "lmnopqrs"]);
    assert_eq!(
        redactor.redact_text(&BASE64_STANDARD.encode("abcde")),
        REDACTED
    );
    assert_eq!(
        redactor.redact_text(&BASE64_STANDARD_NO_PAD.encode("abcde")),
        REDACTED
    );
    assert_eq!(
        redactor.redact_text(&BASE64_STANDARD.encode("fghijk")),
        REDACTED
    );
    // Within a longer text, fewer than eight characters of a value reveal too little. Its complete
    // encoding is found, though.
    for (text, is_found) in [
        ("1abcde", false),
        ("12abcde", false),
        ("123abcde", true),
        ("1fghijk", false),
        ("12fghijk", false),
        ("123fghijk", true),
        ("1lmnopqrs", true),
        ("12lmnopqrs", true),
    ] {
        let form = BASE64_STANDARD_NO_PAD.encode(text);
        assert_eq!(
            redactor.redact_text(&form).contains(REDACTED),
            is_found,
            "{text}: {form}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn excerpt_contains_no_partial_secret(
        secret in any_secret(), other in any_secret(), encoding in 0..ENCODINGS, before in any_surrounding(), after in any_surrounding(), at: prop::sample::Index,
    ) {
        let redactor = Redactor::new([&*secret, &*other]);
        let text = format!("{before}{}{after}", encode_secret(&secret, encoding));
        let at = text.floor_char_boundary(at.index(text.len() + 1));
        let (head, tail) = text.split_at(at);
        for (part, cut) in [(head, CutEnds::END), (tail, CutEnds::START), (&*text, CutEnds::NONE)] {
            let shown = redactor.excerpt(part, cut);
            prop_assert_eq!(find_leak(&shown, &secret, encoding), None, "{:?} of {:?}: {:?}", cut, text, shown);
        }
        let redacted = redactor.redact_text(&text);
        prop_assert_eq!(find_leak(&redacted, &secret, encoding), None, "{:?}", text);
    }

    #[test]
    fn excerpt_loses_only_secret_text(
        secret in any_secret(), encoding in 0..ENCODINGS, before in any_surrounding(), after in any_surrounding(), from: prop::sample::Index, to: prop::sample::Index,
        beyond in 0..300_usize,
    ) {
        let redactor = Redactor::new([&*secret]);
        let form = encode_secret(&secret, encoding);
        for text in [format!("{before}{form}{after}"), format!("{before}{after}")] {
            let mut ends = [from, to].map(|at| text.floor_char_boundary(at.index(text.len() + 1)));
            ends.sort_unstable();
            let [from, to] = ends;
            let part = &text[from..to];
            let shown = redactor.excerpt_between(&text[..from], part, &text[to..], CutEnds::NONE);
            prop_assert_eq!(find_leak(&shown, &secret, encoding), None, "{:?} of {:?}: {:?}", part, text, shown);
            // Text outside the forms remains. No form contains these two characters.
            let marks = |text: &str| text.chars().filter(|c| ".,".contains(*c)).count();
            let own = marks(part) - marks(&form).min(marks(part));
            prop_assert!(marks(&shown) >= own, "{:?} of {:?}: {:?}", part, text, shown);
            // With less context on one side, nothing of the secret remains either.
            let start = text.ceil_char_boundary(from.saturating_sub(beyond)).min(from);
            let end = text.floor_char_boundary(to + beyond).max(to);
            for (start, end) in [(start, text.len()), (0, end)] {
                let cut = CutEnds { start: start > 0, end: end < text.len() };
                let shown = redactor.excerpt_between(&text[start..from], part, &text[to..end], cut);
                prop_assert_eq!(find_leak(&shown, &secret, encoding), None, "{:?} of {:?}: {:?}", part, text, shown);
            }
        }
    }

    #[test]
    fn split_text_contains_no_partial_secret(
        secret in any_secret(), encoding in 0..ENCODINGS, before in any_surrounding(), after in any_surrounding(), size in 1..40_usize,
    ) {
        let redactor = Redactor::new([&*secret]);
        let text = format!("{before} {} {after}", encode_secret(&secret, encoding));
        let (mut pending, mut sent) = (String::new(), String::new());
        for piece in text.chars().collect::<Vec<_>>().chunks(size) {
            pending.extend(piece);
            let rest = pending.split_off(redactor.safe_split(&pending, pending.len()));
            sent.push_str(&redactor.redact_text(&std::mem::replace(&mut pending, rest)));
        }
        sent.push_str(&redactor.redact_text(&pending));
        prop_assert_eq!(find_leak(&sent, &secret, encoding), None, "{:?}: {:?}", text, sent);
        prop_assert_eq!(sent.starts_with(&before), true);
    }

    #[test]
    fn http_response_contains_no_partial_secret(
        secret in any_secret(), encoding in 0..ENCODINGS, after in any_surrounding(), inside in 0..300_usize, is_error: bool,
    ) {
        let redactor = std::sync::Arc::new(Redactor::new([&*secret]));
        let (status, max_bytes) = if is_error { (404, 4096) } else { (200, 6000) };
        let body = format!("{}{}{after}{}", ".".repeat(max_bytes - inside), encode_secret(&secret, encoding), ".".repeat(2000));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let text = runtime.block_on(read_redacted_response(status, body, &redactor));
        prop_assert_eq!(find_leak(&text, &secret, encoding), None);
    }

    #[test]
    fn page_contains_no_partial_secret(
        secret in any_secret(), encoding in 0..ENCODINGS, before in any_surrounding(), after in any_surrounding(), limit in 1..60_usize, is_list: bool,
    ) {
        let redactor = Redactor::new([&*secret]);
        let text = format!("{before}{}{after}", encode_secret(&secret, encoding));
        let mut result = if is_list { ToolResult::json(json!([text, text, text])) } else { ToolResult::text(text) };
        redactor.redact_result(&mut result);
        for (detail, offset) in [(Detail::Exploring, 0), (Detail::Full, 0), (Detail::Full, limit), (Detail::Full, 2 * limit)] {
            let page = cut_result(&result, Page { detail, offset, limit: Some(limit) }, 0);
            let shown = page.map_or_else(|| result.clone(), |page| page.result);
            prop_assert_eq!(find_leak(&json!(shown).to_string(), &secret, encoding), None);
        }
    }

    #[test]
    fn file_bytes_with_a_secret_are_detected(
        secret in any_secret(), before in prop::collection::vec(any::<u8>(), 0..70), after in prop::collection::vec(any::<u8>(), 0..9),
        encoding in 0..ENCODINGS_WITHOUT_INSERTIONS,
    ) {
        let redactor = Redactor::new([&*secret]);
        let bytes = [before, encode_secret(&secret, encoding).into_bytes(), after].concat();
        prop_assert!(redactor.is_secret_in(&*bytes).unwrap());
        // If a tool writes base64 of these bytes into a text, the secret is not shown either.
        let mut result = ToolResult { content: vec![Content::text(BASE64_STANDARD.encode(&bytes))], ..ToolResult::default() };
        redactor.redact_result(&mut result);
        if encoding == 0 {
            prop_assert!(result.as_text().contains(REDACTED), "{:?}", result);
        }
    }
}

#[test]
fn form_encoded_secret_is_found_in_basic_authentication() {
    let secret = "spe+cial/sec=ret&%99";
    let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let redactor = Redactor::new([secret]);
    for id in ["c", "cl", "cli", "client"] {
        let pair = BASE64_STANDARD.encode(format!("{id}:{encoded}"));
        let shown = redactor.redact_text(&pair).into_owned();
        assert!(
            shown.contains("[redacted]") && shown.len() < id.len() + 24,
            "{shown}"
        );
    }
}

#[test]
fn escapes_of_different_json_writers_are_found() {
    let redactor = Redactor::new(["p\u{e4}ss+w<o>rd-2718"]);
    for form in [
        "p\u{e4}ss+w<o>rd-2718",
        r"p\u00e4ss+w<o>rd-2718",
        r"p\u00e4ss+w\u003co\u003erd-2718",
        r"p\u00E4ss\u002Bw\u003Co\u003Erd-2718",
    ] {
        assert_eq!(redactor.redact_text(form), REDACTED, "{form}");
    }
}

#[test]
fn secret_with_a_soft_line_break_is_found() {
    let secret = "c4n4ry-9f8e7d6c5b4a39281706";
    let redactor = Redactor::new([secret]);
    for end in ["=\r\n", "=\n", "= \r\n", "=\\r\\n"] {
        let text = format!("{}{end}{}", &secret[..16], &secret[16..]);
        assert_eq!(redactor.redact_text(&text), REDACTED, "{text:?}");
    }
}
