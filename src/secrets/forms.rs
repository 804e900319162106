//! The encodings in which a secret may appear in output.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use url::form_urlencoded;

use super::condensed;

/// RFC 3986: characters that need no encoding are not encoded.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The same for a path, as in Python's `urllib.parse.quote`.
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');
/// `application/x-www-form-urlencoded`, as in the URL standard.
const FORM: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'*');
/// RFC 4648, section 4.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// RFC 4648, section 6.
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// Values of at least this many bytes are also searched in upper and lower case. A shorter value
/// may be an ordinary word in another case.
const MIN_CASELESS_LENGTH: usize = 16;
/// Minimum number of characters of an encoding. Fewer characters would also be found in ordinary
/// text.
const MIN_ENCODED_LENGTH: usize = 8;

/// Whether the characters beside an encoded value contain some of its bits: one before it, one
/// after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NeighborBits {
    pub(super) before: bool,
    pub(super) after: bool,
}

/// All forms of the values.
#[derive(Default)]
pub(super) struct Forms(pub(super) BTreeMap<Box<[u8]>, NeighborBits>);

impl Forms {
    /// Adds the forms of a value.
    pub(super) fn add_value(&mut self, secret: &str) {
        self.insert_plain(secret);
        // The output of `sanitize`, which ends lines with `\n`.
        self.insert_plain(&crate::text::sanitize::clean_text(secret));
        // The condensed value, as the finder sees a value with insertions.
        condensed::condense_value(secret).for_each(|value| self.insert_plain(&value));
        if secret.len() >= MIN_CASELESS_LENGTH {
            self.insert_plain(&secret.to_lowercase());
            self.insert_plain(&secret.to_uppercase());
        }
        self.insert_base64(secret);
        // OAuth encodes a secret as a form field before it is part of basic authentication (RFC
        // 6749, 2.3.1).
        let form_field: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        if form_field != secret {
            self.insert_bit_encoding(form_field.as_bytes(), 6, BASE64);
        }
        self.insert_bit_encoding(secret.as_bytes(), 5, BASE32);
        self.insert_plain(&hex::encode(secret));
        self.insert_plain(&hex::encode_upper(secret));
        self.insert_utf_16(secret);
        self.insert_percent_encoding(secret);
        let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
        self.insert_plain(&percent.to_lowercase());
        self.insert_plain(&percent);
        self.insert_json_escapes(secret);
        self.insert_html_escapes(secret);
    }

    fn insert_plain(&mut self, form: &str) {
        self.insert(form.as_bytes(), NeighborBits::default());
    }

    fn insert(&mut self, form: &[u8], neighbors: NeighborBits) {
        if !form.is_empty() {
            let known = self.0.entry(form.into()).or_default();
            *known = NeighborBits {
                before: known.before || neighbors.before,
                after: known.after || neighbors.after,
            };
        }
    }

    /// Adds base64 in both alphabets, of the value alone or within a longer text. It also adds
    /// base64 of that base64. Container registries write `auth` in their settings as base64, and a
    /// Kubernetes secret encodes those settings again.
    fn insert_base64(&mut self, secret: &str) {
        if secret.len() < MIN_ENCODED_LENGTH {
            for form in [
                BASE64_STANDARD.encode(secret),
                BASE64_URL_SAFE.encode(secret),
            ] {
                self.insert_plain(form.trim_end_matches('='));
                self.insert_plain(&form);
            }
        }
        for inner in self.insert_bit_encoding(secret.as_bytes(), 6, BASE64) {
            self.insert_percent_encoding(&inner);
            self.insert_bit_encoding(inner.as_bytes(), 6, BASE64);
        }
    }

    /// Adds the encodings of the value within longer data, for each position at which it may begin
    /// in a group of bytes. A form consists of the characters that depend on the value alone, in
    /// both alphabets of base64 or both cases of base32.
    fn insert_bit_encoding(&mut self, value: &[u8], width: usize, alphabet: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        // A group is the smallest number of bytes that makes whole characters: 3 for base64, 5 for
        // base32.
        for shift in 0..(if width == 6 { 3 } else { width }) {
            let (begin, end) = (shift * 8, (shift + value.len()) * 8);
            let bit = |at: usize| (value[at / 8 - shift] >> (7 - at % 8)) & 1;
            let character = |at: usize| {
                let index = (at * width..(at + 1) * width)
                    .fold(0, |index, at| (index << 1) | usize::from(bit(at)));
                char::from(alphabet[index])
            };
            let form: String = (begin.div_ceil(width)..end / width)
                .map(character)
                .collect();
            if form.len() < MIN_ENCODED_LENGTH {
                continue;
            }
            let neighbors = NeighborBits {
                before: !begin.is_multiple_of(width),
                after: !end.is_multiple_of(width),
            };
            let other = if width == 6 {
                form.replace('+', "-").replace('/', "_")
            } else {
                form.to_lowercase()
            };
            for form in [other, form] {
                self.insert(form.as_bytes(), neighbors);
                if !found.contains(&form) {
                    found.push(form);
                }
            }
        }
        found
    }

    /// Adds UTF-16 in both byte orders, also as base64. PDF documents and PowerShell write it.
    fn insert_utf_16(&mut self, secret: &str) {
        for order in [u16::to_le_bytes, u16::to_be_bytes] {
            let bytes: Vec<u8> = secret.encode_utf16().flat_map(order).collect();
            self.insert(&bytes, NeighborBits::default());
            self.insert_bit_encoding(&bytes, 6, BASE64);
        }
    }

    fn insert_percent_encoding(&mut self, text: &str) {
        for unencoded in [NON_ALPHANUMERIC, UNRESERVED, PATH, FORM] {
            let encoded = utf8_percent_encode(text, unencoded).to_string();
            self.insert_plain(&lowercase_percent_escapes(&encoded));
            self.insert_plain(&encoded.replace("%20", "+"));
            self.insert_plain(&encoded);
        }
    }

    /// Adds the content of a JSON string as different writers escape it, and of such a string
    /// within another one.
    fn insert_json_escapes(&mut self, secret: &str) {
        let plain = escape_json(secret);
        type IsEscaped = fn(char) -> bool;
        let escapes: [(&str, IsEscaped); 4] = [
            (&plain, |c| !c.is_ascii()),
            (&plain, |c| !c.is_ascii() || "<>&'".contains(c)),
            // .NET escapes these characters by default.
            (&plain, |c| !c.is_ascii() || "<>&'+`".contains(c)),
            (secret, |_| true),
        ];
        for (text, is_escaped) in escapes {
            for escape in [
                |unit| format!("\\u{unit:04x}"),
                |unit| format!("\\u{unit:04X}"),
            ] {
                self.insert_plain(&unicode_escapes(text, is_escaped, escape));
            }
        }
        self.insert_plain(&plain.replace('/', "\\/"));
        self.insert_plain(&escape_json(&plain));
        self.insert_plain(&plain);
    }

    /// Adds the usual escapes of HTML and XML, and numeric references of some or all characters,
    /// each also inside a JSON string.
    fn insert_html_escapes(&mut self, secret: &str) {
        let minimal = secret
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let double = minimal.replace('"', "&quot;");
        let mut forms: Vec<String> = ["&#39;", "&#039;", "&#x27;", "&apos;"]
            .map(|single| double.replace('\'', single))
            .into();
        let numeric = minimal.replace('"', "&#34;").replace('\'', "&#39;");
        // Go's templates also write this one.
        forms.extend([numeric.replace('+', "&#43;"), numeric, minimal, double]);
        let always: fn(char) -> bool = |_| true;
        for is_written in [always, |c| !c.is_ascii_alphanumeric()] {
            let references = |reference: fn(u32) -> String| -> String {
                let written = |c: char| {
                    if is_written(c) {
                        reference(c.into())
                    } else {
                        c.into()
                    }
                };
                secret.chars().map(written).collect()
            };
            forms.push(references(|number| format!("&#{number};")));
            forms.push(references(|number| format!("&#x{number:x};")));
            forms.push(references(|number| format!("&#x{number:X};")));
        }
        for form in forms {
            self.insert_plain(&escape_json(&form));
            self.insert_plain(&form);
        }
    }
}

/// The text as the content of a JSON string.
fn escape_json(text: &str) -> String {
    let json = Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}

/// The text with these characters as escapes of their UTF-16.
fn unicode_escapes(text: &str, is_escaped: fn(char) -> bool, escape: fn(u16) -> String) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match is_escaped(c) {
            true => out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| escape(*unit))),
            false => out.push(c),
        }
    }
    out
}

/// The same text with its percent escapes in lower case.
fn lowercase_percent_escapes(encoded: &str) -> String {
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
