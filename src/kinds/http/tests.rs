//! Tests whole tools against servers on loopback, with every kind of misbehavior that we know.

use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::call::{
    Caller, Content, Effect, Incomplete, Invocation, JsonObject, Resource, ToolContext, ToolError,
    ToolName, ToolResult, Unit, UpstreamFailure,
};
use crate::kinds::{ConfigFault, FaultRule, Runner, Values};

#[path = "bodies_tests.rs"]
mod bodies;
#[path = "fields_tests.rs"]
mod fields;

/// What a test server does with each connection after it has read a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Sends these bytes and closes.
    Bytes(Vec<u8>),
    /// Sends this head, then `x` without end. Reports `gone` in `requests` when the client has
    /// disconnected.
    Endless(&'static str),
    /// Sends nothing. Reports `gone` in `requests` when the client has disconnected.
    Silence,
    /// Sends these bytes and resets the connection.
    Reset(&'static str),
}

pub(crate) struct TestServer {
    pub(crate) host: String,
    /// The requests as received.
    pub(crate) requests: mpsc::Receiver<String>,
}

pub(crate) async fn start_server(reply: Reply) -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let (request_sender, seen) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(handle_connection(
                stream,
                reply.clone(),
                request_sender.clone(),
            ));
        }
    });
    TestServer {
        host,
        requests: seen,
    }
}

pub(crate) fn ok_reply(head: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Bytes(
        format!("HTTP/1.1 200 OK\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes(),
    )
}

async fn handle_connection(
    mut stream: TcpStream,
    reply: Reply,
    request_sender: mpsc::Sender<String>,
) {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.lines().next());
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                break;
            }
        }
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let _ = request_sender
        .send(String::from_utf8(request).unwrap())
        .await;
    match reply {
        Reply::Bytes(bytes) => drop(stream.write_all(&bytes).await),
        Reply::Reset(bytes) => {
            let _ = stream.write_all(bytes.as_bytes()).await;
            stream.set_zero_linger().unwrap();
        }
        Reply::Endless(head) => {
            let _ = stream.write_all(head.as_bytes()).await;
            while stream.write_all(&[b'x'; 8192]).await.is_ok() {}
            let _ = request_sender.send("gone".into()).await;
        }
        Reply::Silence => {
            while stream.read_u8().await.is_ok() {}
            let _ = request_sender.send("gone".into()).await;
        }
    }
}

/// A response with a text that arrives in one chunk, whatever its length.
pub(crate) async fn response_in_one_chunk(status: u16, text: String) -> client::Response {
    const ROOM: usize = 64 * 1024;
    let (near, mut far) = tokio::io::duplex(ROOM);
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .read_buf_exact_size(Some(ROOM))
        .handshake(TokioIo::new(near))
        .await
        .unwrap();
    tokio::spawn(connection);
    tokio::spawn(async move {
        far.read_buf(&mut Vec::new()).await.unwrap();
        let length = text.len();
        let message = format!(
            "HTTP/1.1 {status} \r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{text}"
        );
        far.write_all(message.as_bytes()).await
    });
    let request = hyper::Request::new(String::new());
    client::Response {
        inner: sender.send_request(request).await.unwrap(),
        url: url::Url::parse("http://upstream.example/").unwrap(),
    }
}

pub(crate) fn test_context() -> (ToolContext, Invocation) {
    let name = ToolName::parse("under_test").unwrap();
    let invocation = Invocation::new(
        name,
        JsonObject::new(),
        Arc::new(Caller::anonymous()),
        jiff::Timestamp::now(),
    );
    (
        ToolContext::new(&invocation, Instant::now(), Arc::default()),
        invocation,
    )
}

pub(crate) fn json_object(value: Value) -> Arc<JsonObject> {
    Arc::new(value.as_object().unwrap().clone())
}

fn try_build(config: Value, effect: Effect) -> (Option<Arc<dyn Runner>>, Vec<ConfigFault>) {
    let input_schema = json!({
        "type": "object", "required": ["city"],
        "properties": {"city": {}, "ids": {}, "note": {}, "units": {"default": "celsius"}}
    });
    let base = std::path::Path::new(".");
    let context = BuildContext {
        name: "t",
        base_dir: base,
        input_schema: &input_schema,
        context_fields: &["tenant".to_owned()],
        effect,
        trusted: true,
    };
    let config = serde_json::from_value(config).unwrap();
    let (runner, mut faults) = match build(config, &context, &HttpClients::default()) {
        Ok((runner, faults)) => (Some(runner), faults),
        Err(faults) => (None, faults),
    };
    // Each test uses some of the parameters.
    faults.retain(|fault| fault.rule != FaultRule::UnusedParameter);
    (runner, faults)
}

/// A tool for the server. Adds the common parts of all tests to `request`.
fn build_tool(
    server: &TestServer,
    mut request: Value,
    response: Value,
    effect: Effect,
) -> Arc<dyn Runner> {
    request["allow_private"] = json!(true);
    request["url"] = match request["url"].as_str() {
        Some(path) => format!("http://{}{path}", server.host).into(),
        None => format!("http://{}/", server.host).into(),
    };
    let (runner, faults) = try_build(
        json!({"request": request, "response": response, "max_output": "1KiB"}),
        effect,
    );
    assert_eq!(faults, []);
    runner.unwrap()
}

async fn call_tool(runner: &dyn Runner, arguments: Value) -> Result<ToolResult, ToolError> {
    runner.call(json_object(arguments), test_context().0).await
}

async fn call_with_reply(reply: Reply, response: Value) -> Result<ToolResult, ToolError> {
    let server = start_server(reply).await;
    call_tool(
        &*build_tool(&server, json!({}), response, Effect::Read),
        json!({}),
    )
    .await
}

fn expect_upstream_error(result: Result<ToolResult, ToolError>) -> (bool, Option<u64>, String) {
    match result {
        Err(ToolError::Upstream(UpstreamFailure {
            message,
            retryable,
            retry_after,
            ..
        })) => (retryable, retry_after.map(|wait| wait.as_secs()), message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn request_is_rendered_and_result_picked() {
    let body = r#"{"current": {"temperature": 22.5}, "error": null}"#;
    let mut server = start_server(ok_reply(
        "content-type: application/json; charset=utf-8",
        body,
    ))
    .await;
    let request = json!({
        "url": "/v1/cities/{{ city }}/weather", "query": {"units": "{{ units }}", "note": "{{ note }}", "ids": "{{ ids }}"},
        "headers": {"authorization": "Bearer k3y", "X-Note": "{{ note }}", "x-city": "in {{ city }}"}
    });
    let tool = build_tool(
        &server,
        request,
        json!({"pick": "/current", "error_when": "/error"}),
        Effect::Read,
    );
    let arguments = json!({"city": "Oslo/NO", "units": "celsius", "ids": [1, "b c"]});
    assert_eq!(
        call_tool(&*tool, arguments).await,
        Ok(ToolResult::json(json!({"temperature": 22.5})))
    );
    let request_text = server.requests.recv().await.unwrap();
    assert!(
        request_text.starts_with(
            "GET /v1/cities/Oslo%2FNO/weather?units=celsius&ids=1&ids=b%20c HTTP/1.1\r\n"
        ),
        "{request_text}"
    );
    for line in [
        "authorization: Bearer k3y",
        "x-city: in Oslo/NO",
        "accept: application/json, */*",
    ] {
        assert!(
            request_text.contains(&format!("{line}\r\n")),
            "{request_text}"
        );
    }
    assert!(
        request_text.contains(concat!(
            "user-agent: toolcrib/",
            env!("CARGO_PKG_VERSION"),
            "\r\n"
        )),
        "{request_text}"
    );
    for absent in [
        "x-note",
        "idempotency-key",
        "accept-encoding",
        "content-type",
    ] {
        assert!(!request_text.contains(absent), "{request_text}");
    }
}

#[tokio::test]
async fn header_field_without_a_value_is_left_out() {
    let request =
        json!({"headers": {"authorization": "Bearer {{ note }}", "x-city": "{{ city }}"}});
    for note in [json!(null), json!("key")] {
        let arguments = json!({"city": "Oslo", "note": note});
        let (head, _) = sent_request(request.clone(), arguments).await;
        assert!(head.contains("x-city: Oslo"), "{head}");
        assert_eq!(head.contains("authorization: Bearer"), note.is_string());
    }
}

#[tokio::test]
async fn responses_are_converted_by_media_type() {
    let structured = ToolResult::json(json!({"a": 1}));
    for (head, body, expected) in [
        (
            "content-type: application/problem+json",
            r#"{"a": 1}"#,
            Ok(structured.clone()),
        ),
        ("x-none: 1", r#"{"a": 1}"#, Ok(structured.clone())),
        (
            "content-type: application/octet-stream",
            r#"{"a": 1}"#,
            Ok(structured),
        ),
        (
            "content-type: application/json",
            r#""just text""#,
            Ok(ToolResult::text("just text")),
        ),
        (
            "content-type: application/json",
            "null",
            Ok(ToolResult::default()),
        ),
        (
            "content-type: application/json",
            "",
            Ok(ToolResult::default()),
        ),
        (
            "content-type: text/html",
            "<p>ø</p>",
            Ok(ToolResult::text("<p>ø</p>")),
        ),
        (
            "content-type: text/plain",
            r#"{"a": 1}"#,
            Ok(ToolResult::text(r#"{"a": 1}"#)),
        ),
        (
            "content-type: application/xml",
            "<a/>",
            Ok(ToolResult::text("<a/>")),
        ),
        ("x-none: 1", "plain", Ok(ToolResult::text("plain"))),
        (
            "content-type: application/json",
            "{nope",
            Err("does not parse"),
        ),
        (
            "content-type: text/plain\r\ncontent-encoding: gzip",
            "x",
            Err("content-encoding gzip"),
        ),
    ] {
        match (
            call_with_reply(ok_reply(head, body), json!({})).await,
            expected,
        ) {
            (Ok(result), Ok(expected)) => assert_eq!(result, expected, "{head}: {body}"),
            (Err(ToolError::BadOutput(message)), Err(expected)) => {
                assert!(message.contains(expected), "{message}");
            }
            (result, _) => panic!("{head}: {body}: {result:?}"),
        }
    }
    let image = call_with_reply(ok_reply("content-type: IMAGE/png", "\u{1}PNG"), json!({}))
        .await
        .unwrap();
    assert_eq!(
        image.content,
        [Content::Image {
            data: "AVBORw==".into(),
            mime_type: "image/png".into()
        }]
    );
    let sound = call_with_reply(ok_reply("content-type: audio/wav", "RIFF"), json!({}))
        .await
        .unwrap();
    assert_eq!(
        sound.content,
        [Content::Audio {
            data: "UklGRg==".into(),
            mime_type: "audio/wav".into()
        }]
    );
    let file = |mime_type: &str, text: Option<&str>, blob: Option<&str>| Content::Resource {
        resource: Resource {
            uri: String::new(),
            mime_type: Some(mime_type.into()),
            text: text.map(str::to_owned),
            blob: blob.map(str::to_owned),
        },
    };
    for (head, body, expected) in [
        (
            "content-type: application/pdf",
            "%PDF-1.7",
            file("application/pdf", None, Some("JVBERi0xLjc=")),
        ),
        (
            "content-type: application/octet-stream",
            "%PDF-1.7",
            file("application/pdf", None, Some("JVBERi0xLjc=")),
        ),
        (
            "content-type: application/zip",
            "PK\u{3}\0",
            file("application/zip", None, Some("UEsDAA==")),
        ),
        (
            "content-type: video/mp4; codecs=x",
            "\0\0",
            file("video/mp4", None, Some("AAA=")),
        ),
        (
            "content-type: application/rtf",
            "{\\rtf1 hi}",
            file("application/rtf", Some("{\\rtf1 hi}"), None),
        ),
        (
            "x-none: 1",
            "a\0b",
            file("application/octet-stream", None, Some("YQBi")),
        ),
        (
            "x-none: 1",
            "GIF89a",
            Content::Image {
                data: "R0lGODlh".into(),
                mime_type: "image/gif".into(),
            },
        ),
    ] {
        let mut answered = call_with_reply(ok_reply(head, body), json!({}))
            .await
            .unwrap();
        if let Content::Resource { resource } = &mut answered.content[0] {
            let uri = std::mem::take(&mut resource.uri);
            assert!(
                uri.starts_with("http://127.0.0.1:") && uri.ends_with('/'),
                "{uri}"
            );
        }
        assert_eq!(
            answered,
            ToolResult {
                content: vec![expected],
                ..ToolResult::default()
            },
            "{head}"
        );
    }
    let nothing = call_with_reply(
        Reply::Bytes(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        json!({"pick": "/a"}),
    )
    .await;
    assert_eq!(nothing, Ok(ToolResult::default()));
}

#[tokio::test]
async fn pick_and_error_when_use_json_pointers() {
    for (body, rules, expected) in [
        (
            r#"{"error": "no such city"}"#,
            json!({"error_when": "/error"}),
            Ok(ToolResult::error("no such city")),
        ),
        (
            r#"{"error": {"code": 7}}"#,
            json!({"error_when": "/error"}),
            Ok(ToolResult::error(r#"{"code":7}"#)),
        ),
        (
            r#"{"error": ""}"#,
            json!({"error_when": "/error", "pick": "/error"}),
            Ok(ToolResult::text("")),
        ),
        (
            r#"{"error": false, "x": [3]}"#,
            json!({"error_when": "/error", "pick": "/x/0"}),
            Ok(ToolResult::text("3")),
        ),
        (
            r#"{"a/b": {"~": 1}}"#,
            json!({"pick": "/a~1b/~0"}),
            Ok(ToolResult::text("1")),
        ),
        (
            r#"{"y": 1}"#,
            json!({"pick": "/x"}),
            Err("JSON without `/x`"),
        ),
        ("plain text", json!({"pick": "/x"}), Err("does not parse")),
    ] {
        match (
            call_with_reply(ok_reply("content-type: application/json", body), rules).await,
            expected,
        ) {
            (Ok(result), Ok(expected)) => assert_eq!(result, expected, "{body}"),
            (Err(ToolError::BadOutput(message)), Err(expected)) => {
                assert!(message.contains(expected), "{message}");
            }
            (result, _) => panic!("{body}: {result:?}"),
        }
    }
    // `pick` requires JSON, whatever media type the server declares.
    let result = call_with_reply(
        ok_reply("content-type: text/plain", r#"{"x": 1}"#),
        json!({"pick": "/x"}),
    )
    .await;
    assert_eq!(result, Ok(ToolResult::text("1")));
}

#[tokio::test]
async fn client_errors_become_error_results() {
    let long = "ø".repeat(5000);
    let cut = "ø".repeat(2048);
    for (status, head, body, expected) in [
        (
            "404 Not Found",
            "x: y",
            "no such city\n",
            "HTTP 404: no such city",
        ),
        ("418 I'm a teapot", "x: y", "", "HTTP 418: I'm a teapot"),
        (
            "400 Bad Request",
            "content-type: application/json",
            r#"{"e": 1}"#,
            r#"HTTP 400: {"e": 1}"#,
        ),
        (
            "400 Bad Request",
            "content-type: image/png",
            "PNG",
            "HTTP 400: Bad Request",
        ),
        (
            "422 Unprocessable Entity",
            "content-type: text/plain",
            &long,
            &format!("HTTP 422: {cut}"),
        ),
    ] {
        let length = body.len();
        let reply =
            format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        let result = call_with_reply(Reply::Bytes(reply.into_bytes()), json!({"pick": "/x"})).await;
        assert_eq!(
            result,
            Err(ToolError::ErrorResult(expected.into())),
            "{status}"
        );
    }
}

#[tokio::test]
async fn other_statuses_are_upstream_errors() {
    let date = "date: Wed, 21 Oct 2026 07:28:00 GMT\r\nretry-after: Wed, 21 Oct 2026 07:29:30 GMT";
    for (status, head, is_retryable, wait, expected) in [
        (
            "429 Too Many Requests",
            "retry-after: 7",
            true,
            Some(7),
            "HTTP 429 Too Many Requests",
        ),
        ("503 Service Unavailable", date, true, Some(90), "HTTP 503"),
        (
            "503 Service Unavailable",
            "retry-after: Wed, 21 Oct 2015 07:28:00 GMT",
            true,
            Some(0),
            "HTTP 503",
        ),
        (
            "502 Bad Gateway",
            "retry-after: soon",
            true,
            None,
            "HTTP 502",
        ),
        ("504 Gateway Timeout", "x: y", true, None, "HTTP 504"),
        ("500 Internal Server Error", "x: y", false, None, "HTTP 500"),
        ("501 Not Implemented", "x: y", false, None, "HTTP 501"),
        (
            "301 Moved",
            "location: https://elsewhere.example/a?token=secret",
            false,
            None,
            "https://elsewhere.example;",
        ),
        (
            "302 Found",
            "location: /relative?token=secret",
            false,
            None,
            "points to http://127.0.0.1:",
        ),
        (
            "303 See Other",
            "location: gopher://old.example/",
            false,
            None,
            "gopher://old.example;",
        ),
        (
            "307 Temporary Redirect",
            "location: http://169.254.169.254/",
            false,
            None,
            "169.254.169.254;",
        ),
        (
            "308 Permanent Redirect",
            "location: file:///etc/passwd",
            false,
            None,
            "redirects are not followed",
        ),
        ("304 Not Modified", "x: y", false, None, "points to nowhere"),
    ] {
        let reply = format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: 0\r\n\r\n");
        let (retried, after, message) = expect_upstream_error(
            call_with_reply(Reply::Bytes(reply.into_bytes()), json!({})).await,
        );
        assert_eq!((retried, after), (is_retryable, wait), "{status}");
        assert!(
            message.contains(expected) && !message.contains("secret"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn response_over_cap_stops_reading() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    ] {
        let mut server = start_server(Reply::Endless(head)).await;
        let tool = build_tool(&server, json!({}), json!({}), Effect::Read);
        match call_tool(&*tool, json!({})).await {
            Err(ToolError::BadOutput(message)) => {
                // A model reads it, and gets no address.
                let expected =
                    "its server answered more than 1.0 KiB: ask for less, or raise `max_output`";
                assert_eq!(message, expected);
            }
            other => panic!("{other:?}"),
        }
        server.requests.recv().await.unwrap();
        assert_eq!(server.requests.recv().await.unwrap(), "gone");
    }
}

#[tokio::test]
async fn text_over_cap_is_cut_with_warning() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 99999999\r\n\r\n";
    let mut server = start_server(Reply::Endless(head)).await;
    let runner = build_tool(&server, json!({}), json!({}), Effect::Read);
    let (context, invocation) = test_context();
    let cut = ToolResult::text("x".repeat(1024))
        .with_incomplete(Incomplete::new(Unit::Characters, "max_output"));
    assert_eq!(runner.call(json_object(json!({})), context).await, Ok(cut));
    assert!(invocation.report.tool.lock().warnings[0].contains("cut after 1.0 KiB (`max_output`)"));
    server.requests.recv().await.unwrap();
    assert_eq!(server.requests.recv().await.unwrap(), "gone");

    let half = call_with_reply(
        ok_reply(
            "content-type: text/plain",
            &format!("x{}", "ø".repeat(1000)),
        ),
        json!({}),
    )
    .await
    .unwrap();
    assert_eq!(half.as_text(), format!("x{}", "ø".repeat(511)));
    let full = "y".repeat(1024);
    assert_eq!(
        call_with_reply(ok_reply("content-type: text/plain", &full), json!({})).await,
        Ok(ToolResult::text(full))
    );
}

#[tokio::test]
async fn broken_connections_are_retryable() {
    for reply in [
        Reply::Bytes(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 10\r\n\r\nabc"
                .to_vec(),
        ),
        Reply::Bytes(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab".to_vec()),
        Reply::Bytes(Vec::new()),
        Reply::Bytes(b"HTTP/1.1 200".to_vec()),
        Reply::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Reply::Reset(""),
        Reply::Reset(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        ),
    ] {
        let (is_retryable, _, message) =
            expect_upstream_error(call_with_reply(reply, json!({})).await);
        assert!(
            is_retryable && message.starts_with("`127.0.0.1:"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn client_never_resends_requests() {
    let mut server = start_server(Reply::Bytes(Vec::new())).await;
    let tool = build_tool(&server, json!({"method": "POST"}), json!({}), Effect::Write);
    expect_upstream_error(call_tool(&*tool, json!({})).await);
    server.requests.recv().await.unwrap();
    assert!(server.requests.try_recv().is_err());
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    let mut server = start_server(Reply::Silence).await;
    let tool = build_tool(&server, json!({}), json!({}), Effect::Read);
    let call = call_tool(&*tool, json!({}));
    tokio::select! {
        result = call => panic!("{result:?}"),
        seen = server.requests.recv() => assert!(seen.unwrap().starts_with("GET / ")),
    }
    assert_eq!(server.requests.recv().await.unwrap(), "gone");
}

#[tokio::test]
async fn all_config_faults_have_paths() {
    let (runner, faults) = try_build(
        json!({
            "request": {
                "method": "CONNECT", "url": "https://{{ nope }}/{{ city }}", "query": {"a": ["{{ other }}"], "{{ b }}": 1},
                "headers": {"host": "x", "bad name": "y", "x-a": "line\n", "X-A": "again", "x-b": "{{ open"},
                "json": {"a": [{"b": "{{ missing }}"}]}, "form": {"c": 1}
            },
            "response": {"pick": "current", "error_when": "/a~2"}, "max_output": "5MiB"
        }),
        Effect::Write,
    );
    assert!(runner.is_none());
    let paths: Vec<String> = faults.iter().map(|fault| fault.path.join(".")).collect();
    for expected in [
        "request.method",
        "request.url",
        "request.query.a.0",
        "request.query.{{ b }}",
        "request.headers.host",
        "request.headers.bad name",
        "request.headers.x-a",
        "request.headers.x-b",
        "request",
        "response.pick",
        "response.error_when",
        "max_output",
    ] {
        assert!(
            paths.iter().any(|found| found == expected),
            "{expected}: {faults:?}"
        );
    }
    let json = json!({"request": {"url": "https://a.example", "json": {"a": [{"b": "{{ missing }}"}]}, "method": "POST"}});
    let (_, faults) = try_build(json, Effect::Write);
    assert_eq!(faults[0].path.join("."), "request.json.a.0.b");
}

#[tokio::test]
async fn suspicious_settings_are_warnings() {
    for (request, expected) in [
        (
            json!({"url": "http://10.0.0.7/"}),
            "unless the manifest says `request.allow_private: true`",
        ),
        (
            json!({"url": "http://localhost:8080/"}),
            "unless the manifest says",
        ),
        (
            json!({"url": "http://169.254.169.254/", "allow_private": true}),
            "may not reach",
        ),
        (
            json!({"url": "http://a.example/", "json": {}}),
            "is it a POST?",
        ),
        (
            json!({"url": "http://a.example/{{ note }}"}),
            "make it required",
        ),
    ] {
        let (runner, faults) = try_build(json!({"request": request}), Effect::Read);
        assert!(runner.is_some() && faults.len() == 1, "{faults:?}");
        assert!(
            faults[0].warning && faults[0].message.contains(expected),
            "{faults:?}"
        );
    }
    for (field, value, is_warned) in [
        ("content-type", "application/json", true),
        ("content-type", "text/plain", false),
        ("x-note", "json", false),
    ] {
        let request = json!({
            "url": "http://a.example/", "method": "POST", "headers": {(field): value}, "body": "{\"a\": \"{{ city }}\"}"
        });
        let (_, faults) = try_build(json!({"request": request}), Effect::Write);
        let is_found = faults.iter().any(|one| one.message.contains("break out"));
        assert_eq!(is_found, is_warned, "{field}: {value}: {faults:?}");
    }
}

#[tokio::test]
async fn private_addresses_are_denied_before_sending() {
    let mut server = start_server(ok_reply("x: y", "secret")).await;
    let port = server.host.rsplit(':').next().unwrap().to_owned();
    for host in ["127.0.0.1", "2130706433", "localhost", "[::ffff:127.0.0.1]"] {
        let url = format!("http://{host}:{port}/");
        let (runner, _) = try_build(json!({"request": {"url": url}}), Effect::Read);
        let (is_retryable, _, message) =
            expect_upstream_error(call_tool(&*runner.unwrap(), json!({})).await);
        assert!(
            !is_retryable && message.contains("request.allow_private"),
            "{message}"
        );
    }
    assert!(server.requests.try_recv().is_err());
}

#[tokio::test]
async fn body_at_cap_is_complete() {
    let sized = |kind: &str, body: &str| ok_reply(&format!("content-type: {kind}"), body);
    let full = "x".repeat(1024);
    let result = call_with_reply(sized("text/plain", &full), json!({}))
        .await
        .unwrap();
    assert_eq!(result, ToolResult::text(&*full));
    let result = call_with_reply(sized("text/plain", &format!("{full}y")), json!({}))
        .await
        .unwrap();
    assert_eq!(
        (result.as_text(), result.incomplete.is_some()),
        (full, true),
        "cut"
    );
    let json = format!("\"{}\"", "x".repeat(1022));
    assert!(
        call_with_reply(sized("application/json", &json), json!({}))
            .await
            .is_ok()
    );
    let error = call_with_reply(sized("application/json", &format!("{json} ")), json!({}))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("answered more than 1.0 KiB"),
        "{error}"
    );
}

#[tokio::test]
async fn status_decides_whether_upstream_is_unavailable() {
    for (status, is_down) in [
        (429, false),
        (500, false),
        (302, false),
        (502, true),
        (503, true),
        (504, true),
    ] {
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
        match call_with_reply(Reply::Bytes(head.into_bytes()), json!({})).await {
            Err(ToolError::Upstream(UpstreamFailure { unavailable, .. })) => {
                assert_eq!(unavailable, is_down, "{status}");
            }
            other => panic!("{status}: {other:?}"),
        }
    }
}

/// The head and the body of the request that a tool sends.
async fn sent_request(request: Value, arguments: Value) -> (String, String) {
    let mut server = start_server(ok_reply("content-type: text/plain", "done")).await;
    let tool = build_tool(&server, request, json!({}), Effect::Write);
    call_tool(&*tool, arguments).await.unwrap();
    let text = server.requests.recv().await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}
