//! JSON bodies of answers to calls.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::ApiError;

/// Most answers fit, so their buffer does not grow.
const INITIAL_BYTES: usize = 1024;

/// The response with this body. It replaces [`axum::Json`], whose buffer takes twice the
/// instructions for the many small writes of a serializer.
pub(super) fn json_response(body: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(INITIAL_BYTES);
    if let Err(error) = serde_json::to_writer(&mut bytes, body) {
        tracing::error!(%error, "an answer cannot be written as JSON");
        return ApiError::Internal.into_response();
    }
    let json = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, json)], bytes).into_response()
}
