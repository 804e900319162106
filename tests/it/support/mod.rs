//! A service without a socket, with a ledger of its own in a temporary folder.

pub(crate) mod mcp;
pub(crate) mod redis;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib::call::Clock;
use toolcrib::{App, AppBuilder, Registry, Tool};
use tower::ServiceExt;

/// When the clock of [`TestApp::with_clock`] starts.
pub(crate) const START: &str = "2026-06-15T12:00:30Z";

/// A service under test.
pub(crate) struct TestApp {
    app: App,
    router: Router,
    /// Deleted with the app.
    folder: TempDir,
}

/// A status and a JSON body.
pub(crate) type Reply = (StatusCode, Value);

impl TestApp {
    /// A service with these tools and nothing else.
    pub(crate) async fn new(tools: impl IntoIterator<Item = Tool>) -> Self {
        Self::build(
            tools.into_iter().fold(App::builder(), AppBuilder::tool),
            None,
        )
        .await
    }

    /// The same under a clock that stands still until its hand is moved (Unix milliseconds).
    pub(crate) async fn with_clock(
        tools: impl IntoIterator<Item = Tool>,
    ) -> (Self, Arc<AtomicI64>) {
        let (clock, hand) = Clock::manual(START.parse::<Timestamp>().unwrap());
        let builder = tools
            .into_iter()
            .fold(App::builder(), AppBuilder::tool)
            .clock(clock);
        (Self::build(builder, None).await, hand)
    }

    /// A service with a manifest beside these tools.
    pub(crate) async fn with_manifest(
        manifest: &str,
        tools: impl IntoIterator<Item = Tool>,
    ) -> Self {
        Self::build(
            tools.into_iter().fold(App::builder(), AppBuilder::tool),
            Some(manifest),
        )
        .await
    }

    /// A service of this builder, perhaps with a manifest, that may still be loading its sources.
    pub(crate) async fn loading(builder: AppBuilder, manifest: Option<&str>) -> Self {
        let (builder, folder) = Self::prepare(builder, manifest);
        Self::start(builder, folder).await
    }

    /// A service with a manifest and these files beside it, that may still be loading its sources.
    pub(crate) async fn with_files(manifest: &str, files: &[(&str, &str)]) -> Self {
        let (builder, folder) = Self::prepare(App::builder(), Some(manifest));
        for (file, text) in files {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        Self::start(builder, folder).await
    }

    /// Waits until every source was listed or has failed.
    pub(crate) async fn with_sources_listed(self) -> Self {
        self.app.wait_for_sources().await;
        self
    }

    async fn build(builder: AppBuilder, manifest: Option<&str>) -> Self {
        Self::loading(builder, manifest)
            .await
            .with_sources_listed()
            .await
    }

    fn prepare(mut builder: AppBuilder, manifest: Option<&str>) -> (AppBuilder, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        if let Some(text) = manifest {
            let file = folder.path().join("toolcrib.yaml");
            std::fs::write(&file, text).unwrap();
            builder = builder.manifest(&file).unwrap();
        }
        (builder, folder)
    }

    pub(crate) fn registry(&self) -> &Registry {
        self.app.registry()
    }

    /// Writes a file beside the manifest, which is `toolcrib.yaml`.
    pub(crate) fn write(&self, file: &str, text: &str) {
        let file = self.folder.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// Ends the service as `serve` does at the end.
    pub(crate) async fn close(self) {
        self.app.close().await;
    }

    /// Reloads the manifest. Returns the fault if the old manifest stays.
    pub(crate) async fn reload(&self) -> Option<String> {
        self.app.reload().await.err().map(|error| error.to_string())
    }

    /// Restarts with these tools, the current manifest and the same ledger.
    pub(crate) async fn restart(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.restart_after(async {}, tools).await
    }

    /// The same, after something has happened while the service was not running.
    pub(crate) async fn restart_after(
        self,
        meanwhile: impl Future<Output = ()>,
        tools: impl IntoIterator<Item = Tool>,
    ) -> Self {
        let Self { app, folder, .. } = self;
        app.close().await;
        meanwhile.await;
        let mut builder = tools.into_iter().fold(App::builder(), AppBuilder::tool);
        let manifest = folder.path().join("toolcrib.yaml");
        if manifest.exists() {
            builder = builder.manifest(&manifest).unwrap();
        }
        Self::start(builder, folder)
            .await
            .with_sources_listed()
            .await
    }

    async fn start(builder: AppBuilder, folder: TempDir) -> Self {
        let ledger = format!("sqlite://{}", folder.path().join("test.db").display());
        let app = builder.ledger(ledger).build().await.unwrap();
        Self {
            router: app.router(),
            app,
            folder,
        }
    }

    /// Sends a request as it is.
    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.respond(request).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }

    /// The headers of an answer.
    pub(crate) async fn headers(&self, path: &str) -> HeaderMap {
        self.router
            .clone()
            .oneshot(request("GET", path, None, None))
            .await
            .unwrap()
            .headers()
            .clone()
    }

    /// The same, with headers and an unread body.
    pub(crate) async fn respond(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// The samples of `GET /metrics` whose names begin so, as `name{labels} value`.
    pub(crate) async fn samples(&self, name: &str) -> Vec<String> {
        let response = self.respond(request("GET", "/metrics", None, None)).await;
        assert_eq!(response.status(), StatusCode::OK);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        text.lines()
            .filter(|line| line.starts_with(name))
            .map(str::to_owned)
            .collect()
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(request("GET", path, None, None)).await
    }

    pub(crate) async fn get_as(&self, key: &str, path: &str) -> Reply {
        self.send(request("GET", path, Some(key), None)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(request("POST", path, None, Some(body))).await
    }

    pub(crate) async fn post_as(&self, key: &str, path: &str, body: Value) -> Reply {
        self.send(request("POST", path, Some(key), Some(body)))
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Reply {
        self.send(request("PUT", path, None, Some(body))).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(request("DELETE", path, None, None)).await
    }

    pub(crate) async fn delete_as(&self, key: &str, path: &str) -> Reply {
        self.send(request("DELETE", path, Some(key), None)).await
    }

    /// Calls a tool.
    pub(crate) async fn invoke(&self, tool: &str, arguments: Value) -> Reply {
        self.post(
            &format!("/tools/{tool}/invoke"),
            json!({"arguments": arguments}),
        )
        .await
    }

    /// The newest call of the ledger, with its result.
    pub(crate) async fn newest_invocation(&self) -> Value {
        let (_, page) = self.get("/invocations?limit=1").await;
        let id = page["invocations"][0]["invocation_id"]
            .as_str()
            .unwrap()
            .to_owned();
        self.get(&format!("/invocations/{id}")).await.1
    }

    /// Waits, by asking, until there is a call that matches.
    pub(crate) async fn wait_for_newest_with(&self, query: &str) -> Value {
        for _ in 0..2000 {
            let (_, page) = self.get(&format!("/invocations?{query}")).await;
            if let Some(newest) = page["invocations"]
                .as_array()
                .and_then(|calls| calls.first())
            {
                return newest.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        panic!("no call ever was {query}");
    }

    /// Waits, by asking, until the newest call is in this state.
    pub(crate) async fn wait_for_newest_state(&self, state: &str) -> Value {
        for _ in 0..2000 {
            let newest = self.newest_invocation().await;
            if newest["state"] == state {
                return newest;
            }
            tokio::task::yield_now().await;
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        panic!(
            "the newest call never became {state}: {}",
            self.newest_invocation().await
        );
    }
}

/// A request as a client would send it.
pub(crate) fn request(
    method: &str,
    path: &str,
    key: Option<&str>,
    body: Option<Value>,
) -> Request<Body> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost");
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    match body {
        Some(body) => request
            .header("content-type", "application/json")
            .body(Body::from(body.to_string())),
        None => request.body(Body::empty()),
    }
    .unwrap()
}

/// The text of an answer's or a problem's first block.
pub(crate) fn first_text(reply: &Reply) -> &str {
    reply.1["content"][0]["text"].as_str().unwrap_or_default()
}
