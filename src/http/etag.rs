//! JSON that a client may keep: asked again with `If-None-Match`, it is not sent a second time.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::call::json::digest;

/// The body with its ETag, or 304 when these request headers name that.
pub(super) fn tagged(request: &HeaderMap, body: &Value) -> Response {
    let text = body.to_string();
    let tag = format!("\"{}\"", &hex::encode(digest([text.as_bytes()]))[..32]);
    let known = request.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|list| list.split(',')).map(|one| one.trim().trim_start_matches("W/"));
    let mut response = if known.any(|one| one == tag || one == "*") {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    // What is shown depends on who asks.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}
