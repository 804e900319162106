//! `GET /invocations/{id}/result`: the result of an ended call, or a part of it, from the ledger.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::route::{find_visible, not_found};
use crate::call::{Answer, CallError, Detail, Failure, MAX_TEXT_CHARS, Page, RestHint, cut_result};
use crate::catalog::registry::Registry;
use crate::http::api::wire::InvokeAnswer;
use crate::http::edge::auth::Principal;
use crate::http::edge::body::PathPart;
use crate::http::openapi::responses::{
    AuthResponses, CallResponses, CommonResponses, LedgerResponses, LookupResponses, QueryResponses,
};
use crate::http::problem::ApiError;
use crate::http::query::QueryParams;
use crate::ledger::{End, Row, State as CallState, UnreadableRow};

/// Which part to read; without either, all of it.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReadResult {
    /// Items of a list, or characters of a text, to leave out first.
    #[param(maximum = 18446744073709551615_u64)]
    offset: Option<usize>,
    /// Items of a list, or characters of a text, to read; without it all that follow.
    #[param(minimum = 1, maximum = 18446744073709551615_u64)]
    limit: Option<usize>,
}

/// The result of a call, all of it or a part.
///
/// The answer or the problem of the call as its route gave it, for as long as the ledger keeps it.
/// The tool never runs. With `offset` or `limit`, a list is read by items and a text by characters.
/// `meta.overflow` tells which, and where the next part begins. All parts together are the whole
/// result, apart from the last text block of a part, which tells a model about the other parts. A
/// call that has not ended: 409.
#[utoipa::path(get, operation_id = "get_result", path = "/invocations/{id}/result", tag = "ledger",
    params(("id" = String, Path, description = "The invocation's id"), ReadResult), responses(
    (status = 200, description = "The tool's result", body = InvokeAnswer<'_>),
    CommonResponses, AuthResponses, QueryResponses, LookupResponses, CallResponses, LedgerResponses))]
pub(crate) async fn get_result(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    PathPart(id): PathPart,
    QueryParams(params): QueryParams<ReadResult>,
) -> Result<Response, ApiError> {
    if params.limit == Some(0) {
        return Err(ApiError::Malformed("limit is at least 1".into()));
    }
    let found = find_visible(&registry, &caller, id.parse().map_err(|_| not_found())?).await?;
    let row = found.row;
    match row
        .decode_end(found.origin_result)
        .map_err(|UnreadableRow| ApiError::Internal)?
    {
        End::Open => Err(no_result_error(&row)),
        End::DigestOnly(_) => Err(ApiError::NotFound(
            "the result of this call is not stored (capture: digest)".into(),
        )),
        End::Failed(failure) => Err(ApiError::Call {
            failure,
            invocation: Some(row.id),
        }),
        End::Answered { result, meta } => {
            let as_answer = registry
                .get(&row.tool)
                .is_some_and(|entry| entry.definition.result_as_answer);
            let answer = select_part(row.to_answer(result, meta), &params);
            let content =
                answer.model_content(|| registry.catalog().find_result_reader(&caller, |_| true));
            Ok(Json(InvokeAnswer::new(
                &row.tool,
                as_answer,
                &answer,
                content.map(Cow::Owned),
            ))
            .into_response())
        }
    }
}

/// The part of a recorded result that a model gets if it has requested no part.
pub(crate) fn select_first_part(mut answer: Answer) -> Answer {
    answer.meta.overflow = answer.result.source_overflow();
    let page = Page {
        detail: Detail::Full,
        ..Page::default()
    };
    cut_answer(answer, page, MAX_TEXT_CHARS)
}

fn select_part(mut answer: Answer, params: &ReadResult) -> Answer {
    answer.meta.overflow = answer.result.source_overflow();
    if params.offset.is_none() && params.limit.is_none() {
        return answer;
    }
    let offset = params.offset.unwrap_or_default();
    let page = Page {
        detail: Detail::Full,
        offset,
        limit: Some(params.limit.unwrap_or(usize::MAX)),
    };
    cut_answer(answer, page, 0)
}

/// The page of an answer, and how to get the next one. A text up to `max_chars` stays whole.
fn cut_answer(mut answer: Answer, page: Page, max_chars: usize) -> Answer {
    if let Some(cut) = cut_result(&answer.result, page, max_chars) {
        let hint = match cut.next_offset {
            Some(next) => {
                let limit = page
                    .limit
                    .filter(|limit| *limit < usize::MAX)
                    .map_or_else(String::new, |limit| format!("&limit={limit}"));
                format!(
                    "For the next part GET /invocations/{}/result?offset={next}{limit}.",
                    answer.invocation
                )
            }
            None if cut.shown == 0 => format!(
                "The offset is past the end: it must be below {}.",
                cut.total
            ),
            None => "This is the last part.".into(),
        };
        let for_model = match cut.next_offset {
            Some(offset) => RestHint::Recorded { offset, hint: None },
            None => RestHint::LastPage,
        };
        answer.meta.overflow = Some(cut.to_overflow(for_model, hint));
        answer.result = Arc::new(cut.result);
    }
    answer
}

/// Why a call has no result.
fn no_result_error(row: &Row) -> ApiError {
    match row.state {
        CallState::Reserved | CallState::Running => {
            ApiError::Conflict("the call still runs: ask again when it has ended".into())
        }
        CallState::Unknown => {
            let detail =
                "the service ended while this call ran, and it is unknown whether the call had an effect".into();
            let failure = Failure {
                detail,
                ..Failure::from(&CallError::OutcomeUnknown { invocation: row.id })
            };
            ApiError::Call {
                failure,
                invocation: Some(row.id),
            }
        }
        _ => ApiError::NotFound(
            "the result of this call is no longer stored (ledger.retention)".into(),
        ),
    }
}
