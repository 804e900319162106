//! What the ledger keeps of arguments and results: all of them, or a digest that only shows whether
//! two are equal.
//!
//! The digest is keyed. Arguments are often short (a name, a city, a date), and a plain hash of a
//! short text can be found by hashing all candidates. The key never reaches the ledger. Without the
//! key, a digest reveals nothing to a reader of the file or to a caller.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::canonical::{Sorted, canonical_json};

/// What the ledger keeps of arguments and results.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Capture {
    /// Arguments and results in full.
    #[default]
    Full,
    /// A keyed digest of each.
    Digest,
}

/// Replaces arguments or a result that are not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Digest {
    /// HMAC-SHA-256 (RFC 2104), in hex, over the JSON that the digest replaces: keys sorted, no
    /// white space.
    pub hmac_sha256: String,
    /// Length of that JSON.
    pub bytes: u64,
}

/// Marks a digest in a column of the ledger.
const DIGEST_MARKER: &str = "hmac-sha256";

impl Digest {
    /// The text in the ledger: a JSON array, because the value that it replaces is always an
    /// object.
    pub fn to_column(&self) -> String {
        serde_json::to_string(&(DIGEST_MARKER, &self.hmac_sha256, self.bytes)).unwrap_or_default()
    }

    /// Reads the text of [`Digest::to_column`]; `None` for any other text.
    pub fn from_column(text: &str) -> Option<Self> {
        let (mark, hmac_sha256, bytes): (String, String, u64) = text
            .starts_with('[')
            .then(|| serde_json::from_str(text).ok())
            .flatten()?;
        (mark == DIGEST_MARKER).then_some(Self { hmac_sha256, bytes })
    }
}

/// The key of digests. Clones share it.
#[derive(Clone, derive_more::Debug)]
#[debug("DigestKey")]
pub struct DigestKey(Hmac<Sha256>);

/// Minimum length in bytes; a shorter secret could be guessed.
const MIN_SECRET_LEN: usize = 16;

impl DigestKey {
    /// A random key that is lost when the process ends. After that, no digest can be matched to its
    /// text.
    ///
    /// # Errors
    /// When the system provides no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut key = [0; 64];
        getrandom::fill(&mut key)?;
        Ok(Self(Hmac::new(&key.into())))
    }

    /// A key from a secret that is stored elsewhere. So digests can be compared over restarts, and
    /// checked with the secret. `None` if the secret has fewer than sixteen bytes.
    pub fn from_secret(secret: &str) -> Option<Self> {
        let secret = Some(secret.as_bytes()).filter(|secret| secret.len() >= MIN_SECRET_LEN)?;
        Hmac::new_from_slice(secret).ok().map(Self)
    }

    /// A signature of a value's canonical JSON, in hexadecimal digits. It is never equal to a digest,
    /// nor to a signature for another purpose.
    pub fn tag<'a, T: ?Sized>(&self, purpose: &str, value: &'a T) -> String
    where
        Sorted<'a, T>: Serialize,
    {
        hex::encode(self.signature(purpose, value).finalize().into_bytes())
    }

    /// Whether `tag` is the signature of this value. Takes the same time for every wrong tag.
    pub fn is_tag_of<'a, T: ?Sized>(&self, purpose: &str, value: &'a T, tag: &str) -> bool
    where
        Sorted<'a, T>: Serialize,
    {
        let tag = hex::decode(tag).unwrap_or_default();
        self.signature(purpose, value).verify_slice(&tag).is_ok()
    }

    fn signature<'a, T: ?Sized>(&self, purpose: &str, value: &'a T) -> Hmac<Sha256>
    where
        Sorted<'a, T>: Serialize,
    {
        let mut hmac = self.0.clone();
        // Canonical JSON has no zero byte, so no digest begins like this.
        hmac.update(b"\0");
        hmac.update(purpose.as_bytes());
        hmac.update(b"\0");
        hmac.update(&canonical_json(value));
        hmac
    }

    /// The digest of a value's canonical JSON.
    pub fn digest<'a, T: ?Sized>(&self, value: &'a T) -> Digest
    where
        Sorted<'a, T>: Serialize,
    {
        let json = canonical_json(value);
        let mut hmac = self.0.clone();
        hmac.update(&json);
        Digest {
            hmac_sha256: hex::encode(hmac.finalize().into_bytes()),
            bytes: json.len() as u64,
        }
    }
}

/// The arguments of a call in the form in which the ledger stores them. Only the text is kept: it
/// needs a fiftieth of the memory that parsed large arguments need.
#[derive(Debug, Clone, Default)]
pub enum RecordedArguments {
    /// The call has not reached `record` yet.
    #[default]
    Pending,
    /// The arguments as received, as JSON, without the values that must not be recorded.
    Full(Arc<str>),
    /// A digest of the same JSON.
    Digest(Digest),
}

impl RecordedArguments {
    /// The text for the ledger.
    pub fn to_column(&self) -> Arc<str> {
        match self {
            Self::Pending => "null".into(),
            Self::Full(text) => text.clone(),
            Self::Digest(digest) => digest.to_column().into(),
        }
    }

    /// The text for the row of a refused call: more than 1 KiB becomes a
    /// [`Truncated`].
    pub fn to_truncated_column(&self) -> Arc<str> {
        match self {
            Self::Full(text) => truncate_column(text).map_or_else(|| text.clone(), Into::into),
            other => other.to_column(),
        }
    }
}

/// Replaces a message that is not recorded.
pub const NOT_RECORDED: &str = "the message is not recorded (capture: digest)";

/// Replaces the arguments of a refused call, if they are longer than 1 KiB.
// So a refusal needs little disk space. The line above stands in the OpenAPI document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Truncated {
    /// SHA-256, in hex, of the whole JSON text.
    pub sha256: String,
    /// Length of that text.
    pub bytes: u64,
    /// The first KiB of that text, cut between two characters.
    pub beginning: String,
}

/// Maximum length of arguments that are kept whole for a refused call, in bytes of JSON. Longer
/// arguments keep a beginning of this length.
const MAX_LEN: usize = 1 << 10;

/// Marks a truncated text in the ledger.
const TRUNCATED_MARKER: &str = "sha-256";

impl Truncated {
    /// The text in the ledger: a JSON array, because the arguments that it replaces are always an
    /// object.
    pub fn to_column(&self) -> String {
        serde_json::to_string(&(TRUNCATED_MARKER, &self.sha256, self.bytes, &self.beginning))
            .unwrap_or_default()
    }

    /// Reads the text of [`Truncated::to_column`]; `None` for any other text.
    pub fn from_column(text: &str) -> Option<Self> {
        let (mark, sha256, bytes, beginning): (String, String, u64, String) = text
            .starts_with('[')
            .then(|| serde_json::from_str(text).ok())
            .flatten()?;
        (mark == TRUNCATED_MARKER).then_some(Self {
            sha256,
            bytes,
            beginning,
        })
    }
}

/// The replacement for a JSON text; `None` if the text is short enough to be kept whole.
pub(crate) fn truncate_column(text: &str) -> Option<String> {
    (text.len() > MAX_LEN).then(|| {
        let sha256 = hex::encode(Sha256::digest(text.as_bytes()));
        let beginning = text[..text.floor_char_boundary(MAX_LEN)].to_owned();
        Truncated {
            sha256,
            bytes: text.len() as u64,
            beginning,
        }
        .to_column()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn digest_is_hmac_of_canonical_json() {
        // printf '%s' '{"city":"Oslo","n":1}' | openssl dgst -sha256 -hmac 'a-secret-of-length'
        let key = DigestKey::from_secret("a-secret-of-length").unwrap();
        let digest = key.digest(&json!({"n": 1, "city": "Oslo"}));
        assert_eq!(
            digest.hmac_sha256,
            "8c81e9a0f61a50df375676c66e09f2eb2980efe8ecb9f97ded88173d0abdf827"
        );
        assert_eq!(digest.bytes, 21);
        assert_eq!(Digest::from_column(&digest.to_column()), Some(digest));
    }

    #[test]
    fn random_keys_differ_and_short_secrets_fail() {
        let (one, other) = (DigestKey::random().unwrap(), DigestKey::random().unwrap());
        assert_eq!(one.digest("x"), one.clone().digest("x"));
        assert_ne!(one.digest("x"), other.digest("x"));
        assert!(DigestKey::from_secret("too-short").is_none());
    }

    #[test]
    fn arguments_and_results_parse_as_no_digest() {
        for text in [
            r#"{"hmac_sha256":"x","bytes":1}"#,
            "null",
            "",
            r#"["hmac-sha256"]"#,
            r#"["md5","x",1]"#,
        ] {
            assert_eq!(Digest::from_column(text), None, "{text}");
        }
    }

    #[test]
    fn short_arguments_are_not_truncated() {
        let longest = json!({"a": "x".repeat(MAX_LEN - 8)});
        for value in [json!({}), json!({"a": "☃", "b": [1, null]}), longest] {
            let text = value.to_string();
            assert!(text.len() <= MAX_LEN);
            assert_eq!(truncate_column(&text), None);
            assert_eq!(Truncated::from_column(&text), None);
        }
    }

    #[test]
    fn long_arguments_keep_their_beginning() {
        // The cut falls at each of the three bytes of a character.
        for shift in 0..3 {
            let value =
                json!({"a": format!("{}{}", "x".repeat(shift), "☃".repeat(10_000)), "z": "\"\\\n"});
            let text = value.to_string();
            let column = truncate_column(&text).unwrap();
            assert!(column.len() < 2 * MAX_LEN, "{}", column.len());
            let truncated = Truncated::from_column(&column).unwrap();
            assert_eq!(
                (truncated.bytes, truncated.sha256),
                (
                    text.len() as u64,
                    hex::encode(Sha256::digest(text.as_bytes()))
                )
            );
            assert!(
                text.starts_with(&truncated.beginning)
                    && (MAX_LEN - 2..=MAX_LEN).contains(&truncated.beginning.len())
            );
        }
    }

    #[test]
    fn one_byte_over_the_limit_is_truncated() {
        let value = json!({"a": "x".repeat(MAX_LEN - 7)});
        let truncated =
            Truncated::from_column(&truncate_column(&value.to_string()).unwrap()).unwrap();
        assert_eq!(
            (truncated.bytes, truncated.beginning.len()),
            (MAX_LEN as u64 + 1, MAX_LEN)
        );
    }
}
