//! An MCP client over HTTP, as plain as can be.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{TestApp, request};

/// The version without sessions.
pub(crate) const STATELESS_VERSION: &str = "2026-07-28";

/// The `_meta` of a request of [`STATELESS_VERSION`].
pub(crate) fn client_meta() -> Value {
    json!({"io.modelcontextprotocol/protocolVersion": STATELESS_VERSION, "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}})
}

/// One object with the fields of both.
pub(crate) fn merge(mut object: Value, other: Value) -> Value {
    object
        .as_object_mut()
        .unwrap()
        .extend(other.as_object().unwrap().clone());
    object
}

pub(crate) fn rpc_message(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// A request as any client of streamable HTTP sends it.
pub(crate) fn mcp_request(
    body: &Value,
    key: Option<&str>,
    headers: &[(&str, &str)],
) -> Request<Body> {
    let mut request = request("POST", "/mcp", key, Some(body.clone()));
    let all = [("accept", "application/json, text/event-stream")];
    for (name, value) in all.iter().chain(headers) {
        request.headers_mut().append(
            name.parse::<axum::http::HeaderName>().unwrap(),
            value.parse().unwrap(),
        );
    }
    request
}

/// A request of [`STATELESS_VERSION`] with all that belongs to it; `_meta` in `params` is added to.
pub(crate) fn modern_request(method: &str, params: Value, key: Option<&str>) -> Request<Body> {
    let meta = merge(
        client_meta(),
        params.get("_meta").cloned().unwrap_or_else(|| json!({})),
    );
    let params = merge(params, json!({"_meta": meta}));
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let mut headers = vec![
        ("mcp-protocol-version", STATELESS_VERSION),
        ("mcp-method", method),
    ];
    if method == "tools/call" {
        headers.push(("mcp-name", &name));
    }
    mcp_request(&rpc_message(method, params), key, &headers)
}

/// The messages of an answer, be it JSON or a stream that ends.
pub(crate) async fn messages(response: Response) -> (StatusCode, Vec<Value>) {
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let data = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(str::trim)
        .filter(|data| !data.is_empty());
    let messages: Vec<Value> = data
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    match serde_json::from_str(&text) {
        Ok(message) => (status, vec![message]),
        Err(_) => (status, messages),
    }
}

/// The one message of an answer, or the last.
pub(crate) async fn last_message(response: Response) -> (StatusCode, Value) {
    let (status, mut messages) = messages(response).await;
    (status, messages.pop().unwrap_or_default())
}

impl TestApp {
    /// What is answered to a request of [`STATELESS_VERSION`].
    pub(crate) async fn mcp(&self, method: &str, params: Value) -> (StatusCode, Value) {
        last_message(self.respond(modern_request(method, params, None)).await).await
    }

    /// The result of a call, the request being in order.
    pub(crate) async fn mcp_call(&self, name: &str, arguments: Value, meta: Value) -> Value {
        let params = json!({"name": name, "arguments": arguments, "_meta": meta});
        let (status, mut answer) = self.mcp("tools/call", params).await;
        assert_eq!(status, 200, "{answer}");
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].take()
    }

    /// Opens a session in that version.
    pub(crate) async fn session(&self, version: &str, key: Option<&str>) -> Session<'_> {
        self.session_of(version, key, json!({})).await
    }

    /// Opens a session of a client with these capabilities.
    pub(crate) async fn session_of(
        &self,
        version: &str,
        key: Option<&str>,
        capabilities: Value,
    ) -> Session<'_> {
        let client = json!({"name": "test", "version": "1"});
        let params =
            json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": client});
        let response = self
            .respond(mcp_request(&rpc_message("initialize", params), key, &[]))
            .await;
        let id = response.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let (status, opened) = last_message(response).await;
        assert_eq!(
            (status.as_u16(), &opened["result"]["protocolVersion"]),
            (200, &json!(version)),
            "{opened}"
        );
        let session = Session {
            app: self,
            id,
            version: version.into(),
            key: key.map(str::to_owned),
            server: opened["result"].clone(),
        };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(&initialized).await.status(), 202);
        session
    }
}

/// A session.
pub(crate) struct Session<'a> {
    app: &'a TestApp,
    pub(crate) id: String,
    version: String,
    key: Option<String>,
    /// The server's answer to `initialize`.
    pub(crate) server: Value,
}

impl Session<'_> {
    fn headers(&self) -> [(&str, &str); 2] {
        [
            ("mcp-session-id", &self.id),
            ("mcp-protocol-version", &self.version),
        ]
    }

    pub(crate) fn request(&self, body: &Value) -> Request<Body> {
        mcp_request(body, self.key.as_deref(), &self.headers())
    }

    pub(crate) async fn post(&self, body: &Value) -> Response {
        self.app.respond(self.request(body)).await
    }

    pub(crate) async fn result_of(&self, method: &str, params: Value) -> Value {
        last_message(self.post(&rpc_message(method, params)).await)
            .await
            .1
    }

    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Value {
        self.result_of("tools/call", json!({"name": name, "arguments": arguments}))
            .await["result"]
            .take()
    }

    /// Anything but a message: GET opens the stream, DELETE ends it.
    pub(crate) async fn send(&self, method: &str) -> Response {
        let mut request = request(method, "/mcp", self.key.as_deref(), None);
        for (name, value) in self
            .headers()
            .into_iter()
            .chain([("accept", "text/event-stream")])
        {
            request.headers_mut().append(
                name.parse::<axum::http::HeaderName>().unwrap(),
                value.parse().unwrap(),
            );
        }
        self.app.respond(request).await
    }
}

/// The next message of an open stream; `None` at its end.
pub(crate) async fn next_message(body: &mut Body) -> Option<Value> {
    loop {
        let frame = body.frame().await?.unwrap();
        let text = std::str::from_utf8(frame.data_ref().unwrap())
            .unwrap()
            .to_owned();
        let data = text
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(str::trim)
            .find(|data| !data.is_empty());
        if let Some(data) = data {
            return Some(serde_json::from_str(data).unwrap());
        }
    }
}
