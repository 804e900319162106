use axum::body::Body;
use axum::http::{HeaderName, Request};
use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::{TestApp, request};

fn word_tool() -> Tool {
    Tool::new("say", "Says a word.")
        .effect(Effect::Write)
        .call(|_, _| async { Ok("word") })
}

const ALLOWED: &str = "server: {allowed_origins: [\"https://console.example\"]}\n";

/// A request with these headers, which may stand there more than once.
fn with_headers(
    mut request: Request<Body>,
    headers: &[(&'static str, &'static str)],
) -> Request<Body> {
    for (name, value) in headers {
        request
            .headers_mut()
            .append(HeaderName::from_static(name), value.parse().unwrap());
    }
    request
}

const ROUTES: [(&str, &str); 9] = [
    ("GET", "/tools"),
    ("GET", "/livez"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/mcp"),
    ("GET", "/nowhere"),
    ("POST", "/tools/say/enable"),
    ("DELETE", "/cache"),
    ("PUT", "/tools/say/invoke"),
];

#[tokio::test]
async fn foreign_links_work() {
    let app = TestApp::new([word_tool()]).await;
    for headers in [
        &[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ][..],
        &[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
        ],
        &[
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-mode", "cors"),
        ],
        &[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")],
        &[("sec-fetch-mode", "cors")],
        &[("sec-fetch-site", "a word of the future")],
    ] {
        for method in ["GET", "HEAD"] {
            let response = app
                .respond(with_headers(request(method, "/docs", None, None), headers))
                .await;
            assert_eq!(response.status(), 200, "{method} {headers:?}");
        }
    }
}

#[tokio::test]
async fn allowed_origins_pass_from_any_site() {
    let app = TestApp::with_manifest(ALLOWED, [word_tool()]).await;
    let ask = async |headers: &[(&'static str, &'static str)]| {
        let request = request(
            "POST",
            "/tools/say/invoke",
            None,
            Some(json!({"arguments": {}})),
        );
        app.send(with_headers(request, headers)).await
    };
    assert_eq!(
        ask(&[
            ("origin", "https://console.example"),
            ("sec-fetch-site", "cross-site")
        ])
        .await
        .0,
        200
    );
    assert_eq!(
        ask(&[
            ("origin", "http://localhost"),
            ("sec-fetch-site", "same-origin")
        ])
        .await
        .0,
        200
    );
    assert_eq!(
        ask(&[
            ("origin", "https://evil.example"),
            ("sec-fetch-site", "same-origin")
        ])
        .await
        .0,
        403
    );
    for two in [
        [
            ("origin", "https://console.example"),
            ("origin", "https://evil.example"),
        ],
        [("origin", "http://localhost"), ("origin", "null")],
        [
            ("origin", "http://localhost"),
            ("origin", "http://localhost"),
        ],
    ] {
        assert_eq!(ask(&two).await.0, 403, "{two:?}");
    }
}

#[tokio::test]
async fn duplicate_content_types_are_refused() {
    let app = TestApp::new([word_tool()]).await;
    let request = request(
        "POST",
        "/tools/say/invoke",
        None,
        Some(json!({"arguments": {}})),
    );
    let (status, problem): (_, Value) = app
        .send(with_headers(request, &[("content-type", "text/plain")]))
        .await;
    assert_eq!(status.as_u16(), 415, "{problem}");
}

#[tokio::test]
async fn every_answer_restricts_browsers() {
    let app = TestApp::new([word_tool()]).await;
    let is_restricted = |response: &axum::response::Response| {
        let headers = response.headers();
        let only = |name: &str| {
            headers
                .get_all(name)
                .iter()
                .map(|value| value.to_str().unwrap())
                .collect::<Vec<_>>()
        };
        only("x-content-type-options") == ["nosniff"]
            && only("cross-origin-resource-policy") == ["same-origin"]
    };
    for (method, path) in ROUTES {
        let response = app.respond(request(method, path, None, None)).await;
        assert!(
            is_restricted(&response),
            "{method} {path}: {:?}",
            response.headers()
        );
        let refused = with_headers(
            request(method, path, None, None),
            &[("origin", "https://evil.example")],
        );
        assert!(
            is_restricted(&app.respond(refused).await),
            "{method} {path} from elsewhere"
        );
    }
    let invoke = || {
        request(
            "POST",
            "/tools/say/invoke",
            None,
            Some(json!({"arguments": {}})),
        )
    };
    assert!(is_restricted(&app.respond(invoke()).await));
    let stream = app
        .respond(with_headers(invoke(), &[("accept", "text/event-stream")]))
        .await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert!(is_restricted(&stream));
}

/// A browser that may not guess shows a page's files only under their own types.
#[tokio::test]
async fn page_files_have_their_types() {
    let app = TestApp::new([word_tool()]).await;
    for (file, kind) in [
        ("/docs", "text/html"),
        ("/console/console.css", "text/css"),
        ("/console/console.js", "text/javascript"),
        ("/console/icon.svg", "image/svg+xml"),
    ] {
        let headers = app.headers(file).await;
        assert!(
            headers["content-type"].to_str().unwrap().starts_with(kind),
            "{file}: {headers:?}"
        );
    }
}

#[tokio::test]
async fn allowed_origins_get_cors_headers() {
    let app = TestApp::with_manifest(ALLOWED, [word_tool()]).await;
    let origin = ("origin", "https://console.example");
    let preflight = |path: &str, headers: &[(&'static str, &'static str)]| {
        let asked = [
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "x-api-key"),
        ];
        with_headers(
            request("OPTIONS", path, None, None),
            &[headers, &asked].concat(),
        )
    };
    for path in ["/tools/say/invoke", "/calls", "/mcp", "/tools", "/nowhere"] {
        let response = app.respond(preflight(path, &[origin])).await;
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(
            header("access-control-allow-origin"),
            "https://console.example"
        );
        assert!(header("access-control-allow-methods").contains("DELETE"));
        let allowed = header("access-control-allow-headers");
        for name in [
            "authorization",
            "content-type",
            "x-api-key",
            "idempotency-key",
            "toolcrib-run-id",
            "mcp-session-id",
        ] {
            assert!(allowed.contains(name), "{name}: {allowed}");
        }
    }
    let invoke = || {
        request(
            "POST",
            "/tools/say/invoke",
            None,
            Some(json!({"arguments": {}})),
        )
    };
    let answer = app
        .respond(with_headers(
            invoke(),
            &[origin, ("sec-fetch-site", "cross-site")],
        ))
        .await;
    assert_eq!(
        answer.headers()["access-control-allow-origin"],
        "https://console.example"
    );
    let exposed = answer.headers()["access-control-expose-headers"]
        .to_str()
        .unwrap();
    for name in [
        "x-request-id",
        "mcp-session-id",
        "retry-after",
        "location",
        "etag",
    ] {
        assert!(exposed.contains(name), "{name}: {exposed}");
    }
    assert!(
        !answer
            .headers()
            .contains_key("access-control-allow-credentials")
    );
}

#[tokio::test]
async fn others_get_no_cors_headers() {
    let app = TestApp::with_manifest(ALLOWED, [word_tool()]).await;
    let has_cors = |response: &axum::response::Response| {
        response
            .headers()
            .contains_key("access-control-allow-origin")
    };
    let evil = [
        ("origin", "https://evil.example"),
        ("access-control-request-method", "POST"),
    ];
    for (method, path) in [
        ("OPTIONS", "/tools/say/invoke"),
        ("GET", "/tools"),
        ("POST", "/calls"),
    ] {
        let response = app
            .respond(with_headers(request(method, path, None, None), &evil))
            .await;
        assert_eq!(
            (response.status().as_u16(), has_cors(&response)),
            (403, false),
            "{method} {path}"
        );
    }
    let plain = app.respond(request("GET", "/tools", None, None)).await;
    assert!(!has_cors(&plain), "no origin");
    let console = [("origin", "https://console.example")];
    let metrics = app
        .respond(with_headers(
            request("GET", "/metrics", None, None),
            &console,
        ))
        .await;
    assert_eq!(
        (metrics.status().as_u16(), has_cors(&metrics)),
        (200, false)
    );
    let closed = TestApp::new([word_tool()]).await;
    let response = closed
        .respond(with_headers(
            request("OPTIONS", "/tools", None, None),
            &console,
        ))
        .await;
    assert_eq!(
        (response.status().as_u16(), has_cors(&response)),
        (403, false),
        "no origin is allowed"
    );
}

/// The page and its files need no key, and may load nothing from elsewhere.
#[tokio::test]
async fn root_is_the_console_for_browsers() {
    let manifest = "callers: [{name: ann, key: ann-key-0123456789abcdef}]\ntools: {}\n";
    let app = TestApp::with_manifest(manifest, []).await;
    let html = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let root = app
        .respond(with_headers(request("GET", "/", None, None), &html))
        .await;
    assert_eq!(root.headers()["vary"], "accept-encoding");
    assert!(
        root.headers()
            .get_all("vary")
            .iter()
            .any(|value| value == "accept")
    );
    let mut answers = vec![("text/html; charset=utf-8", root)];
    for (file, kind) in [
        ("console.js", "text/javascript"),
        ("console.css", "text/css"),
        ("icon.svg", "image/svg+xml"),
    ] {
        let path = format!("/console/{file}");
        answers.push((kind, app.respond(request("GET", &path, None, None)).await));
    }
    for (kind, response) in &answers {
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        assert_eq!(
            (response.status().as_u16(), header("content-type")),
            (200, *kind)
        );
        let policy = header("content-security-policy");
        assert!(policy.contains("script-src 'self';") && policy.contains("style-src 'self';"));
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert!(header("etag").starts_with("W/\""));
    }
    assert_eq!(app.get("/console/package.json").await.0, 404);
}

#[tokio::test]
async fn root_is_a_list_of_routes_for_programs() {
    let app = TestApp::new([word_tool()]).await;
    let (status, index) = app.get("/").await;
    assert_eq!(
        (status.as_u16(), &index["tools"], &index["docs"]),
        (200, &json!("/tools"), &json!("/docs"))
    );
    assert_eq!(
        app.get("/docs/index.html").await.0,
        404,
        "the page of the library is not served"
    );
}

/// The console asks for a key only if there are callers.
#[tokio::test]
async fn session_says_whose_key_it_is() {
    let open = TestApp::new([word_tool()]).await;
    let session = open.get("/console/session").await.1;
    assert_eq!(
        (&session["needs_key"], &session["caller"], &session["admin"]),
        (&json!(false), &json!("anonymous"), &json!(true))
    );
    let manifest = "callers: [{name: ann, key: ann-key-0123456789abcdef}]\ntools: {}\n";
    let app = TestApp::with_manifest(manifest, []).await;
    let session = app.get("/console/session").await.1;
    assert_eq!(
        (&session["needs_key"], &session["caller"], &session["admin"]),
        (&json!(true), &json!(null), &json!(false))
    );
    let with_key = |key: &'static str| {
        let header = [("x-api-key", key)];
        app.send(with_headers(
            request("GET", "/console/session", None, None),
            &header,
        ))
    };
    let (_, session) = with_key("ann-key-0123456789abcdef").await;
    assert_eq!(
        (&session["needs_key"], &session["caller"], &session["admin"]),
        (&json!(true), &json!("ann"), &json!(false))
    );
    assert_eq!(with_key("another-key-0123456789").await.0, 401);
}
