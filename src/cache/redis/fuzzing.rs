//! What the fuzz targets need of this folder.

use jiff::Timestamp;

use super::entry;
use crate::ledger::StoredResult;

/// A result of `tool` as Redis keeps it.
pub fn decode(text: &str, tool: &str, now: Timestamp) -> Option<StoredResult> {
    entry::decode([7; 32], text, (tool, 5), now)
}

/// The text that Redis keeps.
pub fn encode(stored: &StoredResult) -> Option<String> {
    entry::encode(stored, 5)
}
