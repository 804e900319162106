//! Arguments of a refused call: the ledger keeps their beginning and a digest, so that a refusal costs little on disk.

use std::io::{BufWriter, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What stands for the arguments of a refused call that are longer than 1 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Truncated {
    /// SHA-256, in hex, of the whole JSON text.
    pub sha256: String,
    /// Length of that text.
    pub bytes: u64,
    /// The first KiB of that text, cut between two characters.
    pub beginning: String,
}

/// Longest arguments of a refused call that are kept whole, and the length of the beginning of longer ones, in bytes of
/// JSON.
const KEPT: usize = 1 << 10;

/// Marks a truncated text in the ledger.
const MARK: &str = "sha-256";

impl Truncated {
    /// As it stands in the ledger: a JSON array, since what it stands for is always an object.
    pub fn to_column(&self) -> String {
        serde_json::to_string(&(MARK, &self.sha256, self.bytes, &self.beginning)).unwrap_or_default()
    }

    /// Reads [`Truncated::to_column`]; `None` if the text is anything else.
    pub fn from_column(text: &str) -> Option<Self> {
        let (mark, sha256, bytes, beginning): (String, String, u64, String) =
            text.starts_with('[').then(|| serde_json::from_str(text).ok()).flatten()?;
        (mark == MARK).then_some(Self { sha256, bytes, beginning })
    }
}

/// A value as its JSON text if that is short, else truncated. The whole text is never in memory.
pub(super) fn short_column(value: &impl Serialize) -> String {
    let mut prefix = Prefix::default();
    let mut buffered = BufWriter::with_capacity(KEPT, &mut prefix);
    // Neither the value nor the sink can fail.
    if serde_json::to_writer(&mut buffered, value).is_err() || buffered.flush().is_err() {
        return String::new();
    }
    drop(buffered);
    prefix.into_column()
}

/// Takes a text in and keeps its beginning.
#[derive(Default)]
struct Prefix {
    kept: Vec<u8>,
    bytes: u64,
    /// Only once the text is longer than what is kept.
    hash: Option<Sha256>,
}

impl Write for Prefix {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let room = KEPT - self.kept.len();
        if self.hash.is_none() && text.len() > room {
            self.hash = Some(Sha256::new_with_prefix(&self.kept));
        }
        if let Some(hash) = &mut self.hash {
            hash.update(text);
        }
        self.kept.extend_from_slice(&text[..text.len().min(room)]);
        self.bytes += text.len() as u64;
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Prefix {
    fn into_column(self) -> String {
        let Self { mut kept, bytes, hash } = self;
        let whole = std::str::from_utf8(&kept).map_or_else(|error| error.valid_up_to(), str::len);
        kept.truncate(whole);
        let beginning = String::from_utf8(kept).unwrap_or_default();
        match hash {
            None => beginning,
            Some(hash) => {
                let sha256 = hex::encode(hash.finalize());
                Truncated { sha256, bytes, beginning }.to_column()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn short_arguments_are_kept_whole() {
        let longest = json!({"a": "x".repeat(KEPT - 8)});
        for value in [json!({}), json!({"a": "☃", "b": [1, null]}), longest] {
            let text = value.to_string();
            assert!(text.len() <= KEPT);
            assert_eq!(short_column(&value), text);
            assert_eq!(Truncated::from_column(&text), None);
        }
    }

    #[test]
    fn long_arguments_keep_their_beginning() {
        // The cut falls at each of the three bytes of a character.
        for shift in 0..3 {
            let value = json!({"a": format!("{}{}", "x".repeat(shift), "☃".repeat(10_000)), "z": "\"\\\n"});
            let text = value.to_string();
            let column = short_column(&value);
            assert!(column.len() < 2 * KEPT, "{}", column.len());
            let kept = Truncated::from_column(&column).unwrap();
            assert_eq!((kept.bytes, kept.sha256), (text.len() as u64, hex::encode(Sha256::digest(text.as_bytes()))));
            assert!(text.starts_with(&kept.beginning) && (KEPT - 2..=KEPT).contains(&kept.beginning.len()));
        }
    }

    #[test]
    fn one_byte_too_many_is_truncated() {
        let value = json!({"a": "x".repeat(KEPT - 7)});
        let kept = Truncated::from_column(&short_column(&value)).unwrap();
        assert_eq!((kept.bytes, kept.beginning.len()), (KEPT as u64 + 1, KEPT));
    }
}
