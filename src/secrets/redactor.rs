//! Takes secrets out of the output of tools.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use serde_json::Value;

use super::finder::{FEWEST, Finder};
use super::{REDACTED, SHORTEST};
use crate::call::{CallError, Content, JsonObject, Redact, ToolResult, Torn, Violation, shorten};
use crate::sanitize;

/// Number of remembered values. Rotated values stay, because an upstream may still echo them. The oldest are dropped
/// first.
const REMEMBERED: usize = 1024;
/// Number of bytes of a file that are examined together.
const BLOCK: usize = 64 << 10;

/// Knows every secret in all its forms.
#[derive(Default)]
pub struct Redactor {
    forms: ArcSwapOption<Finder>,
    /// The lines of secrets with several lines, for output that arrives line by line.
    lines: ArcSwapOption<Finder>,
    /// The values. The most recently learned ones are at the end.
    known: Mutex<VecDeque<String>>,
    least: usize,
}

impl Redactor {
    /// A redactor of these values in all their forms: see the module `forms`.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of_length(SHORTEST, secrets)
    }

    /// A redactor that also finds values as short as `least` bytes, for texts in which a false match does little
    /// harm.
    pub fn of_length<'a>(least: usize, secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let redactor = Self { least, ..Self::default() };
        redactor.learn(secrets);
        redactor
    }

    /// Adds values, with effect also on calls under way. Values that were learned before are still taken out.
    pub fn learn<'a>(&self, secrets: impl IntoIterator<Item = &'a str>) {
        let secrets: BTreeSet<&str> =
            secrets.into_iter().map(str::trim).filter(|secret| secret.len() >= self.least.max(1)).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if secrets.iter().all(|secret| known.iter().any(|one| one == secret)) {
            return;
        }
        known.retain(|one| !secrets.contains(one.as_str()));
        let forgotten = known.len().saturating_sub(REMEMBERED);
        known.drain(..forgotten);
        known.extend(secrets.into_iter().map(str::to_owned));
        self.forms.store(Finder::new(known.iter().map(String::as_str)).map(Arc::new));
        let is_end = |c| matches!(c, '\n' | '\r');
        let lines = known.iter().filter(|secret| secret.contains(is_end)).flat_map(|secret| secret.split(is_end));
        // The first and last line of a PEM file are not secret, and neither is a short word.
        let lines = lines.map(str::trim).filter(|line| line.len() >= SHORTEST && !line.starts_with("-----"));
        self.lines.store(Finder::new(lines).map(Arc::new));
    }

    /// The text without secrets.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        replaced(&self.forms, text)
    }

    /// Takes secrets out of a text in place.
    pub fn string(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.text(text) {
            *text = clean;
        }
    }

    /// The text without control characters and secrets, cut to `most` bytes plus a short note.
    pub fn shortened(&self, text: &str, most: usize) -> String {
        let mut text = self.excerpt(text, Torn::NOWHERE).into_owned();
        shorten(&mut text, most);
        text
    }

    /// Whether the bytes contain a secret.
    ///
    /// # Errors
    /// The error of the reader.
    pub fn is_in(&self, mut bytes: impl Read) -> io::Result<bool> {
        let Some(finder) = &*self.forms.load() else {
            return io::copy(&mut bytes, &mut io::sink()).map(|_| false);
        };
        let (mut block, mut is_found) = (Vec::new(), false);
        loop {
            let read = bytes.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
            if read == 0 {
                return Ok(is_found);
            }
            is_found = is_found || finder.is_in(&block);
            // Keeps the end of this block, because a secret may extend into the next one.
            block.drain(..block.len().saturating_sub(finder.longest() - 1));
        }
    }

    /// Takes secrets out of the output of a running tool. A program sends its output line by line, so a secret of
    /// several lines never appears as a whole. So each of its lines is searched for.
    pub fn progress(&self, data: &mut Value) {
        replace_in(&self.forms, data);
        replace_in(&self.lines, data);
    }

    /// The JSON of these arguments without secrets, for the record: a model may have learned one from a tool that it calls.
    pub fn arguments(&self, arguments: &JsonObject) -> String {
        let written = |arguments: &JsonObject| serde_json::to_string(arguments).unwrap_or_default();
        let text = written(arguments);
        if matches!(self.text(&text), Cow::Borrowed(_)) {
            return text;
        }
        // Each text by itself: replaced in the whole JSON, a match could end within its syntax.
        let mut value = Value::Object(arguments.clone());
        replace_in(&self.forms, &mut value);
        value.to_string()
    }

    /// Takes secrets out of a result. The data of images, audio and files is not searched here. [`Redactor::is_in`]
    /// searches it after decoding.
    pub fn result(&self, result: &mut ToolResult) {
        if self.forms.load().is_none() {
            return;
        }
        for block in &mut result.content {
            match block {
                Content::Text { text } => self.string(text),
                Content::Image { mime_type, .. } | Content::Audio { mime_type, .. } => self.string(mime_type),
                Content::Resource { resource } => {
                    self.string(&mut resource.uri);
                    resource.mime_type.iter_mut().chain(&mut resource.text).for_each(|held| self.string(held));
                }
            }
        }
        if let Some(value) = &mut result.structured_content {
            replace_in(&self.forms, value);
        }
        if let Some(hint) = &mut result.hint {
            self.string(hint);
        }
    }

    /// All ranges of a text that must be hidden, in order. `least`: see [`Finder::find`].
    fn hidden(&self, text: &str, torn: Torn, least: usize) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for finder in [&self.forms, &self.lines] {
            if let Some(finder) = &*finder.load() {
                finder.find(text.as_bytes(), torn, least, &mut found);
            }
        }
        merged(text, found)
    }

    /// Takes secrets out of a failure.
    pub fn error(&self, error: &mut CallError) {
        match error {
            CallError::ToolUnavailable { message, .. }
            | CallError::UpstreamFailed { message, .. }
            | CallError::BadOutput(message)
            | CallError::InvalidContext(message) => self.string(message),
            CallError::UnreadableArguments(unreadable) => {
                self.string(&mut unreadable.what);
                self.string(&mut unreadable.correction);
            }
            CallError::InvalidArguments(violations) => {
                for Violation { pointer, keyword, message, schema_pointer } in violations {
                    [pointer, keyword, message, schema_pointer].into_iter().for_each(|part| self.string(part));
                }
            }
            CallError::Forbidden { .. }
            | CallError::Denied { .. }
            | CallError::ToolDisabled { .. }
            | CallError::DefinitionChanged { .. }
            | CallError::KeyMissing { .. }
            | CallError::NoStoredResult { .. }
            | CallError::IdempotencyInProgress { .. }
            | CallError::IdempotencyMismatch { .. }
            | CallError::OutcomeUnknown { .. }
            | CallError::Kept { .. }
            | CallError::RepeatedCall { .. }
            | CallError::UsageLimitReached { .. }
            | CallError::Overloaded { .. }
            | CallError::Draining
            | CallError::LedgerUnavailable { .. }
            | CallError::DeadlineExceeded { .. }
            | CallError::AttemptTimedOut { .. }
            | CallError::Cancelled { .. }
            | CallError::Internal => {}
        }
    }
}

impl Redact for Redactor {
    fn excerpt<'t>(&self, text: &'t str, torn: Torn) -> Cow<'t, str> {
        self.excerpt_between("", text, "", torn)
    }

    fn excerpt_between<'t>(&self, before: &str, text: &'t str, after: &str, torn: Torn) -> Cow<'t, str> {
        let text = sanitize::text(text);
        let (before, after) = (sanitize::text(before), sanitize::text(after));
        let around = match before.is_empty() && after.is_empty() {
            true => Cow::Borrowed(&*text),
            false => Cow::Owned([&*before, &*text, &*after].concat()),
        };
        let mut shown = before.len()..before.len() + text.len();
        let mut hidden = self.hidden(&around, torn, FEWEST);
        hidden.retain(|range| range.start < shown.end && shown.start < range.end);
        if hidden.is_empty() {
            return text;
        }
        // The part of a form at a cut may be no part of a secret. So it is removed, and no mark replaces it.
        hidden.retain(|range| {
            let (at_start, at_end) = (torn.start && range.start == 0, torn.end && range.end == around.len());
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
        // A form that extends beyond the shown part is only partly in it, so its range is limited to that part.
        for range in &mut hidden {
            *range = range.start.max(shown.start)..range.end.min(shown.end);
        }
        Cow::Owned(without(&around, shown, &hidden))
    }

    fn reach(&self) -> usize {
        let longest = |finder: &ArcSwapOption<Finder>| finder.load().as_ref().map_or(0, |finder| finder.longest());
        // A form also covers one character beside it and up to three of padding.
        match longest(&self.forms).max(longest(&self.lines)) {
            0 => 0,
            longest => longest + 4,
        }
    }

    fn settled(&self, text: &str, end: usize) -> usize {
        let end = before_escape(text, end);
        // If the first bytes of a secret were sent now, the remaining bytes could not be recognized later.
        let hidden = self.hidden(text, Torn::END, 1);
        let across = |range: &&Range<usize>| range.start < end && (end < range.end || range.end == text.len());
        hidden.iter().find(across).map_or(end, |range| range.start)
    }
}

/// The start of an escape of quoted-printable (`=3D`) that `end` divides. An incomplete escape has no meaning yet.
fn before_escape(text: &str, end: usize) -> usize {
    let escape = text.as_bytes()[..end].iter().rev().take(2).position(|byte| *byte == b'=');
    escape.map_or(end, |back| end - back - 1)
}

fn replaced<'t>(finder: &ArcSwapOption<Finder>, text: &'t str) -> Cow<'t, str> {
    let mut found = Vec::new();
    if let Some(finder) = &*finder.load() {
        finder.find(text.as_bytes(), Torn::NOWHERE, FEWEST, &mut found);
    }
    match found.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(without(text, 0..text.len(), &merged(text, found))),
    }
}

/// The ranges in order, with overlapping ones merged, extended to whole characters.
fn merged(text: &str, mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
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
fn without(text: &str, part: Range<usize>, hidden: &[Range<usize>]) -> String {
    let (mut shown, mut at) = (String::with_capacity(part.len()), part.start);
    for range in hidden {
        shown.push_str(&text[at..range.start]);
        shown.push_str(REDACTED);
        at = range.end;
    }
    shown.push_str(&text[at..part.end]);
    shown
}

fn replace_in(finder: &ArcSwapOption<Finder>, value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = replaced(finder, text) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace_in(finder, item)),
        Value::Object(object) => {
            object.values_mut().for_each(|inner| replace_in(finder, inner));
            if object.keys().any(|key| matches!(replaced(finder, key), Cow::Owned(_))) {
                let old = std::mem::take(object);
                object.extend(old.into_iter().map(|(key, value)| (replaced(finder, &key).into_owned(), value)));
            }
        }
        Value::Number(number) => {
            if finder.load().as_ref().is_some_and(|finder| finder.has_numbers())
                && let Cow::Owned(clean) = replaced(finder, &number.to_string())
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

    #[test]
    fn a_secret_is_found_in_every_form() {
        let secret = "p@ss/word+\"42\"";
        let redactor = Redactor::new([secret]);
        let mut result = ToolResult::json(serde_json::json!({
            "raw": format!("key={secret};"), "base64": BASE64_STANDARD.encode(secret),
            "url": utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(), secret: [secret],
            "path": utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string().to_lowercase(), "hex": hex::encode_upper(secret),
        }));
        redactor.result(&mut result);
        let said = serde_json::to_string(&result).unwrap();
        assert!(!said.contains("word") && !said.contains(&hex::encode_upper("word")), "{said}");
        assert!(said.contains("key=[redacted];"), "{said}");
    }

    #[test]
    fn what_was_a_secret_stays_one_when_others_are_learnt() {
        let redactor = Redactor::new(["first-secret"]);
        redactor.learn(["second-secret", "second-secret"]);
        assert_eq!(redactor.text("first-secret second-secret third-secret"), "[redacted] [redacted] third-secret");
        let rotated: Vec<String> = (0..REMEMBERED).map(|n| format!("rotated-{n:08}")).collect();
        redactor.learn(rotated.iter().map(String::as_str));
        redactor.learn(["another-secret"]);
        assert_eq!(redactor.text("first-secret another-secret"), "first-secret [redacted]");
        assert_eq!(redactor.text("rotated-00000000"), "[redacted]");
    }

    #[test]
    fn a_secret_of_several_lines_is_found_line_by_line_in_what_is_told_on_the_way() {
        let redactor =
            Redactor::new(["-----BEGIN KEY-----\nMIIEvQIBADANBg\n  kqhkiG9w0BAQEF\nAA==\n-----END KEY-----"]);
        let mut told = serde_json::json!({"stderr": "KEY=MIIEvQIBADANBg", "lines": ["-----BEGIN KEY-----", "kqhkiG9w0BAQEF", "AA=="]});
        redactor.progress(&mut told);
        let clean = serde_json::json!({"stderr": "KEY=[redacted]", "lines": ["-----BEGIN KEY-----", REDACTED, "AA=="]});
        assert_eq!(told, clean);
        assert_eq!(redactor.text("MIIEvQIBADANBg"), "MIIEvQIBADANBg", "a result is looked at as a whole");
    }

    #[test]
    fn short_values_are_left_alone() {
        assert_eq!(Redactor::new(["eu"]).text("neutral"), "neutral");
    }

    #[test]
    fn a_new_value_beside_a_known_one_is_learnt() {
        let redactor = Redactor::new(["first-secret"]);
        redactor.learn(["first-secret", "second-secret"]);
        assert_eq!(redactor.text("first-secret second-secret"), "[redacted] [redacted]");
        redactor.learn(["second-secret", "third-secret"]);
        assert_eq!(redactor.text("first-secret second-secret third-secret"), "[redacted] [redacted] [redacted]");
    }

    #[test]
    fn values_that_overlap_are_hidden_whole() {
        let redactor = Redactor::new(["abcdefgh", "ghijklmnop", "12345678", "12345678ABCDEFGH"]);
        assert_eq!(redactor.text("<abcdefghijklmnop>"), "<[redacted]>");
        assert_eq!(redactor.text("<12345678ABCDEFGH> <12345678ABC>"), "<[redacted]> <[redacted]ABC>");
        // Half of the second secret follows the end of the first, across a cut.
        assert_eq!(redactor.excerpt("<abcdefghijkl", Torn::END), "<");
        assert_eq!(redactor.excerpt("defghijklmnop>", Torn::START), ">");
        assert_eq!(redactor.excerpt("12345678ABC", Torn::END), "");
    }

    #[test]
    fn values_side_by_side_are_told_apart() {
        let redactor = Redactor::new(["abcdefgh", "ijklmnop"]);
        assert_eq!(redactor.text("abcdefghijklmnop"), "[redacted][redacted]");
    }

    #[test]
    fn cuts_hide_what_they_touch_alone() {
        let redactor = Redactor::new(["abcdefgh"]);
        for (text, torn, shown) in [
            ("abcdefgh 1", Torn::NOWHERE, "[redacted] 1"),
            ("1 abcdefgh", Torn::NOWHERE, "1 [redacted]"),
            ("1 abcdefgh 2 efgh", Torn::START, "1 [redacted] 2 efgh"),
            ("abcd 1 abcdefgh 2", Torn::END, "abcd 1 [redacted] 2"),
            ("efgh 1 abcdefgh 2", Torn::START, " 1 [redacted] 2"),
        ] {
            assert_eq!(redactor.excerpt(text, torn), shown, "{text} {torn:?}");
        }
    }

    #[test]
    fn texts_are_divided_outside_of_values() {
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
            assert_eq!(redactor.settled(text, end), settled, "{text} at {end}");
        }
    }

    #[test]
    fn long_texts_are_clean_before_they_are_cut() {
        let redactor = Redactor::new(["abcdefgh"]);
        let shown = redactor.shortened(&format!("1\u{1b}[0m abcdefgh {}", "x".repeat(99)), 24);
        assert!(shown.starts_with("1") && shown.contains(" [redacted] x") && !shown.contains('\u{1b}'), "{shown}");
        assert!(!shown.contains(&"x".repeat(24)), "{shown}");
        assert_eq!(redactor.shortened("abcdefgh", 99), REDACTED);
    }

    #[test]
    fn beginnings_of_values_are_no_values() {
        let redactor = Redactor::new(["0123456789-0123456789-0123456789"]);
        assert!(!redactor.is_in(&b"0123456789-0123456789-012345678."[..]).unwrap());
        assert!(redactor.is_in(&b"0123456789-0123456789-0123456789."[..]).unwrap());
    }

    #[test]
    fn base64_of_longer_texts_is_found_at_every_offset() {
        let redactor = Redactor::new(["hunter2-hunter2"]);
        for before in ["", "u", "us", "use", "user:"] {
            for engine in [BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD] {
                let text = engine.encode(format!("{before}hunter2-hunter2\u{3ff}>?"));
                let shown = redactor.text(&text).into_owned();
                assert!(shown.contains(REDACTED), "{before}: {shown}");
                // The remaining text does not show where the value begins or ends.
                let (left, right) = shown.split_once(REDACTED).unwrap();
                assert!(left.len() <= before.len() * 4 / 3 && right.len() <= 10, "{before}: {shown}");
            }
        }
    }

    #[test]
    fn encodings_of_other_writers_are_found() {
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
            assert!(redactor.text(form).contains(REDACTED), "{form}");
        }
        assert!(redactor.is_in(&*utf_16).unwrap());
        let mut result = ToolResult::json(serde_json::json!({"n": [31_415_926_535_u64, 3]}));
        redactor.result(&mut result);
        assert_eq!(result.structured_content, Some(serde_json::json!({"n": [REDACTED, 3]})));
    }

    #[test]
    fn violations_hold_no_secret() {
        let violation = |text: &str| Violation {
            pointer: format!("/{text}"),
            keyword: "python".into(),
            message: format!("`{text}` is no city"),
            schema_pointer: format!("/properties/{text}"),
        };
        let mut error = CallError::InvalidArguments(vec![violation("first-secret"), violation("first-secret")]);
        Redactor::new(["first-secret"]).error(&mut error);
        assert_eq!(error, CallError::InvalidArguments(vec![violation(REDACTED), violation(REDACTED)]));
    }
}
