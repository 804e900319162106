//! Tests whole tools against servers on loopback, with every kind of misbehavior that we know.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::call::{Caller, Content, Effect, Invocation, Resource, ToolName};
use crate::tools::Databases;

/// What a test server does with each connection after it has read a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Sends these bytes and closes.
    Bytes(Vec<u8>),
    /// Sends this head, then `x` without end. Reports `gone` in `seen` when the client has disconnected.
    Endless(&'static str),
    /// Sends nothing. Reports `gone` in `seen` when the client has disconnected.
    Silence,
    /// Sends these bytes and resets the connection.
    Reset(&'static str),
}

pub(crate) struct Server {
    pub(crate) host: String,
    /// The requests as received.
    pub(crate) seen: mpsc::Receiver<String>,
}

pub(crate) async fn serve(reply: Reply) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let (said, seen) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, reply.clone(), said.clone()));
        }
    });
    Server { host, seen }
}

pub(crate) fn ok(head: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Bytes(format!("HTTP/1.1 200 OK\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes())
}

async fn answer(mut stream: TcpStream, reply: Reply, said: mpsc::Sender<String>) {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                break;
            }
        }
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let _ = said.send(String::from_utf8(request).unwrap()).await;
    match reply {
        Reply::Bytes(bytes) => drop(stream.write_all(&bytes).await),
        Reply::Reset(bytes) => {
            let _ = stream.write_all(bytes.as_bytes()).await;
            stream.set_zero_linger().unwrap();
        }
        Reply::Endless(head) => {
            let _ = stream.write_all(head.as_bytes()).await;
            while stream.write_all(&[b'x'; 8192]).await.is_ok() {}
            let _ = said.send("gone".into()).await;
        }
        Reply::Silence => {
            while stream.read_u8().await.is_ok() {}
            let _ = said.send("gone".into()).await;
        }
    }
}

pub(crate) fn context() -> (ToolContext, Invocation) {
    let name = ToolName::parse("under_test").unwrap();
    let invocation = Invocation::new(name, JsonObject::new(), Arc::new(Caller::anonymous()), jiff::Timestamp::now());
    (ToolContext::new(&invocation, Instant::now(), Arc::default()), invocation)
}

pub(crate) fn object(value: Value) -> Arc<JsonObject> {
    Arc::new(value.as_object().unwrap().clone())
}

fn try_build(config: Value, effect: Effect) -> (Option<Arc<dyn Runner>>, Vec<ConfigFault>) {
    let input_schema = json!({
        "type": "object", "required": ["city"],
        "properties": {"city": {}, "ids": {}, "note": {}, "units": {"default": "celsius"}}
    });
    let base = std::path::Path::new(".");
    let context = BuildContext {
        base,
        input_schema: &input_schema,
        fields: &["tenant".to_owned()],
        effect,
        trusted: true,
        clients: &Clients::default(),
        databases: &Databases::default(),
    };
    build(serde_json::from_value(config).unwrap(), &context)
}

/// A tool for the server. Adds the common parts of all tests to `request`.
fn tool(server: &Server, mut request: Value, response: Value, effect: Effect) -> Arc<dyn Runner> {
    request["allow_private"] = json!(true);
    request["url"] = match request["url"].as_str() {
        Some(path) => format!("http://{}{path}", server.host).into(),
        None => format!("http://{}/", server.host).into(),
    };
    let (runner, faults) = try_build(json!({"request": request, "response": response, "max_output": "1KiB"}), effect);
    assert_eq!(faults, []);
    runner.unwrap()
}

async fn run(runner: &dyn Runner, arguments: Value) -> Result<ToolResult, ToolError> {
    runner.call(object(arguments), context().0).await
}

async fn ask(reply: Reply, response: Value) -> Result<ToolResult, ToolError> {
    let server = serve(reply).await;
    run(&*tool(&server, json!({}), response, Effect::Read), json!({})).await
}

fn retryable(result: Result<ToolResult, ToolError>) -> (bool, Option<u64>, String) {
    match result {
        Err(ToolError::Upstream { message, retryable, retry_after, .. }) => {
            (retryable, retry_after.map(|wait| wait.as_secs()), message)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn get_weather_asks_and_picks() {
    let body = r#"{"current": {"temperature": 22.5}, "error": null}"#;
    let mut server = serve(ok("content-type: application/json; charset=utf-8", body)).await;
    let request = json!({
        "url": "/v1/cities/{{ city }}/weather", "query": {"units": "{{ units }}", "note": "{{ note }}", "ids": "{{ ids }}"},
        "headers": {"authorization": "Bearer k3y", "X-Note": "{{ note }}", "x-city": "in {{ city }}"}
    });
    let tool = tool(&server, request, json!({"pick": "/current", "error_when": "/error"}), Effect::Read);
    let arguments = json!({"city": "Oslo/NO", "units": "celsius", "ids": [1, "b c"]});
    assert_eq!(run(&*tool, arguments).await, Ok(ToolResult::json(json!({"temperature": 22.5}))));
    let seen = server.seen.recv().await.unwrap();
    assert!(seen.starts_with("GET /v1/cities/Oslo%2FNO/weather?units=celsius&ids=1&ids=b%20c HTTP/1.1\r\n"), "{seen}");
    for line in ["authorization: Bearer k3y", "x-city: in Oslo/NO", "accept: application/json, */*"] {
        assert!(seen.contains(&format!("{line}\r\n")), "{seen}");
    }
    assert!(seen.contains(concat!("user-agent: toolcrib/", env!("CARGO_PKG_VERSION"), "\r\n")), "{seen}");
    for absent in ["x-note", "idempotency-key", "accept-encoding", "content-type"] {
        assert!(!seen.contains(absent), "{seen}");
    }
}

#[tokio::test]
async fn bodies_carry_their_type_and_a_write_its_idempotency_key() {
    for (body, media_type, sent) in [
        (json!({"json": {"ids": "{{ ids }}", "note": "{{ note }}"}}), "application/json", r#"{"ids":[1,2]}"#),
        (json!({"json": "{{ note }}"}), "", ""),
        (json!({"body": "{{ city }}: {{ ids }}"}), "text/plain; charset=utf-8", "Oslo & co: [1,2]"),
        (
            json!({"form": {"c": "{{ city }}", "i": "{{ ids }}"}}),
            "application/x-www-form-urlencoded",
            "c=Oslo+%26+co&i=1&i=2",
        ),
    ] {
        let mut server = serve(ok("content-type: text/plain", "done")).await;
        let mut request = json!({"method": "post"});
        request.as_object_mut().unwrap().append(&mut body.as_object().unwrap().clone());
        let runner = tool(&server, request, json!({}), Effect::Write);
        let (context, invocation) = context();
        let arguments = object(json!({"city": "Oslo & co", "ids": [1, 2]}));
        assert_eq!(runner.call(arguments, context).await, Ok(ToolResult::text("done")));
        let seen = server.seen.recv().await.unwrap();
        assert!(seen.starts_with("POST / HTTP/1.1\r\n") && seen.ends_with(&format!("\r\n\r\n{sent}")), "{seen}");
        assert!(seen.contains(&format!("idempotency-key: {}\r\n", invocation.id)), "{seen}");
        assert_eq!(seen.contains(&format!("content-type: {media_type}\r\n")), !media_type.is_empty(), "{seen}");
    }
}

#[tokio::test]
async fn the_operators_headers_win() {
    let mut server = serve(ok("content-type: text/plain", "done")).await;
    let headers =
        json!({"Accept": "text/csv", "USER-AGENT": "me", "idempotency-key": "{{ city }}", "content-type": "a/b"});
    let tool = tool(&server, json!({"method": "PUT", "body": "", "headers": headers}), json!({}), Effect::Idempotent);
    run(&*tool, json!({"city": "k-1"})).await.unwrap();
    let seen = server.seen.recv().await.unwrap();
    for line in ["accept: text/csv", "user-agent: me", "idempotency-key: k-1", "content-type: a/b"] {
        assert!(seen.contains(&format!("{line}\r\n")), "{seen}");
    }
}

#[tokio::test]
async fn header_values_cannot_break_out() {
    let server = serve(ok("x: y", "")).await;
    let tool = tool(&server, json!({"headers": {"x-a": "a {{ city }}"}}), json!({}), Effect::Read);
    for bad in ["a\r\nHost: evil", "a\nb", "a\0", "ü", "\u{7f}"] {
        let faults = tool.faults(Values::of(&object(json!({"city": bad}))));
        assert_eq!(faults.iter().map(|fault| fault.pointer()).collect::<Vec<_>>(), ["/city"], "{bad:?}");
        assert!(matches!(run(&*tool, json!({"city": bad})).await, Err(ToolError::InvalidArguments(_))));
    }
    assert_eq!(tool.faults(Values::of(&object(json!({"city": "plain, (text)"})))), []);
}

#[tokio::test]
async fn answers_become_results_by_their_type() {
    let structured = ToolResult::json(json!({"a": 1}));
    for (head, body, expected) in [
        ("content-type: application/problem+json", r#"{"a": 1}"#, Ok(structured.clone())),
        ("x-none: 1", r#"{"a": 1}"#, Ok(structured.clone())),
        ("content-type: application/octet-stream", r#"{"a": 1}"#, Ok(structured)),
        ("content-type: application/json", r#""just text""#, Ok(ToolResult::text("just text"))),
        ("content-type: application/json", "null", Ok(ToolResult::default())),
        ("content-type: application/json", "", Ok(ToolResult::default())),
        ("content-type: text/html", "<p>ø</p>", Ok(ToolResult::text("<p>ø</p>"))),
        ("content-type: text/plain", r#"{"a": 1}"#, Ok(ToolResult::text(r#"{"a": 1}"#))),
        ("content-type: application/xml", "<a/>", Ok(ToolResult::text("<a/>"))),
        ("x-none: 1", "plain", Ok(ToolResult::text("plain"))),
        ("content-type: application/json", "{nope", Err("does not parse")),
        ("content-type: text/plain\r\ncontent-encoding: gzip", "x", Err("content-encoding gzip")),
    ] {
        match (ask(ok(head, body), json!({})).await, expected) {
            (Ok(result), Ok(expected)) => assert_eq!(result, expected, "{head}: {body}"),
            (Err(ToolError::BadOutput(message)), Err(said)) => assert!(message.contains(said), "{message}"),
            (result, _) => panic!("{head}: {body}: {result:?}"),
        }
    }
    let image = ask(ok("content-type: IMAGE/png", "\u{1}PNG"), json!({})).await.unwrap();
    assert_eq!(image.content, [Content::Image { data: "AVBORw==".into(), mime_type: "image/png".into() }]);
    let sound = ask(ok("content-type: audio/wav", "RIFF"), json!({})).await.unwrap();
    assert_eq!(sound.content, [Content::Audio { data: "UklGRg==".into(), mime_type: "audio/wav".into() }]);
    let file = |mime_type: &str, text: Option<&str>, blob: Option<&str>| Content::Resource {
        resource: Resource {
            uri: String::new(),
            mime_type: Some(mime_type.into()),
            text: text.map(str::to_owned),
            blob: blob.map(str::to_owned),
        },
    };
    for (head, body, expected) in [
        ("content-type: application/pdf", "%PDF-1.7", file("application/pdf", None, Some("JVBERi0xLjc="))),
        ("content-type: application/octet-stream", "%PDF-1.7", file("application/pdf", None, Some("JVBERi0xLjc="))),
        ("content-type: application/zip", "PK\u{3}\0", file("application/zip", None, Some("UEsDAA=="))),
        ("content-type: video/mp4; codecs=x", "\0\0", file("video/mp4", None, Some("AAA="))),
        ("content-type: application/rtf", "{\\rtf1 hi}", file("application/rtf", Some("{\\rtf1 hi}"), None)),
        ("x-none: 1", "a\0b", file("application/octet-stream", None, Some("YQBi"))),
        ("x-none: 1", "GIF89a", Content::Image { data: "R0lGODlh".into(), mime_type: "image/gif".into() }),
    ] {
        let mut answered = ask(ok(head, body), json!({})).await.unwrap();
        if let Content::Resource { resource } = &mut answered.content[0] {
            let uri = std::mem::take(&mut resource.uri);
            assert!(uri.starts_with("http://127.0.0.1:") && uri.ends_with('/'), "{uri}");
        }
        assert_eq!(answered, ToolResult { content: vec![expected], ..ToolResult::default() }, "{head}");
    }
    let nothing = ask(Reply::Bytes(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()), json!({"pick": "/a"})).await;
    assert_eq!(nothing, Ok(ToolResult::default()));
}

#[tokio::test]
async fn pick_and_error_when_look_into_the_answer() {
    for (body, rules, expected) in [
        (r#"{"error": "no such city"}"#, json!({"error_when": "/error"}), Ok(ToolResult::error("no such city"))),
        (r#"{"error": {"code": 7}}"#, json!({"error_when": "/error"}), Ok(ToolResult::error(r#"{"code":7}"#))),
        (r#"{"error": ""}"#, json!({"error_when": "/error", "pick": "/error"}), Ok(ToolResult::text(""))),
        (r#"{"error": false, "x": [3]}"#, json!({"error_when": "/error", "pick": "/x/0"}), Ok(ToolResult::text("3"))),
        (r#"{"a/b": {"~": 1}}"#, json!({"pick": "/a~1b/~0"}), Ok(ToolResult::text("1"))),
        (r#"{"y": 1}"#, json!({"pick": "/x"}), Err("JSON without `/x`")),
        ("plain text", json!({"pick": "/x"}), Err("does not parse")),
    ] {
        match (ask(ok("content-type: application/json", body), rules).await, expected) {
            (Ok(result), Ok(expected)) => assert_eq!(result, expected, "{body}"),
            (Err(ToolError::BadOutput(message)), Err(said)) => assert!(message.contains(said), "{message}"),
            (result, _) => panic!("{body}: {result:?}"),
        }
    }
    // `pick` requires JSON, whatever media type the server declares.
    let result = ask(ok("content-type: text/plain", r#"{"x": 1}"#), json!({"pick": "/x"})).await;
    assert_eq!(result, Ok(ToolResult::text("1")));
}

#[tokio::test]
async fn a_no_of_the_server_is_an_answer() {
    let long = "ø".repeat(5000);
    let cut = "ø".repeat(2048);
    for (status, head, body, said) in [
        ("404 Not Found", "x: y", "no such city\n", "HTTP 404: no such city"),
        ("418 I'm a teapot", "x: y", "", "HTTP 418: I'm a teapot"),
        ("400 Bad Request", "content-type: application/json", r#"{"e": 1}"#, r#"HTTP 400: {"e": 1}"#),
        ("400 Bad Request", "content-type: image/png", "PNG", "HTTP 400: Bad Request"),
        ("422 Unprocessable Entity", "content-type: text/plain", &long, &format!("HTTP 422: {cut}")),
    ] {
        let length = body.len();
        let reply = format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        let result = ask(Reply::Bytes(reply.into_bytes()), json!({"pick": "/x"})).await;
        assert_eq!(result, Err(ToolError::Said(said.into())), "{status}");
    }
}

#[tokio::test]
async fn other_answers_are_failures_that_pass_or_do_not() {
    let date = "date: Wed, 21 Oct 2026 07:28:00 GMT\r\nretry-after: Wed, 21 Oct 2026 07:29:30 GMT";
    for (status, head, again, wait, said) in [
        ("429 Too Many Requests", "retry-after: 7", true, Some(7), "HTTP 429 Too Many Requests"),
        ("503 Service Unavailable", date, true, Some(90), "HTTP 503"),
        ("503 Service Unavailable", "retry-after: Wed, 21 Oct 2015 07:28:00 GMT", true, Some(0), "HTTP 503"),
        ("502 Bad Gateway", "retry-after: soon", true, None, "HTTP 502"),
        ("504 Gateway Timeout", "x: y", true, None, "HTTP 504"),
        ("500 Internal Server Error", "x: y", false, None, "HTTP 500"),
        ("501 Not Implemented", "x: y", false, None, "HTTP 501"),
        ("301 Moved", "location: https://elsewhere.example/a?token=secret", false, None, "https://elsewhere.example;"),
        ("302 Found", "location: /relative?token=secret", false, None, "points to http://127.0.0.1:"),
        ("303 See Other", "location: gopher://old.example/", false, None, "gopher://old.example;"),
        ("307 Temporary Redirect", "location: http://169.254.169.254/", false, None, "169.254.169.254;"),
        ("308 Permanent Redirect", "location: file:///etc/passwd", false, None, "redirects are not followed"),
        ("304 Not Modified", "x: y", false, None, "points to nowhere"),
    ] {
        let reply = format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: 0\r\n\r\n");
        let (retried, after, message) = retryable(ask(Reply::Bytes(reply.into_bytes()), json!({})).await);
        assert_eq!((retried, after), (again, wait), "{status}");
        assert!(message.contains(said) && !message.contains("secret"), "{message}");
    }
}

#[tokio::test]
async fn an_answer_over_the_cap_is_not_read_to_its_end() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    ] {
        let mut server = serve(Reply::Endless(head)).await;
        let tool = tool(&server, json!({}), json!({}), Effect::Read);
        match run(&*tool, json!({})).await {
            Err(ToolError::BadOutput(message)) => {
                assert!(
                    message.ends_with("answered more than 1.0 KiB: ask for less, or raise `max_output`"),
                    "{message}"
                );
            }
            other => panic!("{other:?}"),
        }
        server.seen.recv().await.unwrap();
        assert_eq!(server.seen.recv().await.unwrap(), "gone");
    }
}

#[tokio::test]
async fn a_text_over_the_cap_is_cut_with_a_warning() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 99999999\r\n\r\n";
    let mut server = serve(Reply::Endless(head)).await;
    let runner = tool(&server, json!({}), json!({}), Effect::Read);
    let (context, invocation) = context();
    assert_eq!(runner.call(object(json!({})), context).await, Ok(ToolResult::text("x".repeat(1024))));
    assert!(invocation.notes.lock().meta.warnings[0].contains("cut after 1.0 KiB (`max_output`)"));
    server.seen.recv().await.unwrap();
    assert_eq!(server.seen.recv().await.unwrap(), "gone");

    let half = ask(ok("content-type: text/plain", &format!("x{}", "ø".repeat(1000))), json!({})).await.unwrap();
    assert_eq!(half.as_text(), format!("x{}", "ø".repeat(511)));
    let full = "y".repeat(1024);
    assert_eq!(ask(ok("content-type: text/plain", &full), json!({})).await, Ok(ToolResult::text(full)));
}

#[tokio::test]
async fn broken_connections_may_be_tried_again() {
    for reply in [
        Reply::Bytes(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 10\r\n\r\nabc".to_vec()),
        Reply::Bytes(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab".to_vec()),
        Reply::Bytes(Vec::new()),
        Reply::Bytes(b"HTTP/1.1 200".to_vec()),
        Reply::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Reply::Reset(""),
        Reply::Reset("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"),
    ] {
        let (again, _, message) = retryable(ask(reply, json!({})).await);
        assert!(again && message.starts_with("`127.0.0.1:"), "{message}");
    }
}

#[tokio::test]
async fn nothing_is_sent_twice() {
    let mut server = serve(Reply::Bytes(Vec::new())).await;
    let tool = tool(&server, json!({"method": "POST"}), json!({}), Effect::Write);
    retryable(run(&*tool, json!({})).await);
    server.seen.recv().await.unwrap();
    assert!(server.seen.try_recv().is_err());
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    let mut server = serve(Reply::Silence).await;
    let tool = tool(&server, json!({}), json!({}), Effect::Read);
    let call = run(&*tool, json!({}));
    tokio::select! {
        result = call => panic!("{result:?}"),
        seen = server.seen.recv() => assert!(seen.unwrap().starts_with("GET / ")),
    }
    assert_eq!(server.seen.recv().await.unwrap(), "gone");
}

#[tokio::test]
async fn every_fault_is_reported_with_its_place() {
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
    let places: Vec<String> = faults.iter().map(|fault| fault.path.join(".")).collect();
    for place in [
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
        assert!(places.iter().any(|found| found == place), "{place}: {faults:?}");
    }
    let json =
        json!({"request": {"url": "https://a.example", "json": {"a": [{"b": "{{ missing }}"}]}, "method": "POST"}});
    let (_, faults) = try_build(json, Effect::Write);
    assert_eq!(faults[0].path.join("."), "request.json.a.0.b");
}

#[tokio::test]
async fn what_can_hardly_be_meant_is_a_warning() {
    for (request, said) in [
        (json!({"url": "http://10.0.0.7/"}), "unless the manifest says `request.allow_private: true`"),
        (json!({"url": "http://localhost:8080/"}), "unless the manifest says"),
        (json!({"url": "http://169.254.169.254/", "allow_private": true}), "may not reach"),
        (json!({"url": "http://a.example/", "json": {}}), "is it a POST?"),
        (json!({"url": "http://a.example/{{ note }}"}), "make it required"),
    ] {
        let (runner, faults) = try_build(json!({"request": request}), Effect::Read);
        assert!(runner.is_some() && faults.len() == 1, "{faults:?}");
        assert!(faults[0].warning && faults[0].message.contains(said), "{faults:?}");
    }
}

#[tokio::test]
async fn private_addresses_are_denied_before_anything_is_sent() {
    let mut server = serve(ok("x: y", "secret")).await;
    let port = server.host.rsplit(':').next().unwrap().to_owned();
    for host in ["127.0.0.1", "2130706433", "localhost", "[::ffff:127.0.0.1]"] {
        let url = format!("http://{host}:{port}/");
        let (runner, _) = try_build(json!({"request": {"url": url}}), Effect::Read);
        let (again, _, message) = retryable(run(&*runner.unwrap(), json!({})).await);
        assert!(!again && message.contains("request.allow_private"), "{message}");
    }
    assert!(server.seen.try_recv().is_err());
}

#[tokio::test]
async fn a_body_of_max_output_is_whole() {
    let sized = |kind: &str, body: &str| ok(&format!("content-type: {kind}"), body);
    let full = "x".repeat(1024);
    let said = ask(sized("text/plain", &full), json!({})).await.unwrap();
    assert_eq!(said, ToolResult::text(&*full));
    let said = ask(sized("text/plain", &format!("{full}y")), json!({})).await.unwrap();
    assert_eq!(said, ToolResult::text(&*full), "cut");
    let json = format!("\"{}\"", "x".repeat(1022));
    assert!(ask(sized("application/json", &json), json!({})).await.is_ok());
    let error = ask(sized("application/json", &format!("{json} ")), json!({})).await.unwrap_err();
    assert!(error.to_string().contains("answered more than 1.0 KiB"), "{error}");
}

#[tokio::test]
async fn statuses_say_whether_the_upstream_is_down() {
    for (status, is_down) in [(429, false), (500, false), (302, false), (502, true), (503, true), (504, true)] {
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
        match ask(Reply::Bytes(head.into_bytes()), json!({})).await {
            Err(ToolError::Upstream { down, .. }) => assert_eq!(down, is_down, "{status}"),
            other => panic!("{status}: {other:?}"),
        }
    }
}
