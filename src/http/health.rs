//! Whether the process lives, and whether it may be sent calls; if not, why. Open to everybody.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::ApiError;
use super::responses::{Always, Recording};
use crate::call::{CallError, Failure};
use crate::live::{Live, Status};

/// The answer to a probe.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Health {
    /// `alive` or `ready`.
    pub status: &'static str,
}

/// The answer of a service that may be sent calls.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Readiness {
    /// `ready`.
    pub status: &'static str,
    /// `current`, or why the one before is still served. Not there without a manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub manifest: Option<String>,
    /// Manifests read after the first. Not there without a manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reloads: Option<Reloads>,
}

/// Manifests read after the first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Reloads {
    /// Now served, or served for a time.
    pub taken: u64,
    /// Refused.
    pub refused: u64,
}

impl Readiness {
    fn of(status: Option<&Status>) -> Self {
        let manifest = status.map(|status| status.kept.clone().unwrap_or_else(|| "current".into()));
        let reloads = status.map(|status| Reloads { taken: status.taken, refused: status.refused });
        Self { status: "ready", manifest, reloads }
    }
}

/// The process answers. Depends on nothing.
#[utoipa::path(get, operation_id = "is_alive", path = "/livez", tag = "health", responses(
    (status = 200, description = "Alive", body = Health), Always))]
pub(super) async fn live() -> Json<Health> {
    Json(Health { status: "alive" })
}

/// Ready: the ledger can write and the service is not stopping. Not: whether what tools depend on is up, since that
/// would take every replica out at once; and not whether the manifest that is there now could be taken: the one before
/// serves on, which `manifest` says.
#[utoipa::path(get, operation_id = "is_ready", path = "/readyz", tag = "health", responses(
    (status = 200, description = "Ready", body = Readiness), Always, Recording))]
pub(super) async fn ready(State(live): State<Arc<Live>>) -> Response {
    let shared = live.registry().shared();
    let fault = if shared.running.is_leaving() {
        Some(CallError::Draining)
    } else {
        shared.ledger.health().err().map(|reason| CallError::LedgerUnavailable { reason, started: false })
    };
    match fault {
        None => Json(Readiness::of(live.status().as_deref())).into_response(),
        Some(error) => ApiError::Call { failure: Failure::from(&error), invocation: None }.into_response(),
    }
}
