//! `GET /replicas`: the processes that share the ledger.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;

use crate::http::edge::auth::Admin;
use crate::http::openapi::responses::{AuthResponses, CommonResponses, LedgerResponses};
use crate::http::problem::ApiError;
use crate::http::state::AppState;
use crate::ledger::ReplicaRow;

/// A process that serves calls.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ReplicaView {
    /// Id of the process, new at each start.
    #[schema(value_type = String)]
    pub replica: Arc<str>,
    /// Version of the program.
    pub version: String,
    /// When the process started to serve.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When the ledger last heard of the process.
    #[schema(value_type = String, format = DateTime)]
    pub seen_at: Timestamp,
    /// Number of calls under way at that time.
    pub running: u32,
    /// Whether this process answers the request.
    #[serde(rename = "self")]
    pub is_self: bool,
}

/// The processes that share the ledger, the oldest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ReplicaList {
    /// The processes.
    pub replicas: Vec<ReplicaView>,
}

/// The processes that share the ledger.
///
/// A ledger in PostgreSQL can have several. With a ledger in a file, there is one entry.
#[utoipa::path(get, operation_id = "list_replicas", path = "/replicas", tag = "operator", responses(
    (status = 200, description = "The processes", body = ReplicaList), CommonResponses, AuthResponses, LedgerResponses))]
pub(crate) async fn list_replicas(
    State(state): State<AppState>,
    _: Admin,
) -> Result<Json<ReplicaList>, ApiError> {
    let shared = state.registry.shared();
    let running = u32::try_from(shared.in_flight_calls.len()).unwrap_or(u32::MAX);
    let now = shared.clock.now();
    let own = shared.ledger.replica();
    let rows = match &own {
        Some(_) => shared.ledger.replicas().await?,
        None => vec![ReplicaRow {
            replica: state.process.id.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            started_at: state.process.started_at,
            seen_at: now,
            running,
        }],
    };
    let view = |row: ReplicaRow| ReplicaView {
        is_self: own.as_ref().is_none_or(|own| row.replica == *own),
        replica: row.replica,
        version: row.version,
        started_at: row.started_at,
        seen_at: row.seen_at,
        running: row.running,
    };
    Ok(Json(ReplicaList {
        replicas: rows.into_iter().map(view).collect(),
    }))
}
