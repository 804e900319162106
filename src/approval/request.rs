//! What a person sees of a call that waits: the request, its row in lists, and its events.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::{CacheStatus, Effect, InvocationId, JsonObject};
use crate::ledger::{ApprovalRow, ApprovalState, Ledger, Row, State};
use crate::tracking::events::{self, ApprovalNotice, EventFeed};

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

/// Publishes the present state of an approval, if anybody subscribes.
pub(crate) async fn publish_approval(feed: &EventFeed, ledger: &dyn Ledger, id: InvocationId) {
    if feed.has_subscribers()
        && let Ok(Some(row)) = ledger.find_approval(id).await
    {
        feed.publish_approval(approval_notice(&row));
    }
}

/// What the event of an approval tells.
fn approval_notice(row: &ApprovalRow) -> ApprovalNotice {
    let request = ApprovalRequest::from_row(row);
    ApprovalNotice {
        invocation_id: row.invocation,
        tool: row.tool.clone(),
        caller: row.caller.clone(),
        run_id: request.as_ref().and_then(|request| request.run_id.clone()),
        tool_use_id: request
            .as_ref()
            .and_then(|request| request.tool_use_id.clone()),
        state: match row.state {
            ApprovalState::Waiting => events::ApprovalState::Waiting,
            ApprovalState::Approved | ApprovalState::Started => events::ApprovalState::Approved,
            ApprovalState::Denied => events::ApprovalState::Denied,
            ApprovalState::Expired => events::ApprovalState::Expired,
            ApprovalState::Withdrawn => events::ApprovalState::Withdrawn,
        },
        message: request.and_then(|request| request.message),
        by: row.approvers().map(Arc::from).collect(),
        requested_at: row.requested_at,
        expires_at: row.expires_at,
        decided_at: row.decided_at,
        decided_by: row.decided_by.clone(),
        note: row.note.clone(),
    }
}

/// A waiting call as a row, for lists of calls.
pub(crate) fn waiting_row(row: &ApprovalRow) -> Row {
    let request = ApprovalRequest::from_row(row);
    let arguments = request
        .as_ref()
        .and_then(|request| request.arguments.as_ref());
    let arguments = arguments.and_then(|arguments| serde_json::to_string(arguments).ok());
    Row {
        id: row.invocation,
        tool: row.tool.clone(),
        caller: row.caller.clone(),
        run_id: request.as_ref().and_then(|request| request.run_id.clone()),
        tool_use_id: request
            .as_ref()
            .and_then(|request| request.tool_use_id.clone()),
        state: State::Waiting,
        kind: None,
        effect: request
            .as_ref()
            .map(|request| request.effect)
            .unwrap_or_default(),
        cache: CacheStatus::Off,
        attempts: 0,
        started_at: row.requested_at,
        duration_us: None,
        arguments: arguments.unwrap_or_else(|| "null".into()).into(),
        result: None,
        origin: None,
        meta: None,
        idempotency_key: row.idempotency_key.clone(),
        fingerprint: None,
        parent: request.and_then(|request| request.parent?.parse().ok()),
        key_until: None,
        detail: None,
        replica: None,
        count: 1,
    }
}
