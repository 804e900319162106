//! A result as Redis keeps it: one JSON text.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::call::InvocationId;
use crate::ledger::StoredResult;

/// Starts every key of this format. Another format gets another number, so that services of two
/// versions can share a server.
const PREFIX: &str = "toolcrib:1:";

#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    /// The newest purge of the tool when its call started.
    purge: u64,
    #[serde(borrow)]
    tool: Cow<'a, str>,
    origin: InvocationId,
    stored_at: i64,
    expires_at: i64,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// The key of the hash with the purges.
pub(super) fn purges_key() -> String {
    format!("{PREFIX}purges")
}

/// The key of a result.
pub(super) fn result_key(key: &[u8; 32]) -> String {
    format!("{PREFIX}result:{}", hex::encode(key))
}

/// The text of a result. `None` if the result is not JSON.
pub(super) fn encode(stored: &StoredResult, purge: u64) -> Option<String> {
    let entry = Entry {
        purge,
        tool: Cow::Borrowed(&stored.tool),
        origin: stored.origin,
        stored_at: stored.stored_at.as_millisecond(),
        expires_at: stored.expires_at.as_millisecond(),
        result: serde_json::from_str(&stored.result).ok()?,
    };
    serde_json::to_string(&entry).ok()
}

/// Reads a result. `None` if the text is not a result of this tool, a purge came after it, or its
/// time has passed.
pub(super) fn decode(
    key: [u8; 32],
    text: &str,
    (tool, purge): (&str, u64),
    now: Timestamp,
) -> Option<StoredResult> {
    let entry: Entry<'_> = serde_json::from_str(text).ok()?;
    let expires_at = Timestamp::from_millisecond(entry.expires_at).ok()?;
    let is_valid = entry.tool == tool && entry.purge == purge && expires_at > now;
    is_valid.then_some(())?;
    Some(StoredResult {
        key,
        tool: entry.tool.into_owned(),
        origin: entry.origin,
        result: entry.result.get().to_owned(),
        stored_at: Timestamp::from_millisecond(entry.stored_at).ok()?,
        expires_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    #[test]
    fn entry_is_valid_for_its_tool_purge_and_time() {
        let stored = StoredResult {
            key: [7; 32],
            tool: "t".into(),
            origin: InvocationId::new(),
            result: r#"{"content":[],"x":"ü\n"}"#.into(),
            stored_at: at(1000),
            expires_at: at(2000),
        };
        let text = encode(&stored, 5).unwrap();
        let read = |tool, purge, now| decode([7; 32], &text, (tool, purge), at(now));
        assert_eq!(read("t", 5, 1999), Some(stored.clone()));
        assert_eq!(read("u", 5, 1999), None);
        assert_eq!(read("t", 6, 1999), None);
        assert_eq!(read("t", 5, 2000), None);
        assert_eq!(decode([7; 32], "{}", ("t", 5), at(1)), None);
        let broken = StoredResult {
            result: "{".into(),
            ..stored
        };
        assert_eq!(encode(&broken, 5), None);
        assert!(result_key(&[7; 32]).ends_with(&"07".repeat(32)));
    }
}
