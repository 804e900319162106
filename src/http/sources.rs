//! Sources of tools, such as Python modules: how they are, and starting one anew.

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

/// A restart that takes longer is answered as one that goes on.
const PATIENCE: Duration = Duration::from_secs(10);

/// A source of tools.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SourceView {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// How its tools run.
    pub kind: Kind,
    /// `starting`: not listed yet; `up`: its tools can be called; `failed`: it could not be listed and is tried again;
    /// `down`: listed, and what runs its tools is not there just now.
    pub state: &'static str,
    /// Tools that are served.
    pub tools: usize,
    /// Processes that are ready or at work.
    pub workers: usize,
    /// Processes that were replaced.
    pub replaced: u64,
    /// What it is busy with.
    #[schema(required)]
    pub doing: Option<String>,
    /// Why it is not up; of one that is up, what went wrong since it was listed, and what is served on.
    #[schema(required)]
    pub fault: Option<String>,
    /// When that was.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub fault_at: Option<Timestamp>,
    /// What is odd about what is served: tools that could not be taken over, policies without effect.
    pub warnings: Vec<String>,
    /// Tools that are not what they were when their server was pinned; their calls are refused as `definition_changed`.
    pub stopped: Vec<StoppedView>,
}

/// A tool that waits to be approved.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct StoppedView {
    /// Its name.
    pub tool: String,
    /// What is another.
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
    /// The program's first, then as the manifest has them.
    pub sources: Vec<SourceView>,
}

/// Where tools come from that are not declared one by one, and how these sources are.
#[utoipa::path(get, operation_id = "list_sources", path = "/sources", tag = "operator", responses(
    (status = 200, description = "All sources", body = SourceList), Always, Keyed))]
pub(super) async fn list(State(live): State<Arc<Live>>, _: Admin) -> Json<SourceList> {
    Json(SourceList { sources: views(&live) })
}

/// Start a source anew.
///
/// It is started beside what is served; when it is listed, its tools take the place of the old ones in one step, and calls
/// under way finish in the old one. If it fails, the old one serves on, and `fault` says why.
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
