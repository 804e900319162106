//! Secrets come in by reference and never go out.
//!
//! `${env:NAME}` and `${file:/path}` in a manifest are replaced when it is read. Every value that came in that way is
//! remembered here, so that it can be taken out of whatever a tool says: an upstream may echo a header back.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use aho_corasick::{AhoCorasick, MatchKind};
use arc_swap::ArcSwapOption;
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::call::{CallError, Content, ToolResult};

/// Put in a secret's place.
pub const REDACTED: &str = "[redacted]";
/// Shorter values, in bytes, are not looked for: `eu` or `8080` would be found in every other answer.
pub const SHORTEST: usize = 8;

/// Values that are remembered after they were rotated away: an upstream may still echo them. The oldest go first.
const REMEMBERED: usize = 1024;

/// RFC 3986: what need not be encoded is not.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// `application/x-www-form-urlencoded`, as the URL standard has it.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*');

/// The same text with its escapes in lower case.
fn lower_escapes(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        out.push('%');
        out.push_str(&digits.to_lowercase());
        out.push_str(rest);
    }
    out
}

/// Knows every secret in the forms it may come back in.
#[derive(Default)]
pub struct Redactor {
    forms: ArcSwapOption<AhoCorasick>,
    /// The lines of secrets that have several, for what is told line by line.
    lines: ArcSwapOption<AhoCorasick>,
    /// The values, those that were learnt last at the end.
    known: Mutex<VecDeque<String>>,
    least: usize,
}

impl Redactor {
    /// A redactor of these values: raw, base64 (all four alphabets), hex and percent-encoded.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of_length(SHORTEST, secrets)
    }

    /// One that also looks for values as short as `least`: for texts in which a false alarm costs little.
    pub fn of_length<'a>(least: usize, secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let redactor = Self { least, ..Self::default() };
        redactor.learn(secrets);
        redactor
    }

    /// Looks for these values too from now on, in calls under way as well: what was a secret stays one.
    pub fn learn<'a>(&self, secrets: impl IntoIterator<Item = &'a str>) {
        let secrets: BTreeSet<&str> =
            secrets.into_iter().map(str::trim).filter(|secret| secret.len() >= self.least).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if secrets.iter().all(|secret| known.iter().any(|one| one == secret)) {
            return;
        }
        known.retain(|one| !secrets.contains(one.as_str()));
        let forgotten = known.len().saturating_sub(REMEMBERED);
        known.drain(..forgotten);
        known.extend(secrets.into_iter().map(str::to_owned));
        self.forms.store(Self::automaton(known.iter().map(String::as_str)).map(Arc::new));
        let lines = known.iter().filter(|secret| secret.contains('\n')).flat_map(|secret| secret.lines());
        // What a PEM file begins and ends with is no secret, nor is a word.
        let lines = lines.map(str::trim).filter(|line| line.len() >= SHORTEST && !line.starts_with("-----"));
        self.lines.store(Self::automaton(lines).map(Arc::new));
    }

    /// Finds every form of these values in one pass.
    fn automaton<'a>(secrets: impl Iterator<Item = &'a str>) -> Option<AhoCorasick> {
        let mut forms = BTreeSet::new();
        for secret in secrets {
            forms.insert(secret.to_owned());
            for engine in [BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD] {
                forms.insert(engine.encode(secret));
            }
            forms.insert(hex::encode(secret));
            forms.insert(hex::encode_upper(secret));
            for kept in [NON_ALPHANUMERIC, UNRESERVED, FORM] {
                let encoded = utf8_percent_encode(secret, kept).to_string();
                forms.insert(lower_escapes(&encoded));
                forms.insert(encoded.replace("%20", "+"));
                forms.insert(encoded);
            }
            let json = Value::from(secret).to_string();
            forms.insert(json[1..json.len() - 1].to_owned());
        }
        if forms.is_empty() {
            return None;
        }
        AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(forms).ok()
    }

    /// The text without secrets.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        replaced(&self.forms, text)
    }

    /// Takes secrets out of a text in its place.
    pub fn string(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.text(text) {
            *text = clean;
        }
    }

    /// Takes secrets out of what a tool tells while it runs. A program tells it line by line, so a secret of several
    /// lines never stands there as a whole: each of its lines is looked for.
    pub fn progress(&self, data: &mut Value) {
        replace_in(&self.forms, data);
        replace_in(&self.lines, data);
    }

    /// Takes secrets out of a result.
    pub fn result(&self, result: &mut ToolResult) {
        if self.forms.load().is_none() {
            return;
        }
        for block in &mut result.content {
            match block {
                Content::Text { text } => self.string(text),
                Content::Image { data, .. } | Content::Audio { data, .. } => self.string(data),
                Content::Resource { resource } => {
                    self.string(&mut resource.uri);
                    resource.text.iter_mut().chain(&mut resource.blob).for_each(|held| self.string(held));
                }
            }
        }
        if let Some(value) = &mut result.structured_content {
            replace_in(&self.forms, value);
        }
    }

    /// Takes secrets out of a failure.
    pub fn error(&self, error: &mut CallError) {
        match error {
            CallError::ToolUnavailable { message, .. }
            | CallError::UpstreamFailed { message, .. }
            | CallError::BadOutput(message) => self.string(message),
            CallError::UnreadableArguments(unreadable) => {
                self.string(&mut unreadable.what);
                self.string(&mut unreadable.correction);
            }
            CallError::InvalidArguments(violations) => {
                violations.iter_mut().for_each(|violation| self.string(&mut violation.message));
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

fn replaced<'t>(forms: &ArcSwapOption<AhoCorasick>, text: &'t str) -> Cow<'t, str> {
    match &*forms.load() {
        Some(forms) if forms.is_match(text) => {
            let mut out = String::with_capacity(text.len());
            forms.replace_all_with(text, &mut out, |_, _, out| {
                out.push_str(REDACTED);
                true
            });
            Cow::Owned(out)
        }
        _ => Cow::Borrowed(text),
    }
}

fn replace_in(forms: &ArcSwapOption<AhoCorasick>, value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = replaced(forms, text) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace_in(forms, item)),
        Value::Object(object) => {
            object.values_mut().for_each(|inner| replace_in(forms, inner));
            if object.keys().any(|key| matches!(replaced(forms, key), Cow::Owned(_))) {
                let old = std::mem::take(object);
                object.extend(old.into_iter().map(|(key, value)| (replaced(forms, &key).into_owned(), value)));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_every_form() {
        let secret = "p@ss/word+\"42\"";
        let redactor = Redactor::new([secret]);
        let mut result = ToolResult::json(serde_json::json!({
            "raw": format!("key={secret};"), "base64": BASE64_STANDARD.encode(secret),
            "url": utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(), secret: [secret],
            "path": utf8_percent_encode(secret, UNRESERVED).to_string().to_lowercase(), "hex": hex::encode_upper(secret),
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
}
