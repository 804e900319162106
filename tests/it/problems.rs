use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use toolcrib::call::ErrorKind;
use toolcrib::{Effect, Tool};

use crate::support::{TestApp, request};

#[test]
fn every_kind_has_row_in_reference() {
    let page = include_str!("../../docs/reference/errors.md");
    for kind in ErrorKind::ALL {
        assert!(
            page.contains(&format!("| `{}` |", kind.as_str())),
            "{}",
            kind.as_str()
        );
    }
}

fn strict_tool() -> Tool {
    Tool::new("strict", "…")
        .param("n", "integer", "A number")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("x") })
}

/// A problem without what differs each time.
fn normalized(mut problem: Value) -> Value {
    if problem.get("invocation_id").is_some() {
        problem["invocation_id"] = "…".into();
    }
    problem
}

#[tokio::test]
async fn problems_have_their_shape() {
    let app = TestApp::new([strict_tool()]).await;
    let (_, problem) = app.invoke("strict", json!({"m": 1})).await;
    insta::assert_json_snapshot!("invalid_arguments", normalized(problem));
    let (_, problem) = app.invoke("strickt", json!({})).await;
    insta::assert_json_snapshot!("unknown_tool", normalized(problem));
    let (_, problem) = app.post("/tools/strict/invoke", json!({"n": 1})).await;
    insta::assert_json_snapshot!("invalid_request", normalized(problem));
}

#[tokio::test]
async fn path_with_a_slash_at_its_end_gets_advice() {
    let app = TestApp::new([strict_tool()]).await;
    for (path, advice) in [
        ("/tools/", "without the `/` at its end"),
        ("/tool", "/docs"),
    ] {
        let (status, problem) = app.get(path).await;
        assert_eq!(status, 404);
        assert!(
            problem["detail"].as_str().unwrap().contains(advice),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn unreadable_requests_are_refused_with_advice() {
    let app = TestApp::new([strict_tool()]).await;
    let send = async |content_type: &str, body: String| {
        let request = Request::post("/tools/strict/invoke").header("host", "localhost");
        let request = request
            .header("content-type", content_type)
            .body(Body::from(body))
            .unwrap();
        let (status, problem) = app.send(request).await;
        assert_eq!(problem["kind"], "invalid_request");
        (
            status.as_u16(),
            problem["detail"].as_str().unwrap().to_owned(),
        )
    };
    let json = "application/json";
    for (content_type, body, status, says) in [
        (json, "{".to_owned(), 400, "not JSON"),
        (json, "[1]".to_owned(), 400, "send an object"),
        (json, "{}".to_owned(), 400, "`arguments` is missing"),
        (
            json,
            r#"{"arguments": {"n": 1, "n": 2}}"#.to_owned(),
            400,
            "duplicate key `n`",
        ),
        (
            json,
            r#"{"arguments": "{\"n\": 1, \"n\": 2}"}"#.to_owned(),
            400,
            "duplicate key `n`",
        ),
        (
            json,
            r#"{"arguments": "{"}"#.to_owned(),
            400,
            "a text that is not JSON",
        ),
        (json, r#"{"arguments": 5}"#.to_owned(), 400, "not integer"),
        (
            json,
            r#"{"arguments": {}, "timeout": 5}"#.to_owned(),
            400,
            "with a unit",
        ),
        (
            json,
            r#"{"arguments": {}, "cache": "sometimes"}"#.to_owned(),
            400,
            "bypass",
        ),
        (
            json,
            r#"{"arguments": {}, "page": {"size": 9}}"#.to_owned(),
            400,
            "detail, offset and limit",
        ),
        (
            json,
            format!(
                "{{\"arguments\": {}1{}}}",
                "[".repeat(10_000),
                "]".repeat(10_000)
            ),
            400,
            "recursion limit",
        ),
        (json, format!("\"{}\"", "x".repeat(2 << 20)), 413, "1.0 MiB"),
        ("text/plain", "{}".to_owned(), 415, "application/json"),
    ] {
        let (found, received) = send(content_type, body).await;
        assert!(
            found == status && received.contains(says),
            "{found} {received}"
        );
    }
    let (status, problem) = app.get("/nowhere").await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (404, &json!("invalid_request"))
    );
    assert_eq!(
        app.send(request("DELETE", "/tools", None, None)).await.0,
        405
    );
    for query in [
        "state=odd",
        "limit=0",
        "limit=x",
        "cursor=x",
        "since=x",
        "tols=x",
    ] {
        assert_eq!(
            app.get(&format!("/invocations?{query}")).await.0,
            400,
            "{query}"
        );
    }
}

#[tokio::test]
async fn keys_and_grants_guard_every_route() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann, allow: [\"s*\"]}\n  - {name: bob, key: key-of-bob, deny: \
                    [strict]}\n  - {name: root, key: key-of-root, admin: true}\n";
    let app = TestApp::with_manifest(manifest, [strict_tool()]).await;
    let arguments = json!({"arguments": {"n": 1}});
    assert_eq!(
        app.post("/tools/strict/invoke", arguments.clone()).await.0,
        401
    );
    assert_eq!(
        app.post_as("key-of-eve", "/tools/strict/invoke", arguments.clone())
            .await
            .0,
        401
    );
    assert_eq!(
        app.post_as("key-of-ann", "/tools/strict/invoke", arguments.clone())
            .await
            .0,
        200
    );
    let (status, problem) = app
        .post_as("key-of-bob", "/tools/strict/invoke", arguments)
        .await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (403, &json!("forbidden"))
    );
    assert_eq!(
        app.get_as("key-of-bob", "/tools").await.1["tools"],
        json!([])
    );
    assert_eq!(app.get_as("key-of-bob", "/tools/strict").await.0, 403);

    let (_, of_root) = app.get_as("key-of-root", "/invocations").await;
    let rows: Vec<_> = of_root["invocations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["caller"], &row["state"]))
        .collect();
    assert_eq!(
        rows,
        [
            (&json!("bob"), &json!("refused")),
            (&json!("ann"), &json!("succeeded"))
        ]
    );
    let id = of_root["invocations"][1]["invocation_id"].as_str().unwrap();
    assert_eq!(
        app.get_as("key-of-ann", &format!("/invocations/{id}"))
            .await
            .0,
        200
    );
    assert_eq!(
        app.get_as("key-of-bob", &format!("/invocations/{id}"))
            .await
            .0,
        404
    );
    for path in ["/tools/strict/disable", "/tools/strict/usage/reset"] {
        assert_eq!(
            app.post_as("key-of-ann", path, json!({})).await.0,
            403,
            "{path}"
        );
    }
    assert_eq!(
        app.post_as("key-of-root", "/tools/strict/disable", json!({}))
            .await
            .0,
        200
    );
    let reply = app
        .post_as(
            "key-of-ann",
            "/tools/strict/invoke",
            json!({"arguments": {"n": 1}}),
        )
        .await;
    assert_eq!(
        (reply.0.as_u16(), &reply.1["kind"]),
        (403, &json!("tool_disabled"))
    );
}

#[tokio::test]
async fn foreign_pages_reach_no_route() {
    let app = TestApp::new([strict_tool()]).await;
    for path in [
        "/",
        "/tools",
        "/tools/strict/invoke",
        "/invocations",
        "/livez",
        "/docs",
        "/openapi.json",
    ] {
        for (host, origin) in [
            ("evil.example", None),
            ("localhost", Some("https://evil.example")),
            ("localhost@evil", None),
        ] {
            let mut request = Request::get(path).header("host", host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            let (status, _) = app.send(request.body(Body::empty()).unwrap()).await;
            assert_eq!(status, 403, "{path} {host} {origin:?}");
        }
    }
    let own = Request::get("/tools")
        .header("host", "localhost")
        .header("origin", "http://localhost");
    assert_eq!(app.send(own.body(Body::empty()).unwrap()).await.0, 200);
}
