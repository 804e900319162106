//! Helpers for JSON values, and digests.

use serde_json::Value;
use sha2::{Digest, Sha256};
pub use toolcrib_dialect::{
    Changes, JsonObject, Mended, parse_foreign, parse_result, parse_strict, type_name,
};

/// SHA-256 over the parts. The length of each part precedes it, so different lists of parts have
/// different hashes.
pub fn hash_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// The items of a list, or the values of an object.
pub fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().into_iter().flatten();
    let members = value.as_object().into_iter();
    items.chain(members.flat_map(|members| members.values()))
}

/// A value as plain text: a string as it is, `null` as an empty text, anything else as JSON.
pub fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Escapes one reference token of a JSON Pointer (RFC 6901).
pub fn escape_pointer_token(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

/// The unescaped reference tokens of a JSON Pointer.
pub fn parse_pointer(pointer: &str) -> impl Iterator<Item = String> {
    pointer
        .split('/')
        .skip(1)
        .map(|token| token.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_part_boundaries() {
        assert_ne!(
            hash_parts([b"ab".as_slice(), b"c"]),
            hash_parts([b"a".as_slice(), b"bc"])
        );
    }
}
