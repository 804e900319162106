//! The ledger, as callers may read it: their own calls, which they may also cancel; an admin's are all.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;
use utoipa::IntoParams;

use super::auth::Principal;
use super::body::{Asked, PathPart};
use super::documented::Since;
use super::problem::{ApiError, Problem};
use super::responses::{Always, Asking, Keyed, Naming, Recording, Stopping};
use super::wire::{InvocationView, InvokeAnswer};
use crate::call::units::Time;
use crate::call::{Answer, Caller, Digest, ErrorKind, InvocationId};
use crate::ledger::{AttemptRow, End, Found, LISTED_ARGUMENTS, Query, Row, State as CallState, Unreadable};
use crate::recorded;
use crate::registry::Registry;

/// Calls on a page when nobody says otherwise.
const PAGE: u32 = 50;
/// Most calls on a page.
const MAX_PAGE: u32 = 500;
/// How long cancelling waits for a call's end. One that is dropped ends at once; what is waited for is the commit.
const LONGEST_STOP: Duration = Duration::from_secs(3);

/// Which calls to list; everything given must match.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListInvocations {
    /// Of this tool.
    tool: Option<String>,
    /// Of this caller; an admin may name any.
    caller: Option<String>,
    /// Of this run.
    run_id: Option<String>,
    /// Asked for under this `Idempotency-Key`.
    idempotency_key: Option<String>,
    /// Made by the tool of this call, an agent say.
    #[param(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    parent: Option<String>,
    /// In this state.
    state: Option<CallState>,
    /// Begun at or after this time (RFC 3339), or within this span (`15m`).
    #[param(value_type = Option<Since>, inline)]
    since: Option<String>,
    /// Calls on a page: 1 to 500, default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the page before: the `invocation_id` of its last call.
    #[param(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    cursor: Option<String>,
}

/// A page of calls, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct InvocationPage {
    /// The calls.
    pub invocations: Vec<InvocationView>,
    /// Where the next page begins; null on the last.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// Calls, newest first, running ones too.
#[utoipa::path(get, operation_id = "list_invocations", path = "/invocations", tag = "ledger", params(ListInvocations), responses(
    (status = 200, description = "A page", body = InvocationPage), Always, Keyed, Asking, Recording))]
pub(super) async fn list(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    Asked(asked): Asked<ListInvocations>,
) -> Result<Json<InvocationPage>, ApiError> {
    let limit = asked.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(ApiError::Malformed(format!("limit is 1 to {MAX_PAGE}")));
    }
    let is_of_another = !caller.admin && asked.caller.as_deref().is_some_and(|other| *other != *caller.name);
    let query = Query {
        caller: if caller.admin { asked.caller } else { Some(caller.name.to_string()) },
        tool: asked.tool,
        run_id: asked.run_id,
        idempotency_key: asked.idempotency_key,
        parent: asked.parent.map(|id| id.parse().map_err(|_| no_id("parent"))).transpose()?,
        state: asked.state,
        since: asked.since.map(|text| since(&text, registry.shared().clock.now())).transpose()?,
        before: asked
            .cursor
            .map(|cursor| cursor.parse().map_err(|_| ApiError::Malformed("this cursor is none of ours".into())))
            .transpose()?,
        limit: limit + 1,
    };
    // A caller sees its own calls only.
    if is_of_another {
        return Ok(Json(InvocationPage { invocations: Vec::new(), next_cursor: None }));
    }
    let mut rows = merged(&registry, &query).await?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_cursor = rows.last().filter(|_| more).map(|row| row.id.to_string());
    // A row of the table of running calls is whole.
    let short = |row: Arc<Row>| match row.arguments.len() {
        0..=LISTED_ARGUMENTS => row,
        _ => Arc::new(Row { arguments: "null".into(), ..Row::clone(&row) }),
    };
    let rows: Vec<Arc<Row>> = rows.into_iter().map(short).collect();
    Ok(Json(InvocationPage { invocations: rows.iter().map(|row| InvocationView::from(&**row)).collect(), next_cursor }))
}

/// Rows of the ledger and calls under way, as one list. A call in the snapshot of those under way is known better by
/// it than by its row, and is looked for there first: one that ends in between is in the ledger by then.
async fn merged(registry: &Registry, query: &Query) -> Result<Vec<Arc<Row>>, ApiError> {
    let shared = registry.shared();
    let under_way = shared.running.list();
    let known: HashSet<InvocationId> = under_way.iter().map(|row| row.id).collect();
    let mut rows: Vec<Arc<Row>> = under_way.into_iter().filter(|row| query.matches(row)).collect();
    // Rows that are known better take no place from the others, or a page would end early: what they took is read after.
    let (mut rest, page, mut others) = (query.clone(), query.limit as usize, 0);
    loop {
        let stored = shared.ledger.list(&rest).await?;
        let is_last = stored.len() < page;
        rest.before = stored.last().map(|row| row.id).or(rest.before);
        let before = rows.len();
        rows.extend(stored.into_iter().filter(|row| !known.contains(&row.id)).map(Arc::new));
        others += rows.len() - before;
        if is_last || others >= page {
            break;
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    Ok(rows)
}

fn since(text: &str, now: Timestamp) -> Result<Timestamp, ApiError> {
    let ago = || Time::parse(text).ok().and_then(|time| now.checked_sub(time.0).ok());
    // `+` in a query string is a space; a time zone offset is written with one all the same.
    let at = text.replace(' ', "+").parse().ok().or_else(ago);
    at.ok_or_else(|| ApiError::Malformed("since is a time (2026-01-31T12:00:00Z) or a span (15m)".into()))
}

/// One call with its result.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct InvocationDetail {
    /// What the list shows.
    #[serde(flatten)]
    pub invocation: InvocationView,
    /// The answer or the problem; null while it runs, and where only a digest of the answer is kept.
    #[schema(value_type = Option<Ended<'_>>, required)]
    pub result: Value,
    /// Stands for the tool's words that are not kept (`capture: digest`); else null.
    pub result_digest: Option<Digest>,
    /// Tries that failed.
    pub attempt_errors: Vec<AttemptError>,
}

/// What a call came to.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is put together again from the row")]
enum Ended<'a> {
    /// The tool ran.
    Answer(InvokeAnswer<'a>),
    /// It did not, or failed.
    Problem(Problem),
}

/// A try that failed.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct AttemptError {
    /// Which, from 1.
    pub attempt: u32,
    /// Why.
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
    /// How long it took.
    pub duration_ms: f64,
}

impl From<AttemptRow> for AttemptError {
    fn from(row: AttemptRow) -> Self {
        let duration_ms = row.duration_us as f64 / 1000.0;
        Self { attempt: row.attempt, kind: row.kind, message: row.message, duration_ms }
    }
}

/// One call.
#[utoipa::path(get, operation_id = "get_invocation", path = "/invocations/{id}", tag = "ledger",
    params(("id" = String, Path, description = "The invocation's id")), responses(
    (status = 200, description = "The call", body = InvocationDetail), Always, Keyed, Naming, Recording))]
pub(super) async fn get(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    PathPart(id): PathPart,
) -> Result<Json<InvocationDetail>, ApiError> {
    look(&registry, &caller, id.parse().map_err(|_| missing())?).await.map(Json)
}

/// Cancel a running call, whatever its tool's `on_disconnect` says.
///
/// Answers once it has ended, or with how it stands if that takes longer than three seconds. Whoever asked for the call
/// gets the problem `cancelled`. A write that was tried is `unknown`: it may have had an effect. Cancelled before: the
/// same answer again.
#[utoipa::path(delete, operation_id = "cancel_invocation", path = "/invocations/{id}", tag = "ledger",
    params(("id" = String, Path, description = "The invocation's id")), responses(
    (status = 200, description = "Cancelled", body = InvocationDetail), Always, Keyed, Naming, Stopping, Recording))]
pub(super) async fn cancel(
    State(registry): State<Arc<Registry>>,
    Principal(caller): Principal,
    PathPart(id): PathPart,
) -> Result<Json<InvocationDetail>, ApiError> {
    let id: InvocationId = id.parse().map_err(|_| missing())?;
    let running = &registry.shared().running;
    let runs_here = running.get(id).is_some_and(|row| may_see(&caller, &row));
    if runs_here && let Some(gone) = running.cancel(id) {
        // However it goes, what is answered is how the call stands then.
        let _ = timeout(LONGEST_STOP, gone.cancelled()).await;
    }
    let call = look(&registry, &caller, id).await?;
    match (call.invocation.state, call.invocation.kind) {
        (_, Some(ErrorKind::Cancelled)) => Ok(Json(call)),
        (CallState::Reserved | CallState::Running, _) if runs_here => Ok(Json(call)),
        (CallState::Reserved | CallState::Running, _) => {
            Err(ApiError::Conflict("another process on the same ledger runs this call: cancel it there".into()))
        }
        (state, _) => Err(ApiError::Conflict(format!("the call has ended already: it is `{}`", state.as_str()))),
    }
}

fn no_id(field: &str) -> ApiError {
    ApiError::Malformed(format!("{field} is the invocation_id of a call"))
}

pub(super) fn missing() -> ApiError {
    ApiError::NotFound("there is no such invocation".into())
}

/// How much earlier than a call the row may begin that it shares.
const SHARED_FOR: SignedDuration = SignedDuration::from_secs(2);
/// Rows that are looked at for one that a call may share.
const LOOKED_AT: u32 = 300;

/// Why there is no row of this id: it may have been refused and share the row of another call.
async fn missing_or_shared(registry: &Registry, caller: &Caller, id: InvocationId) -> ApiError {
    let Some(since) = id.made_at().and_then(|at| at.checked_sub(SHARED_FOR).ok()) else { return missing() };
    let query = Query {
        caller: (!caller.admin).then(|| caller.name.to_string()),
        state: Some(CallState::Refused),
        since: Some(since),
        before: Some(id),
        limit: LOOKED_AT,
        ..Query::default()
    };
    let rows = registry.shared().ledger.list(&query).await.unwrap_or_default();
    match rows.iter().find(|row| row.count > 1) {
        Some(shared) => ApiError::NotFound(format!(
            "there is no such invocation; of more than 100 refused calls in a second those of one tool share a row, such \
             as {} (see `count`)",
            shared.id
        )),
        None => missing(),
    }
}

/// Somebody else's call is not there at all: ids must not be worth guessing.
fn may_see(caller: &Caller, row: &Row) -> bool {
    caller.admin || row.caller == caller.name
}

/// A call as this caller may see it, running or ended.
async fn look(registry: &Registry, caller: &Caller, id: InvocationId) -> Result<InvocationDetail, ApiError> {
    let found = find(registry, caller, id).await?;
    let (result, result_digest) = result(registry, &found.row, found.origin_result)?;
    let attempt_errors = found.attempts.into_iter().map(AttemptError::from).collect();
    let invocation = InvocationView::from(&found.row);
    Ok(InvocationDetail { invocation, result, result_digest, attempt_errors })
}

/// A call that this caller may see, with what was said by the one it was answered from.
pub(super) async fn find(registry: &Registry, caller: &Caller, id: InvocationId) -> Result<Found, ApiError> {
    let Some(found) = recorded::find(registry.shared(), id).await? else {
        return Err(missing_or_shared(registry, caller, id).await);
    };
    if may_see(caller, &found.row) { Ok(found) } else { Err(missing()) }
}

/// What was answered, put together again from the row; or what stands for it.
fn result(
    registry: &Registry,
    row: &Row,
    origin_result: Option<Arc<str>>,
) -> Result<(Value, Option<Digest>), ApiError> {
    Ok(match row.end(origin_result).map_err(|Unreadable| ApiError::Internal)? {
        End::Open => (Value::Null, None),
        End::Withheld(digest) => (Value::Null, Some(digest)),
        End::Failed(mut failure) => {
            let digest = failure.digest.take().map(|digest| *digest);
            (json!(Problem::of_failure(failure, Some(row.id))), digest)
        }
        End::Answered { result, meta } => {
            let as_answer = registry.get(&row.tool).is_some_and(|entry| entry.definition.result_as_answer);
            let (result, tool_use_id) = (Arc::new(result), row.tool_use_id.clone());
            let answer = Answer { invocation: row.id, tool_use_id, result, meta, replayed: false };
            (json!(InvokeAnswer::new(&row.tool, as_answer, &answer)), None)
        }
    })
}
