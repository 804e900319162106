//! The routes of tools: list, details, calls, validation, and the operator's switches.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_http::request_id::RequestId;
use utoipa::IntoParams;

use super::invoke_request::InvokeRequest;
use super::list::tool_view;
use super::respond::{self, Accepted, ResponseMode};
use crate::audit::Action;
use crate::cache::Purge;
use crate::call::{CallError, Caller, Charged, Failure, IdempotencyKey, InvocationId};
use crate::catalog::registry::{Catalog, Entry, NameMatch, NewCall, Registry, ResolveError};
use crate::http::api::wire::{EnvView, InvokeAnswer, PolicyView, ToolDetail, Validated};
use crate::http::edge::auth::{Admin, Authenticated};
use crate::http::edge::body::{CallJson, PathPart};
use crate::http::edge::request_id;
use crate::http::headers::{call_headers, prefer};
use crate::http::openapi::documented;
use crate::http::openapi::responses::{
    AuthResponses, BodyResponses, CallResponses, CommonResponses, LedgerResponses, LookupResponses,
    ValidationResponses,
};
use crate::http::problem::{ApiError, Problem};
use crate::http::query::QueryParams;

type Tools = State<Arc<Registry>>;

/// Finds the tool of a path by its name or an alias. Routes that change something accept no other
/// spelling, so that they never change another tool.
fn find_by_name(catalog: &Catalog, name: &str, caller: &Caller) -> Result<Arc<Entry>, ApiError> {
    catalog
        .get(name)
        .cloned()
        .ok_or_else(|| ApiError::UnknownTool {
            name: name.to_owned(),
            did_you_mean: catalog.did_you_mean(name, caller),
        })
}

/// Finds the tool that a path means to this caller, also by other spellings.
///
/// # Errors
/// 404, if there is no such tool; 503, if a source that may have it is not up.
pub(crate) fn resolve_tool(
    catalog: &Catalog,
    name: &str,
    caller: &Caller,
) -> Result<(Arc<Entry>, NameMatch), ApiError> {
    let found = catalog
        .resolve(name, caller)
        .map(|(entry, name_match)| (entry.clone(), name_match));
    found.map_err(|error| match error {
        ResolveError::Unknown { did_you_mean } => ApiError::UnknownTool {
            name: name.to_owned(),
            did_you_mean,
        },
        ResolveError::Unlisted {
            reason,
            retry_after,
        } => ApiError::from(&CallError::ToolUnavailable {
            message: reason,
            started: false,
            retry_after,
        }),
    })
}

/// Like [`resolve_tool`], but also checks that the caller may use the tool.
///
/// # Errors
/// As [`resolve_tool`]; 403, if the caller has no grant.
pub(crate) fn resolve_allowed(
    catalog: &Catalog,
    name: &str,
    caller: &Caller,
) -> Result<Arc<Entry>, ApiError> {
    let (entry, _) = resolve_tool(catalog, name, caller)?;
    if entry.allows(caller) {
        return Ok(entry);
    }
    let (caller, tool) = (
        caller.name.to_string(),
        entry.name_shown_to(caller, name).to_string(),
    );
    Err(ApiError::from(&CallError::Forbidden { caller, tool }))
}

/// One tool with its policy, usage and declared environment.
#[utoipa::path(get, operation_id = "get_tool", path = "/tools/{name}", tag = "tools",
    params(("name" = String, Path, description = "The tool's name, an alias, or another spelling that calls.name_matching allows")), responses(
    (status = 200, description = "The tool", body = ToolDetail<'_>), CommonResponses, AuthResponses, LookupResponses, LedgerResponses))]
pub(crate) async fn get_tool(
    State(registry): Tools,
    Authenticated { caller, catalog }: Authenticated,
    PathPart(name): PathPart,
) -> Result<Response, ApiError> {
    let entry = resolve_allowed(&catalog, &name, &caller)?;
    detail_response(&registry, &entry, &caller).await
}

/// Answers with the details of one tool.
pub(crate) async fn detail_response(
    registry: &Registry,
    entry: &Entry,
    caller: &Caller,
) -> Result<Response, ApiError> {
    let usage = registry.limit_usage(entry, caller).await?;
    let detail = ToolDetail {
        tool: tool_view(entry, &entry.definition),
        policy: PolicyView::new(&entry.policy, entry.definition.paging, entry.is_enabled()),
        usage: usage.iter().map(Charged::to_usage).collect(),
        env: entry.definition.env.iter().map(EnvView::from).collect(),
        breaker: entry.breaker_status().map(|breaker| breaker.state.as_str()),
        sandbox: entry.sandbox(),
    };
    Ok(Json(detail).into_response())
}

/// Run a tool.
///
/// Answers 200 whenever the tool ran, also with an error result (`is_error`). Anything else is a
/// problem. With an `Idempotency-Key` the tool runs once. For 24 hours after the call has ended,
/// the same request gets the same answer, byte for byte, with `Idempotent-Replayed: true`, and
/// costs nothing.
///
/// With `Accept: text/event-stream` the answer is a stream. It has `progress` events
/// (`invocation_id`, `tool_use_id`, `tool`, `data` in the tool's own shape, `missed` when events
/// were left out), and a comment as heartbeat after each 15 seconds of silence. The last event is
/// the one `result` event: the answer or the problem, with its status. A call that is refused
/// before the tool runs gets the plain problem.
///
/// With `Prefer: respond-async` a call is answered 202 and continues: `GET /invocations/{id}` shows
/// it and keeps its result, `DELETE` cancels it.
#[utoipa::path(post, operation_id = "invoke_tool", path = "/tools/{name}/invoke", tag = "tools", request_body = documented::InvokeRequest,
    params(("name" = String, Path, description = "The tool's name, an alias, or another spelling that calls.name_matching allows"), call_headers::IdempotencyHeader, call_headers::RunIdHeader, prefer::PreferHeader),
    responses((status = 200, description = "The tool ran",
        content((InvokeAnswer<'_> = "application/json"), (String = "text/event-stream")),
        headers(("idempotent-replayed" = bool, description = "True when the call with this key ran before."))),
    (status = 202, description = "The call runs (`Prefer: respond-async`)", body = Accepted, headers(
        ("location" = String, description = "Where the call is read and cancelled: /invocations/{id}."),
        ("preference-applied" = String, description = "respond-async"),
        ("retry-after" = u64, description = "Seconds to wait before the first poll."))),
    CommonResponses, AuthResponses, LookupResponses, BodyResponses, CallResponses))]
pub(crate) async fn invoke_tool(
    State(registry): Tools,
    Authenticated { caller, catalog }: Authenticated,
    PathPart(name): PathPart,
    request_id: Option<Extension<RequestId>>,
    headers: HeaderMap,
    CallJson(body, reserved, mut repairs): CallJson,
) -> Result<Response, ApiError> {
    let (entry, name_match) = resolve_tool(&catalog, &name, &caller)?;
    let key = call_headers::key_from_headers(&headers)?;
    let run_id = call_headers::run_id_from_headers(&headers)?;
    let mut request = reserved
        .parse_with(|| InvokeRequest::from_json(body))
        .await?;
    request.options.run_id = request.options.run_id.or(run_id.map(Into::into));
    repairs.extend(request.repairs);
    let now = registry.shared().clock.now();
    let invocation = entry.new_invocation(NewCall {
        repairs,
        options: request.options,
        idempotency_key: key,
        request_id: request_id.and_then(|id| Some(id.header_value().to_str().ok()?.into())),
        trace: request_id::trace_from_headers(&headers),
        ..NewCall::new((&name, name_match), caller, Ok(request.arguments), now)
    });
    Ok(respond::call_and_respond(
        ResponseMode::from_headers(&headers),
        registry,
        entry,
        invocation,
        reserved,
    )
    .await)
}

/// Calls a tool without a server, as the operator. Returns the body that the route would have
/// answered, and whether the tool ran without an error result.
pub async fn call_in_process(
    registry: &Arc<Registry>,
    name: &str,
    arguments: Value,
    key: Option<IdempotencyKey>,
) -> (Value, bool) {
    let caller = Arc::new(Caller::anonymous());
    let call = async {
        let (entry, name_match) = resolve_tool(&registry.catalog(), name, &caller)?;
        let request = InvokeRequest::from_json(json!({"arguments": arguments}))?;
        let (found, now) = ((name, name_match), registry.shared().clock.now());
        let invocation = entry.new_invocation(NewCall {
            options: request.options,
            idempotency_key: key,
            ..NewCall::new(found, caller.clone(), Ok(request.arguments), now)
        });
        let id = invocation.id;
        let answer = registry.invoke(&entry, invocation).await;
        let answer = answer.map_err(|error| api_error_for_call(&error, &entry, id))?;
        let content =
            answer.model_content(|| registry.catalog().find_result_reader(&caller, |_| true));
        let body = json!(InvokeAnswer::for_entry(
            &entry,
            &answer,
            content.map(Cow::Owned)
        ));
        Ok::<_, ApiError>((body, !answer.result.is_error))
    };
    call.await
        .unwrap_or_else(|error| (json!(Problem::from(error)), false))
}

/// The error for a failed call. It names the call's id, unless the call has no row (the service is
/// draining, or the ledger is unavailable). If the failure is about another call, it names that
/// call's id.
pub(crate) fn api_error_for_call(error: &CallError, entry: &Entry, id: InvocationId) -> ApiError {
    ApiError::Call {
        failure: Failure::from_error(error, entry.policy.effect),
        invocation: error.recorded_invocation(id),
    }
}

/// Check arguments. Nothing runs and nothing is recorded.
#[utoipa::path(post, operation_id = "validate_arguments", path = "/tools/{name}/validate", tag = "tools", request_body = documented::InvokeRequest,
    params(("name" = String, Path, description = "The tool's name, an alias, or another spelling that calls.name_matching allows")), responses(
    (status = 200, description = "The arguments fit", body = Validated), CommonResponses, AuthResponses, LookupResponses, BodyResponses, ValidationResponses))]
pub(crate) async fn validate_arguments(
    Authenticated { caller, catalog }: Authenticated,
    PathPart(name): PathPart,
    CallJson(body, reserved, _): CallJson,
) -> Result<Json<Validated>, ApiError> {
    let entry = resolve_allowed(&catalog, &name, &caller)?;
    let request = reserved
        .parse_with(|| InvokeRequest::from_json(body))
        .await?;
    let fitting = entry
        .rules
        .fit_model_arguments(request.arguments, &request.options.context, None)
        .await
        .map_err(|error| ApiError::from(&error))?;
    Ok(Json(Validated {
        valid: true,
        arguments: fitting.arguments,
        coercions: fitting.coercions,
        page: fitting.page,
    }))
}

/// A tool and its switch.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Switched {
    /// The tool.
    pub tool: String,
    /// Whether the tool is enabled now.
    pub enabled: bool,
}

/// Switch a tool on. Kept over restarts.
#[utoipa::path(post, operation_id = "enable_tool", path = "/tools/{name}/enable", tag = "operator",
    params(("name" = String, Path, description = "The tool's name or alias")), responses(
    (status = 200, description = "Done", body = Switched), CommonResponses, AuthResponses, LookupResponses, LedgerResponses))]
pub(crate) async fn enable_tool(
    registry: Tools,
    admin: Admin,
    name: PathPart,
) -> Result<Json<Switched>, ApiError> {
    set_enabled(registry, admin, name, true).await
}

/// Switch a tool off: calls are refused as `tool_disabled`. Kept over restarts.
#[utoipa::path(post, operation_id = "disable_tool", path = "/tools/{name}/disable", tag = "operator",
    params(("name" = String, Path, description = "The tool's name or alias")), responses(
    (status = 200, description = "Done", body = Switched), CommonResponses, AuthResponses, LookupResponses, LedgerResponses))]
pub(crate) async fn disable_tool(
    registry: Tools,
    admin: Admin,
    name: PathPart,
) -> Result<Json<Switched>, ApiError> {
    set_enabled(registry, admin, name, false).await
}

async fn set_enabled(
    State(registry): Tools,
    Admin(caller): Admin,
    PathPart(name): PathPart,
    enabled: bool,
) -> Result<Json<Switched>, ApiError> {
    let entry = find_by_name(&registry.catalog(), &name, &Caller::anonymous())?;
    registry
        .set_enabled_by(&caller.name, &entry, enabled)
        .await?;
    tracing::info!(tool = %entry.definition.name, enabled, "a tool was enabled or disabled");
    Ok(Json(Switched {
        tool: entry.definition.name.to_string(),
        enabled,
    }))
}

/// Which counts to reset.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ResetUsage {
    /// Reset only this caller's counts, those of its own limits over all tools included.
    caller: Option<String>,
}

/// A tool whose counts were reset.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Reset {
    /// The tool.
    pub tool: String,
    /// True.
    pub reset: bool,
}

/// Reset the counts of a tool's usage limits.
#[utoipa::path(post, operation_id = "reset_usage", path = "/tools/{name}/usage/reset", tag = "operator",
    params(("name" = String, Path, description = "The tool's name or alias"), ResetUsage), responses(
    (status = 200, description = "Done", body = Reset), CommonResponses, AuthResponses, LookupResponses, LedgerResponses))]
pub(crate) async fn reset_usage(
    State(registry): Tools,
    Admin(caller): Admin,
    PathPart(name): PathPart,
    QueryParams(params): QueryParams<ResetUsage>,
) -> Result<Json<Reset>, ApiError> {
    let entry = find_by_name(&registry.catalog(), &name, &Caller::anonymous())?;
    registry
        .reset_usage_by(&caller.name, &entry, params.caller.as_deref())
        .await?;
    Ok(Json(Reset {
        tool: entry.definition.name.to_string(),
        reset: true,
    }))
}

/// The result of a purge.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Purged {
    /// The tool, if only one tool's results were purged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tool: Option<String>,
    /// Number of purged results.
    pub purged: u64,
    /// True if Redis (`cache.redis`) does not answer. Other services may serve the results until it
    /// does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub pending: bool,
}

impl Purged {
    fn new(tool: Option<String>, purge: Purge) -> Self {
        Self {
            tool,
            purged: purge.purged,
            pending: purge.is_pending,
        }
    }
}

/// Purge one tool's stored results.
#[utoipa::path(delete, operation_id = "purge_tool_cache", path = "/tools/{name}/cache", tag = "operator",
    params(("name" = String, Path, description = "The tool's name or alias")), responses(
    (status = 200, description = "Done", body = Purged), CommonResponses, AuthResponses, LookupResponses, LedgerResponses))]
pub(crate) async fn purge_tool_cache(
    State(registry): Tools,
    Admin(caller): Admin,
    PathPart(name): PathPart,
) -> Result<Json<Purged>, ApiError> {
    let entry = find_by_name(&registry.catalog(), &name, &Caller::anonymous())?;
    let tool = entry.definition.name.to_string();
    purge(&registry, &caller, Some(tool)).await
}

/// Purge all stored results.
#[utoipa::path(delete, operation_id = "purge_cache", path = "/cache", tag = "operator", responses(
    (status = 200, description = "Done", body = Purged), CommonResponses, AuthResponses, LedgerResponses))]
pub(crate) async fn purge_cache(
    State(registry): Tools,
    Admin(caller): Admin,
) -> Result<Json<Purged>, ApiError> {
    purge(&registry, &caller, None).await
}

async fn purge(
    registry: &Registry,
    caller: &Caller,
    tool: Option<String>,
) -> Result<Json<Purged>, ApiError> {
    let entry = registry.audit_entry(&caller.name, Action::CachePurged, tool.as_deref());
    let cache = &registry.shared().cache;
    let purge = cache.purge(tool.as_deref(), Some(entry)).await?;
    Ok(Json(Purged::new(tool, purge)))
}
