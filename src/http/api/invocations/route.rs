//! `GET` and `DELETE /invocations`: callers read and cancel their own calls, an admin all calls.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use jiff::SignedDuration;
use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use utoipa::IntoParams;

use super::recorded_result::{AttemptError, recorded_result};
use crate::approval::deciding::{DecideError, Decision, Verdict};
use crate::approval::request::waiting_row;
use crate::call::units::parse_time;
use crate::call::{Caller, Digest, ErrorKind, InvocationId, Question, caller_attempt_message};
use crate::catalog::registry::{Registry, recorded_calls};
use crate::http::api::wire::{InvocationView, InvokeAnswer};
use crate::http::approvals::view::{ApprovalSummary, wait_for_row};
use crate::http::edge::auth::Principal;
use crate::http::edge::body::PathPart;
use crate::http::openapi::documented::Since;
use crate::http::openapi::responses::{
    AuthResponses, CancelResponses, CommonResponses, LedgerResponses, LookupResponses,
    QueryResponses,
};
use crate::http::problem::{ApiError, Problem};
use crate::http::query::{QueryParams, page_size, read_cursor};
use crate::ledger::{
    ApprovalQuery, ApprovalRow, ApprovalState, AttemptRow, LISTED_ARGUMENTS, Query, RecordedCall,
    Row, State as CallState, UnreadableRow,
};

/// How long a cancellation waits for the call's end. The call itself is dropped at once; its row
/// must still be committed.
const MAX_CANCEL_WAIT: Duration = Duration::from_secs(3);
/// Most waiting calls that one list examines.
const MAX_WAITING: u32 = 10_000;
/// Pause between looks for the end of a call that another replica runs.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Which calls to list; everything given must match.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListInvocations {
    /// Only calls of this tool.
    tool: Option<String>,
    /// Only calls of this caller. An admin may name any.
    caller: Option<String>,
    /// Only calls of this run.
    run_id: Option<String>,
    /// Only calls with this `Idempotency-Key`.
    idempotency_key: Option<String>,
    /// Only calls that the tool of this call made, such as an agent.
    #[param(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    parent: Option<String>,
    /// Only calls in one of these states, separated by commas.
    #[serde(default, deserialize_with = "deserialize_states")]
    #[param(value_type = Option<String>, example = "failed,timed_out",
        pattern = "^(waiting|reserved|running|succeeded|failed|timed_out|cancelled|refused|unknown)(,(waiting|reserved|running|succeeded|failed|timed_out|cancelled|refused|unknown))*$")]
    state: Vec<CallState>,
    /// Only calls that failed with this kind.
    kind: Option<ErrorKind>,
    /// Only calls with this text in the name of the tool, in the detail, or in the text of the
    /// error. ASCII letters match in either case.
    q: Option<String>,
    /// Only calls started at or after this time (RFC 3339), or within this span (`15m`).
    #[param(value_type = Option<Since>, inline)]
    since: Option<String>,
    /// Only calls started before this time, or longer ago than this span.
    #[param(value_type = Option<Since>, inline)]
    until: Option<String>,
    /// Calls on a page: 1 to 500, default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page: the `invocation_id` of its last call.
    #[param(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    cursor: Option<String>,
}

fn deserialize_states<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<CallState>, D::Error> {
    let text = String::deserialize(input)?;
    let state = |word: &str| CallState::deserialize(word.into_deserializer());
    text.split(',').map(state).collect()
}

/// A page of calls, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct InvocationPage {
    /// The calls.
    pub invocations: Vec<InvocationView>,
    /// Where the next page begins; null on the last.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// Calls, running ones included, newest first.
#[utoipa::path(get, operation_id = "list_invocations", path = "/invocations", tag = "ledger", params(ListInvocations), responses(
    (status = 200, description = "A page", body = InvocationPage), CommonResponses, AuthResponses, QueryResponses, LedgerResponses))]
pub(crate) async fn list_invocations(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    QueryParams(params): QueryParams<ListInvocations>,
) -> Result<Json<InvocationPage>, ApiError> {
    let limit = page_size(params.limit)?;
    let is_of_another = !caller.admin
        && params
            .caller
            .as_deref()
            .is_some_and(|other| *other != *caller.name);
    let now = registry.shared().clock.now();
    let read_time = |name, text: Option<String>| {
        let time = text.map(|text| parse_time(name, &text, now)).transpose();
        time.map_err(ApiError::Malformed)
    };
    let query = Query {
        caller: if caller.admin {
            params.caller
        } else {
            Some(caller.name.to_string())
        },
        tool: params.tool,
        run_id: params.run_id,
        idempotency_key: params.idempotency_key,
        parent: params
            .parent
            .map(|id| id.parse())
            .transpose()
            .map_err(|_| ApiError::Malformed("parent is the invocation_id of a call".into()))?,
        states: params.state,
        kind: params.kind,
        text: params.q.filter(|text| !text.is_empty()),
        since: read_time("since", params.since)?,
        until: read_time("until", params.until)?,
        before: read_cursor(params.cursor)?,
        limit: limit + 1,
    };
    // A caller sees its own calls only.
    if is_of_another {
        return Ok(Json(InvocationPage {
            invocations: Vec::new(),
            next_cursor: None,
        }));
    }
    let mut rows = merge_running_and_stored(&registry, &query).await?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_cursor = rows.last().filter(|_| more).map(|row| row.id.to_string());
    // The ledger's list leaves long arguments out. A row of the table of running calls has all of
    // them, so they are removed here.
    let view = |row: &Arc<Row>| {
        let mut view = InvocationView::from(&**row);
        view.arguments
            .take_if(|_| row.arguments.len() > LISTED_ARGUMENTS);
        view
    };
    Ok(Json(InvocationPage {
        invocations: rows.iter().map(view).collect(),
        next_cursor,
    }))
}

/// Merges the calls in flight and the rows of the ledger into one list.
///
/// For a call in flight, the table of running calls knows more than the ledger's row, so the
/// table's entry is used. The table is read before the ledger. A call that ends between the two
/// reads is then in one of them at least; in the other order it could be in neither.
async fn merge_running_and_stored(
    registry: &Registry,
    query: &Query,
) -> Result<Vec<Arc<Row>>, ApiError> {
    let shared = registry.shared();
    let under_way = shared.in_flight_calls.list();
    let known: HashSet<InvocationId> = under_way.iter().map(|row| row.id).collect();
    let replica = shared.ledger.replica();
    let mut rows: Vec<Arc<Row>> = under_way
        .into_iter()
        .filter(|row| query.matches(row))
        .map(|row| match &replica {
            None => row,
            Some(_) => Arc::new(Row {
                replica: replica.clone(),
                ..Row::clone(&row)
            }),
        })
        .collect();
    // Read before the rows, as the table above. A call that has got its row in between is in both.
    let elsewhere = shared.ledger.list_running_elsewhere(query).await?;
    // Stored rows of running calls are skipped, but the ledger has counted them toward the page. So
    // read on until the page has enough other rows. Otherwise it would look like the last page.
    let (mut rest, page, mut others) = (query.clone(), query.limit as usize, 0);
    loop {
        let stored = shared.ledger.list_calls(&rest).await?;
        let is_last = stored.len() < page;
        rest.before = stored.last().map(|row| row.id).or(rest.before);
        let before = rows.len();
        rows.extend(
            stored
                .into_iter()
                .filter(|row| !known.contains(&row.id))
                .map(Arc::new),
        );
        others += rows.len() - before;
        if is_last || others >= page {
            break;
        }
    }
    let listed: HashSet<InvocationId> = rows.iter().map(|row| row.id).collect();
    let elsewhere = elsewhere.into_iter();
    rows.extend(
        elsewhere
            .filter(|row| !listed.contains(&row.id))
            .map(Arc::new),
    );
    rows.extend(waiting_rows(registry, query, &rows).await?);
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    Ok(rows)
}

/// The calls that wait for a person and match the query, except those of the list.
async fn waiting_rows(
    registry: &Registry,
    query: &Query,
    listed: &[Arc<Row>],
) -> Result<Vec<Arc<Row>>, ApiError> {
    if !query.may_have(CallState::Waiting) {
        return Ok(Vec::new());
    }
    let waiting = ApprovalQuery {
        state: Some(ApprovalState::Waiting),
        tool: query.tool.clone(),
        before: query.before,
        limit: MAX_WAITING,
        ..ApprovalQuery::default()
    };
    let waiting = registry.shared().ledger.list_approvals(&waiting).await?;
    let is_listed = |row: &Row| listed.iter().any(|other| other.id == row.id);
    Ok(waiting
        .iter()
        .map(waiting_row)
        .filter(|row| query.matches(row) && !is_listed(row))
        .take(query.limit as usize)
        .map(Arc::new)
        .collect())
}

/// One call with its result.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct InvocationDetail {
    /// What the list shows.
    #[serde(flatten)]
    pub invocation: InvocationView,
    /// The answer or the problem. Null while the call runs, and if only a digest of the answer is
    /// kept.
    #[schema(value_type = Option<Ended<'_>>, required)]
    pub result: Value,
    /// A digest that replaces the tool's output, if that is not kept (`capture: digest`); else
    /// null.
    pub result_digest: Option<Digest>,
    /// Failed attempts. For an admin, a message also has the beginning of the response of a backend
    /// that failed.
    pub attempt_errors: Vec<AttemptError>,
    /// How a person decided about the call; null if it needed no approval.
    #[schema(required)]
    pub approval: Option<ApprovalSummary>,
    /// For a call whose tool asks its caller: the question. It is answered by
    /// `POST /invocations/{id}/answer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub question: Option<Question>,
}

/// The end of a call.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is put together again from the row")]
enum Ended<'a> {
    /// The tool ran.
    Answer(InvokeAnswer<'a>),
    /// The tool did not run, or failed.
    Problem(Problem),
}

/// One call.
#[utoipa::path(get, operation_id = "get_invocation", path = "/invocations/{id}", tag = "ledger",
    params(("id" = String, Path, description = "The invocation's id")), responses(
    (status = 200, description = "The call", body = InvocationDetail), CommonResponses, AuthResponses, LookupResponses, LedgerResponses))]
pub(crate) async fn get_invocation(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    PathPart(id): PathPart,
) -> Result<Json<InvocationDetail>, ApiError> {
    load_detail(&registry, &caller, id.parse().map_err(|_| not_found())?)
        .await
        .map(Json)
}

/// Cancel a running call, whatever its tool's `on_disconnect` says.
///
/// Answers when the call has ended, or with its current state if that takes longer than three
/// seconds. The client that made the call gets the problem `cancelled`. A write that was attempted
/// is `unknown`: it may have had an effect. A call that was cancelled before gets the same answer
/// again.
#[utoipa::path(delete, operation_id = "cancel_invocation", path = "/invocations/{id}", tag = "ledger",
    params(("id" = String, Path, description = "The invocation's id")), responses(
    (status = 200, description = "Cancelled", body = InvocationDetail), CommonResponses, AuthResponses, LookupResponses, CancelResponses, LedgerResponses))]
pub(crate) async fn cancel_invocation(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    PathPart(id): PathPart,
) -> Result<Json<InvocationDetail>, ApiError> {
    let id: InvocationId = id.parse().map_err(|_| not_found())?;
    if withdraw(&registry, &caller, id).await? {
        return load_detail(&registry, &caller, id).await.map(Json);
    }
    let running = &registry.shared().in_flight_calls;
    let runs_here = running.get(id).is_some_and(|row| can_see(&caller, &row));
    if runs_here && let Some(ended) = running.cancel(id) {
        // After a timeout too, the answer is the call's current state.
        let _ = timeout(MAX_CANCEL_WAIT, ended.cancelled()).await;
    }
    let has_replicas = registry.shared().ledger.replica().is_some();
    if !runs_here && has_replicas {
        cancel_elsewhere(&registry, &caller, id).await?;
    }
    let call = load_detail(&registry, &caller, id).await?;
    let state = call.invocation.state;
    let is_open = matches!(
        state,
        CallState::Waiting | CallState::Reserved | CallState::Running
    );
    if call.invocation.kind == Some(ErrorKind::Cancelled) || is_open && (runs_here || has_replicas)
    {
        return Ok(Json(call));
    }
    Err(ApiError::Conflict(if is_open {
        "another process on the same ledger runs this call: cancel it there".into()
    } else {
        format!("the call has ended already: it is `{}`", state.as_str())
    }))
}

/// Cancels a call that waits for a person. False: the call does not wait.
async fn withdraw(
    registry: &Arc<Registry>,
    caller: &Caller,
    id: InvocationId,
) -> Result<bool, ApiError> {
    let shared = registry.shared();
    let found = shared.ledger.find_approval(id).await?;
    let is_waiting = |row: &ApprovalRow| {
        row.state == ApprovalState::Waiting && (caller.admin || row.caller == caller.name)
    };
    if !found.as_ref().is_some_and(is_waiting) {
        return Ok(false);
    }
    let decision = Decision {
        verdict: Verdict::Withdraw,
        by: caller.name.clone(),
        note: None,
    };
    match registry.decide(id, decision).await {
        Ok(()) => {}
        Err(DecideError::Ledger(error)) => return Err(error.into()),
        Err(DecideError::Elsewhere(_)) => {
            return Err(ApiError::Conflict(
                "only the memory of another replica has this call: cancel it there".into(),
            ));
        }
        // It was decided meanwhile, so it runs or has ended.
        Err(_) => return Ok(false),
    }
    wait_for_row(registry, id).await;
    Ok(true)
}

/// Asks the other replicas to cancel a call, and waits until its end is in the ledger. A read that
/// no limit counts has no row before its end.
async fn cancel_elsewhere(
    registry: &Registry,
    caller: &Caller,
    id: InvocationId,
) -> Result<(), ApiError> {
    let ledger = &registry.shared().ledger;
    let has_ended = async || match ledger.get(id).await? {
        Some(found) => Ok::<_, ApiError>(Some(found.row.state != CallState::Reserved)),
        None => Ok(None),
    };
    if has_ended().await? == Some(true) {
        return Ok(());
    }
    let asks = (!caller.admin).then_some(&*caller.name);
    ledger.request_cancel(id, asks).await?;
    let until_ended = async {
        while has_ended().await? != Some(true) {
            sleep(CANCEL_POLL_INTERVAL).await;
        }
        Ok(())
    };
    // After a timeout too, the answer is the call's current state.
    timeout(MAX_CANCEL_WAIT, until_ended)
        .await
        .unwrap_or(Ok(()))
}

pub(crate) fn not_found() -> ApiError {
    ApiError::NotFound("there is no such invocation".into())
}

/// A call may share a row that started this much earlier.
const SHARED_ROW_SPAN: SignedDuration = SignedDuration::from_secs(2);
/// Most rows that are searched for a shared row.
const MAX_SEARCHED_ROWS: u32 = 300;

/// The error for an id without a row. A refused call may share the row of another call; then the
/// text names that row.
async fn not_found_or_shared(registry: &Registry, caller: &Caller, id: InvocationId) -> ApiError {
    let Some(since) = id
        .created_at()
        .and_then(|at| at.checked_sub(SHARED_ROW_SPAN).ok())
    else {
        return not_found();
    };
    let query = Query {
        caller: (!caller.admin).then(|| caller.name.to_string()),
        states: vec![CallState::Refused],
        since: Some(since),
        before: Some(id),
        limit: MAX_SEARCHED_ROWS,
        ..Query::default()
    };
    let rows = registry
        .shared()
        .ledger
        .list_calls(&query)
        .await
        .unwrap_or_default();
    match rows.iter().find(|row| row.count > 1) {
        Some(shared) => ApiError::NotFound(format!(
            "there is no such invocation; of more than 100 refused calls in a second those of one tool share a row, such \
             as {} (see `count`)",
            shared.id
        )),
        None => not_found(),
    }
}

/// Whether this caller may see a call. Calls of others are reported as missing, so guessing ids
/// reveals nothing.
fn can_see(caller: &Caller, row: &Row) -> bool {
    caller.admin || row.caller == caller.name
}

/// A call as this caller may see it, running or ended.
pub(crate) async fn load_detail(
    registry: &Registry,
    caller: &Caller,
    id: InvocationId,
) -> Result<InvocationDetail, ApiError> {
    let found = find_visible(registry, caller, id).await?;
    let as_answer = || {
        let entry = registry.get(&found.row.tool);
        entry.is_some_and(|entry| entry.definition.result_as_answer)
    };
    let (result, result_digest) = recorded_result(&found.row, found.origin_result, as_answer)
        .map_err(|UnreadableRow| ApiError::Internal)?;
    let approval = registry.shared().ledger.find_approval(id).await?;
    let approval = approval.map(|row| ApprovalSummary::new(registry, caller, &row));
    let attempt_error = |row: AttemptRow| match caller.admin {
        true => AttemptError::from(row),
        false => AttemptError::from(AttemptRow {
            message: caller_attempt_message(&row.message).to_owned(),
            ..row
        }),
    };
    let attempt_errors = found.attempts.into_iter().map(attempt_error).collect();
    let invocation = InvocationView::from(&found.row);
    let question = registry.shared().questions.open_question(id);
    Ok(InvocationDetail {
        invocation,
        result,
        result_digest,
        attempt_errors,
        approval,
        question: question.map(|(_, question)| question),
    })
}

/// Finds a call that this caller may see, and the result of the call from which it was answered.
///
/// # Errors
/// 404, if there is no such call, or the caller may not see it.
pub(crate) async fn find_visible(
    registry: &Registry,
    caller: &Caller,
    id: InvocationId,
) -> Result<RecordedCall, ApiError> {
    let Some(found) = recorded_calls::find_call(registry.shared(), id).await? else {
        return Err(not_found_or_shared(registry, caller, id).await);
    };
    if can_see(caller, &found.row) {
        Ok(found)
    } else {
        Err(not_found())
    }
}
