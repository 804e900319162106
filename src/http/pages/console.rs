//! The console: the page at `/`, and its files below `/console/`. The files need no key. The data
//! that the page shows comes from the routes of the API, with the key of the person.

use axum::extract::Path;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::get};
use serde_json::json;

use super::static_files::StaticFile;
use crate::http::edge::auth::{Authenticated, OptionalAuth};
use crate::http::problem::ApiError;
use crate::http::state::AppState;

/// The page may load files of this service and send requests to it, and nothing else. Pictures in
/// results are shown from their data.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data: blob:; media-src data: blob:; connect-src 'self'; form-action 'none'; \
    frame-ancestors 'none'; base-uri 'none'";

/// The page itself.
const PAGE: StaticFile = StaticFile {
    name: "index.html",
    kind: "text/html; charset=utf-8",
    compressed: include_bytes!(concat!(env!("OUT_DIR"), "/index.html.gz")),
};

/// What the page loads.
const FILES: [StaticFile; 3] = [
    StaticFile {
        name: "console.js",
        kind: "text/javascript",
        compressed: include_bytes!(concat!(env!("OUT_DIR"), "/console.js.gz")),
    },
    StaticFile {
        name: "console.css",
        kind: "text/css",
        compressed: include_bytes!(concat!(env!("OUT_DIR"), "/console.css.gz")),
    },
    StaticFile {
        name: "icon.svg",
        kind: "image/svg+xml",
        compressed: include_bytes!(concat!(env!("OUT_DIR"), "/icon.svg.gz")),
    },
];

/// The page. `/` serves it to browsers.
pub(crate) fn page(request: &HeaderMap) -> Response {
    PAGE.respond(request, CONTENT_POLICY)
}

/// The files of the page, and what it asks first.
pub(crate) fn routes() -> Router<AppState> {
    Router::new()
        .route("/console/session", get(show_session))
        .route(
            "/console/{*file}",
            get(|Path(name): Path<String>, headers: HeaderMap| async move {
                match FILES.iter().find(|file| file.name == name) {
                    Some(file) => file.respond(&headers, CONTENT_POLICY),
                    None => ApiError::NotFound("there is no such page".into()).into_response(),
                }
            }),
        )
}

/// Says whether the page must ask for a key, and whose key it has. A bad key gets 401.
async fn show_session(OptionalAuth(auth): OptionalAuth) -> Response {
    let needs_key = auth
        .as_ref()
        .is_none_or(|Authenticated { catalog, .. }| !catalog.callers().is_empty());
    let session = json!({
        "needs_key": needs_key,
        "caller": auth.as_ref().map(|auth| auth.caller.name.to_string()),
        "admin": auth.as_ref().is_some_and(|auth| auth.caller.admin),
        "version": env!("CARGO_PKG_VERSION"),
    });
    ([(header::CACHE_CONTROL, "no-store")], Json(session)).into_response()
}
