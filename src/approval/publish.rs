//! Tells the subscribers of `GET /events` about approvals.

use std::sync::Arc;

use super::request::ApprovalRequest;
use crate::call::InvocationId;
use crate::ledger::{ApprovalRow, ApprovalState, Ledger};
use crate::tracking::events::{self, ApprovalNotice, EventFeed};

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
