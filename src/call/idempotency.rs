//! Idempotency keys: a caller's name for one request, so that a repetition of the request does not
//! run again (IETF draft draft-ietf-httpapi-idempotency-key-header-06).

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::canonical::canonical_json;
use super::capture::DigestKey;
use super::json::{JsonObject, hash_parts};

/// How long a key is kept after its call has ended.
pub const KEY_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum length of a key, in bytes.
const MAX_KEY_LEN: usize = 255;

/// Whether calls of a tool may or must carry a key.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Idempotency {
    /// A key is ignored.
    Off,
    /// A call may carry a key.
    #[default]
    Optional,
    /// A call without one is refused.
    Required,
}

/// An idempotency key as the ledger stores it. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// Reads the value of the header: a string of RFC 8941 (`"k-1"`) or the bare key. A key has 1
    /// to 255 visible ASCII characters.
    ///
    /// # Errors
    /// What is wrong with the value, as the rest of a sentence that starts with the header's name.
    pub fn parse(value: &[u8]) -> Result<Self, &'static str> {
        let bare = match value {
            [b'"', quoted @ .., b'"'] => unescape_quoted(quoted)?,
            [b'"', ..] => return Err("begins with a quotation mark and does not end with one"),
            bare => bare.to_vec(),
        };
        if !bare.iter().all(u8::is_ascii_graphic) {
            return Err("consists of visible ASCII characters, without spaces");
        }
        if bare.is_empty() || bare.len() > MAX_KEY_LEN {
            return Err("has 1 to 255 characters");
        }
        let text = String::from_utf8(bare)
            .map_err(|_| "consists of visible ASCII characters, without spaces")?;
        Ok(Self(text.into()))
    }

    /// A key for a name that is too long for a key, or has characters that a key cannot have.
    pub fn from_digest(digest: [u8; 32]) -> Self {
        Self(hex::encode(digest).into())
    }

    /// The key as shared text.
    pub fn to_arc(&self) -> Arc<str> {
        self.0.clone()
    }
}

/// RFC 8941, 3.3.3: a backslash precedes only a quotation mark or another backslash.
fn unescape_quoted(quoted: &[u8]) -> Result<Vec<u8>, &'static str> {
    let wrong = "has a quotation mark or a backslash without a backslash before it";
    let mut bytes = quoted.iter().copied();
    let mut plain = Vec::with_capacity(quoted.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => bytes
                .next()
                .filter(|next| matches!(next, b'"' | b'\\'))
                .ok_or(wrong)?,
            b'"' => return Err(wrong),
            other => other,
        });
    }
    Ok(plain)
}

/// Identifies the payload of a request: a digest of definition, arguments and declared fields of
/// the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(Arc<str>);

impl Fingerprint {
    /// The fingerprint of a call. `context` holds the declared fields that the call has. With
    /// `secret` the digest is keyed, so that the arguments cannot be guessed from it.
    pub fn new(
        definition_hash: &str,
        arguments: &JsonObject,
        context: Option<&JsonObject>,
        secret: Option<&DigestKey>,
    ) -> Self {
        let (hash, given) = (definition_hash.as_bytes(), || canonical_json(arguments));
        Self(match (secret, context) {
            (None, None) => hex::encode(hash_parts([hash, &given()])).into(),
            (None, Some(context)) => {
                hex::encode(hash_parts([hash, &given(), &canonical_json(context)])).into()
            }
            (Some(key), context) => {
                let name = key.digest("the name of this key").hmac_sha256;
                let digest = match context {
                    None => key.digest(&(definition_hash, arguments)),
                    Some(context) => key.digest(&(definition_hash, arguments, context)),
                };
                format!("{}:{}", &name[..16], digest.hmac_sha256).into()
            }
        })
    }

    /// The text for the ledger.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// Whether `stored` may be the fingerprint of the same payload. Fingerprints of different keys,
    /// or with and without a key, cannot be compared. Then the idempotency key alone decides: to
    /// run a call twice is worse than to answer another payload with the first answer.
    pub fn may_match(&self, stored: &str) -> bool {
        let name = |text: &str| text.split_once(':').map(|(name, _)| name.to_owned());
        name(&self.0) != name(stored) || *self.0 == *stored
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn key_is_bare_or_structured_string() {
        let long = "k".repeat(255);
        for (value, key) in [
            ("k-1", "k-1"),
            (r#""k-1""#, "k-1"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (long.as_str(), long.as_str()),
            ("a\"b", "a\"b"),
        ] {
            assert_eq!(
                &*IdempotencyKey::parse(value.as_bytes()).unwrap().0,
                key,
                "{value}"
            );
        }
        let too_long = "k".repeat(256);
        for value in [
            "", r#""""#, "\"", r#""a"#, r#""a"b""#, r#""a\b""#, r#""a\"#, "a b", "\u{e9}", "a\tb",
            &too_long,
        ] {
            assert!(IdempotencyKey::parse(value.as_bytes()).is_err(), "{value}");
        }
    }

    #[test]
    fn fingerprints_compare_payloads_under_one_key() {
        let arguments = |value| {
            json!({"n": value, "a": [1, 2.5]})
                .as_object()
                .unwrap()
                .clone()
        };
        let of =
            |value, key: Option<&DigestKey>| Fingerprint::new("hash", &arguments(value), None, key);
        assert!(of(1, None).may_match(&of(1, None).0));
        assert!(!of(1, None).may_match(&of(2, None).0));
        assert!(!of(1, None).may_match(&Fingerprint::new("other", &arguments(1), None, None).0));
        let (one, other) = (DigestKey::random().unwrap(), DigestKey::random().unwrap());
        assert!(of(1, Some(&one)).may_match(&of(1, Some(&one)).0));
        assert!(!of(1, Some(&one)).may_match(&of(2, Some(&one)).0));
        assert!(of(1, Some(&one)).may_match(&of(2, Some(&other)).0));
        assert!(of(1, Some(&one)).may_match(&of(1, None).0));
    }

    #[test]
    fn declared_context_fields_are_part_of_payloads() {
        let arguments = json!({"n": 1}).as_object().unwrap().clone();
        let context = |tenant: &str| json!({"tenant": tenant}).as_object().unwrap().clone();
        let key = DigestKey::random().unwrap();
        for key in [None, Some(&key)] {
            let of =
                |context: Option<&JsonObject>| Fingerprint::new("hash", &arguments, context, key);
            assert!(of(Some(&context("a"))).may_match(&of(Some(&context("a"))).0));
            assert!(!of(Some(&context("a"))).may_match(&of(Some(&context("b"))).0));
            assert!(!of(Some(&context("a"))).may_match(&of(None).0));
        }
    }
}
