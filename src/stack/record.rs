//! Writes one row in the ledger for each call, however the call ends. A replay has no row of its
//! own. A call that is refused here, because the service is draining or the ledger accepts no calls,
//! has no row. Refused calls may share one. A decided call that could not start or end has no row either:
//! it starts or ends later.
//!
//! This layer is above all layers that may refuse a call, so refusals get rows too. If the caller
//! disconnects, the future of the handler is dropped. The call then continues in a task of its own.
//! That task aborts the tool or lets it finish, as `on_disconnect` says, and writes the row.

use std::borrow::Cow;
use std::mem;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tower::{Layer, Service};

use super::Outcome;
use super::ended_call::{CaptureRules, EndRules, EndedCall, final_state};
use super::observers::Observers;
use super::replay::ReplayCache;
use crate::call::{
    Answer, ApprovalStage, CallError, CallReport, CallSignals, Failure, Invocation, JsonObject,
    OnDisconnect, Policy, RecordedArguments, ReplayedFrom, ToolResult,
};
use crate::ledger::{AttemptRow, Ledger, Row, State};
use crate::telemetry::EndedParts;
use crate::tracking::in_flight::{InFlightCalls, InFlightGuard};

/// The [`Layer`] of [`Record`].
#[derive(Clone)]
pub struct RecordLayer(Arc<RecordState>);

struct RecordState {
    ledger: Arc<dyn Ledger>,
    in_flight_calls: InFlightCalls,
    deadline: Option<Duration>,
    on_disconnect: OnDisconnect,
    end_rules: EndRules,
    /// Keeps in memory the answers of which the ledger may hold only digests, for repetitions of
    /// their keys.
    replay_cache: ReplayCache,
    observers: Observers,
}

impl RecordLayer {
    /// Makes the layer for a tool with this policy.
    pub fn new(
        ledger: &Arc<dyn Ledger>,
        in_flight_calls: &InFlightCalls,
        policy: &Policy,
        capture_rules: CaptureRules,
        replay_cache: &ReplayCache,
        observers: Observers,
    ) -> Self {
        Self(Arc::new(RecordState {
            ledger: ledger.clone(),
            in_flight_calls: in_flight_calls.clone(),
            deadline: policy.deadline,
            on_disconnect: policy.disconnect_action(),
            end_rules: EndRules {
                effect: policy.effect,
                capture_rules,
            },
            replay_cache: replay_cache.clone(),
            observers,
        }))
    }
}

impl<S> Layer<S> for RecordLayer {
    type Service = Record<S>;

    fn layer(&self, inner: S) -> Record<S> {
        Record {
            inner,
            shared: self.0.clone(),
        }
    }
}

/// The service of this layer: runs the call and records its end. See [`RecordLayer`].
#[derive(Clone)]
pub struct Record<S> {
    inner: S,
    shared: Arc<RecordState>,
}

impl<S> Service<Box<Invocation>> for Record<S>
where
    S: Service<Box<Invocation>, Response = Arc<ToolResult>, Error = CallError>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = Answer;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Answer, CallError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut invocation: Box<Invocation>) -> Self::Future {
        // The service that was polled ready must be the one that is called. `self` keeps the clone.
        let ready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, ready);
        let shared = self.shared.clone();
        Box::pin(async move {
            if let Some(spans) = &shared.observers.spans {
                spans.start(&mut invocation.correlation);
            }
            if let Err(reason) = shared.ledger.accepts_calls() {
                return shared.refuse(&invocation, ledger_unavailable(reason));
            }
            if let Some(deadline) = shared.deadline {
                let end = invocation.timing.started + deadline;
                invocation.timing.shorten_deadline(end);
            }
            invocation.input.recorded = shared.recorded_arguments(&invocation);
            let arguments = std::mem::take(&mut invocation.input.arguments);
            let guard = shared
                .in_flight_calls
                .start_call(&invocation, shared.end_rules.effect);
            let Some(guard) = guard else {
                return shared.refuse(&invocation, CallError::Draining);
            };
            let stops = shared.on_disconnect == OnDisconnect::Cancel;
            let signals = invocation.signals.clone();
            DetachOnDrop {
                call: Some(
                    shared
                        .run_and_record(inner, invocation, arguments, guard)
                        .boxed(),
                ),
                signals,
                stops,
            }
            .await
        })
    }
}

/// Runs the call until it ends or is cancelled. A panic here comes from a layer: `attempt` catches
/// panics of the tool.
async fn run_to_end<S>(mut inner: S, invocation: Box<Invocation>) -> Outcome
where
    S: Service<Box<Invocation>, Response = Arc<ToolResult>, Error = CallError>,
{
    let (signals, report, id) = (
        invocation.signals.clone(),
        invocation.report.clone(),
        invocation.id,
    );
    let cancelled = async {
        signals.cancelled.cancelled().await;
        // The lock is held while a reservation commits. Without this wait, dropping the call would
        // lose the list of units that the commit charged, and they could not be refunded.
        drop(report.reservation_lock.lock().await);
    };
    let call = AssertUnwindSafe(async move { inner.call(invocation).await }).catch_unwind();
    tokio::select! {
        // `biased`: if the call ends at the moment of its cancellation, the cancellation takes
        // precedence.
        biased;
        () = cancelled => Err(CallError::Cancelled { started: tool_started(&report) }),
        outcome = call => outcome.unwrap_or_else(|_| {
            tracing::error!(%id, "a layer panicked");
            Err(CallError::Internal)
        }),
    }
}

/// Whether the tool of a cancelled call started. An attempt that only waited for something to run
/// on does not count.
fn tool_started(report: &CallReport) -> bool {
    report.attempt.lock().started().0 > 0
}

impl RecordState {
    fn recorded_arguments(&self, invocation: &Invocation) -> RecordedArguments {
        let arguments = self
            .end_rules
            .capture_rules
            .schema
            .redact_write_only(&invocation.input.arguments);
        let arguments = match &invocation.paging.arguments {
            None => arguments,
            Some(page) => {
                let mut all = arguments.into_owned();
                all.extend(page.raw.clone());
                Cow::Owned(all)
            }
        };
        match &self.end_rules.capture_rules.digest_key {
            None => RecordedArguments::Full(
                self.end_rules
                    .capture_rules
                    .redactor
                    .redact_arguments(&arguments)
                    .into(),
            ),
            Some(key) => RecordedArguments::Digest(key.digest(&*arguments)),
        }
    }

    /// Runs the call with these arguments, writes its row and returns the answer. A reserved row is
    /// settled before the answer leaves. Any other row is written after the answer left, unless the
    /// ledger is strict.
    async fn run_and_record<S>(
        self: Arc<Self>,
        inner: S,
        invocation: Box<Invocation>,
        arguments: Arc<JsonObject>,
        guard: InFlightGuard,
    ) -> Result<Answer, CallError>
    where
        S: Service<Box<Invocation>, Response = Arc<ToolResult>, Error = CallError>,
    {
        let mut running = invocation.clone();
        running.input.arguments = arguments;
        let outcome = match invocation.approval.as_deref() {
            // The call waited for a person and must not run. This writes its row.
            Some(ApprovalStage::Refused(error)) => Err(error.clone()),
            _ => run_to_end(inner, running).await,
        };
        if let Some(waiting) = self.answer_if_it_waits(&invocation, &outcome).await {
            return Ok(waiting);
        }
        // The layers below are dropped or have returned, so no other code changes the report from
        // here on. The order of the steps that follow matters:
        // 1. A replay ends here: its row exists since the first call.
        // 2. The row gets its state, its key and its refunds.
        // 3. The table of running calls, the log and the metrics see the row.
        // 4. The row is committed. Only then does the call leave the table, so a caller with an
        //    answer always finds its call.
        let attempts = self.end_attempts(&invocation, &outcome).await;
        let duration = invocation.timing.started.elapsed();
        let replay = mem::take(&mut *invocation.report.replay.lock());
        if let Some(replayed_from) = replay.replayed_from {
            let duration_us = i64::try_from(duration.as_micros()).ok();
            return self.replay_answer(&invocation, outcome, replayed_from, (guard, duration_us));
        }
        let ended =
            self.end_rules
                .describe(&invocation, outcome, attempts, duration, replay.fingerprint);
        guard.set_ended(&ended.row);
        let parts = EndedParts {
            result: ended.answer.as_ref().ok().map(|answer| &*answer.result),
            model: ended.model,
            ..EndedParts::default()
        };
        self.observers.observe_end(&invocation, &ended.row, parts);
        self.keep_for_replay(&ended).await;
        self.commit(ended, guard).await
    }

    /// The answer for a call that has no end yet: it waits for a person, or its person has decided
    /// and the service or its ledger could not start it.
    async fn answer_if_it_waits(
        &self,
        invocation: &Invocation,
        outcome: &Outcome,
    ) -> Option<Answer> {
        match outcome {
            Ok(_) if invocation.report.waits_for_approval() => Some(invocation.waiting_answer()),
            Err(
                error @ (CallError::Draining | CallError::LedgerUnavailable { started: false, .. }),
            ) if invocation.is_approved() => {
                if mem::take(&mut *invocation.report.charge.lock()).reserved {
                    self.ledger.undo_reservation(invocation.id).await;
                }
                Some(starts_later(invocation, error))
            }
            _ => None,
        }
    }

    /// Counts the attempts of a call that has ended, and writes the row of one that was interrupted.
    async fn end_attempts(&self, invocation: &Invocation, outcome: &Outcome) -> u32 {
        let (attempts, interrupted_since) = {
            let attempt = invocation.report.attempt.lock();
            match outcome {
                Err(CallError::Cancelled { .. }) => attempt.started(),
                _ => attempt.all(),
            }
        };
        if let (Err(error), Some(started_at)) = (outcome, interrupted_since) {
            if let Some(span) = invocation.correlation.span.recorded() {
                span.add_attempt(attempts, started_at, Some(error.kind().as_str()));
            }
            self.record_dropped_attempt(invocation, attempts, started_at, error)
                .await;
        }
        attempts
    }

    /// Keeps an answer of which the ledger has a digest only. This must precede the commit: from
    /// then on, a repetition finds the row and looks for its answer here.
    async fn keep_for_replay(&self, ended: &EndedCall) {
        if self.end_rules.capture_rules.digest_key.is_some() && ended.row.key_until.is_some() {
            let failure = ended
                .answer
                .as_ref()
                .map_err(|error| Failure::from_error(error, self.end_rules.effect));
            let failure = failure.as_ref().copied();
            Box::pin(self.replay_cache.store_outcome(ended.row.id, failure)).await;
        }
    }

    /// Writes the row. `guard` keeps the call in the table of running calls until then.
    async fn commit(&self, ended: EndedCall, guard: InFlightGuard) -> Result<Answer, CallError> {
        let EndedCall {
            row,
            answer,
            reserved,
            refunds,
            tool_ran,
            model: _,
        } = ended;
        let id = row.id;
        // Rows that wait for their commit after their answers are bounded in memory. Above that
        // bound, answers wait for their commit.
        let may_wait = !reserved && !self.ledger.is_strict();
        if let Some(memory_permit) = may_wait
            .then(|| self.in_flight_calls.reserve_uncommitted(&row))
            .flatten()
        {
            self.ledger
                .record_in_background(row, Box::new((guard, memory_permit)));
            return answer;
        }
        let committed = match reserved {
            true => self.ledger.settle(row, refunds).await,
            false => self.ledger.record(row).await,
        };
        drop(guard);
        committed.map_err(|error| {
            tracing::error!(%id, %error, "the end of a call could not be written");
            settlement_error(&error, tool_ran)
        })?;
        answer
    }

    /// Returns the answer of the earlier call. It is logged and counted as a replay, without a row.
    fn replay_answer(
        &self,
        invocation: &Invocation,
        outcome: Outcome,
        replayed_from: ReplayedFrom,
        (guard, duration_us): (InFlightGuard, Option<i64>),
    ) -> Result<Answer, CallError> {
        let ReplayedFrom {
            invocation: id,
            tool_use_id,
            meta,
        } = replayed_from;
        let state = final_state(&outcome, self.end_rules.effect, meta.attempts);
        let error = outcome.as_ref().err();
        let row = Row {
            kind: error.map(CallError::kind),
            duration_us,
            detail: error.map(|error| error.summary().into()),
            ..Row::from_invocation(invocation, self.end_rules.effect, state)
        };
        guard.end_replay(id, &row);
        let row = Row { id, ..row };
        let result = outcome.as_ref().ok().map(|result| &**result);
        self.observers.observe_replay(invocation, &row, result);
        outcome.map(|result| Answer {
            invocation: id,
            tool_use_id,
            result,
            meta,
            replayed: true,
            waiting: false,
        })
    }

    /// Writes the row of an attempt that a deadline or a cancellation dropped, because such an
    /// attempt cannot write its own row.
    async fn record_dropped_attempt(
        &self,
        invocation: &Invocation,
        attempt: u32,
        started_at: Instant,
        error: &CallError,
    ) {
        let (id, kind, message) = (invocation.id, error.kind(), error.to_string());
        let duration_us = i64::try_from(started_at.elapsed().as_micros()).unwrap_or(i64::MAX);
        let row = AttemptRow {
            invocation: id,
            attempt,
            kind,
            message,
            duration_us,
        };
        if let Err(error) = self.ledger.record_attempt(row).await {
            tracing::warn!(%id, %error, "an interrupted attempt could not be written");
        }
    }
}

/// The answer for a decided call that gets no row now: it starts or ends later.
fn starts_later(invocation: &Invocation, error: &CallError) -> Answer {
    tracing::debug!(id = %invocation.id, %error, "a decided call starts or ends later");
    invocation.waiting_answer()
}

impl RecordState {
    /// Refuses a call without a row. A decided call starts or ends later.
    fn refuse(&self, invocation: &Invocation, error: CallError) -> Result<Answer, CallError> {
        match invocation.approval.as_deref() {
            Some(ApprovalStage::Approved(_) | ApprovalStage::Refused(_)) => {
                Ok(starts_later(invocation, &error))
            }
            _ => Err(self.observe_refusal(invocation, error)),
        }
    }

    /// Reports a call that gets no row to the log and the metrics.
    fn observe_refusal(&self, invocation: &Invocation, error: CallError) -> CallError {
        let duration_us = i64::try_from(invocation.timing.started.elapsed().as_micros()).ok();
        let row = Row::from_invocation(invocation, self.end_rules.effect, State::Refused);
        let (kind, detail) = (Some(error.kind()), Some(error.summary().into()));
        self.observers.observe_end(
            invocation,
            &Row {
                kind,
                detail,
                duration_us,
                ..row
            },
            EndedParts::default(),
        );
        error
    }
}

/// The error for a call whose end could not be written. The ledger keeps the row and retries; the
/// caller must not retry.
fn settlement_error(error: &crate::ledger::Error, started: bool) -> CallError {
    CallError::LedgerUnavailable {
        reason: error.to_string(),
        started,
        has_row: true,
    }
}

fn ledger_unavailable(reason: String) -> CallError {
    CallError::LedgerUnavailable {
        reason,
        started: false,
        has_row: false,
    }
}

/// A call that runs to its end even if its caller disconnects. It is polled in the task of the
/// caller, which saves a task and a change of thread. If it is dropped before its end, it cancels
/// the call's tokens and continues in a task of its own.
pub(super) struct DetachOnDrop {
    pub(super) call: Option<BoxFuture<'static, Result<Answer, CallError>>>,
    pub(super) signals: Arc<CallSignals>,
    /// Whether the tool stops when the caller has disconnected.
    pub(super) stops: bool,
}

impl Future for DetachOnDrop {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.call else {
            return Poll::Ready(Err(CallError::Internal));
        };
        let answer = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(answer)
    }
}

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        self.signals.disconnect(self.stops);
        // Without a runtime the process is at its end, and so is the ledger.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(call);
        }
    }
}
