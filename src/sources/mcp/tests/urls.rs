//! Servers that are reached by URL.

use super::*;
use crate::call::UpstreamFailure;

/// A server with a URL, whose process the test itself has started.
struct Remote {
    process: std::process::Child,
    port: u16,
    quirks: Vec<&'static str>,
    folder: TempDir,
}

impl Remote {
    async fn new(quirks: &[&'static str]) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("server.py"), SCRIPT).unwrap();
        let process = Self::process(folder.path(), port, quirks);
        let remote = Self {
            process,
            port,
            quirks: quirks.to_vec(),
            folder,
        };
        remote.wait_until_up().await;
        remote
    }

    fn process(folder: &Path, port: u16, quirks: &[&str]) -> std::process::Child {
        let mut command = std::process::Command::new(python().unwrap());
        command
            .args(["-S", "server.py", "http", &format!("port={port}")])
            .args(quirks)
            .current_dir(folder);
        command
            .stdin(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap()
    }

    async fn wait_until_up(&self) {
        wait_until("the server listens", || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        })
        .await;
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    async fn restart(&mut self) {
        self.process = Self::process(self.folder.path(), self.port, &self.quirks);
        self.wait_until_up().await;
    }

    async fn try_fixture(
        &self,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Result<Fixture, String> {
        Fixture::try_new(&[], |settings| {
            settings.transport = Transport::Url {
                url: format!("http://127.0.0.1:{}/mcp", self.port)
                    .parse()
                    .unwrap(),
                headers: BTreeMap::from([("authorization".into(), "Bearer let-me-in".into())]),
                auth: None,
                per_caller: None,
            };
            change(settings);
        })
        .await
    }

    async fn fixture(&self) -> Fixture {
        self.try_fixture(|_| {}).await.unwrap()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn url_server_works_with_both_protocol_versions() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["sse"], &["modern"], &["modern", "sse"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        assert_eq!(fixture.tools.len(), 22, "{quirks:?}");
        assert_eq!(
            fixture.text("echo", json!({"text": "héllo"})).await,
            "héllo"
        );
        let headers: BTreeMap<String, String> =
            serde_json::from_str(&fixture.text("headers", json!({})).await).unwrap();
        assert_eq!(headers["authorization"], "Bearer let-me-in");
        let version = if quirks.contains(&"modern") {
            "2026-07-28"
        } else {
            "2025-11-25"
        };
        assert_eq!(headers["mcp-protocol-version"], version);
        assert_eq!(
            headers.contains_key("mcp-session-id"),
            !quirks.contains(&"modern")
        );
        assert_eq!(fixture.server.status().workers, 0);
        drop(fixture);
        if !quirks.contains(&"modern") {
            wait_until("the session is ended", || {
                remote.folder.path().join("deleted").exists()
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn url_server_progress_is_ordered() {
    if is_python_missing() {
        return;
    }
    for quirks in [&["sse"][..], &["sse", "modern"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        let mut invocation = invocation();
        let (sink, mut listener) = ProgressSink::channel();
        invocation.delivery.progress = Some(sink);
        let context = context(&invocation, Effect::Read, TIMEOUT);
        fixture
            .runner("progress")
            .call(object(json!({})), context)
            .await
            .unwrap();
        let received = std::iter::from_fn(|| match listener.try_next()? {
            Event::Progress(progress) => Some(
                serde_json::from_str::<Value>(progress.data.get()).unwrap()["progress"].clone(),
            ),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            received.collect::<Vec<_>>(),
            [json!(1.0), json!(2.0), json!(3.0), json!(4.0), json!(5.0)]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn expired_session_is_replaced() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["gone"], &["confused"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        assert_eq!(fixture.text("forget", json!({})).await, "forgotten");
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again"
        );
        assert_eq!(
            fixture.server.status().replaced,
            1,
            "a new session lists the tools before the call"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn session_that_loses_answers_is_replaced() {
    if is_python_missing() {
        return;
    }
    for is_abandoned in [true, false] {
        let remote = Remote::new(&["dead"]).await;
        let fixture = remote.fixture().await;
        let slow = json!({"began": "began", "until": "dropped"});
        let running = tokio::spawn(fixture.call("slow", slow));
        let began = remote.folder.path().join("began");
        wait_until("the call arrives", || began.exists()).await;
        assert_eq!(fixture.text("forget", json!({})).await, "forgotten");
        if is_abandoned {
            running.abort();
        } else {
            let lost = fixture.call("echo", json!({"text": "lost"})).await;
            assert!(
                matches!(lost, Err(ToolError::Unavailable { started: true, .. })),
                "{lost:?}"
            );
        }
        wait_until("the session is replaced", || {
            fixture.server.status().replaced == 1
        })
        .await;
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again"
        );
        std::fs::write(remote.folder.path().join("dropped"), "").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn url_server_refusal_and_redirect_are_explained() {
    if is_python_missing() {
        return;
    }
    let remote = Remote::new(&["locked"]).await;
    assert_eq!(
        remote
            .fixture()
            .await
            .text("echo", json!({"text": "in"}))
            .await,
        "in"
    );
    let wrong = |settings: &mut ServerSettings| {
        if let Transport::Url { headers, .. } = &mut settings.transport {
            headers.insert("authorization".into(), "Bearer wrong-wrong".into());
        }
    };
    let fault = remote.try_fixture(wrong).await.err().unwrap();
    let expected =
        "the MCP server probe refuses access (HTTP 401 Unauthorized): see `headers` of its entry";
    assert_eq!(fault, expected);
    let moved = Remote::new(&["moved"]).await;
    let fault = moved.try_fixture(|_| {}).await.err().unwrap();
    let host = format!("127.0.0.1:{}", moved.port);
    let expected = "answered HTTP 307 Temporary Redirect and points to https://elsewhere.example; redirects are not followed";
    assert_eq!(fault, format!("`{host}` {expected}"));
    let odd = |settings: &mut ServerSettings| {
        if let Transport::Url { headers, .. } = &mut settings.transport {
            headers.insert("x-key".into(), "two\nlines".into());
        }
    };
    assert_eq!(
        remote.try_fixture(odd).await.err().unwrap(),
        "its header `x-key` cannot be sent: it contains invalid characters"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn redirect_to_another_path_is_followed() {
    if is_python_missing() {
        return;
    }
    let remote = Remote::new(&["slash"]).await;
    let fixture = remote.fixture().await;
    assert_eq!(fixture.text("echo", json!({"text": "in"})).await, "in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn url_server_is_reconnected_after_its_death() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["sse"], &["modern"], &["modern", "sse"]] {
        let mut remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        let error = fixture.call("die", json!({})).await.unwrap_err();
        let started = matches!(
            error,
            ToolError::Unavailable { started: true, .. }
                | ToolError::Upstream(UpstreamFailure {
                    not_delivered: false,
                    ..
                })
        );
        assert!(started, "{error:?}");
        remote.kill();
        let error = loop {
            let context = context(&invocation(), Effect::Write, Duration::from_secs(1));
            match fixture
                .runner("echo")
                .call(object(json!({"text": "x"})), context)
                .await
                .unwrap_err()
            {
                // The call used an idle connection whose end was not noticed yet.
                ToolError::Upstream(UpstreamFailure {
                    not_delivered: false,
                    ..
                }) => {}
                error => break error,
            }
        };
        let ToolError::Unavailable {
            message,
            started: false,
            ..
        } = error
        else {
            panic!("{error:?}")
        };
        assert!(
            message.starts_with("the MCP server probe is unavailable: ")
                && message.contains("no connection"),
            "{message}"
        );
        remote.restart().await;
        wait_until("it is found again", || fixture.server.status().is_up).await;
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again",
            "{quirks:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refused_connection_keeps_earlier_calls_running() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        let sent = tokio::spawn(fixture.call("slow", json!({"until": "refused"})));
        fixture
            .text("slow", json!({"seconds": 0.1, "mark": "y"}))
            .await;
        fixture.text("shut", json!({})).await;
        let refused = loop {
            let context = context(&invocation(), Effect::Write, Duration::from_secs(1));
            let echo = fixture
                .runner("echo")
                .call(object(json!({"text": "x"})), context)
                .await;
            if let Err(error) = echo {
                break error;
            }
        };
        let ToolError::Unavailable {
            message,
            started: false,
            ..
        } = refused
        else {
            panic!("{refused:?}")
        };
        assert!(message.contains("no connection"), "{message}");
        assert!(
            !sent.is_finished(),
            "it still runs while other calls are refused"
        );
        std::fs::write(remote.folder.path().join("refused"), "").unwrap();
        assert_eq!(sent.await.unwrap().unwrap().as_text(), "slept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn url_server_overlong_response_fails() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["sse"], &["modern", "sse"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        let before = resident_bytes();
        let error = fixture
            .call("big", json!({"bytes": 50_000_000}))
            .await
            .unwrap_err();
        let expected = "the MCP server probe answered more than 4.0 MiB: ask for less";
        assert_eq!(error, ToolError::BadOutput(expected.into()));
        assert!(
            resident_bytes() < before + (40 << 20),
            "{before} {}",
            resident_bytes()
        );
        assert_eq!(fixture.text("echo", json!({"text": "x"})).await, "x");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn on_demand_url_server_connects_per_call() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["modern", "sse"], &["spoiled", "modern", "sse"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote
            .try_fixture(|settings| settings.mode = Mode::OnDemand)
            .await
            .unwrap();
        if quirks.contains(&"spoiled") {
            assert_eq!(fixture.tool_names(), SPOILED_TOOLS);
            continue;
        }
        for _ in 0..3 {
            assert_eq!(fixture.text("echo", json!({"text": "x"})).await, "x");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unusual_handshakes_succeed() {
    if is_python_missing() {
        return;
    }
    for quirks in [&["hollow"][..], &["picky"], &["modern", "vague"]] {
        let fixture = Fixture::new(quirks).await;
        assert_eq!(fixture.text("echo", json!({"text": "in"})).await, "in");
    }
    for quirks in [&["modern", "vague"][..], &["modern", "vague", "sse"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        assert_eq!(fixture.text("echo", json!({"text": "in"})).await, "in");
    }
    let fixed = Fixture::try_new(&["modern"], |settings| {
        settings.protocol = Some(Protocol::V20250618);
    });
    let fixture = fixed.await.unwrap();
    assert_eq!(fixture.text("echo", json!({"text": "in"})).await, "in");
}
