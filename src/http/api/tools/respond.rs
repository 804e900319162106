//! Makes a call and answers it: with its result, as a stream of events, or with a link to its
//! result.
//!
//! In the last two modes, the status (200 or 202) is sent before the call has ended. So they first
//! wait until the tool runs. A call that is refused before that (arguments, limits, a full queue)
//! gets its usual status.

use std::borrow::Cow;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::header::{LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::route::api_error_for_call;
use crate::call::{
    Answer, CallError, Caller, Capture, Content, Invocation, InvocationId, ProgressSink, Question,
    QuestionSink, question_result,
};
use crate::catalog::registry::{Entry, Registry};
use crate::http::api::wire::InvokeAnswer;
use crate::http::edge::memory::Reservation;
use crate::http::events;
use crate::http::headers::call_headers;
use crate::http::headers::prefer::{self, PREFERENCE_APPLIED, RESPOND_ASYNC};
use crate::http::json_response::json_response;
use crate::http::problem::Problem;
use crate::ledger::State;
use crate::tracking::questions::AskingCall;

/// A call that waits longer than this for a permit, or for an equal call, is answered like a
/// running call.
const MAX_START_WAIT: Duration = Duration::from_secs(2);
/// Shortest wait before a 202. Calls that are refused or fail at once have ended by then, and get
/// their problem.
const MIN_ASYNC_WAIT: Duration = Duration::from_millis(50);

/// How a call is to be answered.
pub(crate) enum ResponseMode {
    /// With the result, when the call has ended.
    WhenEnded,
    /// As a stream of events.
    EventStream,
    /// With the result if the call ends within this time, else with a link to it. With zero, always
    /// with a link.
    Async(Duration),
}

impl ResponseMode {
    /// The mode that a request prefers. Events take precedence over `respond-async`, because a
    /// client that wants events wants to follow the call.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        match prefer::respond_async(headers) {
            _ if events::are_preferred(headers) => Self::EventStream,
            Some(wait) => Self::Async(wait),
            None => Self::WhenEnded,
        }
    }
}

/// The answer for a call that continues.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Accepted {
    /// The call's id, the key of its row in the ledger.
    #[schema(value_type = String)]
    pub invocation_id: InvocationId,
    /// Name of the tool.
    pub tool: String,
    /// The model's id for the call.
    #[schema(value_type = Option<String>, required)]
    pub tool_use_id: Option<Arc<str>>,
    /// Current state of the call.
    pub state: State,
    /// For a call that waits for a person: the text for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub content: Option<Vec<Content>>,
    /// For a call whose tool asks: the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub question: Option<Question>,
}

type InvokeResult = Result<Answer, CallError>;

/// Makes the call and answers it.
pub(crate) async fn call_and_respond(
    mode: ResponseMode,
    registry: Arc<Registry>,
    entry: Arc<Entry>,
    invocation: Box<Invocation>,
    reserved: Reservation,
) -> Response {
    let call = AcceptedCall {
        id: invocation.id,
        caller: invocation.caller.clone(),
        registry,
        entry,
    };
    match mode {
        ResponseMode::EventStream => respond_with_events(call, invocation, reserved).await,
        ResponseMode::Async(wait)
            if !would_lose_result(&call.registry, &call.entry, &invocation) =>
        {
            respond_async(wait, call, invocation, reserved).await
        }
        ResponseMode::WhenEnded
            if call.entry.rules.runner.traits().may_ask
                && !would_lose_result(&call.registry, &call.entry, &invocation) =>
        {
            Box::pin(respond_or_ask(call, invocation)).await
        }
        ResponseMode::WhenEnded | ResponseMode::Async(_) => {
            call.respond_with_result(call.registry.invoke(&call.entry, invocation).await)
        }
    }
}

/// The call that is answered.
#[derive(Clone)]
struct AcceptedCall {
    registry: Arc<Registry>,
    entry: Arc<Entry>,
    caller: Arc<Caller>,
    id: InvocationId,
}

impl AcceptedCall {
    fn respond_with_result(&self, outcome: InvokeResult) -> Response {
        let mut response = match &outcome {
            Ok(answer) if answer.waiting => return self.respond_waiting(answer),
            Ok(answer) => json_response(&self.to_wire(answer)),
            Err(error) => api_error_for_call(error, &self.entry, self.id).into_response(),
        };
        if is_replayed(&outcome) {
            call_headers::mark_replayed(&mut response);
        }
        response
    }

    /// 202, with the text for the model, for a call that waits for a person.
    fn respond_waiting(&self, answer: &Answer) -> Response {
        self.respond_accepted(self.waiting_body(answer))
    }

    fn respond_accepted(&self, body: Accepted) -> Response {
        let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
        add_location(self.id, &mut response);
        response
    }

    fn waiting_body(&self, answer: &Answer) -> Accepted {
        Accepted {
            content: Some(answer.result.content.clone()),
            ..self.accepted(answer.tool_use_id.clone(), State::Waiting)
        }
    }

    fn accepted(&self, tool_use_id: Option<Arc<str>>, state: State) -> Accepted {
        Accepted {
            invocation_id: self.id,
            tool: self.entry.definition.name.to_string(),
            tool_use_id,
            state,
            content: None,
            question: None,
        }
    }

    /// The data of the `result` event: the same bytes as the body of a plain answer.
    fn result_event(&self, outcome: &InvokeResult) -> Box<RawValue> {
        match outcome {
            Ok(answer) if answer.waiting => events::to_json_text(&self.waiting_body(answer)),
            Ok(answer) => events::to_json_text(&self.to_wire(answer)),
            Err(error) => events::to_json_text(&Problem::from(api_error_for_call(
                error,
                &self.entry,
                self.id,
            ))),
        }
    }

    async fn current_state(&self) -> State {
        let shared = self.registry.shared();
        if let Some(row) = shared.in_flight_calls.get(self.id) {
            return row.state;
        }
        if self.entry.policy.approval.is_some()
            && let Ok(Some(row)) = shared.ledger.find_approval(self.id).await
            && !row.done
        {
            return State::Waiting;
        }
        State::Running
    }

    fn to_wire<'a>(&'a self, answer: &'a Answer) -> InvokeAnswer<'a> {
        let content = answer.model_content(|| {
            self.registry
                .catalog()
                .find_result_reader(&self.caller, |_| true)
        });
        InvokeAnswer::for_entry(&self.entry, answer, content.map(Cow::Owned))
    }
}

/// Whether the result could not be read later: the ledger keeps only its digest, and there is no
/// key to repeat the call with. Then a 202 would lose the result.
fn would_lose_result(registry: &Registry, entry: &Entry, invocation: &Invocation) -> bool {
    let capture = entry.policy.capture.unwrap_or(registry.shared().capture);
    capture == Capture::Digest && invocation.idempotency_key.is_none()
}

async fn respond_with_events(
    call: AcceptedCall,
    mut invocation: Box<Invocation>,
    reserved: Reservation,
) -> Response {
    let tool_started = CancellationToken::new();
    let (sink, listener) = ProgressSink::channel();
    Arc::make_mut(&mut invocation.signals).attempt_started = Some(tool_started.clone());
    invocation.delivery.progress = Some(sink);
    invocation.delivery.waits_for_decision = true;
    let task = spawn_call(&call, invocation, reserved);
    let mut task = AbortOnDropHandle::new(task).map(join_result);
    let outcome = tokio::select! {
        biased;
        outcome = &mut task => outcome,
        // The tool runs, or the call has waited long. In both cases the answer is a stream from
        // here on.
        _ = timeout(MAX_START_WAIT, tool_started.cancelled()) => {
            return events::stream_events(listener, task.map(move |outcome| call.result_event(&outcome)));
        }
    };
    // Refused, or failed before the tool ran.
    if outcome.is_err() && !tool_started.is_cancelled() {
        return call.respond_with_result(outcome);
    }
    let replayed = is_replayed(&outcome);
    let mut response = events::stream_events(listener, ready(call.result_event(&outcome)));
    if replayed {
        call_headers::mark_replayed(&mut response);
    }
    response
}

async fn respond_async(
    wait: Duration,
    call: AcceptedCall,
    mut invocation: Box<Invocation>,
    reserved: Reservation,
) -> Response {
    let tool_use_id = invocation.correlation.tool_use_id.clone();
    let tool_started = CancellationToken::new();
    Arc::make_mut(&mut invocation.signals).attempt_started = Some(tool_started.clone());
    invocation.delivery.responds_async = true;
    // Not aborted when the client disconnects. Only `DELETE` and the end of the service cancel this
    // call.
    let mut task = spawn_call(&call, invocation, reserved);
    // Wait for both: the time that the client gives, and the start of the tool. A call in a queue
    // can still be refused, and a 202 would then hide the status. `MAX_START_WAIT` bounds that
    // wait.
    let max_wait = async {
        tokio::join!(
            sleep(wait.max(MIN_ASYNC_WAIT)),
            timeout(MAX_START_WAIT, tool_started.cancelled())
        )
    };
    let state = tokio::select! {
        biased;
        outcome = &mut task => match join_result(outcome) {
            Ok(answer) if answer.waiting => return call.respond_waiting(&answer),
            // A client without `wait` does not expect a result here. So it gets the link even if
            // the call has ended.
            Ok(answer) if wait.is_zero() && !answer.replayed && answer.result.is_error => State::Failed,
            Ok(answer) if wait.is_zero() && !answer.replayed => State::Succeeded,
            outcome => return call.respond_with_result(outcome),
        },
        _ = max_wait => call.current_state().await,
    };
    let mut response = call.respond_accepted(call.accepted(tool_use_id, state));
    response
        .headers_mut()
        .insert(PREFERENCE_APPLIED, RESPOND_ASYNC);
    response
}

/// Tells where the call is read, and when.
fn add_location(id: InvocationId, response: &mut Response) {
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::try_from(format!("/invocations/{id}")) {
        headers.insert(LOCATION, location);
    }
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
}

/// Starts the call in a task of its own, which may outlive its request.
fn spawn_call(
    call: &AcceptedCall,
    mut invocation: Box<Invocation>,
    reserved: Reservation,
) -> JoinHandle<InvokeResult> {
    let may_ask = call.entry.rules.runner.traits().may_ask;
    let may_wait = may_ask || call.entry.policy.approval.is_some();
    let waits = may_wait.then(CancellationToken::new);
    invocation.delivery.waits.clone_from(&waits);
    let call = call.clone();
    tokio::spawn(async move {
        let Some(waits) = waits else {
            let outcome = call.registry.invoke(&call.entry, invocation).await;
            drop(reserved);
            return outcome;
        };
        let running = async {
            match may_ask {
                true => invoke_and_ask(&call, invocation, &waits).await,
                false => call.registry.invoke(&call.entry, invocation).await,
            }
        };
        let mut running = pin!(running);
        tokio::select! {
            biased;
            outcome = &mut running => return outcome,
            // A call that waits for a person holds no memory that others need.
            () = waits.cancelled() => drop(reserved),
        }
        running.await
    })
}

/// Makes a call whose tool may ask. The answer is the result, or 202 with the first question.
async fn respond_or_ask(call: AcceptedCall, mut invocation: Box<Invocation>) -> Response {
    let (sink, mut listener) = QuestionSink::channel();
    invocation.delivery.questions = Some(sink);
    let tool_use_id = invocation.correlation.tool_use_id.clone();
    let (registry, entry) = (call.registry.clone(), call.entry.clone());
    let mut running = Box::pin(async move { registry.invoke(&entry, invocation).await });
    let open = tokio::select! {
        biased;
        outcome = &mut running => return call.respond_with_result(outcome),
        Some(open) = listener.next() => open,
    };
    let body = question_body(&call, tool_use_id, &open.question);
    let asking = AskingCall {
        id: call.id,
        caller: call.caller.name.clone(),
        listener,
        call: running,
    };
    call.registry.shared().questions.detach(asking, open);
    call.respond_accepted(body)
}

/// Makes a call whose questions are events of its stream, and are shown by `GET /invocations/{id}`.
/// `waits` is cancelled at the first question.
async fn invoke_and_ask(
    call: &AcceptedCall,
    mut invocation: Box<Invocation>,
    waits: &CancellationToken,
) -> InvokeResult {
    let (sink, listener) = QuestionSink::channel();
    invocation.delivery.questions = Some(sink);
    let events = invocation.delivery.progress.clone();
    let tool_use_id = invocation.correlation.tool_use_id.clone();
    let asking = AskingCall {
        id: call.id,
        caller: call.caller.name.clone(),
        listener,
        call: Box::pin(call.registry.invoke(&call.entry, invocation)),
    };
    let announce = |question: &Question| {
        waits.cancel();
        if let Some(events) = &events {
            let body = question_body(call, tool_use_id.clone(), question);
            events.send_event("waiting", &body);
        }
    };
    call.registry.shared().questions.run(asking, announce).await
}

/// The body of a 202 and the data of a `waiting` event.
fn question_body(
    call: &AcceptedCall,
    tool_use_id: Option<Arc<str>>,
    question: &Question,
) -> Accepted {
    Accepted {
        content: Some(question_result(question, call.id).content),
        question: Some(question.clone()),
        ..call.accepted(tool_use_id, State::Waiting)
    }
}

fn join_result(joined: Result<InvokeResult, JoinError>) -> InvokeResult {
    joined.unwrap_or_else(|error| {
        // The layers catch panics. So the panic was outside of them, or the runtime is shutting
        // down.
        tracing::error!(%error, "the task of a call ended unexpectedly");
        Err(CallError::Internal)
    })
}

fn is_replayed(outcome: &InvokeResult) -> bool {
    match outcome {
        Ok(answer) => answer.replayed,
        Err(error) => matches!(error, CallError::StoredFailure { replayed: true, .. }),
    }
}
