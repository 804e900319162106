//! Waits until a person has decided about a call, and then sends the call through the stack again.
//!
//! The first pass stores the call in the layer `approval` and writes no row. The second pass runs
//! the approved call, or writes the row of a call that must not run. All layers judge the call
//! again, so grants and limits hold at the time of the start. A waiting call holds no permit and no
//! unit, and does not hold up a shutdown.
//!
//! This layer is above `record`, which writes one row in the second pass.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::request::publish_approval;
use super::rule::ApprovalParts;
use super::table::{ActiveGuard, Decided};
use crate::call::{
    Answer, ApprovalPolicy, ApprovalStage, CallError, CallReport, Invocation, InvocationId,
};
use crate::ledger::{ApprovalChange, ApprovalDecision, ApprovalState, End, State};
use crate::stack::interceptor::{Inner, Interceptor, InterceptorLayer};

/// How often a waiting request looks for a decision of another process.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Of many waiting requests, one looks this often, so that they do not load the ledger.
const SHARED_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How often a request looks for the end of a call that another process runs.
const END_INTERVAL: Duration = Duration::from_millis(200);

type Outcome = Result<Answer, CallError>;

/// The layer for tools whose calls a person may have to approve.
pub struct AwaitDecision {
    tool: String,
    policy: ApprovalPolicy,
    parts: ApprovalParts,
}

impl Interceptor<Answer> for AwaitDecision {
    async fn call<S: Inner<Answer>>(
        self: Arc<Self>,
        inner: S,
        invocation: Box<Invocation>,
    ) -> Outcome {
        match invocation.approval {
            Some(_) => self.run_decided(inner, invocation).await,
            None => self.run_new(inner, invocation).await,
        }
    }
}

impl AwaitDecision {
    /// Makes the layer for a tool; `None` if its calls need no approval.
    pub fn layer(
        tool: &str,
        policy: Option<&ApprovalPolicy>,
        parts: ApprovalParts,
    ) -> Option<InterceptorLayer<Self>> {
        let (tool, policy) = (tool.to_owned(), policy?.clone());
        Some(InterceptorLayer::new(Self {
            tool,
            policy,
            parts,
        }))
    }

    /// Runs a new call. If it must be approved, waits for the decision.
    async fn run_new<S: Inner<Answer>>(
        self: Arc<Self>,
        mut inner: S,
        mut invocation: Box<Invocation>,
    ) -> Outcome {
        let raw = invocation.input.arguments.clone();
        invocation.approval = Some(Arc::new(ApprovalStage::Requested(raw)));
        let again = invocation.clone();
        // The request waits from here on, so no decision is missed.
        let mut waiter = self.parts.waiting_calls.wait_for(invocation.id);
        // A caller may also leave while the call is stored. An approved call does not notice.
        let mut withdrawal = Withdrawal {
            call: (again.idempotency_key.is_none() && !again.delivery.responds_async)
                .then(|| (self.clone(), inner.clone(), again.clone())),
        };
        match inner.call(invocation).await {
            Ok(answer) if answer.waiting => {}
            outcome => {
                withdrawal.call = None;
                if matches!(outcome, Err(CallError::Cancelled { started: false })) {
                    self.end_cancelled(again.id).await;
                }
                return outcome;
            }
        }
        if let Some(waits) = &again.delivery.waits {
            waits.cancel();
        }
        if let Some(sink) = &again.delivery.progress {
            sink.send_event("waiting", &self.waiting_event(&again));
        }
        let decided = tokio::select! {
            biased;
            decided = &mut waiter.decided => decided.ok(),
            is_elsewhere = self.look_for_decision(&again) => {
                if !is_elsewhere {
                    withdrawal.call = None;
                    return Ok(again.waiting_answer());
                }
                None
            },
        };
        withdrawal.call = None;
        match decided {
            Some(Decided { stage, active }) => {
                // A task of its own: the decided call goes on if its client disconnects.
                let task = async move {
                    let outcome = self.run_again(inner, again, stage).await;
                    drop(active);
                    outcome
                };
                let run = tokio::spawn(task.boxed());
                run.await.unwrap_or(Err(CallError::Internal))
            }
            None => self.answer_from_ledger(&again).await,
        }
    }

    /// The second pass of a call after its decision.
    async fn run_again(
        &self,
        inner: impl Inner<Answer>,
        mut call: Box<Invocation>,
        stage: ApprovalStage,
    ) -> Outcome {
        let budget = call.timing.deadline.map(|_| call.timing.budget());
        call.timing.started = Instant::now();
        call.timing.started_at = self.parts.clock.now();
        call.timing.deadline = None;
        if let Some(budget) = budget {
            call.timing.limit_to(budget);
        }
        let warnings = std::mem::take(&mut call.report.entry.lock().warnings);
        call.report = Arc::new(CallReport::default());
        call.report.entry.lock().warnings = warnings;
        if let ApprovalStage::Approved(approved) = &stage
            && let Some(changed) = &approved.changed_arguments
        {
            call.input.arguments = changed.clone();
        }
        call.approval = Some(Arc::new(stage));
        self.run_decided(inner, call).await
    }

    /// Runs an approved call, or writes the row of a refused one. An approval permits one start.
    async fn run_decided(
        &self,
        mut inner: impl Inner<Answer>,
        invocation: Box<Invocation>,
    ) -> Outcome {
        let id = invocation.id;
        let process = self.parts.waiting_calls.process(&*self.parts.ledger);
        let state = match invocation.approval.as_deref() {
            Some(ApprovalStage::Refused(error)) => refused_state(error),
            _ => {
                let (from, to) = (ApprovalState::Approved, ApprovalState::Started);
                let start = ApprovalChange {
                    from_runner: Some(process.clone()),
                    ..ApprovalChange::new(id, from, to, process.clone())
                };
                match self.parts.ledger.change_approval(start).await {
                    Ok(true) => ApprovalState::Started,
                    Ok(false) => return self.answer_from_ledger(&invocation).await,
                    // The call stays approved, and starts when the ledger can write.
                    Err(_) => return Ok(invocation.waiting_answer()),
                }
            }
        };
        let kept = self.parts.waiting_calls.forget_on_drop(id);
        let outcome = inner.call(invocation).await;
        match &outcome {
            // The tool has not run, and the call has no row. The sweep handles it later.
            Ok(answer) if answer.waiting => {
                kept.keep();
                return outcome;
            }
            // The row is not committed yet. The sweep closes the approval when it is.
            Err(CallError::LedgerUnavailable { .. }) => {
                kept.keep();
                return outcome;
            }
            _ => {}
        }
        let done = ApprovalChange {
            done: true,
            ..ApprovalChange::new(id, state, state, process)
        };
        if let Err(error) = self.parts.ledger.change_approval(done).await {
            tracing::warn!(%id, %error, "an approval stays open, although its call has ended");
        }
        outcome
    }

    /// How long a request waits.
    fn decision_wait(&self, call: &Invocation) -> Duration {
        if call.delivery.waits_for_decision {
            return self.policy.expires.saturating_add(LOOK_INTERVAL * 5);
        }
        let deadline = call.timing.deadline;
        let time = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        self.policy.wait.min(time.unwrap_or(Duration::MAX))
    }

    /// Returns when the request has waited long enough, or when another process acts on the decision.
    /// Returns whether one does.
    async fn look_for_decision(&self, call: &Invocation) -> bool {
        let wait = self.decision_wait(call);
        let mut looks_at = Instant::now();
        let look = async {
            loop {
                sleep(LOOK_INTERVAL).await;
                if self.parts.in_flight_calls.is_closed() {
                    return false;
                }
                if Instant::now() < looks_at {
                    continue;
                }
                let requests = self.parts.waiting_calls.count_requests();
                looks_at = Instant::now() + SHARED_LOOK_INTERVAL * requests;
                let found = self.parts.ledger.find_approval(call.id).await;
                let process = self.parts.waiting_calls.process(&*self.parts.ledger);
                if let Ok(Some(row)) = found
                    && row.state != ApprovalState::Waiting
                    && (row.done || row.runner != process)
                {
                    return true;
                }
            }
        };
        let is_ended = async {
            match &call.delivery.wait_ends {
                Some(ended) => ended.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            is_elsewhere = look => is_elsewhere,
            () = sleep(wait) => false,
            () = is_ended => false,
        }
    }

    /// Waits for the end of a call that another task or process runs, at most as long as for a
    /// decision.
    async fn answer_from_ledger(&self, call: &Invocation) -> Outcome {
        let until = Instant::now() + self.decision_wait(call);
        while Instant::now() < until && !self.parts.in_flight_calls.is_closed() {
            if let Ok(Some(found)) = self.parts.ledger.get(call.id).await
                && found.row.state != State::Reserved
            {
                let Ok(end) = found.row.decode_end(found.origin_result) else {
                    return Err(CallError::Internal);
                };
                return match end {
                    End::Answered { result, meta } => Ok(Answer {
                        result,
                        meta,
                        waiting: false,
                        ..call.waiting_answer()
                    }),
                    End::Failed(failure) => Err(CallError::StoredFailure {
                        failure: Box::new(failure),
                        invocation: call.id,
                        replayed: false,
                    }),
                    End::Open | End::DigestOnly(_) => Ok(call.waiting_answer()),
                };
            }
            sleep(END_INTERVAL).await;
        }
        Ok(call.waiting_answer())
    }

    /// Ends the approval of a call that was cancelled while it was stored.
    async fn end_cancelled(&self, id: InvocationId) {
        let waiting = &self.parts.waiting_calls;
        let process = waiting.process(&*self.parts.ledger);
        let (from, to) = (ApprovalState::Waiting, ApprovalState::Withdrawn);
        let withdraw = ApprovalChange {
            done: true,
            ..ApprovalChange::new(id, from, to, process)
        };
        waiting.forget(id);
        if let Err(error) = self.parts.ledger.change_approval(withdraw).await {
            tracing::warn!(%id, %error, "an approval stays open, although its call is cancelled");
        }
    }

    fn waiting_event(&self, call: &Invocation) -> serde_json::Value {
        serde_json::json!({
            "invocation_id": call.id,
            "tool": self.tool,
            "tool_use_id": call.correlation.tool_use_id,
            "state": State::Waiting,
            "message": self.policy.message,
        })
    }

    /// Cancels a call whose caller has left before the decision.
    async fn withdraw(self: Arc<Self>, inner: impl Inner<Answer>, call: Box<Invocation>) {
        let waiting = &self.parts.waiting_calls;
        let (id, process) = (call.id, waiting.process(&*self.parts.ledger));
        // Without a guard, a decision is on its way.
        let Some(active): Option<ActiveGuard> = waiting.activate(id) else {
            return;
        };
        let (from, to) = (ApprovalState::Waiting, ApprovalState::Withdrawn);
        let withdraw = ApprovalChange {
            decision: Some(ApprovalDecision {
                at: self.parts.clock.now(),
                by: call.caller.name.clone(),
                note: Some("the caller disconnected".into()),
                changed_arguments: None,
            }),
            ..ApprovalChange::new(id, from, to, process)
        };
        let mut changed = self.parts.ledger.change_approval(withdraw.clone()).await;
        if matches!(changed, Ok(false)) {
            // The call may still be on its way into the ledger.
            sleep(LOOK_INTERVAL).await;
            changed = self.parts.ledger.change_approval(withdraw).await;
        }
        if matches!(changed, Ok(true)) {
            let feed = self.parts.in_flight_calls.events();
            publish_approval(feed, &*self.parts.ledger, id).await;
            let stage = ApprovalStage::Refused(CallError::Cancelled { started: false });
            let _ = self.run_again(inner, call, stage).await;
        }
        drop(active);
    }
}

/// Withdraws a call if its caller leaves before it is answered.
struct Withdrawal<S: Inner<Answer>> {
    call: Option<(Arc<AwaitDecision>, S, Box<Invocation>)>,
}

impl<S: Inner<Answer>> Drop for Withdrawal<S> {
    fn drop(&mut self) {
        let Some((waiting, inner, call)) = self.call.take() else {
            return;
        };
        // At a shutdown the call stays stored, and waits on.
        if waiting.parts.in_flight_calls.is_closed() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(waiting.withdraw(inner, call).boxed());
        }
    }
}

/// The state of an approval whose call was refused with this failure.
pub(super) fn refused_state(error: &CallError) -> ApprovalState {
    match error {
        CallError::ApprovalDenied { .. } => ApprovalState::Denied,
        CallError::Cancelled { .. } => ApprovalState::Withdrawn,
        _ => ApprovalState::Expired,
    }
}
