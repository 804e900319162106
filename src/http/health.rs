//! Whether the process lives, and whether it may be sent calls; if not, why. Open to everybody.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::problem::{ApiError, Problem};
use crate::call::{CallError, Failure};
use crate::live::Live;

/// The process answers. Depends on nothing.
#[utoipa::path(get, operation_id = "is_alive", path = "/livez", tag = "health", responses((status = 200, body = Object)))]
pub(super) async fn live() -> Json<Value> {
    Json(json!({"status": "alive"}))
}

/// Ready: the ledger can write and the service is not stopping. Not: whether what tools depend on is up, since that
/// would take every replica out at once; and not whether the manifest that is there now could be taken: the one before
/// serves on, which `manifest` says.
#[utoipa::path(get, operation_id = "is_ready", path = "/readyz", tag = "health", responses(
    (status = 200, body = Object), (status = 503, body = Problem)))]
pub(super) async fn ready(State(live): State<Arc<Live>>) -> Response {
    let shared = live.registry().shared();
    let fault = if shared.running.is_closed() {
        Some(CallError::Draining)
    } else {
        shared.ledger.health().err().map(|reason| CallError::LedgerUnavailable { reason, started: false })
    };
    match fault {
        None => Json(match live.status() {
            None => json!({"status": "ready"}),
            Some(status) => json!({
                "status": "ready",
                "manifest": status.kept.as_deref().unwrap_or("current"),
                "reloads": {"taken": status.taken, "refused": status.refused},
            }),
        })
        .into_response(),
        Some(error) => ApiError::Call { failure: Failure::from(&error), invocation: None }.into_response(),
    }
}
