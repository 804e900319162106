//! `GET /metrics`, and the count of all requests.

use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::TryFutureExt;
use futures_util::future::MapOk;
use tower::Service;

use crate::access::callers::Callers;
use crate::call::Caller;
use crate::http::edge::auth::Authenticated;
use crate::http::openapi::responses::{AuthResponses, CommonResponses};
use crate::http::problem::ApiError;
use crate::metrics::{MetricFamily, Metrics, ServiceState, SourceSample, TEXT_FORMAT};
use crate::sources::live::{LiveTools, SourceState};

/// Metrics in Prometheus' text format. For admins and callers with `metrics: true`: they name every
/// tool.
#[utoipa::path(get, operation_id = "get_metrics", path = "/metrics", tag = "operator", responses(
    (status = 200, description = "Prometheus' text format, version 0.0.4", body = String, content_type = "text/plain"),
    CommonResponses, AuthResponses))]
pub(crate) async fn get_metrics(
    State(live): State<Arc<LiveTools>>,
    Authenticated { caller, catalog }: Authenticated,
) -> Result<Response, ApiError> {
    check_metrics_access(catalog.callers(), &caller)?;
    let now = current_state(&live).await;
    match live.registry().shared().metrics.render(now) {
        Ok(text) => Ok(([(CONTENT_TYPE, TEXT_FORMAT)], text).into_response()),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be written");
            Err(ApiError::Internal)
        }
    }
}

/// All metrics as data.
pub(crate) async fn gather_metrics(live: &LiveTools) -> Vec<MetricFamily> {
    let now = current_state(live).await;
    live.registry().shared().metrics.gather(now)
}

/// The values that are read when the metrics are requested. Sets the states of the breakers.
async fn current_state(live: &LiveTools) -> ServiceState {
    let catalog = live.registry().catalog();
    let shared = live.registry().shared();
    for entry in catalog.entries() {
        if let Some(breaker) = entry.breaker_status() {
            shared
                .metrics
                .set_breaker_state(&entry.definition.name, breaker.state.metric_value());
        }
    }
    let (cache_entries, cache_bytes) = shared.cache.size().await;
    let sources = live.sources().into_iter().map(|source| SourceSample {
        name: source.name,
        up: source.state == SourceState::Up,
        replaced: source.replaced,
        quarantined: source.quarantined.len(),
    });
    ServiceState {
        calls: shared.in_flight_calls.len(),
        cache_entries,
        cache_bytes,
        ledger_up: shared.ledger.check_health().is_ok(),
        lines_lost: shared.call_log.lost_lines(),
        sources: sources.collect(),
        sandboxes: catalog
            .entries()
            .filter_map(|entry| entry.sandbox())
            .map(|sandbox| (sandbox.in_force, sandbox.not_enforced.is_empty()))
            .collect(),
    }
}

/// Checks that this caller may read answers that name every tool.
///
/// # Errors
/// 403, if the caller is not an admin and has no `metrics: true`.
pub(crate) fn check_metrics_access(callers: &Callers, caller: &Caller) -> Result<(), ApiError> {
    if callers.can_read_metrics(caller) {
        return Ok(());
    }
    Err(ApiError::Forbidden(format!(
        "caller `{}` is not an admin and has no `metrics: true`",
        caller.name
    )))
}

/// Counts every request under its route and its status, also if it reaches no handler.
///
/// axum's `from_fn` is shorter. It copies all layers inside of it for each request.
#[derive(Clone)]
pub(crate) struct CountRequests<S> {
    pub(crate) inner: S,
    pub(crate) metrics: Metrics,
}

impl<S, B> Service<Request> for CountRequests<S>
where
    S: Service<Request, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = MapOk<S::Future, Box<dyn FnOnce(Response<B>) -> Response<B> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let route = request.extensions().get::<MatchedPath>().cloned();
        let metrics = self.metrics.clone();
        self.inner
            .call(request)
            .map_ok(Box::new(move |response: Response<B>| {
                metrics.service_counters().record_request(
                    route.as_ref().map_or("none", MatchedPath::as_str),
                    response.status().as_str(),
                );
                response
            }))
    }
}
