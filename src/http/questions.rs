//! Questions of running tools: how a caller is asked, and `POST /invocations/{id}/answer`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::auth::Principal;
use super::body::{PathPart, StrictJson};
use super::invocations::{InvocationDetail, load_detail, not_found};
use super::problem::ApiError;
use super::respond::{Accepted, AcceptedCall, add_location};
use super::responses::{
    AuthResponses, BodyResponses, CancelResponses, CommonResponses, LedgerResponses,
    LookupResponses, ValidationResponses,
};
use crate::call::{
    Answer, CallError, Failure, Invocation, InvocationId, Question, QuestionAnswer, QuestionSink,
    question_result,
};
use crate::ledger::State as CallState;
use crate::registry::Registry;
use crate::tracking::questions::{AnswerError, AskingCall};

/// A question of a running tool.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct QuestionView {
    /// Name of the question, unique within the call.
    pub name: String,
    /// Name of the tool that asks: the called tool, or one that it calls.
    pub tool: String,
    /// The text for a person.
    pub message: String,
    /// JSON Schema of the answer's `content`: an object with simple properties.
    #[schema(value_type = Object)]
    pub schema: Value,
}

impl From<&Question> for QuestionView {
    fn from(question: &Question) -> Self {
        Self {
            name: question.name.to_string(),
            tool: question.tool.to_string(),
            message: question.message.clone(),
            schema: question.schema.clone(),
        }
    }
}

/// Makes a call whose tool may ask. The answer is the result, or 202 with the first question.
pub(super) async fn respond_or_ask(
    call: AcceptedCall,
    mut invocation: Box<Invocation>,
) -> Response {
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
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    add_location(call.id, &mut response);
    response
}

/// Makes a call whose questions are events of its stream, and are shown by `GET /invocations/{id}`.
/// `waits` is cancelled at the first question.
pub(super) async fn invoke_and_ask(
    call: &AcceptedCall,
    mut invocation: Box<Invocation>,
    waits: &CancellationToken,
) -> Result<Answer, CallError> {
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
pub(super) fn question_body(
    call: &AcceptedCall,
    tool_use_id: Option<Arc<str>>,
    question: &Question,
) -> Accepted {
    Accepted {
        invocation_id: call.id,
        tool: call.entry.definition.name.to_string(),
        tool_use_id,
        state: CallState::Waiting,
        content: Some(question_result(question, call.id).content),
        question: Some(question.into()),
    }
}

/// The body of an answer.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerRequest {
    /// `accept` with `content`, `decline`, or `cancel`.
    action: ActionView,
    /// With `accept`: the values, as the question's schema requires. Default: an empty object.
    #[schema(value_type = Option<std::collections::HashMap<String, Value>>)]
    content: Option<crate::call::JsonObject>,
    /// Name of the question. The answer is refused if another question is open.
    question: Option<String>,
}

/// What a person did with a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum ActionView {
    /// Answered it.
    Accept,
    /// Refused to answer.
    Decline,
    /// Closed it.
    Cancel,
}

/// Answer the question of a running tool.
///
/// Only the caller of the call may answer. The tool then goes on, and the answer shows the call's
/// state. A call that asks has the state `waiting`, and `question` in `GET /invocations/{id}`.
#[utoipa::path(post, operation_id = "answer_question", path = "/invocations/{id}/answer", tag = "ledger", request_body = AnswerRequest,
    params(("id" = String, Path, description = "The invocation's id")), responses(
    (status = 200, description = "Answered", body = InvocationDetail), CommonResponses, AuthResponses, LookupResponses, BodyResponses, ValidationResponses, CancelResponses, LedgerResponses))]
pub(super) async fn answer_question(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    PathPart(id): PathPart,
    StrictJson(body, _): StrictJson,
) -> Result<Json<InvocationDetail>, ApiError> {
    let id: InvocationId = id.parse().map_err(|_| not_found())?;
    let request: AnswerRequest = serde_path_to_error::deserialize(body)
        .map_err(|error| ApiError::Malformed(format!("{}: {}", error.path(), error.inner())))?;
    let answer = match (request.action, request.content) {
        (ActionView::Accept, content) => QuestionAnswer::Accept {
            content: content.unwrap_or_default(),
        },
        (_, Some(_)) => {
            let message = "content: only `accept` has content";
            return Err(ApiError::Malformed(message.into()));
        }
        (ActionView::Decline, None) => QuestionAnswer::Decline,
        (ActionView::Cancel, None) => QuestionAnswer::Cancel,
    };
    let name = request.question.as_deref();
    let questions = &registry.shared().questions;
    match questions.answer(id, &caller.name, name, answer) {
        Ok(()) => load_detail(&registry, &caller, id).await.map(Json),
        Err(AnswerError::Invalid(violations)) => Err(ApiError::Call {
            failure: Failure::from(&CallError::InvalidArguments(violations)),
            invocation: Some(id),
        }),
        Err(AnswerError::NotAsking) => {
            // A call that the caller may not see is reported as missing.
            let call = load_detail(&registry, &caller, id).await?;
            let reason = match (&call.question, call.invocation.state) {
                (Some(open), _) if call.invocation.caller == *caller.name => {
                    format!("the open question of this call is `{}`", open.name)
                }
                (Some(_), _) => "only the caller of a call may answer its questions".into(),
                (None, CallState::Running | CallState::Waiting | CallState::Reserved) => {
                    "no question of this call is open here: it runs on another replica, or its \
                     MCP client is asked"
                        .into()
                }
                (None, state) => format!("the call has ended: it is `{}`", state.as_str()),
            };
            Err(ApiError::Conflict(reason))
        }
    }
}
