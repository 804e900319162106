//! JSON answers with an ETag. A request with a matching `If-None-Match` gets 304 instead of the
//! body.

use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::call::json::hash_parts;
use crate::http::problem::ApiError;

/// A body and its ETag.
#[derive(Clone)]
pub(crate) struct TaggedBody {
    tag: String,
    body: Bytes,
}

impl TaggedBody {
    /// `body` as JSON. It is written without a tree of values between, which would copy each schema.
    pub(crate) fn new(body: &impl Serialize) -> Result<Self, ApiError> {
        let body = serde_json::to_vec(body).map_err(|error| {
            tracing::error!(%error, "an answer cannot be written as JSON");
            ApiError::Internal
        })?;
        let tag = format!("\"{}\"", &hex::encode(hash_parts([body.as_slice()]))[..32]);
        Ok(Self {
            tag,
            body: body.into(),
        })
    }

    /// Bytes of the body.
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// The body, or 304 if these request headers name its ETag.
    pub(crate) fn respond_to(self, request: &HeaderMap) -> Response {
        let known = request
            .get_all(IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let mut known = known
            .flat_map(|list| list.split(','))
            .map(|tag| tag.trim().trim_start_matches("W/"));
        let response = if known.any(|tag| tag == self.tag || tag == "*") {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(CONTENT_TYPE, "application/json")], self.body).into_response()
        };
        // The body depends on the caller.
        let caching = [(CACHE_CONTROL, "private, no-cache")];
        (caching, [(ETAG, self.tag)], response).into_response()
    }
}
