//! The state of the sources of tools, such as Python modules, and the restart of a source.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;

use crate::http::edge::auth::Admin;
use crate::http::edge::body::PathPart;
use crate::http::openapi::responses::{AuthResponses, CommonResponses, LookupResponses};
use crate::http::problem::ApiError;
use crate::manifest::ListedFinding;
use crate::manifest::definition_change::DefinitionParts;
use crate::sources::live::{self, LiveTools};
use crate::sources::{Operations, SourceKind};

/// A restart that takes longer is answered 202 and continues.
const RESTART_WAIT: Duration = Duration::from_secs(10);

/// A source of tools.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SourceView {
    /// Name of the source.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// The kind of the source.
    pub kind: SourceKind,
    /// `starting`: not listed yet. `up`: its tools can be called. `failed`: it could not be listed,
    /// or lost its names. `down`: listed, but the process or server that runs its tools is not
    /// available now.
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
    /// Why the source is not up. If it is up: what failed since it was listed, and which tools are
    /// still served.
    #[schema(required)]
    pub fault: Option<String>,
    /// Time of the fault.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub fault_at: Option<Timestamp>,
    /// Warnings about the tools of the source: tools that were left out, policies without effect.
    pub warnings: Vec<String>,
    /// Quarantined tools: their definitions differ from their pins. Their calls are refused as
    /// `definition_changed`.
    pub stopped: Vec<StoppedView>,
    /// What misleads models in the definitions of its tools: the warnings first, at most a hundred
    /// findings.
    pub findings: Vec<FindingView>,
    /// The operations of an OpenAPI document; null for other sources.
    #[schema(required)]
    pub operations: Option<OperationsView>,
}

/// The operations of an OpenAPI document.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct OperationsView {
    /// All operations of the document.
    pub found: usize,
    /// Those that are tools.
    pub imported: usize,
    /// Those that are selected and cannot be tools.
    pub left_out: Vec<LeftOutView>,
}

/// An operation that cannot be a tool.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct LeftOutView {
    /// Method and path.
    pub operation: String,
    /// Why it cannot be a tool.
    pub reason: String,
}

impl From<&Operations> for OperationsView {
    fn from(operations: &Operations) -> Self {
        let left_out = operations.left_out.iter().cloned();
        let left_out = left_out
            .map(|(operation, reason)| LeftOutView { operation, reason })
            .collect();
        Self {
            found: operations.found,
            imported: operations.imported,
            left_out,
        }
    }
}

/// What misleads models in the definition of a tool, or what a provider refuses.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct FindingView {
    /// Name of the tool.
    pub tool: String,
    /// The rule, as in `toolcrib check`.
    pub rule: &'static str,
    /// The part of the definition, the fault and the correct form.
    pub message: String,
    /// Present and true if it may be intended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub hint: bool,
}

impl From<ListedFinding> for FindingView {
    fn from(
        ListedFinding {
            tool,
            rule,
            message,
            is_hint,
        }: ListedFinding,
    ) -> Self {
        Self {
            tool,
            rule: rule.as_str(),
            message,
            hint: is_hint,
        }
    }
}

/// A quarantined tool.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct StoppedView {
    /// Name of the tool.
    pub tool: String,
    /// How its definition differs.
    pub why: String,
}

impl From<live::SourceView> for SourceView {
    fn from(view: live::SourceView) -> Self {
        let live::SourceView {
            name,
            kind,
            state,
            tools,
            workers,
            replaced,
            doing,
            fault,
            fault_at,
            warnings,
            quarantined,
            findings,
            operations,
        } = view;
        let stopped = quarantined
            .into_iter()
            .map(|one| StoppedView {
                tool: one.tool,
                why: one.reason,
            })
            .collect();
        let findings = findings.into_iter().map(FindingView::from).collect();
        let (state, operations) = (
            state.as_str(),
            operations.as_deref().map(OperationsView::from),
        );
        Self {
            name,
            kind,
            state,
            tools,
            workers,
            replaced,
            doing,
            fault,
            fault_at,
            warnings,
            stopped,
            findings,
            operations,
        }
    }
}

/// Every source.
pub(crate) fn source_views(live: &LiveTools) -> Vec<SourceView> {
    live.sources().into_iter().map(SourceView::from).collect()
}

/// All sources.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SourceList {
    /// The program's sources first, then the manifest's in its order.
    pub sources: Vec<SourceView>,
}

/// The sources of tools, and their state.
#[utoipa::path(get, operation_id = "list_sources", path = "/sources", tag = "operator", responses(
    (status = 200, description = "All sources", body = SourceList), CommonResponses, AuthResponses))]
pub(crate) async fn list_sources(State(live): State<Arc<LiveTools>>, _: Admin) -> Json<SourceList> {
    Json(SourceList {
        sources: source_views(&live),
    })
}

/// How the definitions of quarantined tools differ.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SourceChanges {
    /// The quarantined tools of the source.
    pub tools: Vec<ChangedTool>,
}

/// A quarantined tool, with the parts of its definition that differ.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ChangedTool {
    /// Name of the tool.
    pub tool: String,
    /// Why it is quarantined.
    pub why: String,
    /// The approved parts, such as `description`; null if the tool is new, or if its pin has no
    /// text. A part that was not there is absent.
    #[schema(required, value_type = Option<std::collections::HashMap<String, serde_json::Value>>)]
    pub approved: Option<DefinitionParts>,
    /// The parts that the source offers now.
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub offered: DefinitionParts,
}

/// How definitions differ from their pins.
///
/// For the person who decides about `toolcrib pin`. The text comes from the source: no model should
/// read it.
#[utoipa::path(get, operation_id = "list_source_changes", path = "/sources/{name}/changes", tag = "operator",
    params(("name" = String, Path, description = "The source's name")), responses(
    (status = 200, description = "The quarantined tools of the source", body = SourceChanges), CommonResponses, AuthResponses, LookupResponses))]
pub(crate) async fn list_source_changes(
    State(live): State<Arc<LiveTools>>,
    _: Admin,
    PathPart(name): PathPart,
) -> Result<Json<SourceChanges>, ApiError> {
    let source = live
        .sources()
        .into_iter()
        .find(|source| *source.name == name);
    let tools = source.ok_or_else(no_such_source)?.quarantined;
    let tools = tools.into_iter().map(|one| {
        let change = Arc::unwrap_or_clone(one.change);
        ChangedTool {
            tool: one.tool,
            why: one.reason,
            approved: change.approved,
            offered: change.offered,
        }
    });
    Ok(Json(SourceChanges {
        tools: tools.collect(),
    }))
}

fn no_such_source() -> ApiError {
    ApiError::NotFound("there is no source with this name; GET /sources lists the sources".into())
}

/// Restart a source.
///
/// The new source starts beside the old one. When it is listed, its tools replace the old ones in
/// one step, and calls in flight finish in the old one. If it fails, the old one is still served,
/// and `fault` tells why.
#[utoipa::path(post, operation_id = "restart_source", path = "/sources/{name}/restart", tag = "operator",
    params(("name" = String, Path, description = "The source's name")), responses(
    (status = 200, description = "The source was listed, or it failed: see `fault`", body = SourceView),
    (status = 202, description = "The restart takes longer than ten seconds, and continues", body = SourceView), CommonResponses, AuthResponses, LookupResponses))]
pub(crate) async fn restart_source(
    State(live): State<Arc<LiveTools>>,
    _: Admin,
    PathPart(name): PathPart,
) -> Result<Response, ApiError> {
    let Some(restart) = live.restart_source(&name).await else {
        return Err(no_such_source());
    };
    tracing::info!(source = name, "a source is restarted");
    let (status, view) = match live.wait_for_restart(&restart, RESTART_WAIT).await {
        Some(view) => (StatusCode::OK, view),
        None => (StatusCode::ACCEPTED, live.restart_view(&restart)),
    };
    Ok((status, Json(SourceView::from(view))).into_response())
}
