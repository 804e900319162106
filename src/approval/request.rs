//! What a person sees of a call that waits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::{Effect, JsonObject};
use crate::ledger::ApprovalRow;

/// What a person sees of a call that waits, as the ledger stores it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// The arguments as the tool would get them, without secrets. `None`: they are not stored.
    pub arguments: Option<JsonObject>,
    /// The caller's context, without secrets. `None`: there is none, or it is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<JsonObject>,
    /// Hash of what is approved, in hexadecimal digits.
    pub hash: String,
    /// The operator's message for the person.
    pub message: Option<Arc<str>>,
    /// The run that the caller has named.
    pub run_id: Option<Arc<str>>,
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// The call whose tool made this one.
    pub parent: Option<String>,
    /// The tool's effect.
    pub effect: Effect,
}

impl ApprovalRequest {
    /// Reads the column of a row; `None` if a newer version wrote it.
    pub fn from_row(row: &ApprovalRow) -> Option<Self> {
        serde_json::from_str(&row.request).ok()
    }

    /// The hash as bytes.
    pub fn hash(&self) -> Option<[u8; 32]> {
        hex::decode(&self.hash).ok()?.try_into().ok()
    }
}
