//! The files of the page of the API. It needs no other host.

use std::io::Read;

use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;

use super::problem::ApiError;

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
const LIBRARY_FILES: [(&str, &str, &[u8]); 2] = [
    (
        "swagger-ui.css",
        "text/css",
        include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui.css.gz")),
    ),
    (
        "swagger-ui-bundle.js",
        "text/javascript",
        include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui-bundle.js.gz")),
    ),
];

/// The file with this name; the page itself has the empty name. Library files are sent compressed
/// to each client that takes them so.
pub(super) fn serve_file(name: &str, request: &HeaderMap) -> Response {
    let headers = |kind: &'static str| {
        [
            (CONTENT_TYPE, kind),
            (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        ]
    };
    if let Some((_, kind, text)) = OWN_FILES.iter().find(|(file, ..)| *file == name) {
        return (headers(kind), *text).into_response();
    }
    let Some((_, kind, compressed)) = LIBRARY_FILES.iter().find(|(file, ..)| *file == name) else {
        return ApiError::NotFound("there is no such page".into()).into_response();
    };
    let mut response = if accepts_gzip(request) {
        let encoding = [(CONTENT_ENCODING, "gzip")];
        (headers(kind), encoding, *compressed).into_response()
    } else {
        match decompress(compressed) {
            Ok(file) => (headers(kind), file).into_response(),
            Err(error) => {
                tracing::error!(%error, name, "a file of the page cannot be decompressed");
                return ApiError::Internal.into_response();
            }
        }
    };
    response
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("accept-encoding"));
    response
}

fn decompress(compressed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut file = Vec::new();
    GzDecoder::new(compressed).read_to_end(&mut file)?;
    Ok(file)
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
    async fn library_files_are_the_same_in_both_encodings() {
        for (name, kind, _) in LIBRARY_FILES {
            let compressed = serve_file(name, &headers(&["gzip, br"]));
            let plain = serve_file(name, &headers(&[]));
            assert_eq!(compressed.headers()[CONTENT_ENCODING], "gzip");
            assert!(!plain.headers().contains_key(CONTENT_ENCODING));
            for response in [&compressed, &plain] {
                assert_eq!(response.headers()[CONTENT_TYPE], kind);
                assert_eq!(response.headers()[VARY], "accept-encoding");
            }
            let compressed = compressed.into_body().collect().await.unwrap().to_bytes();
            let plain = plain.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(decompress(&compressed).unwrap(), plain, "{name}");
            assert!(std::str::from_utf8(&plain).unwrap().contains("swagger-ui"));
        }
    }
}
