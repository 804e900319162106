//! Writes exactly one row in the ledger for each call, however the call ends.
//!
//! This layer is above all layers that may refuse a call, so refusals get rows too. If the caller disconnects, the
//! future of the handler is dropped. The call then continues in a task of its own. That task aborts the tool or lets it
//! finish, as `on_disconnect` says, and writes the row.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service};

use super::Outcome;
use super::replay::Replays;
use crate::call::{
    Answer, CallError, CallReport, Charged, DigestKey, Effect, Failure, Invocation, InvocationId, JsonObject, KEY_KEPT,
    Meta, OnDisconnect, Policy, Received, ReplayedFrom, ToolResult,
};
use crate::in_flight::{InFlightCalls, InFlightGuard};
use crate::ledger::{AttemptRow, Ledger, Row, State};
use crate::log::CallLog;
use crate::metrics::{self, ToolMetrics};
use crate::schema::Schema;
use crate::secrets::Redactor;

/// The [`Layer`] of [`Record`].
#[derive(Clone)]
pub struct RecordLayer(Arc<Shared>);

struct Shared {
    ledger: Arc<dyn Ledger>,
    running: InFlightCalls,
    effect: Effect,
    deadline: Option<std::time::Duration>,
    on_disconnect: OnDisconnect,
    recorded: Recorded,
    /// Keeps in memory the answers of which the ledger may hold only digests, for repetitions of their keys.
    replays: Replays,
    told: Observers,
}

/// Which part of a call's arguments is recorded.
pub struct Recorded {
    /// Knows which arguments are `writeOnly` and must not be recorded.
    pub schema: Arc<Schema>,
    /// Key of the digests that replace arguments and results. `None` if the tool records them in full.
    pub digests: Option<DigestKey>,
    /// Takes secrets of the manifest out of arguments.
    pub redactor: Arc<Redactor>,
}

/// The observers that learn how each call ended, besides the ledger.
pub struct Observers {
    /// Writes one log line for each call.
    pub log: CallLog,
    /// The metrics of the tool.
    pub metrics: ToolMetrics,
}

impl RecordLayer {
    /// Makes the layer for a tool with this policy.
    pub fn new(
        ledger: &Arc<dyn Ledger>,
        running: &InFlightCalls,
        policy: &Policy,
        recorded: Recorded,
        replays: &Replays,
        told: Observers,
    ) -> Self {
        Self(Arc::new(Shared {
            ledger: ledger.clone(),
            running: running.clone(),
            effect: policy.effect,
            deadline: policy.deadline,
            on_disconnect: policy.on_disconnect(),
            recorded,
            replays: replays.clone(),
            told,
        }))
    }
}

impl<S> Layer<S> for RecordLayer {
    type Service = Record<S>;

    fn layer(&self, inner: S) -> Record<S> {
        Record { inner, shared: self.0.clone() }
    }
}

/// The service of this layer: runs the call and records its end. See [`RecordLayer`].
#[derive(Clone)]
pub struct Record<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Service<Invocation> for Record<S>
where
    S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Answer;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Answer, CallError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut invocation: Invocation) -> Self::Future {
        // The service that was polled ready must be the one that is called. `self` keeps the clone.
        let ready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, ready);
        let shared = self.shared.clone();
        Box::pin(async move {
            shared.ledger.health().map_err(|reason| shared.turned_away(&invocation, not_writable(reason)))?;
            if let Some(deadline) = shared.deadline {
                let end = invocation.started + deadline;
                invocation.shorten_deadline(end);
            }
            invocation.received = shared.received(&invocation);
            let arguments = std::mem::take(&mut invocation.arguments);
            let running = shared.running.begin(&invocation, shared.effect);
            let running = running.ok_or_else(|| shared.turned_away(&invocation, CallError::Draining))?;
            let cancels = shared.on_disconnect == OnDisconnect::Cancel;
            let stop = cancels.then(|| invocation.stop.clone());
            let left = invocation.left.clone();
            DetachOnDrop { call: Some(shared.run(inner, invocation, arguments, running).boxed()), left, stop }.await
        })
    }
}

/// Runs the call until it ends or is canceled. A panic here comes from a layer: `attempt` catches panics of the tool.
async fn run<S>(mut inner: S, invocation: Invocation) -> Outcome
where
    S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError>,
{
    let (stop, notes, id) = (invocation.stop.clone(), invocation.notes.clone(), invocation.id);
    let cancelled = async {
        stop.cancelled().await;
        // The lock is held while a reservation commits. Without this wait, dropping the call would lose the list of
        // units that the commit charged, and they could not be refunded.
        drop(notes.reserving.lock().await);
    };
    let call = AssertUnwindSafe(async move { inner.call(invocation).await }).catch_unwind();
    tokio::select! {
        // `biased`: if the call ends at the moment of its cancellation, the cancellation takes precedence.
        biased;
        () = cancelled => Err(CallError::Cancelled { started: was_tried(&notes) }),
        outcome = call => outcome.unwrap_or_else(|_| {
            tracing::error!(%id, "a layer panicked");
            Err(CallError::Internal)
        }),
    }
}

/// Whether the tool of a canceled call started. An attempt that only waited for something to run on does not count.
fn was_tried(notes: &CallReport) -> bool {
    let mut notes = notes.lock();
    if notes.waits {
        notes.meta.attempts = notes.meta.attempts.saturating_sub(1);
        notes.trying = None;
    }
    notes.meta.attempts > 0
}

impl Shared {
    fn received(&self, invocation: &Invocation) -> Received {
        let arguments = self.recorded.schema.recordable(&invocation.arguments);
        let arguments = match &invocation.page_arguments {
            None => arguments,
            Some(page) => {
                let mut all = arguments.into_owned();
                all.extend(page.written.clone());
                Cow::Owned(all)
            }
        };
        match &self.recorded.digests {
            None => Received::Whole(self.recorded.redactor.arguments(&arguments).into()),
            Some(key) => Received::Digest(key.digest(&*arguments)),
        }
    }

    /// Runs the call with these arguments, writes its row and returns the answer. A reserved row is settled before the
    /// answer leaves. Any other row is written after the answer left, unless the ledger is strict.
    async fn run<S>(
        self: Arc<Self>,
        inner: S,
        invocation: Invocation,
        arguments: Arc<JsonObject>,
        running: InFlightGuard,
    ) -> Result<Answer, CallError>
    where
        S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError>,
    {
        let id = invocation.id;
        let mut outcome = run(inner, Invocation { arguments, ..invocation.clone() }).await;
        // The layers below are dropped or have returned, so no other code changes the notes from here on. The order of
        // the steps that follow matters:
        // 1. A replay ends here: its row exists since the first call.
        // 2. The row gets its state, its key and its refunds.
        // 3. The table of running calls, the log and the metrics see the row.
        // 4. The row is committed. Only then does the call leave the table, so a caller with an answer always finds its
        // call.
        let mut notes = std::mem::take(&mut *invocation.notes.lock());
        if let (Err(error), Some(began)) = (&outcome, notes.trying) {
            self.cut_off(&invocation, notes.meta.attempts, began, error).await;
        }
        let duration = invocation.started.elapsed();
        if let Some(earlier) = notes.earlier.take() {
            // The earlier call has written the row. A replay gets no row of its own.
            drop(running);
            let took = i64::try_from(duration.as_micros()).ok();
            return self.replayed(&invocation, outcome, earlier, took);
        }
        // `run` has cleaned the output of the tool. A refusal or a warning may quote what the caller sent.
        if let Err(error) = &mut outcome {
            self.recorded.redactor.error(error);
        }
        notes.meta.warnings.iter_mut().for_each(|warning| self.recorded.redactor.string(warning));
        let meta = Meta {
            duration_ms: (duration.as_secs_f64() * 1e6).round() / 1e3,
            usage: notes.charged.iter().map(Charged::usage).collect(),
            ..notes.meta
        };
        let state = state_of(&outcome, self.effect, meta.attempts);
        // Without an attempt, or after a refusal, no code of the tool ran. Then the charged units are refunded.
        let tried = meta.attempts > 0 && state != State::Refused;
        // With several attempts, an earlier attempt may have had more effect than the last one.
        let untouched = meta.attempts == 1 && outcome.as_ref().is_err_and(CallError::is_untouched);
        let keeps_key =
            !untouched && notes.reserved && notes.fingerprint.is_some() && tried && keeps_key(state, self.effect);
        let outcome = match outcome {
            Err(error) if keeps_key => Err(self.kept(id, &error)),
            outcome => outcome,
        };
        // A repetition with the same key is answered from the row of this call. So a reserved row must hold the result
        // itself, not a reference to the call that the cached result comes from.
        let origin = notes.origin.filter(|_| !notes.reserved);
        let mut row = self.row(&invocation, &outcome, state, &meta, origin);
        if notes.reserved {
            let end = invocation.started_at.checked_add(duration.saturating_add(KEY_KEPT)).unwrap_or(Row::FOREVER);
            row = row.claiming(notes.fingerprint.as_ref(), keeps_key.then_some(end));
        }
        let row = Arc::new(row);
        running.ended(row.clone());
        self.told.of(&invocation, &row);
        let refunds = if tried { Vec::new() } else { notes.charged };
        let tool_use_id = invocation.tool_use_id.clone();
        let answer = outcome.map(|result| Answer { invocation: id, tool_use_id, result, meta, replayed: false });
        // This must precede the commit: from then on, a repetition finds the row and looks for its answer here.
        if self.recorded.digests.is_some() && row.key_until.is_some() {
            let failure = answer.as_ref().map_err(|error| Failure::of(error, self.effect));
            self.replays.keep(id, failure.as_ref().copied()).await;
        }
        // Rows that wait for their commit after their answers are bounded in memory. Above that bound, answers wait for
        // their commit.
        let may_wait = !notes.reserved && !self.ledger.is_strict();
        if let Some(place) = may_wait.then(|| self.running.place_behind(&row)).flatten() {
            // The guard moves into the ledger's queue: the call stays in the table of running calls until its row is
            // committed.
            self.ledger.record_behind(row, Box::new((running, place)));
            return answer;
        }
        let committed = match notes.reserved {
            true => self.ledger.settle(row, refunds).await,
            false => self.ledger.record(row).await,
        };
        drop(running);
        committed.map_err(|error| {
            tracing::error!(%id, %error, "the end of a call could not be written");
            unrecorded(&error, tried)
        })?;
        answer
    }

    /// Returns the answer of the earlier call. It is logged and counted as a replay, without a row.
    fn replayed(
        &self,
        invocation: &Invocation,
        outcome: Outcome,
        earlier: ReplayedFrom,
        took: Option<i64>,
    ) -> Result<Answer, CallError> {
        let ReplayedFrom { invocation: id, tool_use_id, meta } = earlier;
        let state = state_of(&outcome, self.effect, meta.attempts);
        let kind = outcome.as_ref().err().map(CallError::kind);
        let row = Row { id, kind, duration_us: took, ..Row::begun(invocation, self.effect, state) };
        self.told.log.replayed(invocation, &row);
        self.told.metrics.replayed();
        outcome.map(|result| Answer { invocation: id, tool_use_id, result, meta, replayed: true })
    }

    /// Writes the row of an attempt that a deadline or a cancellation dropped, because such an attempt cannot write its
    /// own row.
    async fn cut_off(&self, invocation: &Invocation, attempt: u32, began: Instant, error: &CallError) {
        let (id, kind, message) = (invocation.id, error.kind(), error.to_string());
        let duration_us = i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX);
        let row = AttemptRow { invocation: id, attempt, kind, message, duration_us };
        if let Err(error) = self.ledger.attempt(row).await {
            tracing::warn!(%id, %error, "a try that was cut off could not be written");
        }
    }

    /// A failure that is stored under the call's idempotency key. It is not retryable, because each call with that key
    /// gets the same failure.
    fn kept(&self, invocation: InvocationId, error: &CallError) -> CallError {
        let failure = Failure { retryable: false, retry_after_ms: None, ..Failure::of(error, self.effect) };
        CallError::Kept { failure: Box::new(failure), invocation, again: false }
    }

    fn row(
        &self,
        invocation: &Invocation,
        outcome: &Outcome,
        state: State,
        meta: &Meta,
        origin: Option<InvocationId>,
    ) -> Row {
        let mut row = Row::begun(invocation, self.effect, state);
        row.cache = meta.cache;
        row.attempts = meta.attempts;
        row.duration_us = Some((meta.duration_ms * 1e3) as i64);
        // The metadata holds coercions and warnings, which may quote arguments that `capture: digest` keeps out of the
        // record. For a refusal, they may be as long as the arguments.
        let keeps_meta = self.recorded.digests.is_none() && state != State::Refused;
        row.meta = keeps_meta.then(|| json_text(meta)).flatten();
        match outcome {
            Ok(_) if origin.is_some() => row.origin = origin,
            Ok(result) => {
                row.result = match &self.recorded.digests {
                    None => json_text(&**result),
                    Some(key) => Some(key.digest(&**result).to_column().into()),
                };
            }
            Err(error) => {
                let failure = Failure::of(error, self.effect);
                let failure = self.recorded.digests.iter().fold(failure, |failure, key| failure.withheld(key));
                row.kind = Some(failure.kind);
                if error.speaks_of().is_some_and(|other| other != invocation.id) {
                    // The error names another call that holds the key. A search for the key must find that call, not
                    // this row.
                    row.idempotency_key = None;
                }
                let failure = if state == State::Refused { failure.shortened() } else { failure };
                row.result = json_text(&failure);
            }
        }
        row
    }
}

fn json_text(value: &impl serde::Serialize) -> Option<Arc<str>> {
    serde_json::to_string(value).ok().map(Into::into)
}

impl Shared {
    /// Reports a call that gets no row to the log and the metrics.
    fn turned_away(&self, invocation: &Invocation, error: CallError) -> CallError {
        let duration_us = i64::try_from(invocation.started.elapsed().as_micros()).ok();
        let row = Row::begun(invocation, self.effect, State::Refused);
        self.told.of(invocation, &Row { kind: Some(error.kind()), duration_us, ..row });
        error
    }
}

impl Observers {
    fn of(&self, invocation: &Invocation, row: &Row) {
        self.log.ended(invocation, row);
        let outcome = match row.kind {
            Some(kind) => metrics::Outcome::Failed(kind),
            None if row.state == State::Failed => metrics::Outcome::ToolError,
            None => metrics::Outcome::Ok,
        };
        let took = row.duration_us.filter(|_| row.state != State::Refused);
        let took = took.map(|us| std::time::Duration::from_micros(us.unsigned_abs()));
        self.metrics.ended(outcome, row.cache, took, row.attempts);
    }
}

/// Whether a call with at least one attempt keeps its idempotency key at its end. A canceled call that may be repeated
/// does not keep it: the next call with the key then runs, instead of getting the cancellation again.
fn keeps_key(state: State, effect: Effect) -> bool {
    match state {
        State::Refused | State::Reserved | State::Running => false,
        State::Cancelled => !effect.may_repeat(),
        State::Succeeded | State::Failed | State::TimedOut | State::Unknown => true,
    }
}

/// The error for a call whose end could not be written. The ledger keeps the row and retries; the caller must not
/// retry.
fn unrecorded(error: &crate::ledger::Error, started: bool) -> CallError {
    CallError::LedgerUnavailable { reason: error.to_string(), started }
}

fn not_writable(reason: String) -> CallError {
    CallError::LedgerUnavailable { reason, started: false }
}

/// The state of the call at its end. A write that had an attempt may have had an effect if it was then canceled, timed
/// out, or lost its process. Its state is `Unknown`.
fn state_of(outcome: &Outcome, effect: Effect, attempts: u32) -> State {
    let in_doubt = effect == Effect::Write && attempts > 0;
    match outcome {
        Ok(result) if result.is_error => State::Failed,
        Ok(_) => State::Succeeded,
        Err(error) if error.is_refusal() => State::Refused,
        Err(CallError::DeadlineExceeded { .. } | CallError::AttemptTimedOut { .. }) if in_doubt => State::Unknown,
        Err(CallError::DeadlineExceeded { .. } | CallError::AttemptTimedOut { .. }) => State::TimedOut,
        Err(CallError::Cancelled { .. } | CallError::ToolUnavailable { started: true, .. }) if in_doubt => {
            State::Unknown
        }
        Err(CallError::Cancelled { .. }) => State::Cancelled,
        Err(_) => State::Failed,
    }
}

/// A call that runs to its end even if its caller disconnects. It is polled in the task of the caller, which saves a
/// task and a change of thread. If it is dropped before its end, it cancels the call's tokens and continues in a task
/// of its own.
struct DetachOnDrop {
    call: Option<BoxFuture<'static, Result<Answer, CallError>>>,
    left: CancellationToken,
    /// `None` if a call that has started runs to its end.
    stop: Option<CancellationToken>,
}

impl Future for DetachOnDrop {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.call else { return Poll::Ready(Err(CallError::Internal)) };
        let answer = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(answer)
    }
}

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        self.left.cancel();
        if let Some(stop) = &self.stop {
            stop.cancel();
        }
        // Without a runtime the process is at its end, and so is the ledger.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(call);
        }
    }
}
