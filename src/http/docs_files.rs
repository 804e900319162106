//! The files of the page of the API. It needs no other host.

use axum::http::HeaderMap;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use super::problem::ApiError;
use super::static_files::StaticFile;

/// The page may load files of this service and send requests to it, and nothing else.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'self'";

/// The files of the page that are our own, with their types.
const OWN_FILES: [(&str, &str, &str); 3] = [
    (
        "",
        "text/html; charset=utf-8",
        include_str!("docs_page/page.html"),
    ),
    ("page.css", "text/css", include_str!("docs_page/page.css")),
    (
        "page.js",
        "text/javascript",
        include_str!("docs_page/page.js"),
    ),
];

/// The files of Swagger UI that the page loads, compressed by `build.rs`.
const LIBRARY_FILES: [StaticFile; 2] = [
    StaticFile {
        name: "swagger-ui.css",
        kind: "text/css",
        compressed: include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui.css.gz")),
    },
    StaticFile {
        name: "swagger-ui-bundle.js",
        kind: "text/javascript",
        compressed: include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui-bundle.js.gz")),
    },
];

/// The file with this name; the page itself has the empty name.
pub(super) fn serve_file(name: &str, request: &HeaderMap) -> Response {
    if let Some((_, kind, text)) = OWN_FILES.iter().find(|(file, ..)| *file == name) {
        let headers = [
            (CONTENT_TYPE, *kind),
            (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        ];
        return (headers, *text).into_response();
    }
    match LIBRARY_FILES.iter().find(|file| file.name == name) {
        Some(file) => file.respond(request, CONTENT_POLICY),
        None => ApiError::NotFound("there is no such page".into()).into_response(),
    }
}
