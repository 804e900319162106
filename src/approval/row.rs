//! Shows a call that waits for a person as a row.

use super::request::ApprovalRequest;
use crate::call::CacheStatus;
use crate::ledger::{ApprovalRow, Row, State};

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
