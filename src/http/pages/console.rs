//! The console: the page at `/`, and its files below `/console/`. The files need no key. The data
//! that the page shows comes from the routes of the API, with the key of the person.

use std::io::Read;

use axum::extract::Path;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use flate2::read::GzDecoder;
use serde_json::json;

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

/// Bytes at the end of a gzip file: the checksum and the size of its content (RFC 1952).
const GZIP_TRAILER: usize = 8;

/// A file that `build.rs` has compressed.
pub(crate) struct StaticFile {
    /// Its name below the folder of its page.
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// Its content as gzip.
    pub compressed: &'static [u8],
}

impl StaticFile {
    /// The file, compressed for each client that accepts gzip, or 304 if the client has it.
    pub(crate) fn respond(&self, request: &HeaderMap, content_policy: &'static str) -> Response {
        let mut response = if self.is_known_to(request) {
            StatusCode::NOT_MODIFIED.into_response()
        } else if accepts_gzip(request) {
            ([(CONTENT_ENCODING, "gzip")], self.compressed).into_response()
        } else {
            match self.content() {
                Ok(content) => content.into_response(),
                Err(error) => {
                    tracing::error!(%error, name = self.name, "a file of the program cannot be decompressed");
                    return ApiError::Internal.into_response();
                }
            }
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(content_policy),
        );
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if let Ok(tag) = HeaderValue::from_str(&self.tag()) {
            headers.insert(ETAG, tag);
        }
        response
    }

    /// The ETag. It is weak, because both encodings have the same one.
    fn tag(&self) -> String {
        let start = self.compressed.len().saturating_sub(GZIP_TRAILER);
        format!("W/\"{}\"", hex::encode(&self.compressed[start..]))
    }

    fn is_known_to(&self, request: &HeaderMap) -> bool {
        let tag = self.tag();
        let lists = request.get_all(IF_NONE_MATCH).iter();
        lists
            .filter_map(|list| list.to_str().ok())
            .flat_map(|list| list.split(','))
            .any(|known| known.trim() == tag)
    }

    fn content(&self) -> std::io::Result<Vec<u8>> {
        let mut content = Vec::new();
        GzDecoder::new(self.compressed).read_to_end(&mut content)?;
        Ok(content)
    }
}

/// Whether a request takes gzip: it lists `gzip` or a star, with a weight above 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let weight_of = |wanted: &str| {
        let values = headers
            .get_all(ACCEPT_ENCODING)
            .iter()
            .filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .find_map(|coding| {
                let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
                let parameters = parameters.trim().to_ascii_lowercase();
                let weight = parameters.strip_prefix("q=").unwrap_or("1");
                name.trim()
                    .eq_ignore_ascii_case(wanted)
                    .then(|| weight.parse::<f32>().unwrap_or(0.0))
            })
    };
    weight_of("gzip")
        .or_else(|| weight_of("*"))
        .is_some_and(|weight| weight > 0.0)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn headers(encodings: &[&'static str]) -> HeaderMap {
        encodings
            .iter()
            .map(|value| (ACCEPT_ENCODING, HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn gzip_is_accepted_by_name_or_star() {
        for accepting in [
            &["gzip"][..],
            &["deflate, GZIP;Q=0.5"],
            &["br", "gzip"],
            &["*"],
            &["br;q=1.0, *;q=0.1"],
        ] {
            assert!(accepts_gzip(&headers(accepting)), "{accepting:?}");
        }
        for refusing in [
            &[][..],
            &["br"],
            &["identity"],
            &["gzip;q=0"],
            &["gzip; q=0.000, *"],
            &["*;q=0"],
            &["gzip;q=many"],
        ] {
            assert!(!accepts_gzip(&headers(refusing)), "{refusing:?}");
        }
    }

    #[tokio::test]
    async fn both_encodings_have_the_same_content_and_tag() {
        let mut encoder = flate2::GzBuilder::new().read(&b"words"[..], flate2::Compression::best());
        let mut compressed = Vec::new();
        encoder.read_to_end(&mut compressed).unwrap();
        let file = StaticFile {
            name: "words.txt",
            kind: "text/plain",
            compressed: compressed.leak(),
        };
        let zipped = file.respond(&headers(&["gzip, br"]), "default-src 'none'");
        let plain = file.respond(&headers(&[]), "default-src 'none'");
        assert_eq!(zipped.headers()[CONTENT_ENCODING], "gzip");
        assert!(!plain.headers().contains_key(CONTENT_ENCODING));
        let tag = zipped.headers()[ETAG].clone();
        for response in [&zipped, &plain] {
            assert_eq!(response.headers()[CONTENT_TYPE], "text/plain");
            assert_eq!(response.headers()[VARY], "accept-encoding");
            assert_eq!(response.headers()[REFERRER_POLICY], "no-referrer");
            assert_eq!(response.headers()[ETAG], tag);
        }
        let body = async |response: Response| response.into_body().collect().await.unwrap();
        assert_eq!(body(zipped).await.to_bytes(), file.compressed);
        assert_eq!(body(plain).await.to_bytes(), &b"words"[..]);
        let mut known = HeaderMap::new();
        known.insert(IF_NONE_MATCH, tag);
        let unchanged = file.respond(&known, "default-src 'none'");
        assert_eq!(unchanged.status(), StatusCode::NOT_MODIFIED);
        assert!(body(unchanged).await.to_bytes().is_empty());
    }
}
