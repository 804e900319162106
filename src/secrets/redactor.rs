//! Removes secrets from the output of tools.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde_json::Value;

use super::finder::{Finder, MIN_CUT_LENGTH};
use super::{MIN_SECRET_LENGTH, REDACTED};
use crate::call::{CallError, Content, CutEnds, JsonObject, Redact, ToolResult, shorten_text};
use crate::text::sanitize;

/// Number of remembered values. Rotated values stay, because an upstream may still echo them. The
/// oldest are dropped first.
const MAX_VALUES: usize = 1024;
/// Number of bytes of a file that are examined together.
const BLOCK_SIZE: usize = 64 << 10;

/// Knows every secret in all its forms.
#[derive(Default)]
pub struct Redactor {
    finder: ArcSwapOption<Finder>,
    /// The lines of secrets with several lines, for output that arrives line by line.
    line_finder: ArcSwapOption<Finder>,
    values: Mutex<Values>,
    min_length: usize,
}

/// The values that are searched for.
#[derive(Default)]
struct Values {
    /// Values that stay. The most recently added ones are at the end.
    lasting: VecDeque<String>,
    /// Values that their owner removes, such as access tokens. They never displace a lasting value.
    temporary: Vec<String>,
}

impl Redactor {
    /// A redactor of these values in all their forms: see the module `forms`.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        Self::with_min_length(MIN_SECRET_LENGTH, secrets)
    }

    /// A redactor that also finds values as short as `min_length` bytes, for texts in which a false
    /// match does little harm.
    pub fn with_min_length<'a>(
        min_length: usize,
        secrets: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let redactor = Self {
            min_length,
            ..Self::default()
        };
        redactor.add_secrets(secrets);
        redactor
    }

    /// Adds values, with effect also on calls in flight. Values that were added before are still
    /// removed.
    pub fn add_secrets<'a>(&self, secrets: impl IntoIterator<Item = &'a str>) {
        let secrets: BTreeSet<&str> = secrets
            .into_iter()
            .map(str::trim)
            .filter(|secret| secret.len() >= self.min_length.max(1))
            .collect();
        let mut values = self.values.lock();
        let lasting = &mut values.lasting;
        if secrets
            .iter()
            .all(|secret| lasting.iter().any(|value| value == secret))
        {
            return;
        }
        lasting.retain(|value| !secrets.contains(value.as_str()));
        let excess = lasting.len().saturating_sub(MAX_VALUES);
        lasting.drain(..excess);
        lasting.extend(secrets.into_iter().map(str::to_owned));
        self.build_finders(&values);
    }

    /// Replaces temporary values, with effect also on calls in flight. A value that was added twice
    /// must be removed twice.
    pub fn replace_temporary_secrets(&self, removed: &[String], added: &[String]) {
        let mut values = self.values.lock();
        for value in removed {
            if let Some(at) = values.temporary.iter().position(|known| known == value) {
                values.temporary.swap_remove(at);
            }
        }
        values.temporary.extend_from_slice(added);
        self.build_finders(&values);
    }

    fn build_finders(&self, values: &Values) {
        let is_long = |value: &&str| value.len() >= self.min_length.max(1);
        let values = || {
            values
                .lasting
                .iter()
                .chain(&values.temporary)
                .map(String::as_str)
                .filter(is_long)
        };
        self.finder.store(Finder::new(values()).map(Arc::new));
        let is_end = |c| matches!(c, '\n' | '\r');
        let lines = values()
            .filter(|secret| secret.contains(is_end))
            .flat_map(|secret| secret.split(is_end));
        // The first and last line of a PEM file are not secret, and neither is a short word.
        let lines = lines
            .map(str::trim)
            .filter(|line| line.len() >= MIN_SECRET_LENGTH && !line.starts_with("-----"));
        self.line_finder.store(Finder::new(lines).map(Arc::new));
    }

    /// The text without secrets.
    pub fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        redact_with(&self.finder, text)
    }

    /// Removes secrets from a text in place.
    pub fn redact_string(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.redact_text(text) {
            *text = clean;
        }
    }

    /// The text without control characters and secrets, cut to `max_bytes` bytes plus a short note.
    pub fn redact_and_shorten(&self, text: &str, max_bytes: usize) -> String {
        let mut text = self.excerpt(text, CutEnds::NONE).into_owned();
        shorten_text(&mut text, max_bytes);
        text
    }

    /// Whether the bytes contain a secret.
    ///
    /// # Errors
    /// The error of the reader.
    pub fn is_secret_in(&self, mut bytes: impl Read) -> io::Result<bool> {
        let Some(finder) = &*self.finder.load() else {
            return io::copy(&mut bytes, &mut io::sink()).map(|_| false);
        };
        let (mut block, mut is_found) = (Vec::new(), false);
        loop {
            let read = bytes
                .by_ref()
                .take(BLOCK_SIZE as u64)
                .read_to_end(&mut block)?;
            if read == 0 {
                return Ok(is_found);
            }
            is_found = is_found || finder.is_match(&block);
            // Keeps the end of this block, because a secret may extend into the next one.
            block.drain(..block.len().saturating_sub(finder.max_match_length() - 1));
        }
    }

    /// Removes secrets from progress data, schemas and annotations. A program sends its output line
    /// by line, so a secret of several lines never appears as a whole. So each of its lines is
    /// searched for.
    pub fn redact_json(&self, data: &mut Value) {
        redact_value(&self.finder, data);
        redact_value(&self.line_finder, data);
    }

    /// The JSON of these arguments without secrets, for the record: a model may have learned one
    /// from a tool that it calls.
    pub fn redact_arguments(&self, arguments: &JsonObject) -> String {
        let to_json = |arguments: &JsonObject| serde_json::to_string(arguments).unwrap_or_default();
        let text = to_json(arguments);
        if matches!(self.redact_text(&text), Cow::Borrowed(_)) {
            return text;
        }
        // Each text by itself: replaced in the whole JSON, a match could end within its syntax.
        let mut value = Value::Object(arguments.clone());
        redact_value(&self.finder, &mut value);
        value.to_string()
    }

    /// Removes secrets from a result. The data of images, audio and files is not searched here.
    /// [`Redactor::is_secret_in`] searches it after decoding.
    pub fn redact_result(&self, result: &mut ToolResult) {
        if self.finder.load().is_none() {
            return;
        }
        for block in &mut result.content {
            match block {
                Content::Text { text } => self.redact_string(text),
                Content::Image { mime_type, .. } | Content::Audio { mime_type, .. } => {
                    self.redact_string(mime_type);
                }
                Content::ResourceLink(link) => {
                    link.texts_mut().for_each(|text| self.redact_string(text));
                }
                Content::Resource { resource } => {
                    self.redact_string(&mut resource.uri);
                    resource
                        .mime_type
                        .iter_mut()
                        .chain(&mut resource.text)
                        .for_each(|field| self.redact_string(field));
                }
            }
        }
        if let Some(value) = &mut result.structured_content {
            redact_value(&self.finder, value);
        }
        if let Some(hint) = &mut result.hint {
            self.redact_string(hint);
        }
    }

    /// All ranges of a text that must be hidden, in order. `min_length`: see
    /// [`Finder::find_ranges`].
    fn secret_ranges(&self, text: &str, cut: CutEnds, min_length: usize) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for finder in [&self.finder, &self.line_finder] {
            if let Some(finder) = &*finder.load() {
                finder.find_ranges(text.as_bytes(), cut, min_length, &mut found);
            }
        }
        merge_ranges(text, found)
    }

    /// A text of another program without control characters and secrets.
    pub fn clean_and_redact(&self, text: &str) -> String {
        self.redact_text(&sanitize::clean_text(text)).into_owned()
    }

    /// Removes secrets from a failure.
    pub fn redact_error(&self, error: &mut CallError) {
        for text in error.foreign_texts() {
            self.redact_string(text);
        }
    }
}

impl Redact for Redactor {
    fn redact_progress(&self, data: &mut Value) {
        self.redact_json(data);
    }

    fn excerpt<'t>(&self, text: &'t str, cut: CutEnds) -> Cow<'t, str> {
        self.excerpt_between("", text, "", cut)
    }

    fn excerpt_between<'t>(
        &self,
        before: &str,
        text: &'t str,
        after: &str,
        cut: CutEnds,
    ) -> Cow<'t, str> {
        let text = sanitize::clean_text(text);
        let (before, after) = (sanitize::clean_text(before), sanitize::clean_text(after));
        let with_context = match before.is_empty() && after.is_empty() {
            true => Cow::Borrowed(&*text),
            false => Cow::Owned([&*before, &*text, &*after].concat()),
        };
        let mut shown = before.len()..before.len() + text.len();
        let mut hidden = self.secret_ranges(&with_context, cut, MIN_CUT_LENGTH);
        hidden.retain(|range| range.start < shown.end && shown.start < range.end);
        if hidden.is_empty() {
            return text;
        }
        // The part of a form at a cut may be no part of a secret. So it is removed, and no mark
        // replaces it.
        hidden.retain(|range| {
            let (at_start, at_end) = (
                cut.start && range.start == 0,
                cut.end && range.end == with_context.len(),
            );
            if at_start {
                shown.start = shown.start.max(range.end);
            }
            if at_end {
                shown.end = shown.end.min(range.start);
            }
            !at_start && !at_end
        });
        if shown.start >= shown.end {
            return Cow::Borrowed("");
        }
        // A form that extends beyond the shown part is only partly in it, so its range is limited
        // to that part.
        for range in &mut hidden {
            *range = range.start.max(shown.start)..range.end.min(shown.end);
        }
        Cow::Owned(replace_ranges(&with_context, shown, &hidden))
    }

    fn max_secret_len(&self) -> usize {
        let length = |finder: &ArcSwapOption<Finder>| {
            finder
                .load()
                .as_ref()
                .map_or(0, |finder| finder.max_match_length())
        };
        // A form also covers one character beside it and up to three of padding.
        match length(&self.finder).max(length(&self.line_finder)) {
            0 => 0,
            length => length + 4,
        }
    }

    fn safe_split(&self, text: &str, end: usize) -> usize {
        let end = exclude_cut_escape(text, end);
        // If the first bytes of a secret were sent now, the remaining bytes could not be recognized
        // later.
        let hidden = self.secret_ranges(text, CutEnds::END, 1);
        let across = |range: &&Range<usize>| {
            range.start < end && (end < range.end || range.end == text.len())
        };
        hidden.iter().find(across).map_or(end, |range| range.start)
    }
}

/// The start of an escape of quoted-printable (`=3D`) that `end` divides. An incomplete escape has
/// no meaning yet.
fn exclude_cut_escape(text: &str, end: usize) -> usize {
    let escape = text.as_bytes()[..end]
        .iter()
        .rev()
        .take(2)
        .position(|byte| *byte == b'=');
    escape.map_or(end, |back| end - back - 1)
}

fn redact_with<'t>(finder: &ArcSwapOption<Finder>, text: &'t str) -> Cow<'t, str> {
    let mut found = Vec::new();
    if let Some(finder) = &*finder.load() {
        finder.find_ranges(text.as_bytes(), CutEnds::NONE, MIN_CUT_LENGTH, &mut found);
    }
    match found.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(replace_ranges(
            text,
            0..text.len(),
            &merge_ranges(text, found),
        )),
    }
}

/// The ranges in order, with overlapping ones merged, extended to whole characters.
fn merge_ranges(text: &str, mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    for range in &mut found {
        *range = text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end);
    }
    found.sort_unstable_by_key(|range| range.start);
    found.dedup_by(|next, last| {
        let overlaps = next.start < last.end;
        if overlaps {
            last.end = last.end.max(next.end);
        }
        overlaps
    });
    found
}

/// A part of the text, with a mark in place of each range.
fn replace_ranges(text: &str, part: Range<usize>, hidden: &[Range<usize>]) -> String {
    let (mut shown, mut at) = (String::with_capacity(part.len()), part.start);
    for range in hidden {
        shown.push_str(&text[at..range.start]);
        shown.push_str(REDACTED);
        at = range.end;
    }
    shown.push_str(&text[at..part.end]);
    shown
}

fn redact_value(finder: &ArcSwapOption<Finder>, value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = redact_with(finder, text) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact_value(finder, item)),
        Value::Object(object) => {
            object
                .values_mut()
                .for_each(|inner| redact_value(finder, inner));
            if object
                .keys()
                .any(|key| matches!(redact_with(finder, key), Cow::Owned(_)))
            {
                let old = std::mem::take(object);
                object.extend(
                    old.into_iter()
                        .map(|(key, value)| (redact_with(finder, &key).into_owned(), value)),
                );
            }
        }
        Value::Number(number) => {
            if finder
                .load()
                .as_ref()
                .is_some_and(|finder| finder.has_numbers())
                && let Cow::Owned(clean) = redact_with(finder, &number.to_string())
            {
                *value = Value::String(clean);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

    use super::*;
    use crate::call::UpstreamFailure;
    use crate::call::Violation;
    use crate::call::{UpstreamCause, UpstreamReason};

    #[test]
    fn every_encoding_of_a_secret_is_redacted() {
        let secret = "p@ss/word+\"42\"";
        let redactor = Redactor::new([secret]);
        let mut result = ToolResult::json(serde_json::json!({
            "raw": format!("key={secret};"), "base64": BASE64_STANDARD.encode(secret),
            "url": utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(), secret: [secret],
            "path": utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string().to_lowercase(), "hex": hex::encode_upper(secret),
        }));
        redactor.redact_result(&mut result);
        let json = serde_json::to_string(&result).unwrap();
        assert!(
            !json.contains("word") && !json.contains(&hex::encode_upper("word")),
            "{json}"
        );
        assert!(json.contains("key=[redacted];"), "{json}");
    }

    #[test]
    fn learn_keeps_earlier_secrets() {
        let redactor = Redactor::new(["first-secret"]);
        redactor.add_secrets(["second-secret", "second-secret"]);
        assert_eq!(
            redactor.redact_text("first-secret second-secret third-secret"),
            "[redacted] [redacted] third-secret"
        );
        let rotated: Vec<String> = (0..MAX_VALUES).map(|n| format!("rotated-{n:08}")).collect();
        redactor.add_secrets(rotated.iter().map(String::as_str));
        redactor.add_secrets(["another-secret"]);
        assert_eq!(
            redactor.redact_text("first-secret another-secret"),
            "first-secret [redacted]"
        );
        assert_eq!(redactor.redact_text("rotated-00000000"), "[redacted]");
    }

    #[test]
    fn progress_redacts_single_lines_of_a_secret() {
        let redactor = Redactor::new([
            "-----BEGIN KEY-----\nMIIEvQIBADANBg\n  kqhkiG9w0BAQEF\nAA==\n-----END KEY-----",
        ]);
        let mut progress = serde_json::json!({"stderr": "KEY=MIIEvQIBADANBg", "lines": ["-----BEGIN KEY-----", "kqhkiG9w0BAQEF", "AA=="]});
        redactor.redact_json(&mut progress);
        let clean = serde_json::json!({"stderr": "KEY=[redacted]", "lines": ["-----BEGIN KEY-----", REDACTED, "AA=="]});
        assert_eq!(progress, clean);
        assert_eq!(
            redactor.redact_text("MIIEvQIBADANBg"),
            "MIIEvQIBADANBg",
            "a result is searched for the whole secret"
        );
    }

    #[test]
    fn short_values_are_not_redacted() {
        assert_eq!(Redactor::new(["eu"]).redact_text("neutral"), "neutral");
    }

    #[test]
    fn learn_adds_new_values_beside_known_ones() {
        let redactor = Redactor::new(["first-secret"]);
        redactor.add_secrets(["first-secret", "second-secret"]);
        assert_eq!(
            redactor.redact_text("first-secret second-secret"),
            "[redacted] [redacted]"
        );
        redactor.add_secrets(["second-secret", "third-secret"]);
        assert_eq!(
            redactor.redact_text("first-secret second-secret third-secret"),
            "[redacted] [redacted] [redacted]"
        );
    }

    #[test]
    fn overlapping_secrets_get_one_mark() {
        let redactor = Redactor::new(["abcdefgh", "ghijklmnop", "12345678", "12345678ABCDEFGH"]);
        assert_eq!(redactor.redact_text("<abcdefghijklmnop>"), "<[redacted]>");
        assert_eq!(
            redactor.redact_text("<12345678ABCDEFGH> <12345678ABC>"),
            "<[redacted]> <[redacted]ABC>"
        );
        // Half of the second secret follows the end of the first, across a cut.
        assert_eq!(redactor.excerpt("<abcdefghijkl", CutEnds::END), "<");
        assert_eq!(redactor.excerpt("defghijklmnop>", CutEnds::START), ">");
        assert_eq!(redactor.excerpt("12345678ABC", CutEnds::END), "");
    }

    #[test]
    fn adjacent_secrets_get_separate_marks() {
        let redactor = Redactor::new(["abcdefgh", "ijklmnop"]);
        assert_eq!(
            redactor.redact_text("abcdefghijklmnop"),
            "[redacted][redacted]"
        );
    }

    #[test]
    fn excerpt_hides_only_secrets_at_cuts() {
        let redactor = Redactor::new(["abcdefgh"]);
        for (text, cut, shown) in [
            ("abcdefgh 1", CutEnds::NONE, "[redacted] 1"),
            ("1 abcdefgh", CutEnds::NONE, "1 [redacted]"),
            ("1 abcdefgh 2 efgh", CutEnds::START, "1 [redacted] 2 efgh"),
            ("abcd 1 abcdefgh 2", CutEnds::END, "abcd 1 [redacted] 2"),
            ("efgh 1 abcdefgh 2", CutEnds::START, " 1 [redacted] 2"),
        ] {
            assert_eq!(redactor.excerpt(text, cut), shown, "{text} {cut:?}");
        }
    }

    #[test]
    fn safe_split_avoids_secrets() {
        let redactor = Redactor::new(["abcdefgh"]);
        for (text, end, settled) in [
            ("1 abcdefgh 2", 1, 1),
            ("1 abcdefgh 2", 2, 2),
            ("1 abcdefgh 2", 3, 2),
            ("1 abcdefgh 2", 9, 2),
            ("1 abcdefgh 2", 10, 10),
            ("1 abcdefgh 2", 12, 12),
            // More of the secret may follow.
            ("1 abcdefgh", 10, 2),
            ("1 abcd", 6, 2),
            ("1 2 3", 5, 5),
        ] {
            assert_eq!(redactor.safe_split(text, end), settled, "{text} at {end}");
        }
    }

    #[test]
    fn shorten_redacts_before_it_cuts() {
        let redactor = Redactor::new(["abcdefgh"]);
        let shown =
            redactor.redact_and_shorten(&format!("1\u{1b}[0m abcdefgh {}", "x".repeat(99)), 24);
        assert!(
            shown.starts_with("1") && shown.contains(" [redacted] x") && !shown.contains('\u{1b}'),
            "{shown}"
        );
        assert!(!shown.contains(&"x".repeat(24)), "{shown}");
        assert_eq!(redactor.redact_and_shorten("abcdefgh", 99), REDACTED);
    }

    #[test]
    fn prefix_of_a_secret_is_not_redacted() {
        let redactor = Redactor::new(["0123456789-0123456789-0123456789"]);
        assert!(
            !redactor
                .is_secret_in(&b"0123456789-0123456789-012345678."[..])
                .unwrap()
        );
        assert!(
            redactor
                .is_secret_in(&b"0123456789-0123456789-0123456789."[..])
                .unwrap()
        );
    }

    #[test]
    fn base64_is_found_at_every_offset() {
        let redactor = Redactor::new(["hunter2-hunter2"]);
        for before in ["", "u", "us", "use", "user:"] {
            for engine in [BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD] {
                let text = engine.encode(format!("{before}hunter2-hunter2\u{3ff}>?"));
                let shown = redactor.redact_text(&text).into_owned();
                assert!(shown.contains(REDACTED), "{before}: {shown}");
                // The remaining text does not show where the value begins or ends.
                let (left, right) = shown.split_once(REDACTED).unwrap();
                assert!(
                    left.len() <= before.len() * 4 / 3 && right.len() <= 10,
                    "{before}: {shown}"
                );
            }
        }
    }

    #[test]
    fn escapes_of_other_encoders_are_found() {
        let secret = "p@ss<wörd>&'x\"y";
        let redactor = Redactor::new([secret, "0123456789abcdef0123456789abcdef", "31415926535"]);
        let utf_16: Vec<u8> = secret.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for form in [
            "p@ss&lt;wörd&gt;&amp;&#x27;x&quot;y",
            "p@ss&lt;wörd&gt;&amp;&#39;x&#34;y",
            r#"p@ss\u003cw\u00f6rd\u003e\u0026\u0027x\"y"#,
            r#"p@ss<w\u00F6rd>&'x\"y"#,
            r#"p@ss<wörd>&'x\\\"y"#,
            "0123456789ABCDEF0123456789ABCDEF",
            &BASE64_STANDARD.encode(BASE64_STANDARD.encode(format!("user:{secret}"))),
            &BASE64_STANDARD.encode(&utf_16),
        ] {
            assert!(redactor.redact_text(form).contains(REDACTED), "{form}");
        }
        assert!(redactor.is_secret_in(&*utf_16).unwrap());
        let mut result = ToolResult::json(serde_json::json!({"n": [31_415_926_535_u64, 3]}));
        redactor.redact_result(&mut result);
        assert_eq!(
            result.structured_content,
            Some(serde_json::json!({"n": [REDACTED, 3]}))
        );
    }

    #[test]
    fn hosts_of_failures_are_redacted() {
        let mut error = CallError::UpstreamFailed(UpstreamFailure {
            message: "no answer of first-secret".into(),
            retryable: false,
            unavailable: false,
            not_delivered: true,
            retry_after: None,
            cause: Some(UpstreamCause {
                reason: UpstreamReason::NotConnected,
                host: Some("first-secret.example:443".into()),
                body: Some("no first-secret here".into()),
            }),
        });
        Redactor::new(["first-secret"]).redact_error(&mut error);
        assert!(!format!("{error:?}").contains("first-secret"), "{error:?}");
        assert_eq!(
            error.summary(),
            format!("there was no connection to {REDACTED}.example:443")
        );
    }

    #[test]
    fn violations_are_redacted() {
        let violation = |text: &str| Violation {
            pointer: format!("/{text}"),
            keyword: "python".into(),
            message: format!("`{text}` is no city"),
            schema_pointer: format!("/properties/{text}"),
        };
        let mut error =
            CallError::InvalidArguments(vec![violation("first-secret"), violation("first-secret")]);
        Redactor::new(["first-secret"]).redact_error(&mut error);
        assert_eq!(
            error,
            CallError::InvalidArguments(vec![violation(REDACTED), violation(REDACTED)])
        );
    }
}
