//! Decides about calls that wait for a person, and starts the approved ones.
//!
//! The decision is one change in the ledger, so it is made once. The process that has made it acts
//! on it: the request that still waits runs the call, or else a task that reads the stored call.
//! A sweep finds decisions whose process has ended, and calls that have expired.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::Registry;
use super::waiting_row::waiting_row;
use crate::call::{
    Answer, ApprovalStage, Approved, CallError, Caller, Failure, Invocation, InvocationId,
    JsonObject, StoredCall, ToolName, approval_hash,
};
use crate::ledger::{
    self, ApprovalChange, ApprovalDecision, ApprovalQuery, ApprovalRow, ApprovalState, State,
};
use crate::middleware::approval_notice::publish_approval;
use crate::middleware::approval_request::ApprovalRequest;
use crate::tracking::waiting_calls::{ActiveGuard, Decided};

/// How often the sweep looks.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// After this many looks, the sweep looks for calls whose process has ended.
const LOST_CALLS_TICKS: u64 = 30;
/// How often a decision looks for the outcome of another one about the same call.
const DECISION_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of approvals that one sweep reads at once, and on which it acts.
const SWEEP_SIZE: u32 = 200;
/// Maximum number of such pages that one sweep reads: more calls never wait.
const SWEEP_PAGES: u32 = 60;
/// The author of decisions that no person made.
const SERVICE: &str = "toolcrib";

/// The approvals that a sweep looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    /// Expired calls, and decisions on which nobody acts.
    Due,
    /// Waiting calls that only the memory of an ended process had.
    Lost,
}

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
        let call = tokio::spawn(async move { registry.run_stored(row, decided).await });
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
        let change = ApprovalChange {
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

    async fn publish(&self, id: InvocationId) {
        let shared = self.shared();
        let feed = shared.in_flight_calls.events();
        publish_approval(feed, &*shared.ledger, id).await;
    }

    /// Expires calls, and acts on decisions of processes that have ended, as long as the service
    /// runs.
    pub(crate) async fn sweep_approvals(self: Arc<Self>) {
        let mut ticks = interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0_u64.. {
            ticks.tick().await;
            if self.shared().in_flight_calls.is_closed() {
                return;
            }
            if tick % LOST_CALLS_TICKS == 0
                && let Err(error) = self.sweep(Sweep::Lost).await
            {
                tracing::debug!(%error, "waiting calls cannot be read");
            }
            if let Err(error) = self.sweep(Sweep::Due).await {
                tracing::debug!(%error, "waiting calls cannot be read");
            }
        }
    }

    /// Acts on approvals page by page: a page full of calls that others run must not hide the calls
    /// behind it.
    async fn sweep(self: &Arc<Self>, sweep: Sweep) -> Result<(), ledger::Error> {
        let shared = self.shared();
        let now = shared.clock.now();
        let mut query = ApprovalQuery {
            due_at: (sweep == Sweep::Due).then_some(now),
            state: (sweep == Sweep::Lost).then_some(ApprovalState::Waiting),
            limit: SWEEP_SIZE,
            ..ApprovalQuery::default()
        };
        let mut living = None;
        let mut acted = 0;
        for _ in 0..SWEEP_PAGES {
            let page = shared.ledger.list_approvals(&query).await?;
            query.before = page.last().map(|last| last.invocation);
            let is_last = page.len() < SWEEP_SIZE as usize;
            if living.is_none() && !page.is_empty() {
                let names = shared.ledger.living_processes().await?;
                living = Some(names.into_iter().collect::<HashSet<_>>());
            }
            for row in page {
                let is_living = living
                    .as_ref()
                    .is_some_and(|living| living.contains(&row.runner));
                acted += u32::from(self.act_on(sweep, row, is_living, now).await?);
            }
            if is_last || acted >= SWEEP_SIZE {
                break;
            }
        }
        Ok(())
    }

    /// Acts on one approval. Returns whether there was something to do.
    async fn act_on(
        self: &Arc<Self>,
        sweep: Sweep,
        row: ApprovalRow,
        is_living: bool,
        now: Timestamp,
    ) -> Result<bool, ledger::Error> {
        let is_own = row.runner == self.process();
        let is_wanted = match (sweep, row.state) {
            (Sweep::Due, ApprovalState::Waiting) => true,
            (Sweep::Due, _) => is_own || !is_living,
            (Sweep::Lost, _) => row.call.is_none() && !is_own && !is_living,
        };
        if !is_wanted {
            return Ok(false);
        }
        let Some(active) = self.shared().waiting_calls.activate(row.invocation) else {
            return Ok(false);
        };
        if row.state == ApprovalState::Waiting {
            self.expire(row, active, now).await?;
        } else {
            self.take_over(row, active).await?;
        }
        Ok(true)
    }

    async fn expire(
        self: &Arc<Self>,
        row: ApprovalRow,
        active: ActiveGuard,
        now: Timestamp,
    ) -> Result<(), ledger::Error> {
        let change = ApprovalChange {
            decision: Some(ApprovalDecision {
                at: now,
                by: SERVICE.into(),
                note: None,
                changed_arguments: None,
            }),
            ..ApprovalChange::new(
                row.invocation,
                ApprovalState::Waiting,
                ApprovalState::Expired,
                self.process(),
            )
        };
        if self.shared().ledger.change_approval(change).await? {
            self.publish(row.invocation).await;
            let stage = ApprovalStage::Refused(expired(&row));
            self.act(row, Decided { stage, active });
        }
        Ok(())
    }

    /// Acts on a decision that nobody acts on.
    async fn take_over(
        self: &Arc<Self>,
        row: ApprovalRow,
        active: ActiveGuard,
    ) -> Result<(), ledger::Error> {
        let ledger = &self.shared().ledger;
        let id = row.invocation;
        if ledger.check_health().is_err() {
            return Ok(());
        }
        let found = ledger.get(id).await?;
        if found
            .as_ref()
            .is_some_and(|call| call.row.state == State::Reserved)
        {
            // The call runs, or its reservation is undone or settled soon.
            return Ok(());
        }
        let has_row = found.is_some();
        // An approval that was used without a row did not start the tool, because the row precedes
        // the tool. So it can be used again.
        let to = match row.state {
            ApprovalState::Started if !has_row => ApprovalState::Approved,
            state => state,
        };
        // The process that has the row answers requests that wait for the call.
        let runner = match has_row {
            true => row.runner.clone(),
            false => self.process(),
        };
        let take = ApprovalChange {
            from_runner: Some(row.runner.clone()),
            done: has_row,
            ..ApprovalChange::new(id, row.state, to, runner)
        };
        if has_row {
            self.shared().waiting_calls.forget(id);
        }
        if !ledger.change_approval(take).await? || has_row {
            return Ok(());
        }
        let stage = match to {
            ApprovalState::Denied => {
                let by = row.decided_by.as_deref().unwrap_or(SERVICE);
                ApprovalStage::Refused(denied(&row, by, row.note.as_deref()))
            }
            ApprovalState::Withdrawn => {
                ApprovalStage::Refused(CallError::Cancelled { started: false })
            }
            ApprovalState::Approved => self.stored_approval(&row),
            _ => ApprovalStage::Refused(expired(&row)),
        };
        self.act(row, Decided { stage, active });
        Ok(())
    }

    /// Hands the decision to the request that waits, or runs the stored call in a task.
    fn act(self: &Arc<Self>, row: ApprovalRow, decided: Decided) {
        if let Err(decided) = self.shared().waiting_calls.hand_over(decided) {
            let registry = self.clone();
            tokio::spawn(async move { registry.run_stored(row, decided).await });
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
    fn stored_approval(&self, row: &ApprovalRow) -> ApprovalStage {
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
        let state = match stage {
            ApprovalStage::Refused(_) => state_of(stage),
            _ => ApprovalState::Expired,
        };
        let from = if matches!(stage, ApprovalStage::Refused(_)) {
            state
        } else {
            ApprovalState::Approved
        };
        let done = ApprovalChange {
            done: true,
            ..ApprovalChange::new(row.invocation, from, state, self.process())
        };
        shared.ledger.change_approval(done).await?;
        shared.waiting_calls.forget(row.invocation);
        Ok(())
    }

    fn process(&self) -> Arc<str> {
        let shared = self.shared();
        shared.waiting_calls.process(&*shared.ledger)
    }
}

/// The state of an approval with this decision.
fn state_of(stage: &ApprovalStage) -> ApprovalState {
    match stage {
        ApprovalStage::Refused(CallError::ApprovalDenied { .. }) => ApprovalState::Denied,
        ApprovalStage::Refused(CallError::Cancelled { .. }) => ApprovalState::Withdrawn,
        ApprovalStage::Refused(_) => ApprovalState::Expired,
        _ => ApprovalState::Approved,
    }
}

fn denied(row: &ApprovalRow, by: &str, note: Option<&str>) -> CallError {
    CallError::ApprovalDenied {
        tool: row.tool.to_string(),
        by: by.to_owned(),
        note: note.map(str::to_owned),
    }
}

fn expired(row: &ApprovalRow) -> CallError {
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
