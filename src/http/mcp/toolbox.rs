//! `/mcp/` and `/mcp/{toolset}`: the tools for clients of MCP Toolbox.
//!
//! These clients read any answer as JSON, and expect no session in the versions until 2025-11-25.
//! Without the setting there are no such routes.

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use tower_http::request_id::RequestId;

use super::SESSION_HEADER;
use super::routes::answer_post;
use crate::call::Selection;
use crate::catalog::Catalog;
use crate::http::edge::auth::Authenticated;
use crate::http::edge::body::PathPart;
use crate::http::problem::ApiError;
use crate::http::state::AppState;

/// Answers one message about all tools.
pub(in crate::http) async fn post_all(
    State(state): State<AppState>,
    authenticated: Authenticated,
    request_id: Option<Extension<RequestId>>,
    request: Request,
) -> Result<Response, ApiError> {
    let selection = Selection::default();
    answer(state, authenticated, request_id, request, selection).await
}

/// Answers one message about a toolset of the manifest, or about the tools with a tag.
pub(in crate::http) async fn post_toolset(
    State(state): State<AppState>,
    authenticated: Authenticated,
    PathPart(name): PathPart,
    request_id: Option<Extension<RequestId>>,
    request: Request,
) -> Result<Response, ApiError> {
    let selection = find_toolset(&authenticated.catalog, name);
    answer(state, authenticated, request_id, request, selection).await
}

/// The tools that a client of MCP Toolbox means by the name of a toolset.
pub(in crate::http) fn find_toolset(catalog: &Catalog, name: String) -> Selection {
    let mut declared = catalog.callers().toolset_names();
    match declared.any(|known| **known == *name) {
        true => Selection::new(None, Some(name)),
        false => Selection::new(Some(name), None),
    }
}

async fn answer(
    state: AppState,
    authenticated: Authenticated,
    request_id: Option<Extension<RequestId>>,
    mut request: Request,
    selection: Selection,
) -> Result<Response, ApiError> {
    request.headers_mut().remove(SESSION_HEADER);
    answer_post(state, authenticated, request_id, request, (selection, true)).await
}
