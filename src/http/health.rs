//! Whether the process lives, and whether it may be sent calls; if not, why. Open to everybody.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::ApiError;
use super::responses::{Always, Recording};
use crate::call::{CallError, Failure};
use crate::registry::Registry;

/// The answer to a probe.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Health {
    /// `alive` or `ready`.
    pub status: &'static str,
}

/// The process answers. Depends on nothing.
#[utoipa::path(get, operation_id = "is_alive", path = "/livez", tag = "health", responses(
    (status = 200, description = "Alive", body = Health), Always))]
pub(super) async fn live() -> Json<Health> {
    Json(Health { status: "alive" })
}

/// Ready: the ledger can write and the service is not stopping. Not: whether what tools depend on is up, since that
/// would take every replica out at once.
#[utoipa::path(get, operation_id = "is_ready", path = "/readyz", tag = "health", responses(
    (status = 200, description = "Ready", body = Health), Always, Recording))]
pub(super) async fn ready(State(registry): State<Arc<Registry>>) -> Response {
    let shared = registry.shared();
    let fault = if shared.running.is_closed() {
        Some(CallError::Draining)
    } else {
        shared.ledger.health().err().map(|reason| CallError::LedgerUnavailable { reason, started: false })
    };
    match fault {
        None => Json(Health { status: "ready" }).into_response(),
        Some(error) => ApiError::Call { failure: Failure::from(&error), invocation: None }.into_response(),
    }
}
