//! The calls that wait for a person, and the decisions about them.

use std::sync::Arc;

use jiff::Timestamp;
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::call::InvocationId;

/// How far a call is that needs an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, EnumString, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ApprovalState {
    /// No person has decided.
    Waiting,
    /// A person has approved the call, and it has not started.
    Approved,
    /// The approval is used: the call has started.
    Started,
    /// A person has denied the call.
    Denied,
    /// The time for the decision is over.
    Expired,
    /// The caller or an admin has cancelled the call.
    Withdrawn,
}

impl ApprovalState {
    /// The states that may follow. `docs/dev/states.md` has the same table.
    pub const fn next(self) -> &'static [Self] {
        match self {
            Self::Waiting => &[Self::Approved, Self::Denied, Self::Expired, Self::Withdrawn],
            Self::Approved => &[Self::Started],
            Self::Started => &[Self::Approved],
            Self::Denied | Self::Expired | Self::Withdrawn => &[],
        }
    }

    /// The name used in the ledger.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One call that needs an approval. The ledger keeps it apart from the rows of calls: the call's own
/// row is written when the call starts, or when it can no longer start.
#[derive(Debug, Clone)]
pub struct ApprovalRow {
    /// The id of the call.
    pub invocation: InvocationId,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// Name of the caller.
    pub caller: Arc<str>,
    /// How far the call is.
    pub state: ApprovalState,
    /// The idempotency key of the call.
    pub idempotency_key: Option<Arc<str>>,
    /// The callers that may decide, each between line feeds.
    pub approvers: Arc<str>,
    /// What a person sees, as JSON.
    pub request: Arc<str>,
    /// What is needed to run the call, as JSON. `None`: only the memory of the process `runner` has
    /// that, or the call is done.
    pub call: Option<Arc<str>>,
    /// Time of the request.
    pub requested_at: Timestamp,
    /// When the call expires.
    pub expires_at: Timestamp,
    /// Time of the decision.
    pub decided_at: Option<Timestamp>,
    /// The caller or the rule that decided.
    pub decided_by: Option<Arc<str>>,
    /// The reason for the decision.
    pub note: Option<Arc<str>>,
    /// The arguments that were approved instead, as JSON.
    pub changed_arguments: Option<Arc<str>>,
    /// The process that acts on the state: it keeps the call in memory, runs it, or writes its row.
    pub runner: Arc<str>,
    /// Whether the call has its own row, so that nothing is left to do.
    pub done: bool,
    /// Whether the receivers of webhooks know of the call.
    pub notified: bool,
}

/// What is noted about a call, whatever its state.
#[derive(Debug, Clone)]
pub enum ApprovalMark {
    /// The receivers of webhooks know of the call.
    Notified,
    /// The model's message with the call, and the results of its other calls, as JSON.
    Message(Arc<str>),
}

impl ApprovalRow {
    /// Lists names for the column `approvers`.
    pub fn join_approvers<'a>(names: impl IntoIterator<Item = &'a str>) -> Arc<str> {
        let mut text = String::from("\n");
        for name in names {
            text.push_str(name);
            text.push('\n');
        }
        text.into()
    }

    /// Finds the call that holds the idempotency key of this one.
    pub fn key_query(&self) -> ApprovalQuery {
        ApprovalQuery {
            tool: Some(self.tool.to_string()),
            visible_to: Some(self.caller.to_string()),
            idempotency_key: self.idempotency_key.as_deref().map(str::to_owned),
            limit: 1,
            ..ApprovalQuery::default()
        }
    }

    /// The callers that may decide, besides admins.
    pub fn approvers(&self) -> impl Iterator<Item = &str> {
        self.approvers.split('\n').filter(|name| !name.is_empty())
    }
}

/// Selects approvals, newest first. Each given filter must match.
#[derive(Debug, Clone, Default)]
pub struct ApprovalQuery {
    /// In this state. [`ApprovalState::Approved`] includes approved calls that have started.
    pub state: Option<ApprovalState>,
    /// Of this tool.
    pub tool: Option<String>,
    /// Calls of this caller, or calls that this caller may decide.
    pub visible_to: Option<String>,
    /// Calls with this idempotency key.
    pub idempotency_key: Option<String>,
    /// Only calls that need some action: expired at this time, or decided and without their own
    /// row.
    pub due_at: Option<Timestamp>,
    /// Only calls of which the receivers of webhooks do not know.
    pub unnotified: bool,
    /// Calls older than this one, which is the last of the page before.
    pub before: Option<InvocationId>,
    /// Maximum number.
    pub limit: u32,
}

/// A change of one approval. It happens only if the approval is still as expected.
#[derive(Debug, Clone)]
pub struct ApprovalChange {
    /// The call.
    pub invocation: InvocationId,
    /// The expected state.
    pub from: ApprovalState,
    /// The expected process; `None`: any.
    pub from_runner: Option<Arc<str>>,
    /// The call must not have expired at this time.
    pub unexpired_at: Option<Timestamp>,
    /// The new state.
    pub to: ApprovalState,
    /// The new process.
    pub runner: Arc<str>,
    /// The decision, if the change is one.
    pub decision: Option<ApprovalDecision>,
    /// Whether the call has its own row from here on. Then `call` is deleted.
    pub done: bool,
}

/// The author of a decision, its time and its reason.
#[derive(Debug, Clone)]
pub struct ApprovalDecision {
    /// Time of the decision.
    pub at: Timestamp,
    /// The caller or the rule that decided.
    pub by: Arc<str>,
    /// The reason.
    pub note: Option<Arc<str>>,
    /// The arguments that were approved instead, as JSON.
    pub changed_arguments: Option<Arc<str>>,
}

impl ApprovalChange {
    /// A change from this state of the approval to another one, by this process.
    pub fn new(
        invocation: InvocationId,
        from: ApprovalState,
        to: ApprovalState,
        by: Arc<str>,
    ) -> Self {
        debug_assert!(
            from == to || from.next().contains(&to),
            "{from:?} to {to:?}"
        );
        Self {
            invocation,
            from,
            from_runner: None,
            unexpired_at: None,
            to,
            runner: by,
            decision: None,
            done: false,
        }
    }
}
