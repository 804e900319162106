//! The events of calls and approvals.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::call::{Caller, InvocationId, Progress};
use crate::ledger::Row;

/// Maximum length of the arguments in an event, in bytes of JSON. Longer arguments are null.
pub const MAX_ARGUMENTS: usize = 2 << 10;

/// One event. A clone is cheap.
#[derive(Debug, Clone)]
pub enum ServiceEvent {
    /// A call was accepted.
    Started(Arc<Row>),
    /// A call has ended.
    Ended {
        /// The row of the call, without its result.
        row: Arc<Row>,
        /// The earlier call whose answer this call repeats, for a replay. The ledger has no row of
        /// this call then.
        replayed_from: Option<InvocationId>,
    },
    /// A running tool reports progress.
    Progress {
        /// The caller of the tool.
        caller: Arc<str>,
        /// What the tool reports.
        progress: Progress,
    },
    /// A call waits for a decision, or was decided.
    Approval(Arc<ApprovalNotice>),
    /// Ends of calls since this time may be missing.
    Gap {
        /// The earliest end that may be missing.
        since: Timestamp,
    },
}

impl ServiceEvent {
    /// The name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Started(_) => "invocation.started",
            Self::Ended { .. } => "invocation.ended",
            Self::Progress { .. } => "invocation.progress",
            Self::Approval(notice) if notice.state == ApprovalState::Waiting => "approval.waiting",
            Self::Approval(_) => "approval.decided",
            Self::Gap { .. } => "missed",
        }
    }

    /// Whether this caller may see the event: an admin all, another caller those of its own calls,
    /// and the approvals that it may decide.
    pub fn is_visible_to(&self, caller: &Caller) -> bool {
        let is_own = |name: &Arc<str>| *name == caller.name;
        caller.admin
            || match self {
                Self::Started(row) | Self::Ended { row, .. } => is_own(&row.caller),
                Self::Progress { caller, .. } => is_own(caller),
                Self::Approval(notice) => is_own(&notice.caller) || notice.by.iter().any(is_own),
                Self::Gap { .. } => true,
            }
    }
}

/// The part of a row that an event needs: no result, and no long arguments. So the memory of the
/// events that wait for subscribers is bounded.
pub(super) fn without_long_values(row: &Row) -> Row {
    let arguments = match row.arguments.len() {
        0..=MAX_ARGUMENTS => row.arguments.clone(),
        _ => "null".into(),
    };
    Row {
        arguments,
        result: None,
        meta: None,
        ..row.clone()
    }
}

/// The state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// The call waits for a decision.
    Waiting,
    /// The call may run.
    Approved,
    /// The call must not run.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// The caller disconnected or cancelled the call before a decision.
    Withdrawn,
}

/// What the events `approval.waiting` and `approval.decided` tell. The arguments are not part of
/// it: `GET /approvals` shows them.
#[derive(Debug, Clone, Serialize)]
pub struct ApprovalNotice {
    /// The call that waits.
    pub invocation_id: InvocationId,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// Name of the calling caller.
    pub caller: Arc<str>,
    /// The caller's run.
    pub run_id: Option<Arc<str>>,
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// `Waiting` gives `approval.waiting`, every other state `approval.decided`.
    pub state: ApprovalState,
    /// The operator's text for the person who decides.
    pub message: Option<Arc<str>>,
    /// The callers that may decide, beside admins.
    pub by: Arc<[Arc<str>]>,
    /// When the call began to wait.
    pub requested_at: Timestamp,
    /// When the approval expires.
    pub expires_at: Timestamp,
    /// When it was decided; `None` while it waits.
    pub decided_at: Option<Timestamp>,
    /// The name of the caller or link that decided.
    pub decided_by: Option<Arc<str>>,
    /// The note of the decision.
    pub note: Option<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(state: ApprovalState) -> ServiceEvent {
        let at = Timestamp::UNIX_EPOCH;
        ServiceEvent::Approval(Arc::new(ApprovalNotice {
            invocation_id: InvocationId::new(),
            tool: "pay".into(),
            caller: "bot".into(),
            run_id: None,
            tool_use_id: None,
            state,
            message: None,
            by: Arc::new(["lead".into()]),
            requested_at: at,
            expires_at: at,
            decided_at: None,
            decided_by: None,
            note: None,
        }))
    }

    #[test]
    fn approvals_are_shown_to_the_caller_and_to_those_that_decide() {
        let event = notice(ApprovalState::Waiting);
        let sees = |name: &str, admin| event.is_visible_to(&Caller::new(name, admin));
        assert!(sees("bot", false) && sees("lead", false) && sees("root", true));
        assert!(!sees("other", false));
    }

    #[test]
    fn every_state_but_waiting_is_a_decision() {
        assert_eq!(notice(ApprovalState::Waiting).name(), "approval.waiting");
        for state in [
            ApprovalState::Approved,
            ApprovalState::Denied,
            ApprovalState::Expired,
            ApprovalState::Withdrawn,
        ] {
            assert_eq!(notice(state).name(), "approval.decided");
        }
    }
}
