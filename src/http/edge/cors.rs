//! CORS headers for pages of the allowed origins. Without them, a browser sends the request of such
//! a page, but lets it read no answer.

use std::time::Duration;

use crate::call::words;
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

/// How long a browser may keep the answer to a preflight request.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Headers that a page may send, besides those that every page may.
const REQUEST_HEADERS: [&str; 12] = words(
    "x-api-key idempotency-key prefer traceparent tracestate toolcrib-run-id x-request-id
     mcp-session-id mcp-protocol-version mcp-method mcp-name last-event-id",
);

/// Headers of answers that a page may read, besides those that every page may.
const RESPONSE_HEADERS: [&str; 5] = [
    "x-request-id",
    "mcp-session-id",
    "mcp-protocol-version",
    "preference-applied",
    "idempotent-replayed",
];

/// The layer for these origins; `None` without origins. It must be below the check of `Host` and
/// `Origin`, so that a page of another origin is refused without any CORS header.
pub(crate) fn layer_for(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let origins: Vec<String> = origins
        .iter()
        .map(|origin| origin.trim_end_matches('/').to_lowercase())
        .collect();
    // Metrics are for a scraper and not for a page.
    let is_allowed = move |origin: &HeaderValue, request: &Parts| {
        let origin = origin.to_str().unwrap_or_default().to_lowercase();
        request.uri.path() != "/metrics" && origins.contains(&origin)
    };
    let request_headers = [ACCEPT, AUTHORIZATION, CONTENT_TYPE, IF_NONE_MATCH];
    let response_headers = [ETAG, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE];
    let layer = CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(is_allowed))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers(
            request_headers
                .into_iter()
                .chain(REQUEST_HEADERS.map(HeaderName::from_static))
                .collect::<Vec<_>>(),
        )
        .expose_headers(
            response_headers
                .into_iter()
                .chain(RESPONSE_HEADERS.map(HeaderName::from_static))
                .collect::<Vec<_>>(),
        )
        .max_age(MAX_AGE);
    Some(layer)
}
