//! `/mcp/` and `/mcp/{toolset}`: the tools for clients of MCP Toolbox.
//!
//! These clients read any answer as JSON, and expect no session in the versions until 2025-11-25.
//! Without the setting there are no such routes.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use tower_http::request_id::RequestId;

use super::SESSION_HEADER;
use super::routes::answer_post;
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
    answer(state, authenticated, request_id, request, None).await
}

/// Answers one message about the tools with a tag.
pub(in crate::http) async fn post_toolset(
    State(state): State<AppState>,
    authenticated: Authenticated,
    PathPart(tag): PathPart,
    request_id: Option<Extension<RequestId>>,
    request: Request,
) -> Result<Response, ApiError> {
    let tag = Some(tag.into());
    answer(state, authenticated, request_id, request, tag).await
}

async fn answer(
    state: AppState,
    authenticated: Authenticated,
    request_id: Option<Extension<RequestId>>,
    mut request: Request,
    tag: Option<Arc<str>>,
) -> Result<Response, ApiError> {
    request.headers_mut().remove(SESSION_HEADER);
    answer_post(state, authenticated, request_id, request, (tag, true)).await
}
