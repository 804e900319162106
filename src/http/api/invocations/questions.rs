//! `POST /invocations/{id}/answer`: the answer to a question of a running tool.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use super::route::{InvocationDetail, load_detail, not_found};
use crate::call::{CallError, Failure, InvocationId, JsonObject, QuestionAnswer};
use crate::catalog::registry::Registry;
use crate::http::edge::auth::Principal;
use crate::http::edge::body::{PathPart, StrictJson};
use crate::http::openapi::responses::{
    AuthResponses, BodyResponses, CancelResponses, CommonResponses, LedgerResponses,
    LookupResponses, ValidationResponses,
};
use crate::http::problem::ApiError;
use crate::ledger::State as CallState;
use crate::schema::check_answer;

/// The body of an answer.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerRequest {
    /// `accept` with `content`, `decline`, or `cancel`.
    action: ActionView,
    /// With `accept`: the values, as the question's schema requires. Default: an empty object.
    #[schema(value_type = Option<std::collections::HashMap<String, Value>>)]
    content: Option<JsonObject>,
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
pub(crate) async fn answer_question(
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
    // A call that the caller may not see is reported as missing.
    let call = load_detail(&registry, &caller, id).await?;
    let questions = &registry.shared().questions;
    let open = questions.open_question(id);
    let is_taken = match &open {
        Some(_) if call.invocation.caller != *caller.name => {
            let reason = "only the caller of a call may answer its questions";
            return Err(ApiError::Forbidden(reason.into()));
        }
        Some((_, question)) if request.question.is_some_and(|name| *name != *question.name) => {
            let reason = format!("the open question of this call is `{}`", question.name);
            return Err(ApiError::Conflict(reason));
        }
        Some((number, question)) => {
            check_answer(question, &answer).map_err(|violations| ApiError::Call {
                failure: Failure::from(&CallError::InvalidArguments(violations)),
                invocation: Some(id),
            })?;
            questions.answer(id, &caller.name, *number, answer)
        }
        None => false,
    };
    if is_taken {
        return load_detail(&registry, &caller, id).await.map(Json);
    }
    Err(ApiError::Conflict(match call.invocation.state {
        CallState::Running | CallState::Waiting | CallState::Reserved => {
            "no question of this call is open here: it runs on another replica, or its MCP client \
             is asked"
                .into()
        }
        state => format!("the call has ended: it is `{}`", state.as_str()),
    }))
}
