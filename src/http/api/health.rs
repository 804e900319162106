//! `GET /livez` and `GET /readyz`: whether the process runs, and whether it may be sent calls.
//!
//! Both are open to every client. Details that name tools need a key.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::metrics::check_metrics_access;
use crate::call::CallError;
use crate::catalog::Entry;
use crate::http::edge::auth::authenticate_caller;
use crate::http::openapi::responses::{
    AuthResponses, CommonResponses, LedgerResponses, QueryResponses,
};
use crate::http::problem::ApiError;
use crate::http::query::QueryParams;
use crate::sources::live::{LiveTools, SourceView};
use crate::stack::circuit_breaker::BreakerState;

/// The answer to a probe.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// `alive` or `ready`.
    pub status: &'static str,
}

/// The answer of a service that may be sent calls.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Readiness {
    /// `ready`.
    pub status: &'static str,
    /// `current`, or why the previous manifest is still served. Absent without a manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub manifest: Option<String>,
    /// Manifests read after the first. Absent without a manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reloads: Option<Reloads>,
    /// `up`: the ledger can write. If it cannot, the service is not ready. With `?verbose` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ledger: Option<&'static str>,
    /// Circuit breakers that are not closed, by tool. The service is still ready. With `?verbose`
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub breakers: Option<Vec<BreakerView>>,
    /// Sources of tools, in any state. The service is ready when each was listed once or failed
    /// once. With `?verbose` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub sources: Option<Vec<SourceView>>,
}

/// A circuit breaker that is not closed.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct BreakerView {
    /// Name of the tool.
    pub tool: String,
    /// `open`, or `half_open`: one call may test the tool.
    pub state: &'static str,
    /// Failures in a row.
    pub failures: u32,
    /// Milliseconds until a call may test the tool; null when one may now, or does.
    #[schema(required)]
    pub retry_after_ms: Option<u64>,
}

impl BreakerView {
    fn from_entry(entry: &Entry) -> Option<Self> {
        let breaker = entry
            .breaker_status()
            .filter(|breaker| breaker.state != BreakerState::Closed)?;
        Some(Self {
            tool: entry.definition.name.to_string(),
            state: breaker.state.as_str(),
            failures: breaker.failures,
            retry_after_ms: breaker
                .retry_after
                .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        })
    }
}

/// Manifests read after the first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Reloads {
    /// Manifests that are served now, or were served for a time.
    pub taken: u64,
    /// Manifests that were refused.
    pub refused: u64,
}

/// The process answers. Depends on nothing.
#[utoipa::path(get, operation_id = "is_alive", path = "/livez", tag = "health", responses(
    (status = 200, description = "Alive", body = Health), CommonResponses))]
pub(crate) async fn livez() -> Json<Health> {
    Json(Health { status: "alive" })
}

/// The query of a probe. Unknown parameters are ignored, so that no probe fails because of one.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReadinessQuery {
    /// `true`, or just `?verbose`: also the state of the ledger, the circuit breakers and the
    /// sources.
    #[param(pattern = "^(true|false|1|0)?$")]
    verbose: Option<String>,
}

impl ReadinessQuery {
    fn is_verbose(&self) -> Result<bool, ApiError> {
        match self.verbose.as_deref() {
            Some("" | "true" | "1") => Ok(true),
            None | Some("false" | "0") => Ok(false),
            Some(_) => Err(ApiError::Malformed(
                "verbose is true or false; `?verbose` alone is true".into(),
            )),
        }
    }
}

/// Ready: the ledger can write, the service is not stopping, and every source of tools that was
/// there at the start was listed once or failed once. The state of backends does not count, since a
/// failed backend would make every replica unready at once. Nor does a new manifest that was
/// refused: the previous one is still served, and `manifest` tells why.
///
/// `?verbose` names tools. With callers it needs the key of an admin or of a caller with
/// `metrics: true`.
#[utoipa::path(get, operation_id = "is_ready", path = "/readyz", tag = "health", params(ReadinessQuery), responses(
    (status = 200, description = "Ready", body = Readiness), CommonResponses, AuthResponses, QueryResponses, LedgerResponses))]
pub(crate) async fn readyz(
    State(live): State<Arc<LiveTools>>,
    QueryParams(params): QueryParams<ReadinessQuery>,
    headers: HeaderMap,
) -> Result<Json<Readiness>, ApiError> {
    let catalog = live.registry().catalog();
    let is_verbose = params.is_verbose()?;
    if is_verbose {
        check_metrics_access(
            catalog.callers(),
            &*authenticate_caller(live.registry(), catalog.callers(), &headers)?,
        )?;
    }
    let shared = live.registry().shared();
    let fault = if shared.in_flight_calls.is_draining() {
        Some(CallError::Draining)
    } else {
        shared
            .ledger
            .accepts_calls()
            .err()
            .map(|reason| CallError::LedgerUnavailable {
                reason,
                started: false,
                has_row: false,
            })
    };
    if let Some(error) = fault {
        return Err(ApiError::from(&error));
    }
    let awaited = live.awaited_sources();
    if !awaited.is_empty() {
        let caller = authenticate_caller(live.registry(), catalog.callers(), &headers);
        let may_see_names =
            caller.is_ok_and(|caller| check_metrics_access(catalog.callers(), &caller).is_ok());
        return Err(ApiError::SourcesLoading(describe_loading(
            &awaited,
            may_see_names,
        )));
    }
    let status = live.reload_status();
    let status = status.as_deref();
    let breakers = || catalog.entries().filter_map(BreakerView::from_entry);
    Ok(Json(Readiness {
        status: "ready",
        manifest: status.map(|status| status.refusal.clone().unwrap_or_else(|| "current".into())),
        reloads: status.map(|status| Reloads {
            taken: status.accepted,
            refused: status.refused,
        }),
        ledger: is_verbose.then_some("up"),
        breakers: is_verbose.then(|| breakers().collect()),
        sources: is_verbose.then(|| live.sources()),
    }))
}

/// The text that tells which sources are still loading. Only callers that may read metrics see the
/// names.
fn describe_loading(awaited: &[SourceView], named: bool) -> String {
    let names: Vec<String> = awaited
        .iter()
        .map(|source| format!("source `{}` is still loading", source.name))
        .collect();
    match names.len() {
        _ if named => names.join("; "),
        1 => "a source of tools is still loading".into(),
        many => format!("{many} sources of tools are still loading"),
    }
}
