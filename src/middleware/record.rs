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
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tower::{Layer, Service};

use super::Outcome;
use super::detach_on_drop::DetachOnDrop;
use super::end_state::{claims_key, final_state};
use super::observers::Observers;
use super::replay::ReplayCache;
use crate::call::{
    Answer, ApprovalStage, CallError, CallReport, Charged, DigestKey, ERROR_RESULT_SUMMARY, Effect,
    Failure, Invocation, InvocationId, JsonObject, KEY_RETENTION, Meta, OnDisconnect, Policy,
    RecordedArguments, ReplayedFrom, ToolResult, error_text_beginning,
};
use crate::ledger::{AttemptRow, Ledger, Row, State};
use crate::schema::Schema;
use crate::secrets::Redactor;
use crate::telemetry::EndedParts;
use crate::text::sanitize;
use crate::tracking::in_flight::{InFlightCalls, InFlightGuard};

/// The [`Layer`] of [`Record`].
#[derive(Clone)]
pub struct RecordLayer(Arc<RecordState>);

struct RecordState {
    ledger: Arc<dyn Ledger>,
    in_flight_calls: InFlightCalls,
    effect: Effect,
    deadline: Option<std::time::Duration>,
    on_disconnect: OnDisconnect,
    capture_rules: CaptureRules,
    /// Keeps in memory the answers of which the ledger may hold only digests, for repetitions of
    /// their keys.
    replay_cache: ReplayCache,
    observers: Observers,
}

/// Which part of a call's arguments is recorded.
pub struct CaptureRules {
    /// Knows which arguments are `writeOnly` and must not be recorded.
    pub schema: Arc<Schema>,
    /// Key of the digests that replace arguments and results. `None` if the tool records them in
    /// full.
    pub digest_key: Option<DigestKey>,
    /// Takes secrets of the manifest out of arguments.
    pub redactor: Arc<Redactor>,
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
            effect: policy.effect,
            deadline: policy.deadline,
            on_disconnect: policy.disconnect_action(),
            capture_rules,
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
            shared
                .ledger
                .accepts_calls()
                .map_err(|reason| shared.refuse(&invocation, ledger_unavailable(reason)))?;
            if let Some(deadline) = shared.deadline {
                let end = invocation.timing.started + deadline;
                invocation.timing.shorten_deadline(end);
            }
            invocation.input.recorded = shared.recorded_arguments(&invocation);
            let arguments = std::mem::take(&mut invocation.input.arguments);
            let guard = shared
                .in_flight_calls
                .start_call(&invocation, shared.effect);
            let guard = guard.ok_or_else(|| shared.refuse(&invocation, CallError::Draining))?;
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
        match &self.capture_rules.digest_key {
            None => RecordedArguments::Full(
                self.capture_rules
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
        let id = invocation.id;
        let mut running = invocation.clone();
        running.input.arguments = arguments;
        let mut outcome = match invocation.approval.as_deref() {
            // The call waited for a person and must not run. This writes its row.
            Some(ApprovalStage::Refused(error)) => Err(error.clone()),
            _ => run_to_end(inner, running).await,
        };
        // An approved call starts later if the service or its ledger could not start it.
        if let Err(
            error @ (CallError::Draining | CallError::LedgerUnavailable { started: false, .. }),
        ) = &outcome
            && invocation.is_approved()
        {
            let is_reserved = mem::take(&mut *invocation.report.charge.lock()).reserved;
            if is_reserved {
                self.ledger.undo_reservation(id).await;
            }
            outcome = Err(waits_on(&invocation, error));
        }
        if let Err(CallError::WaitsForApproval { tool }) = outcome {
            // The row is written after the decision, or when the approved call starts.
            return Err(CallError::WaitsForApproval { tool });
        }
        // The layers below are dropped or have returned, so no other code changes the report from
        // here on. The order of the steps that follow matters:
        // 1. A replay ends here: its row exists since the first call.
        // 2. The row gets its state, its key and its refunds.
        // 3. The table of running calls, the log and the metrics see the row.
        // 4. The row is committed. Only then does the call leave the table, so a caller with an
        //    answer always finds its call.
        let has_run = invocation.report.attempt.lock().has_run();
        let (attempts, interrupted_since) = {
            let attempt = invocation.report.attempt.lock();
            match outcome {
                Err(CallError::Cancelled { .. }) => attempt.started(),
                _ => attempt.all(),
            }
        };
        if let (Err(error), Some(started_at)) = (&outcome, interrupted_since) {
            if let Some(span) = invocation.correlation.span.recorded() {
                span.add_attempt(attempts, started_at, Some(error.kind().as_str()));
            }
            self.record_dropped_attempt(&invocation, attempts, started_at, error)
                .await;
        }
        let duration = invocation.timing.started.elapsed();
        let replay = mem::take(&mut *invocation.report.replay.lock());
        if let Some(replayed_from) = replay.replayed_from {
            // The earlier call has written the row. A replay gets no row of its own.
            let duration_us = i64::try_from(duration.as_micros()).ok();
            return self.replay_answer(&invocation, outcome, replayed_from, (guard, duration_us));
        }
        // `run` has cleaned the output of the tool. A refusal or a warning may quote what the
        // caller sent.
        if let Err(error) = &mut outcome {
            self.capture_rules.redactor.redact_error(error);
        }
        let charge = mem::take(&mut *invocation.report.charge.lock());
        let cache = mem::take(&mut *invocation.report.cache.lock());
        let tool = mem::take(&mut *invocation.report.tool.lock());
        let fitting = mem::take(&mut *invocation.report.fitting.lock());
        let mut warnings = mem::take(&mut invocation.report.entry.lock().warnings);
        warnings.extend(fitting.warnings);
        warnings.extend(tool.warnings);
        for warning in &mut warnings {
            sanitize::clean_in_place(warning);
            self.capture_rules.redactor.redact_string(warning);
        }
        let meta = Meta {
            cache: cache.status,
            attempts,
            duration_ms: (duration.as_secs_f64() * 1e6).round() / 1e3,
            usage: charge.charged.iter().map(Charged::to_usage).collect(),
            coercions: fitting.coercions,
            result_digest: None,
            model: tool.model,
            overflow: None,
            warnings,
        };
        let state = match final_state(&outcome, self.effect, meta.attempts) {
            // The last attempt did not start the tool, but an earlier one has run it.
            State::Refused if has_run => State::Failed,
            state => state,
        };
        // Without an attempt, or after a refusal, no code of the tool ran. Then the charged units
        // are refunded.
        let tool_ran = meta.attempts > 0 && state != State::Refused;
        // With several attempts, an earlier attempt may have had more effect than the last one.
        let not_delivered =
            meta.attempts == 1 && outcome.as_ref().is_err_and(CallError::is_not_delivered);
        let keeps_key = !not_delivered
            && charge.reserved
            && replay.fingerprint.is_some()
            && tool_ran
            && claims_key(state, self.effect);
        let detail = match &outcome {
            Ok(result) if result.is_error => Some(match self.capture_rules.digest_key {
                Some(_) => ERROR_RESULT_SUMMARY.to_owned(),
                None => error_text_beginning(&result.as_text()),
            }),
            Ok(_) => None,
            Err(error) => Some(error.summary()),
        };
        let outcome = match outcome {
            Err(error) if keeps_key => Err(self.stored_failure(id, &error)),
            outcome => outcome,
        };
        // A repetition with the same key is answered from the row of this call. So a reserved row
        // must hold the result itself, not a reference to the call that the cached result comes
        // from.
        let origin = cache.origin.or(tool.origin).filter(|_| !charge.reserved);
        let mut row = self.build_row(&invocation, &outcome, state, &meta, origin);
        row.detail = detail.map(Into::into);
        if charge.reserved {
            let end = invocation
                .timing
                .started_at
                .checked_add(duration.saturating_add(KEY_RETENTION))
                .unwrap_or(Row::FOREVER);
            row = row.with_claim(replay.fingerprint.as_ref(), keeps_key.then_some(end));
        }
        let row = Arc::new(row);
        guard.set_ended(&row);
        let parts = EndedParts {
            result: outcome.as_ref().ok().map(|result| &**result),
            model: meta.model,
            ..EndedParts::default()
        };
        self.observers.observe_end(&invocation, &row, parts);
        let refunds = if tool_ran { Vec::new() } else { charge.charged };
        let tool_use_id = invocation.correlation.tool_use_id.clone();
        let answer = outcome.map(|result| Answer {
            invocation: id,
            tool_use_id,
            result,
            meta,
            replayed: false,
            waiting: false,
        });
        // This must precede the commit: from then on, a repetition finds the row and looks for its
        // answer here.
        if self.capture_rules.digest_key.is_some() && row.key_until.is_some() {
            let failure = answer
                .as_ref()
                .map_err(|error| Failure::from_error(error, self.effect));
            self.replay_cache
                .store_outcome(id, failure.as_ref().copied())
                .await;
        }
        // Rows that wait for their commit after their answers are bounded in memory. Above that
        // bound, answers wait for their commit.
        let may_wait = !charge.reserved && !self.ledger.is_strict();
        if let Some(memory_permit) = may_wait
            .then(|| self.in_flight_calls.reserve_uncommitted(&row))
            .flatten()
        {
            // The guard moves into the ledger's queue: the call stays in the table of running calls
            // until its row is committed.
            self.ledger
                .record_in_background(row, Box::new((guard, memory_permit)));
            return answer;
        }
        let committed = match charge.reserved {
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
        let state = final_state(&outcome, self.effect, meta.attempts);
        let error = outcome.as_ref().err();
        let row = Row {
            kind: error.map(CallError::kind),
            duration_us,
            detail: error.map(|error| error.summary().into()),
            ..Row::from_invocation(invocation, self.effect, state)
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

    /// A failure that is stored under the call's idempotency key. It is not retryable, because each
    /// call with that key gets the same failure.
    fn stored_failure(&self, invocation: InvocationId, error: &CallError) -> CallError {
        let failure = Failure {
            retryable: false,
            retry_after_ms: None,
            ..Failure::from_error(error, self.effect)
        };
        CallError::StoredFailure {
            failure: Box::new(failure),
            invocation,
            replayed: false,
        }
    }

    fn build_row(
        &self,
        invocation: &Invocation,
        outcome: &Outcome,
        state: State,
        meta: &Meta,
        origin: Option<InvocationId>,
    ) -> Row {
        let mut row = Row::from_invocation(invocation, self.effect, state);
        row.cache = meta.cache;
        row.attempts = meta.attempts;
        row.duration_us = Some((meta.duration_ms * 1e3) as i64);
        // The metadata holds coercions and warnings, which may quote arguments that
        // `capture: digest` keeps out of the record. For a refusal, they may be as long as the
        // arguments.
        let keeps_meta = self.capture_rules.digest_key.is_none() && state != State::Refused;
        row.meta = keeps_meta.then(|| to_json_text(meta)).flatten();
        match outcome {
            Ok(_) if origin.is_some() => row.origin = origin,
            Ok(result) => {
                row.result = match &self.capture_rules.digest_key {
                    None => to_json_text(&**result),
                    Some(key) => Some(key.digest(&**result).to_column().into()),
                };
            }
            Err(error) => {
                let failure = Failure::from_error(error, self.effect);
                let failure = self
                    .capture_rules
                    .digest_key
                    .iter()
                    .fold(failure, |failure, key| failure.with_digest(key));
                row.kind = Some(failure.kind);
                if error
                    .related_invocation()
                    .is_some_and(|other| other != invocation.id)
                {
                    // The error names another call that holds the key. A search for the key must
                    // find that call, not this row.
                    row.idempotency_key = None;
                }
                let failure = if state == State::Refused {
                    failure.shortened()
                } else {
                    failure
                };
                row.result = to_json_text(&failure);
            }
        }
        row
    }
}

fn to_json_text(value: &impl serde::Serialize) -> Option<Arc<str>> {
    serde_json::to_string(value).ok().map(Into::into)
}

/// The error of a decided call that gets no row now: it starts or ends later.
fn waits_on(invocation: &Invocation, error: &CallError) -> CallError {
    tracing::debug!(id = %invocation.id, %error, "a decided call starts or ends later");
    CallError::WaitsForApproval {
        tool: invocation.tool.to_string(),
    }
}

impl RecordState {
    /// Refuses a call without a row.
    fn refuse(&self, invocation: &Invocation, error: CallError) -> CallError {
        match invocation.approval.as_deref() {
            Some(ApprovalStage::Approved(_) | ApprovalStage::Refused(_)) => {
                waits_on(invocation, &error)
            }
            _ => self.observe_refusal(invocation, error),
        }
    }

    /// Reports a call that gets no row to the log and the metrics.
    fn observe_refusal(&self, invocation: &Invocation, error: CallError) -> CallError {
        let duration_us = i64::try_from(invocation.timing.started.elapsed().as_micros()).ok();
        let row = Row::from_invocation(invocation, self.effect, State::Refused);
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
