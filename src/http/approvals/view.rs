//! The JSON form of approvals, and which callers see and decide them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::approval::request::ApprovalRequest;
use crate::call::{Caller, InvocationId, JsonObject};
use crate::catalog::registry::Registry;
use crate::ledger::{ApprovalRow, ApprovalState};

/// How long an answer waits until the decided call has a row.
const MAX_ROW_WAIT: Duration = Duration::from_secs(3);
/// Pause between looks for the row.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ApprovalState)]
pub(crate) enum StateView {
    /// No person has decided.
    Waiting,
    /// A person has approved the call. Its own state tells how far it is.
    Approved,
    /// A person has denied the call.
    Denied,
    /// No person decided in time.
    Expired,
    /// The caller or an admin has cancelled the call.
    Withdrawn,
}

impl From<ApprovalState> for StateView {
    fn from(state: ApprovalState) -> Self {
        match state {
            ApprovalState::Waiting => Self::Waiting,
            ApprovalState::Approved | ApprovalState::Started => Self::Approved,
            ApprovalState::Denied => Self::Denied,
            ApprovalState::Expired => Self::Expired,
            ApprovalState::Withdrawn => Self::Withdrawn,
        }
    }
}

impl From<StateView> for ApprovalState {
    fn from(state: StateView) -> Self {
        match state {
            StateView::Waiting => Self::Waiting,
            StateView::Approved => Self::Approved,
            StateView::Denied => Self::Denied,
            StateView::Expired => Self::Expired,
            StateView::Withdrawn => Self::Withdrawn,
        }
    }
}

/// One call that needs an approval.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ApprovalView {
    /// Id of the call.
    invocation_id: String,
    /// Name of the tool.
    tool: String,
    /// Name of the caller.
    caller: String,
    /// The caller's run.
    #[schema(value_type = Option<String>, required)]
    run_id: Option<Arc<str>>,
    /// The model's id for the call.
    #[schema(value_type = Option<String>, required)]
    tool_use_id: Option<Arc<str>>,
    /// The arguments as the tool would get them; null if only the memory of another replica has
    /// them, or if they are not kept.
    #[schema(value_type = Option<std::collections::HashMap<String, Value>>, required)]
    arguments: Option<JsonObject>,
    /// The caller's context, without secrets; null if there is none, or if only the memory of another
    /// replica has it.
    #[schema(value_type = Option<std::collections::HashMap<String, Value>>, required)]
    context: Option<JsonObject>,
    /// How the approval was decided.
    #[serde(flatten)]
    decision: ApprovalSummary,
}

/// How a call was approved.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ApprovalSummary {
    /// The state of the approval.
    state: StateView,
    /// The operator's message for the person that decides.
    #[schema(value_type = Option<String>, required)]
    message: Option<Arc<str>>,
    /// Callers that may decide, besides admins.
    by: Vec<String>,
    /// Whether this caller may decide.
    can_decide: bool,
    /// Arguments of the request, if the person approved other ones; else null.
    #[schema(value_type = Option<std::collections::HashMap<String, Value>>, required)]
    original_arguments: Option<JsonObject>,
    /// Time of the request.
    #[schema(value_type = String, format = DateTime)]
    requested_at: Timestamp,
    /// When the call expires.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// Time of the decision.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    decided_at: Option<Timestamp>,
    /// The caller that decided; `toolcrib` for an expired call.
    #[schema(value_type = Option<String>, required)]
    decided_by: Option<Arc<str>>,
    /// The reason that the person gave.
    #[schema(value_type = Option<String>, required)]
    note: Option<Arc<str>>,
}

impl ApprovalSummary {
    /// The summary of an approval, as this caller sees it.
    pub(crate) fn new(registry: &Registry, caller: &Caller, row: &ApprovalRow) -> Self {
        let request = ApprovalRequest::from_row(row);
        Self {
            state: row.state.into(),
            message: request.as_ref().and_then(|request| request.message.clone()),
            by: row.approvers().map(str::to_owned).collect(),
            can_decide: row.state == ApprovalState::Waiting && may_decide(registry, caller, row),
            original_arguments: request
                .filter(|_| row.changed_arguments.is_some())
                .and_then(|request| request.arguments),
            requested_at: row.requested_at,
            expires_at: row.expires_at,
            decided_at: row.decided_at,
            decided_by: row.decided_by.clone(),
            note: row.note.clone(),
        }
    }
}

impl ApprovalView {
    pub(crate) fn new(registry: &Registry, caller: &Caller, row: &ApprovalRow) -> Self {
        let request = ApprovalRequest::from_row(row);
        let changed = row.changed_arguments.as_deref();
        let changed = changed.and_then(|changed| serde_json::from_str(changed).ok());
        Self {
            invocation_id: row.invocation.to_string(),
            tool: row.tool.to_string(),
            caller: row.caller.to_string(),
            run_id: request.as_ref().and_then(|request| request.run_id.clone()),
            tool_use_id: request
                .as_ref()
                .and_then(|request| request.tool_use_id.clone()),
            context: shown_context(registry, row.invocation, request.as_ref()),
            arguments: changed
                .or_else(|| request.and_then(|request| request.arguments))
                .or_else(|| kept_arguments(registry, row.invocation)),
            decision: ApprovalSummary::new(registry, caller, row),
        }
    }
}

/// The arguments of a call that only the memory of this process has.
pub(crate) fn kept_arguments(registry: &Registry, id: InvocationId) -> Option<JsonObject> {
    let kept = registry.shared().waiting_calls.kept(id);
    kept.map(|kept| kept.shown)
}

/// The caller's context as a person sees it.
pub(crate) fn shown_context(
    registry: &Registry,
    id: InvocationId,
    request: Option<&ApprovalRequest>,
) -> Option<JsonObject> {
    let stored = request.and_then(|request| request.context.clone());
    let kept = || Some(registry.shared().waiting_calls.kept(id)?.shown_context);
    stored.or_else(kept).filter(|context| !context.is_empty())
}

/// Whether this caller may decide about a call: an admin, or a caller that the policy names. A
/// caller decides about its own call only if the policy names it. Without callers, every client is
/// the operator.
pub(crate) fn may_decide(registry: &Registry, caller: &Caller, row: &ApprovalRow) -> bool {
    // The policy named the caller at the request, and names it still.
    let entry = registry.get(&row.tool);
    let policy = entry
        .as_ref()
        .and_then(|entry| entry.policy.approval.as_ref());
    let is_named = row.approvers().any(|name| *name == *caller.name)
        && policy.is_some_and(|policy| policy.by.contains(&caller.name));
    let is_own = row.caller == caller.name && !registry.catalog().callers().is_empty();
    is_named || (caller.admin && !is_own)
}

/// Whether this caller may see an approval.
pub(crate) fn may_see(caller: &Caller, row: &ApprovalRow) -> bool {
    caller.admin || row.caller == caller.name || row.approvers().any(|name| *name == *caller.name)
}

/// Waits until the decided call runs or has ended, so that the answer shows that.
pub(crate) async fn wait_for_row(registry: &Registry, id: InvocationId) {
    let shared = registry.shared();
    let has_row = async {
        while shared.in_flight_calls.get(id).is_none()
            && matches!(shared.ledger.get(id).await, Ok(None))
        {
            sleep(POLL_INTERVAL).await;
        }
    };
    // After a timeout too, the answer is the call's current state.
    let _ = timeout(MAX_ROW_WAIT, has_row).await;
}
