//! The state of the sources of tools, such as Python modules, and the restart of a source.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;

use super::auth::Admin;
use super::body::PathPart;
use super::problem::ApiError;
use super::responses::{Always, Keyed, Naming};
use crate::call::Kind;
use crate::live::{self, Live};

/// A restart that takes longer is answered 202 and continues.
const PATIENCE: Duration = Duration::from_secs(10);

/// A source of tools.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SourceView {
    /// Name of the source.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// How its tools run.
    pub kind: Kind,
    /// `starting`: not listed yet. `up`: its tools can be called. `failed`: it could not be listed, and will be started
    /// again. `down`: listed, but the process or server that runs its tools is not available now.
    pub state: &'static str,
    /// Tools that are served.
    pub tools: usize,
    /// Processes that are idle or busy.
    pub workers: usize,
    /// Processes that were replaced.
    pub replaced: u64,
    /// What the source does now, such as a start.
    #[schema(required)]
    pub doing: Option<String>,
    /// Why the source is not up. If it is up: what failed since it was listed, and which tools are still served.
    #[schema(required)]
    pub fault: Option<String>,
    /// Time of the fault.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub fault_at: Option<Timestamp>,
    /// Warnings about the tools of the source: tools that were left out, policies without effect.
    pub warnings: Vec<String>,
    /// Quarantined tools: their definitions differ from their pins. Their calls are refused as `definition_changed`.
    pub stopped: Vec<StoppedView>,
}

/// A quarantined tool.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct StoppedView {
    /// Name of the tool.
    pub tool: String,
    /// How its definition differs.
    pub why: String,
}

impl From<live::SourceView> for SourceView {
    fn from(view: live::SourceView) -> Self {
        let live::SourceView { name, kind, state, tools, workers, replaced, doing, fault, fault_at, warnings, stopped } =
            view;
        let stopped = stopped.into_iter().map(|live::Stopped { tool, why }| StoppedView { tool, why }).collect();
        let state = state.as_str();
        Self { name, kind, state, tools, workers, replaced, doing, fault, fault_at, warnings, stopped }
    }
}

/// Every source.
pub(super) fn views(live: &Live) -> Vec<SourceView> {
    live.sources().into_iter().map(SourceView::from).collect()
}

/// All sources.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SourceList {
    /// The program's sources first, then the manifest's in its order.
    pub sources: Vec<SourceView>,
}

/// The sources of tools, and their state.
#[utoipa::path(get, operation_id = "list_sources", path = "/sources", tag = "operator", responses(
    (status = 200, description = "All sources", body = SourceList), Always, Keyed))]
pub(super) async fn list(State(live): State<Arc<Live>>, _: Admin) -> Json<SourceList> {
    Json(SourceList { sources: views(&live) })
}

/// Restart a source.
///
/// The new source starts beside the old one. When it is listed, its tools replace the old ones in one step, and calls
/// under way finish in the old one. If it fails, the old one is still served, and `fault` tells why.
#[utoipa::path(post, operation_id = "restart_source", path = "/sources/{name}/restart", tag = "operator",
    params(("name" = String, Path, description = "The source's name")), responses(
    (status = 200, description = "It was listed, or has failed: `fault` says so", body = SourceView),
    (status = 202, description = "It takes longer than ten seconds, and goes on", body = SourceView), Always, Keyed, Naming))]
pub(super) async fn restart(
    State(live): State<Arc<Live>>,
    _: Admin,
    PathPart(name): PathPart,
) -> Result<Response, ApiError> {
    let Some(begun) = live.restart(&name).await else {
        return Err(ApiError::NotFound("there is no source of this name; GET /sources shows those that are".into()));
    };
    tracing::info!(source = name, "a source is started anew");
    let (status, view) = match live.restarted(&begun, PATIENCE).await {
        Some(view) => (StatusCode::OK, view),
        None => (StatusCode::ACCEPTED, live.view(&begun)),
    };
    Ok((status, Json(SourceView::from(view))).into_response())
}
