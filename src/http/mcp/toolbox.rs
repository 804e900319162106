//! `/mcp/` and `/mcp/{toolset}`: the tools for clients of MCP Toolbox.
//!
//! These clients accept any type of answer, read it as JSON, and expect no session in the versions
//! until 2025-11-25. Without the setting there are no such routes.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use tower_http::request_id::RequestId;

use super::SESSION_HEADER;
use super::routes::answer_post;
use crate::http::edge::auth::Authenticated;
use crate::http::edge::body::PathPart;
use crate::http::problem::ApiError;
use crate::http::state::AppState;

/// What rmcp requires of a client.
const BOTH_TYPES: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

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
    let headers = request.headers_mut();
    headers.remove(SESSION_HEADER);
    if accepts_anything(headers) {
        headers.insert(ACCEPT, BOTH_TYPES);
    }
    answer_post(state, authenticated, request_id, request, (tag, true)).await
}

fn accepts_anything(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter();
    accepted.next().is_none()
        || headers.get_all(ACCEPT).iter().any(|types| {
            let mut types = types.to_str().unwrap_or_default().split(',');
            types.any(|one| one.split(';').next().unwrap_or_default().trim() == "*/*")
        })
}
