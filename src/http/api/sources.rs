//! The state of the sources of tools, such as Python modules, and the restart of a source.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::audit::Action;
use crate::http::edge::auth::Admin;
use crate::http::edge::body::PathPart;
use crate::http::openapi::responses::{AuthResponses, CommonResponses, LookupResponses};
use crate::http::problem::ApiError;
use crate::manifest::definition_change::DefinitionParts;
use crate::sources::live::{LiveTools, SourceView};

/// A restart that takes longer is answered 202 and continues.
const RESTART_WAIT: Duration = Duration::from_secs(10);

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
        sources: live.sources(),
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
    Admin(caller): Admin,
    PathPart(name): PathPart,
) -> Result<Response, ApiError> {
    let Some(restart) = live.restart_source(&name).await else {
        return Err(no_such_source());
    };
    tracing::info!(source = name, "a source is restarted");
    let registry = live.registry();
    let entry = registry.audit_entry(&caller.name, Action::SourceRestarted, Some(&name));
    registry.shared().ledger.record_action(entry).await;
    let (status, view) = match live.wait_for_restart(&restart, RESTART_WAIT).await {
        Some(view) => (StatusCode::OK, view),
        None => (StatusCode::ACCEPTED, live.restart_view(&restart)),
    };
    Ok((status, Json(view)).into_response())
}
