//! Shortens the arguments of a refused call: the ledger keeps their beginning and a hash, so that a
//! refusal needs little disk space.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Replaces the arguments of a refused call, if they are longer than 1 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
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
const MARKER: &str = "sha-256";

impl Truncated {
    /// The text in the ledger: a JSON array, because the arguments that it replaces are always an
    /// object.
    pub fn to_column(&self) -> String {
        serde_json::to_string(&(MARKER, &self.sha256, self.bytes, &self.beginning))
            .unwrap_or_default()
    }

    /// Reads the text of [`Truncated::to_column`]; `None` for any other text.
    pub fn from_column(text: &str) -> Option<Self> {
        let (mark, sha256, bytes, beginning): (String, String, u64, String) = text
            .starts_with('[')
            .then(|| serde_json::from_str(text).ok())
            .flatten()?;
        (mark == MARKER).then_some(Self {
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
