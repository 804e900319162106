//! The call's one row in the ledger, written whatever happens.
//!
//! Above all that may refuse, so that refusals are rows too. When the caller leaves, the handler's future is dropped; the call itself
//! then goes on in a task of its own, stops the tool or lets it finish, and writes the row.

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
    Answer, CallError, Charged, DigestKey, Earlier, Effect, Failure, Invocation, InvocationId, JsonObject, KEY_KEPT,
    Meta, Notes, OnDisconnect, Policy, Received, ToolResult,
};
use crate::ledger::{AttemptRow, Ledger, Row, State};
use crate::log::CallLog;
use crate::metrics::{self, ToolMetrics};
use crate::running::{Entered, Running};
use crate::schema::Schema;

/// See the module.
#[derive(Clone)]
pub struct RecordLayer(Arc<Shared>);

struct Shared {
    ledger: Arc<dyn Ledger>,
    running: Running,
    effect: Effect,
    deadline: Option<std::time::Duration>,
    on_disconnect: OnDisconnect,
    /// Knows which arguments must not be recorded.
    schema: Arc<Schema>,
    /// Makes digests of what was said, for a tool of which no more is kept.
    digests: Option<DigestKey>,
    /// Keeps what must not be on record, for who asks again.
    replays: Replays,
    told: Told,
}

/// Who is told of every call's end, besides the ledger.
pub struct Told {
    /// The line of each call.
    pub log: CallLog,
    /// The tool's numbers.
    pub metrics: ToolMetrics,
}

impl RecordLayer {
    /// Records calls of a tool with this policy; with a key, digests of what was said in them.
    pub fn new(
        ledger: &Arc<dyn Ledger>,
        running: &Running,
        policy: &Policy,
        schema: &Arc<Schema>,
        digests: Option<DigestKey>,
        replays: &Replays,
        told: Told,
    ) -> Self {
        Self(Arc::new(Shared {
            ledger: ledger.clone(),
            running: running.clone(),
            effect: policy.effect,
            deadline: policy.deadline,
            on_disconnect: policy.on_disconnect(),
            schema: schema.clone(),
            digests,
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

/// See the module.
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
            Outliving { call: Some(shared.run(inner, invocation, arguments, running).boxed()), left, stop }.await
        })
    }
}

/// Runs the call until it ends or is cancelled. A panic here is ours: the tool's own are caught further in.
async fn run<S>(mut inner: S, invocation: Invocation) -> Outcome
where
    S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError>,
{
    let (stop, notes, id) = (invocation.stop.clone(), invocation.notes.clone(), invocation.id);
    let cancelled = async {
        stop.cancelled().await;
        // A commit under way is waited for, so that what it charged can be given back.
        drop(notes.reserving.lock().await);
    };
    let call = AssertUnwindSafe(async move { inner.call(invocation).await }).catch_unwind();
    tokio::select! {
        biased;
        () = cancelled => Err(CallError::Cancelled { started: was_tried(&notes) }),
        outcome = call => outcome.unwrap_or_else(|_| {
            tracing::error!(%id, "a layer panicked");
            Err(CallError::Internal)
        }),
    }
}

/// Whether a call that is cancelled has been tried. A try that only waited was none.
fn was_tried(notes: &Notes) -> bool {
    let mut notes = notes.lock();
    if notes.waits {
        notes.meta.attempts = notes.meta.attempts.saturating_sub(1);
        notes.trying = None;
    }
    notes.meta.attempts > 0
}

impl Shared {
    fn received(&self, invocation: &Invocation) -> Received {
        let arguments = self.schema.recordable(&invocation.arguments);
        let arguments = match &invocation.page_arguments {
            None => arguments,
            Some(page) => {
                let mut all = arguments.into_owned();
                all.extend(page.written.clone());
                Cow::Owned(all)
            }
        };
        match &self.digests {
            None => Received::whole(&arguments),
            Some(key) => Received::Digest(key.digest(&*arguments)),
        }
    }

    /// Runs the call with these arguments, writes its row, answers. A row that was reserved is settled before the answer
    /// leaves; any other is written behind it, unless the ledger is strict.
    async fn run<S>(
        self: Arc<Self>,
        inner: S,
        invocation: Invocation,
        arguments: Arc<JsonObject>,
        running: Entered,
    ) -> Result<Answer, CallError>
    where
        S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError>,
    {
        let id = invocation.id;
        let outcome = run(inner, Invocation { arguments, ..invocation.clone() }).await;
        let mut notes = std::mem::take(&mut *invocation.notes.lock());
        if let (Err(error), Some(began)) = (&outcome, notes.trying) {
            self.cut_off(&invocation, notes.meta.attempts, began, error).await;
        }
        let duration = invocation.started.elapsed();
        if let Some(earlier) = notes.earlier.take() {
            // It has its row, of when it ran.
            drop(running);
            let took = i64::try_from(duration.as_micros()).ok();
            return self.replayed(&invocation, outcome, earlier, took);
        }
        let meta = Meta {
            duration_ms: (duration.as_secs_f64() * 1e6).round() / 1e3,
            usage: notes.charged.iter().map(Charged::usage).collect(),
            ..notes.meta
        };
        let state = state_of(&outcome, self.effect, meta.attempts);
        // Nothing of the tool ran, so nothing was used.
        let tried = meta.attempts > 0 && state != State::Refused;
        // Of more tries one may have got further than the last.
        let untouched = meta.attempts == 1 && outcome.as_ref().is_err_and(CallError::is_untouched);
        let keeps_key =
            !untouched && notes.reserved && notes.fingerprint.is_some() && tried && keeps_key(state, self.effect);
        let outcome = match outcome {
            Err(error) if keeps_key => Err(self.kept(id, &error)),
            outcome => outcome,
        };
        // Who asks again with the call's key is answered from its own row.
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
        if self.digests.is_some() && row.key_until.is_some() {
            let failure = answer.as_ref().map_err(|error| Failure::of(error, self.effect));
            self.replays.keep(id, failure.as_ref().copied()).await;
        }
        // What waits for its commit behind its answer has a bound; beyond it, answers wait with it.
        let may_wait = !notes.reserved && !self.ledger.is_strict();
        if let Some(place) = may_wait.then(|| self.running.place_behind(&row)).flatten() {
            // It stays among the running calls until it is committed.
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

    /// Says again what was said.
    fn replayed(
        &self,
        invocation: &Invocation,
        outcome: Outcome,
        earlier: Earlier,
        took: Option<i64>,
    ) -> Result<Answer, CallError> {
        let Earlier { invocation: id, tool_use_id, meta } = earlier;
        let state = state_of(&outcome, self.effect, meta.attempts);
        let kind = outcome.as_ref().err().map(CallError::kind);
        let row = Row { id, kind, duration_us: took, ..Row::begun(invocation, self.effect, state) };
        self.told.log.replayed(invocation, &row);
        self.told.metrics.replayed();
        outcome.map(|result| Answer { invocation: id, tool_use_id, result, meta, replayed: true })
    }

    /// A try that was dropped by a deadline or a cancellation could not write its own row.
    async fn cut_off(&self, invocation: &Invocation, attempt: u32, began: Instant, error: &CallError) {
        let (id, kind, message) = (invocation.id, error.kind(), error.to_string());
        let duration_us = i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX);
        let row = AttemptRow { invocation: id, attempt, kind, message, duration_us };
        if let Err(error) = self.ledger.attempt(row).await {
            tracing::warn!(%id, %error, "a try that was cut off could not be written");
        }
    }

    /// A failure that its key repeats: asking again with that key is no way to another answer.
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
        // Its coercions and warnings may name what was asked; without a result there is no answer to put it into.
        // Of a refusal, they may be as long as the arguments.
        let keeps_meta = self.digests.is_none() && state != State::Refused;
        row.meta = keeps_meta.then(|| json_text(meta)).flatten();
        match outcome {
            Ok(_) if origin.is_some() => row.origin = origin,
            Ok(result) => {
                row.result = match &self.digests {
                    None => json_text(&**result),
                    Some(key) => Some(key.digest(&**result).to_column().into()),
                };
            }
            Err(error) => {
                let failure = Failure::of(error, self.effect);
                let failure = self.digests.iter().fold(failure, |failure, key| failure.withheld(key));
                row.kind = Some(failure.kind);
                if error.speaks_of().is_some_and(|other| other != invocation.id) {
                    // Who looks for the key looks for the call that holds it.
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
    /// A call that gets no row is told of all the same.
    fn turned_away(&self, invocation: &Invocation, error: CallError) -> CallError {
        let duration_us = i64::try_from(invocation.started.elapsed().as_micros()).ok();
        let row = Row::begun(invocation, self.effect, State::Refused);
        self.told.of(invocation, &Row { kind: Some(error.kind()), duration_us, ..row });
        error
    }
}

impl Told {
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

/// Whether a call that was tried and ended like this keeps its idempotency key. One that was stopped and may be
/// repeated does not: who was cut off and asks again wants an answer, not to be told so.
fn keeps_key(state: State, effect: Effect) -> bool {
    match state {
        State::Refused | State::Reserved | State::Running => false,
        State::Cancelled => !effect.may_repeat(),
        State::Succeeded | State::Failed | State::TimedOut | State::Unknown => true,
    }
}

/// The call has ended and the ledger would not take its end. It keeps the row and tries again; the caller must not.
fn unrecorded(error: &crate::ledger::Error, started: bool) -> CallError {
    CallError::LedgerUnavailable { reason: error.to_string(), started }
}

fn not_writable(reason: String) -> CallError {
    CallError::LedgerUnavailable { reason, started: false }
}

/// Where the call stands at its end. A write that was tried and then stopped from outside, or that its process did not
/// live to end, may have happened.
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

/// A call that ends even if nobody waits for it any more. Polled where its caller waits, which costs no task and no
/// change of thread; dropped before its end, it trips the call's tokens and goes on in a task of its own.
struct Outliving {
    call: Option<BoxFuture<'static, Result<Answer, CallError>>>,
    left: CancellationToken,
    /// `None`: what has started is let finish.
    stop: Option<CancellationToken>,
}

impl Future for Outliving {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.call else { return Poll::Ready(Err(CallError::Internal)) };
        let answer = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(answer)
    }
}

impl Drop for Outliving {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        self.left.cancel();
        if let Some(stop) = &self.stop {
            stop.cancel();
        }
        // Without a runtime the process is at its end, and the ledger with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(call);
        }
    }
}
