//! `GET /metrics`, and the count of all requests.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::auth::Authenticated;
use super::problem::ApiError;
use super::responses::{Always, Keyed};
use crate::call::Caller;
use crate::callers::Callers;
use crate::live::{Live, SourceState, SourceView};
use crate::metrics::{Metrics, Now, SourceLevel, TEXT_FORMAT};

/// Metrics in Prometheus' text format. For admins and callers with `metrics: true`: they name every tool.
#[utoipa::path(get, operation_id = "get_metrics", path = "/metrics", tag = "operator", responses(
    (status = 200, description = "Prometheus' text format, version 0.0.4", body = String, content_type = "text/plain"),
    Always, Keyed))]
pub(super) async fn get(
    State(live): State<Arc<Live>>,
    Authenticated { caller, catalog }: Authenticated,
) -> Result<Response, ApiError> {
    may_read_metrics(catalog.callers(), &caller)?;
    let shared = live.registry().shared();
    for entry in catalog.entries() {
        if let Some(breaker) = entry.breaker() {
            shared.metrics.breaker(&entry.definition.name, breaker.state.level());
        }
    }
    let (cache_entries, cache_bytes) = shared.cache.size().await;
    let now = Now {
        calls: shared.running.len(),
        cache_entries,
        cache_bytes,
        ledger_up: shared.ledger.health().is_ok(),
        lines_lost: shared.call_log.lost(),
        sources: live.sources().into_iter().map(level).collect(),
    };
    match shared.metrics.text(now) {
        Ok(text) => Ok(([(CONTENT_TYPE, TEXT_FORMAT)], text).into_response()),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be written");
            Err(ApiError::Internal)
        }
    }
}

fn level(source: SourceView) -> SourceLevel {
    let SourceView { name, state, replaced, stopped, .. } = source;
    SourceLevel { name, up: state == SourceState::Up, replaced, stopped: stopped.len() }
}

/// Checks that this caller may read answers that name every tool.
///
/// # Errors
/// 403, if the caller is not an admin and has no `metrics: true`.
pub(super) fn may_read_metrics(callers: &Callers, caller: &Caller) -> Result<(), ApiError> {
    if callers.may_read_metrics(caller) {
        return Ok(());
    }
    Err(ApiError::Forbidden(format!("caller `{}` is no admin and has no `metrics: true`", caller.name)))
}

/// Counts every request under its route and its status, also if it reaches no handler.
pub(super) async fn count(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    metrics.answered(route.as_ref().map_or("none", MatchedPath::as_str), response.status().as_str());
    response
}
