//! Decides about calls that wait for a person, and starts the approved ones.
//!
//! The decision is one change in the ledger, so it is made once. The process that has made it acts
//! on it: the request that still waits runs the call, or else a task that reads the stored call.
//! `sweep.rs` finds decisions whose process has ended, and calls that have expired.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::sleep;

use super::request::{ApprovalRequest, publish_approval, waiting_row};
use super::table::{ActiveGuard, Decided};
use super::waiting::refused_state;
use crate::audit::{Action, NewEntry};
use crate::call::{
    Answer, ApprovalStage, Approved, CallError, Caller, Failure, Invocation, InvocationId,
    JsonObject, StoredCall, ToolName, approval_hash,
};
use crate::catalog::registry::Registry;
use crate::ledger::{self, ApprovalChange, ApprovalDecision, ApprovalRow, ApprovalState, State};

/// How often a decision looks for the outcome of another one about the same call.
const DECISION_INTERVAL: Duration = Duration::from_millis(50);
/// The author of decisions that no person made.
pub(super) const SERVICE: &str = "toolcrib";

/// What a person decides.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// The call runs. With arguments, it runs with these instead of its own.
    Approve(Option<JsonObject>),
    /// The call does not run.
    Deny,
    /// The call is cancelled.
    Withdraw,
}

/// A decision about one call.
#[derive(Debug, Clone)]
pub struct Decision {
    /// What is decided.
    pub verdict: Verdict,
    /// The caller that decides.
    pub by: Arc<str>,
    /// The reason.
    pub note: Option<Arc<str>>,
}

/// Why a decision has no effect.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// No call with this id needs an approval.
    #[error("there is no such approval")]
    NotFound,
    /// The call is decided already, or has expired.
    #[error("the call is decided already: it is `{}`", .0.as_str())]
    Decided(ApprovalState),
    /// Only the memory of another process has the call.
    #[error("the arguments of this call are only in the memory of process `{0}`: decide there")]
    Elsewhere(Arc<str>),
    /// The changed arguments cannot be used.
    #[error(transparent)]
    Invalid(CallError),
    /// The ledger could not be read or written.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
}

impl Registry {
    /// Decides about a call that waits. When this returns, the decision is committed, and the call
    /// runs or ends in a task of its own.
    ///
    /// # Errors
    /// [`DecideError`]: nothing has changed.
    pub async fn decide(
        self: &Arc<Self>,
        id: InvocationId,
        decision: Decision,
    ) -> Result<(), DecideError> {
        let (row, decided) = self.commit_decision(id, decision).await?;
        self.act(row, decided);
        Ok(())
    }

    /// Decides as [`Registry::decide`], and waits for the end of the call. `None`: another request
    /// of this process waits for the decision, and gets the answer.
    ///
    /// # Errors
    /// [`DecideError`]: nothing has changed.
    pub async fn decide_and_run(
        self: &Arc<Self>,
        id: InvocationId,
        decision: Decision,
    ) -> Result<Option<Result<Answer, CallError>>, DecideError> {
        let (row, decided) = self.commit_decision(id, decision).await?;
        let Err(decided) = self.shared().waiting_calls.hand_over(decided) else {
            return Ok(None);
        };
        let registry = self.clone();
        // A task of its own: the decided call goes on if its client disconnects.
        let call = tokio::spawn(async move { registry.run_stored(row, decided).await }.boxed());
        Ok(call.await.ok().flatten())
    }

    async fn commit_decision(
        self: &Arc<Self>,
        id: InvocationId,
        decision: Decision,
    ) -> Result<(ApprovalRow, Decided), DecideError> {
        let shared = self.shared();
        let row = shared.ledger.find_approval(id).await?;
        let row = row.ok_or(DecideError::NotFound)?;
        if row.state != ApprovalState::Waiting {
            return Err(DecideError::Decided(row.state));
        }
        let waiting = &shared.waiting_calls;
        if row.call.is_none() && waiting.kept(id).is_none() {
            return Err(DecideError::Elsewhere(row.runner));
        }
        // The call may have been cancelled while its approval was being stored.
        if shared.ledger.get(id).await?.is_some() {
            let withdrawn = ApprovalChange {
                done: true,
                ..ApprovalChange::new(id, row.state, ApprovalState::Withdrawn, self.process())
            };
            if shared.ledger.change_approval(withdrawn).await? {
                self.publish(id).await;
            }
            return Err(DecideError::Decided(ApprovalState::Withdrawn));
        }
        let stage = self.stage_for(&row, &decision).await?;
        let to = state_of(&stage);
        let active = self.activate(id).await?;
        // Arguments of a call that is not stored must not be stored either.
        let changed = match &stage {
            ApprovalStage::Approved(approved) if row.call.is_some() => {
                let changed = approved.changed_arguments.as_deref();
                changed.and_then(|changed| Some(serde_json::to_string(changed).ok()?.into()))
            }
            _ => None,
        };
        let now = shared.clock.now();
        let action = match to {
            ApprovalState::Approved => Some(Action::CallApproved),
            ApprovalState::Denied => Some(Action::CallDenied),
            _ => None,
        };
        let entry = action.map(|action| {
            let subject = id.to_string();
            let entry = NewEntry::new(now, &decision.by, action, Some(&subject));
            let entry = entry.with("tool", &*row.tool).with("caller", &*row.caller);
            let is_changed = matches!(&decision.verdict, Verdict::Approve(Some(_)));
            entry.with("changed_arguments", is_changed)
        });
        let change = ApprovalChange {
            entry,
            unexpired_at: Some(now),
            decision: Some(ApprovalDecision {
                at: now,
                by: decision.by,
                note: decision.note,
                changed_arguments: changed,
            }),
            ..ApprovalChange::new(id, ApprovalState::Waiting, to, self.process())
        };
        if !shared.ledger.change_approval(change).await? {
            let row = shared.ledger.find_approval(id).await?;
            return Err(match row.map(|row| row.state) {
                None => DecideError::NotFound,
                Some(ApprovalState::Waiting) => DecideError::Decided(ApprovalState::Expired),
                Some(state) => DecideError::Decided(state),
            });
        }
        self.publish(id).await;
        Ok((row, Decided { stage, active }))
    }

    /// Marks a waiting call as one on which this process acts. Another task may just decide about the
    /// call, withdraw it or let it expire: then the outcome counts.
    async fn activate(&self, id: InvocationId) -> Result<ActiveGuard, DecideError> {
        let shared = self.shared();
        loop {
            if let Some(active) = shared.waiting_calls.activate(id) {
                return Ok(active);
            }
            sleep(DECISION_INTERVAL).await;
            match shared.ledger.find_approval(id).await?.map(|row| row.state) {
                None => return Err(DecideError::NotFound),
                Some(ApprovalState::Waiting) => {}
                Some(state) => return Err(DecideError::Decided(state)),
            }
        }
    }

    pub(super) async fn publish(&self, id: InvocationId) {
        let shared = self.shared();
        let feed = shared.in_flight_calls.events();
        publish_approval(feed, &*shared.ledger, id).await;
    }

    /// Hands the decision to the request that waits, or runs the stored call in a task.
    pub(super) fn act(self: &Arc<Self>, row: ApprovalRow, decided: Decided) {
        if let Err(decided) = self.shared().waiting_calls.hand_over(decided) {
            let registry = self.clone();
            tokio::spawn(async move { registry.run_stored(row, decided).await }.boxed());
        }
    }

    /// Runs a decided call, or writes its row. `None`: its tool or its stored form is gone.
    async fn run_stored(
        &self,
        row: ApprovalRow,
        Decided { stage, active }: Decided,
    ) -> Option<Result<Answer, CallError>> {
        let id = row.invocation;
        let (Some(mut call), Some(entry)) = (self.stored_call(&row), self.get(&row.tool)) else {
            if let Err(error) = self.end_without_tool(&row, &stage).await {
                tracing::error!(%id, %error, "the end of a waiting call could not be written");
            }
            return None;
        };
        if let ApprovalStage::Approved(approved) = &stage
            && let Some(changed) = &approved.changed_arguments
        {
            call.input.arguments = changed.clone();
        }
        call.approval = Some(Arc::new(stage));
        let outcome = self.invoke(&entry, call).await;
        if let Err(error) = &outcome {
            tracing::debug!(%id, %error, "a call that waited for approval has ended");
        }
        drop(active);
        Some(outcome)
    }

    /// The stored call, as one that starts now. `None`: it is not stored, or a newer version stored
    /// it.
    fn stored_call(&self, row: &ApprovalRow) -> Option<Box<Invocation>> {
        let now = self.shared().clock.now();
        if let Some(kept) = self.shared().waiting_calls.kept(row.invocation) {
            let stored = StoredCall::new(&kept.invocation, &kept.invocation.input.arguments);
            let (tool, caller) = (kept.invocation.tool, self.caller_named(&row.caller));
            return Some(stored.to_invocation(row.invocation, tool, caller, now));
        }
        let stored: StoredCall = serde_json::from_str(row.call.as_deref()?).ok()?;
        let tool = ToolName::parse(&row.tool).ok()?;
        Some(stored.to_invocation(row.invocation, tool, self.caller_named(&row.caller), now))
    }

    /// The caller with its present rights. A caller that no longer exists has none.
    fn caller_named(&self, name: &str) -> Arc<Caller> {
        let catalog = self.catalog();
        let callers = catalog.callers();
        if callers.is_empty() {
            return Arc::new(Caller::anonymous());
        }
        let known = callers.iter().find(|caller| &*caller.name == name);
        Arc::new(known.cloned().unwrap_or_else(|| Caller::new(name, false)))
    }

    async fn stage_for(
        &self,
        row: &ApprovalRow,
        decision: &Decision,
    ) -> Result<ApprovalStage, DecideError> {
        let changed = match &decision.verdict {
            Verdict::Deny => {
                let error = denied(row, &decision.by, decision.note.as_deref());
                return Ok(ApprovalStage::Refused(error));
            }
            Verdict::Withdraw => {
                return Ok(ApprovalStage::Refused(CallError::Cancelled {
                    started: false,
                }));
            }
            Verdict::Approve(None) => return Ok(self.stored_approval(row)),
            Verdict::Approve(Some(changed)) => changed,
        };
        let call = self.stored_call(row).ok_or(DecideError::NotFound)?;
        let entry = self.get(&row.tool).ok_or(DecideError::NotFound)?;
        let fitted = entry
            .rules
            .fit_model_arguments(changed.clone(), &call.input.context, None)
            .await
            .map_err(DecideError::Invalid)?;
        Ok(ApprovalStage::Approved(Approved {
            hash: approval_hash(&entry.definition_hash, &fitted.arguments),
            changed_arguments: Some(Arc::new(fitted.arguments)),
            requested_arguments: call.input.arguments,
        }))
    }

    /// The approval of the arguments that are stored.
    pub(super) fn stored_approval(&self, row: &ApprovalRow) -> ApprovalStage {
        let parse = || {
            let requested = self.stored_call(row)?.input.arguments;
            let kept = self.shared().waiting_calls.kept(row.invocation);
            let changed: Option<JsonObject> = match row.changed_arguments.as_deref() {
                Some(changed) => Some(serde_json::from_str(changed).ok()?),
                None => None,
            };
            let hash = match (&changed, kept) {
                (_, Some(kept)) => kept.hash,
                // The stored hash is that of the arguments that were shown first.
                (Some(changed), None) => {
                    approval_hash(&self.get(&row.tool)?.definition_hash, changed)
                }
                (None, None) => ApprovalRequest::from_row(row)?.hash()?,
            };
            Some(ApprovalStage::Approved(Approved {
                hash,
                changed_arguments: changed.map(Arc::new),
                requested_arguments: requested,
            }))
        };
        parse().unwrap_or_else(|| ApprovalStage::Refused(expired(row)))
    }

    /// Writes the row of a call whose tool or stored form is gone.
    async fn end_without_tool(
        &self,
        row: &ApprovalRow,
        stage: &ApprovalStage,
    ) -> Result<(), ledger::Error> {
        let shared = self.shared();
        let error = match stage {
            ApprovalStage::Refused(error) => error.clone(),
            _ => expired(row),
        };
        let failure = Failure::from(&error);
        let mut ended = waiting_row(row);
        ended.state = match error {
            CallError::Cancelled { .. } => State::Cancelled,
            _ => State::Refused,
        };
        (ended.kind, ended.detail) = (Some(failure.kind), Some(error.summary().into()));
        ended.duration_us = Some(0);
        ended.result = serde_json::to_string(&failure).ok().map(Into::into);
        shared.ledger.record(Arc::new(ended)).await?;
        let (from, state) = match state_of(stage) {
            ApprovalState::Approved => (ApprovalState::Approved, ApprovalState::Expired),
            state => (state, state),
        };
        let done = ApprovalChange {
            done: true,
            ..ApprovalChange::new(row.invocation, from, state, self.process())
        };
        shared.ledger.change_approval(done).await?;
        shared.waiting_calls.forget(row.invocation);
        Ok(())
    }

    pub(super) fn process(&self) -> Arc<str> {
        let shared = self.shared();
        shared.waiting_calls.process(&*shared.ledger)
    }
}

/// The state of an approval with this decision.
fn state_of(stage: &ApprovalStage) -> ApprovalState {
    match stage {
        ApprovalStage::Refused(error) => refused_state(error),
        _ => ApprovalState::Approved,
    }
}

pub(super) fn denied(row: &ApprovalRow, by: &str, note: Option<&str>) -> CallError {
    CallError::ApprovalDenied {
        tool: row.tool.to_string(),
        by: by.to_owned(),
        note: note.map(str::to_owned),
    }
}

pub(super) fn expired(row: &ApprovalRow) -> CallError {
    let wait = row.expires_at.duration_since(row.requested_at);
    let reason = match row.decided_at {
        Some(_) => "the approved call is no longer available".to_owned(),
        None => format!("no person decided within {wait:#}"),
    };
    CallError::ApprovalExpired {
        tool: row.tool.to_string(),
        reason,
    }
}
