//! `GET /approvals`, and the decisions about calls that wait for a person.

use std::sync::Arc;

use axum::Json;
use axum::body::HttpBody;
use axum::extract::{FromRequest, Request, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::view::{ApprovalView, StateView, may_decide, may_see, wait_for_row};
use crate::approval::deciding::{DecideError, Decision, Verdict};
use crate::call::{Caller, InvocationId, JsonObject};
use crate::catalog::registry::Registry;
use crate::http::api::invocations::route::{InvocationDetail, load_detail, not_found};
use crate::http::edge::auth::Principal;
use crate::http::edge::body::{PathPart, StrictJson};
use crate::http::openapi::responses::{
    AuthResponses, BodyResponses, CancelResponses, CommonResponses, LedgerResponses,
    LookupResponses, QueryResponses, ValidationResponses,
};
use crate::http::problem::ApiError;
use crate::http::query::{QueryParams, page_size, read_cursor};
use crate::http::state::AppState;
use crate::ledger::ApprovalQuery;

/// Longest note, in bytes.
const MAX_NOTE_BYTES: usize = 2000;

/// Which approvals to list; everything given must match.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListApprovals {
    /// Only approvals in this state.
    state: Option<StateView>,
    /// Only approvals of this tool.
    tool: Option<String>,
    /// Approvals on a page: 1 to 500, default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page: the `invocation_id` of its last approval.
    #[param(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    cursor: Option<String>,
}

/// A page of approvals, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ApprovalPage {
    /// The approvals.
    approvals: Vec<ApprovalView>,
    /// Where the next page begins; null on the last.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Calls that wait for a person, and decided ones.
///
/// An admin sees all, another caller its own and those that it may decide.
#[utoipa::path(get, operation_id = "list_approvals", path = "/approvals", tag = "approvals", params(ListApprovals), responses(
    (status = 200, description = "A page, newest first", body = ApprovalPage), CommonResponses, AuthResponses, QueryResponses, LedgerResponses))]
pub(crate) async fn list_approvals(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    QueryParams(params): QueryParams<ListApprovals>,
) -> Result<Json<ApprovalPage>, ApiError> {
    let limit = page_size(params.limit)?;
    let query = ApprovalQuery {
        state: params.state.map(Into::into),
        tool: params.tool,
        visible_to: (!caller.admin).then(|| caller.name.to_string()),
        before: read_cursor(params.cursor)?,
        limit: limit + 1,
        ..ApprovalQuery::default()
    };
    let mut rows = registry.shared().ledger.list_approvals(&query).await?;
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let last = rows.last().filter(|_| has_more);
    Ok(Json(ApprovalPage {
        next_cursor: last.map(|row| row.invocation.to_string()),
        approvals: rows
            .iter()
            .map(|row| ApprovalView::new(&registry, &caller, row))
            .collect(),
    }))
}

/// The body of an approval.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApproveRequest {
    /// The reason, for the record. At most 2000 bytes.
    note: Option<String>,
    /// Runs the call with these arguments instead.
    #[schema(value_type = Option<std::collections::HashMap<String, Value>>)]
    arguments: Option<JsonObject>,
}

/// The body of a denial.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DenyRequest {
    /// The reason, for the record and for the model. At most 2000 bytes.
    note: Option<String>,
}

/// A JSON object as body, or no body.
pub(crate) struct OptionalJson(Value);

impl FromRequest<AppState> for OptionalJson {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        // `curl -X POST` sends no body, and many clients send a type without one.
        if request.body().size_hint().exact() == Some(0) {
            return Ok(Self(json!({})));
        }
        let StrictJson(body, _) = <StrictJson>::from_request(request, state).await?;
        Ok(Self(if body.is_null() { json!({}) } else { body }))
    }
}

impl OptionalJson {
    fn parse<T: for<'de> Deserialize<'de>>(self) -> Result<T, ApiError> {
        serde_path_to_error::deserialize(self.0)
            .map_err(|error| ApiError::Malformed(format!("{}: {}", error.path(), error.inner())))
    }
}

/// Approve a call that waits.
///
/// The call starts, and the answer shows its state. An approval permits one start, with exactly the
/// arguments that were shown, or with `arguments`. Limits and grants are judged at the start.
#[utoipa::path(post, operation_id = "approve_invocation", path = "/invocations/{id}/approve", tag = "approvals", request_body = Option<ApproveRequest>,
    params(("id" = String, Path, description = "The invocation's id")), responses(
    (status = 200, description = "Approved", body = InvocationDetail), CommonResponses, AuthResponses, LookupResponses, BodyResponses, ValidationResponses, CancelResponses, LedgerResponses))]
pub(crate) async fn approve_invocation(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    PathPart(id): PathPart,
    body: OptionalJson,
) -> Result<Json<InvocationDetail>, ApiError> {
    let ApproveRequest { note, arguments } = body.parse()?;
    decide(&registry, &caller, &id, Verdict::Approve(arguments), note).await
}

/// Deny a call that waits.
///
/// The call ends as `refused` with the kind `approval_denied`.
#[utoipa::path(post, operation_id = "deny_invocation", path = "/invocations/{id}/deny", tag = "approvals", request_body = Option<DenyRequest>,
    params(("id" = String, Path, description = "The invocation's id")), responses(
    (status = 200, description = "Denied", body = InvocationDetail), CommonResponses, AuthResponses, LookupResponses, BodyResponses, CancelResponses, LedgerResponses))]
pub(crate) async fn deny_invocation(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    PathPart(id): PathPart,
    body: OptionalJson,
) -> Result<Json<InvocationDetail>, ApiError> {
    let DenyRequest { note } = body.parse()?;
    decide(&registry, &caller, &id, Verdict::Deny, note).await
}

async fn decide(
    registry: &Arc<Registry>,
    caller: &Caller,
    id: &str,
    verdict: Verdict,
    note: Option<String>,
) -> Result<Json<InvocationDetail>, ApiError> {
    let id: InvocationId = id.parse().map_err(|_| not_found())?;
    check_note(note.as_deref())?;
    let row = registry.shared().ledger.find_approval(id).await?;
    let Some(row) = row.filter(|row| may_see(caller, row)) else {
        // A call without an approval is found, and then its state is the reason.
        load_detail(registry, caller, id).await?;
        let reason = "this call does not wait for approval";
        return Err(ApiError::Conflict(reason.into()));
    };
    if !may_decide(registry, caller, &row) {
        let reason = if row.caller == caller.name {
            "a caller may not decide about its own call"
        } else {
            "only an admin or a caller in `approval.by` of the tool may decide"
        };
        return Err(ApiError::Forbidden(reason.into()));
    }
    let decision = Decision {
        verdict,
        by: caller.name.clone(),
        note: note.map(Into::into),
    };
    apply_decision(registry, id, decision).await?;
    // The person that decides may not be the caller, but has seen the call before.
    let viewer = Caller::new(caller.name.clone(), true);
    load_detail(registry, &viewer, id).await.map(Json)
}

/// Refuses a note that is too long.
pub(crate) fn check_note(note: Option<&str>) -> Result<(), ApiError> {
    if note.is_some_and(|note| note.len() > MAX_NOTE_BYTES) {
        let message = format!("note: at most {MAX_NOTE_BYTES} bytes");
        return Err(ApiError::Malformed(message));
    }
    Ok(())
}

/// Decides about a call, and waits until it runs or has ended.
pub(crate) async fn apply_decision(
    registry: &Arc<Registry>,
    id: InvocationId,
    decision: Decision,
) -> Result<(), ApiError> {
    let decided = registry.decide(id, decision).await;
    decided.map_err(|error| match error {
        DecideError::NotFound => not_found(),
        DecideError::Decided(state) => ApiError::Conflict(format!(
            "the call is decided already: it is `{}`",
            json!(StateView::from(state)).as_str().unwrap_or_default()
        )),
        DecideError::Elsewhere(_) => ApiError::Conflict(error.to_string()),
        DecideError::Invalid(error) => ApiError::from(&error),
        DecideError::Ledger(error) => ApiError::Ledger(error),
    })?;
    wait_for_row(registry, id).await;
    Ok(())
}
