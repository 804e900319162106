//! The handlers of `/mcp`: the work before rmcp gets a request, and on the answer after that.

use std::future::Future;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use rmcp::model::InitializeRequestParams;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;
use tower_http::request_id::RequestId;

use super::message::{self, Message};
use super::sessions::{Refused, Session};
use super::streams::turned_away;
use super::{MODERN, McpService, SESSION, VERSION, stateless};
use crate::call::Caller;
use crate::http::auth::Authenticated;
use crate::http::documented::JsonRpcError;
use crate::http::problem::{ApiError, Problem};
use crate::http::responses::{Always, Keyed, Reading, Sitting};
use crate::http::state::AppState;
use crate::http::{body, request_id};
use crate::mcp::McpPeer;
use crate::registry::Registry;

/// The session id in the headers, if there is one.
fn named(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION).map(|id| id.to_str().unwrap_or_default())
}

/// The method whose answer is a stream without end (2026-07-28).
const LISTEN: &str = "subscriptions/listen";

fn is_modern(headers: &HeaderMap) -> bool {
    headers.get(VERSION).is_some_and(|version| version == MODERN)
}

/// Whether a request opens the listening stream of a session.
///
/// It must be a GET that accepts events. axum passes HEAD requests to this handler too, but rmcp refuses them.
fn listens(parts: &Parts) -> bool {
    let accepts = |value: &HeaderValue| {
        let value = value.to_str().unwrap_or_default().to_ascii_lowercase();
        value.contains("text/event-stream")
    };
    parts.method == Method::GET && parts.headers.get_all(ACCEPT).iter().any(accepts)
}

/// The name of a header that occurs more than once but must not.
fn doubled(headers: &HeaderMap) -> Option<&'static str> {
    [VERSION, SESSION].into_iter().find(|name| headers.get_all(*name).iter().count() > 1)
}

/// Whether an `initialize` can be read. Otherwise rmcp would report that the session is missing.
fn begins(message: &Message) -> bool {
    message.fields.get("params").is_some_and(|params| InitializeRequestParams::deserialize(params).is_ok())
}

/// Speak MCP.
///
/// Streamable HTTP, versions 2026-07-28 (stateless) and 2025-11-25, 2025-06-18 and 2025-03-26 (sessions). The body is
/// one JSON-RPC message, the answer is JSON or a stream of events. The tools are those of `GET /tools`, and a call
/// works like `POST /tools/{name}/invoke`. The fields that this route takes beside `arguments` are keys of `_meta`,
/// such as `toolcrib/idempotencyKey`.
#[utoipa::path(post, operation_id = "mcp_message", path = "/mcp", tag = "mcp",
    request_body(content = HashMap<String, Value>, description = "A JSON-RPC message of MCP"),
    params(
        ("mcp-session-id" = Option<String>, Header, description = "The session, until 2025-11-25; `initialize` begins one."),
        ("mcp-protocol-version" = Option<String>, Header, description = "The version, since 2025-06-18.")),
    responses(Always, Keyed, Reading, Sitting,
    (status = 200, description = "The answer", content((Value = "application/json"), (String = "text/event-stream"))),
    (status = 202, description = "A notification was taken"),
    (status = 400, description = "No message of MCP, or not in this session or version; as a problem when the body broke off.",
        content((JsonRpcError = "application/json"), (Problem = "application/problem+json"))),
    (status = 403, description = "A Host, an Origin or a page of another site that is not answered; without sessions: a tool that is not for this caller",
        content((JsonRpcError = "application/json"), (Problem = "application/problem+json"))),
    (status = 404, description = "No such session; without sessions: no such method", body = JsonRpcError, content_type = "application/json"),
    (status = 406, description = "The client must accept application/json and text/event-stream", body = JsonRpcError, content_type = "application/json"),
    (status = 409, description = "Without sessions: idempotency_in_progress", body = JsonRpcError, content_type = "application/json"),
    (status = 422, description = "Without sessions: idempotency_mismatch", body = JsonRpcError, content_type = "application/json"),
    (status = 500, description = "A fault of the service", content((JsonRpcError = "application/json"), (Problem = "application/problem+json")))))]
pub(in crate::http) async fn post(
    State(AppState { mcp: face, registry, max_body, memory, .. }): State<AppState>,
    Authenticated { caller, catalog }: Authenticated,
    request_id: Option<Extension<RequestId>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let body = body::json(&parts.headers, body, max_body).await?;
    // Twice, because rmcp parses the body again.
    let reserved = memory.reserve_json(&body, 2).await?;
    let text = body.clone();
    let message = match reserved.read(move || Ok(Message::read(&text))).await? {
        Ok(message) => message,
        Err(wrong) => return Ok(wrong.into_response()),
    };
    if let Some(header) = doubled(&parts.headers) {
        return Ok(message::doubled(header, message.id));
    }
    let mut guest = McpPeer {
        caller,
        request_id: request_id.and_then(|id| Some(id.header_value().to_str().ok()?.into())),
        trace: request_id::trace(&parts.headers),
        leaves_by_stream: true,
        held: Some(Arc::new(reserved.clone())),
        ..McpPeer::operator()
    };
    let call = stateless::Call::of(&parts.headers, message, &face.handler, &catalog, &guest.caller);
    let message = match call {
        Ok(call) => return Ok(call.answer(&registry, catalog, &guest).await),
        Err(message) => message,
    };
    // The rest may take long, and must not keep an old catalog alive.
    drop(catalog);
    let opens = message.method() == Some("initialize");
    if is_modern(&parts.headers) && !opens {
        parts.headers.remove(SESSION);
    }
    let Some(id) = named(&parts.headers) else {
        return match message.method() {
            Some("initialize") if !is_modern(&parts.headers) && !begins(&message) => {
                Ok(message::no_initialize(message.id))
            }
            Some("initialize") => {
                guest.leaves_by_stream = false;
                open(face, parts, body, guest).await
            }
            Some(LISTEN) => {
                let place = face.streams.place(&guest.caller)?;
                let end = end(&face, registry, &parts.headers, &guest.caller);
                let response = face.ask(parts, body, guest).await;
                Ok(until(end, place, response))
            }
            _ => {
                // rmcp parses the body itself, so free our copy.
                drop(message);
                Ok(face.ask(parts, body, guest).await)
            }
        };
    };
    guest.leaves_by_stream = false;
    let Some(session) = face.sessions.get(id, &guest.caller) else { return Ok(message::no_session(message.id)) };
    let begun = match &message.id {
        Some(id) if message.method().is_some() => session.begin(id),
        _ => session.visit(),
    };
    let held = match begun {
        Ok(held) => held,
        Err(refused) => return Ok(refusal(refused, message.id)),
    };
    (guest.left, guest.told) = (session.left().clone(), session.told().clone());
    guest.held = Some(Arc::new((held, reserved)));
    let Message { id, fields } = message;
    drop(fields);
    Ok(in_session(&face, &session, id, face.ask(parts, body, guest)).await)
}

/// Listen to the server's notifications.
///
/// The stream of a session (until 2025-11-25): `notifications/tools/list_changed`. Since 2026-07-28, clients post
/// `subscriptions/listen` instead.
#[utoipa::path(get, operation_id = "mcp_stream", path = "/mcp", tag = "mcp",
    params(("mcp-session-id" = String, Header, description = "The session")),
    responses(Always, Keyed, Sitting,
    (status = 200, description = "The stream", body = String, content_type = "text/event-stream"),
    (status = 400, description = "No session is named", body = JsonRpcError, content_type = "application/json"),
    (status = 404, description = "There is no such session", body = JsonRpcError, content_type = "application/json"),
    (status = 405, description = "Since 2026-07-28 there is no such stream", body = JsonRpcError, content_type = "application/json"),
    (status = 406, description = "The client must accept text/event-stream", body = JsonRpcError, content_type = "application/json"),
    (status = 500, description = "A fault of the service", content((JsonRpcError = "application/json"), (Problem = "application/problem+json")))))]
pub(in crate::http) async fn get(
    State(AppState { mcp: face, registry, .. }): State<AppState>,
    Authenticated { caller, .. }: Authenticated,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    if let Some(header) = doubled(&parts.headers) {
        return Ok(message::doubled(header, None));
    }
    let guest = McpPeer { caller, ..McpPeer::operator() };
    let id = named(&parts.headers).filter(|_| !is_modern(&parts.headers));
    let Some(id) = id else { return Ok(face.ask(parts, Bytes::new(), guest).await) };
    let Some(session) = face.sessions.get(id, &guest.caller) else { return Ok(message::no_session(None)) };
    let listens = match listens(&parts) {
        true => Some(face.sessions.listen(&session, &face.streams, &guest.caller).await?),
        false => None,
    };
    let end = end(&face, registry, &parts.headers, &guest.caller);
    let response = in_session(&face, &session, None, face.ask(parts, Bytes::new(), guest)).await;
    let place = listens.map(|listens| listens.place.clone());
    Ok(until(end, place, response))
}

/// End a session.
///
/// The `on_disconnect` of each tool decides whether its calls under way continue or end.
#[utoipa::path(delete, operation_id = "end_mcp_session", path = "/mcp", tag = "mcp",
    params(("mcp-session-id" = String, Header, description = "The session")),
    responses(Always, Keyed, Sitting,
    (status = 204, description = "It has ended"),
    (status = 400, description = "No session is named", body = JsonRpcError, content_type = "application/json"),
    (status = 404, description = "There is no such session", body = JsonRpcError, content_type = "application/json"),
    (status = 405, description = "Since 2026-07-28 there are no sessions", body = JsonRpcError, content_type = "application/json"),
    (status = 500, description = "A fault of the service", content((JsonRpcError = "application/json"), (Problem = "application/problem+json")))))]
pub(in crate::http) async fn delete(
    State(AppState { mcp: face, .. }): State<AppState>,
    Authenticated { caller, .. }: Authenticated,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    if let Some(header) = doubled(&parts.headers) {
        return message::doubled(header, None);
    }
    let id = named(&parts.headers).filter(|_| !is_modern(&parts.headers));
    let Some(id) = id else {
        let guest = McpPeer { caller, ..McpPeer::operator() };
        return face.ask(parts, Bytes::new(), guest).await;
    };
    match face.sessions.get(id, &caller) {
        Some(session) if face.sessions.end(&session) => StatusCode::NO_CONTENT.into_response(),
        _ => message::no_session(None),
    }
}

/// Opens a session, in a task of its own.
///
/// If the client disconnects, the handler's future is dropped. That could happen after rmcp has made the session and
/// before our table has it. Nothing would ever end such a session. The task completes in any case. If its answer can no
/// longer be sent, it ends the new session.
async fn open(face: McpService, parts: Parts, body: Bytes, guest: McpPeer) -> Result<Response, ApiError> {
    let place = face.sessions.place(&guest.caller)?;
    let (opened, answer) = oneshot::channel();
    tokio::spawn(async move {
        let response = face.ask(parts, body, guest).await;
        let session = named(response.headers()).map(|id| place.take(id));
        if let (Err(_), Some(session)) = (opened.send(response), session) {
            // The client has disconnected and never learns the session's id.
            face.sessions.end(&session);
        }
    });
    answer.await.map_err(|_| ApiError::Internal)
}

/// Answers a request inside a session. A stream in the answer counts as a use of the session, and ends with the
/// session.
async fn in_session(
    face: &McpService,
    session: &Session,
    id: Option<Value>,
    asked: impl Future<Output = Response>,
) -> Response {
    let visit = match session.visit() {
        Ok(visit) => visit,
        Err(refused) => return refusal(refused, id),
    };
    let response = match session.answer(asked).await {
        Ok(response) => response,
        Err(refused) => return refusal(refused, id),
    };
    let failed = response.status() == StatusCode::NOT_FOUND || response.status().is_server_error();
    if failed && face.sessions.end_if_lost(session).await {
        return message::no_session(id);
    }
    until(session.left().clone().cancelled_owned(), visit, response)
}

fn refusal(refused: Refused, id: Option<Value>) -> Response {
    match refused {
        Refused::Gone => message::no_session(id),
        Refused::IdInUse => message::id_in_use(&id.unwrap_or_default()),
    }
}

/// Returns when a stream without a call must end: at shutdown, or when the caller's key is revoked.
fn end(
    face: &McpService,
    registry: Arc<Registry>,
    headers: &HeaderMap,
    caller: &Arc<Caller>,
) -> impl Future<Output = ()> + Send + 'static {
    let (ending, headers, caller) = (face.ending.clone(), headers.clone(), caller.clone());
    async move {
        tokio::select! {
            () = ending.cancelled() => {}
            () = turned_away(registry, headers, caller) => {}
        }
    }
}

/// Cuts off the response's stream when `end` returns, and keeps `held` alive until the stream ends. A response without
/// a stream is unchanged.
fn until(end: impl Future<Output = ()> + Send + 'static, held: impl Send + 'static, response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != "text/event-stream") {
        return response;
    }
    response.map(|body| {
        let frames = body.into_data_stream().inspect(move |_| {
            let _ = &held;
        });
        Body::from_stream(frames.take_until(Box::pin(end)))
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Waker};

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::App;

    /// A unit test, because rmcp's table cannot be seen from outside.
    #[tokio::test]
    async fn whoever_leaves_while_a_session_opens_leaves_none_behind() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = format!("sqlite://{}", folder.path().join("test.db").display());
        let app = App::builder().ledger(ledger).build().await.unwrap();
        let face = McpService::new(app.registry().clone(), 1 << 20, &CancellationToken::new());
        let manager = face.sessions.manager();
        let body = r#"{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
            "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}"#;
        let ask = || {
            let request = Request::post("/mcp").header("host", "localhost").header("content-type", "application/json");
            let request = request.header("accept", "application/json, text/event-stream");
            let (parts, ()) = request.body(()).unwrap().into_parts();
            Box::pin(open(face.clone(), parts, Bytes::from(body), McpPeer::operator()))
        };
        for polls in 1..20 {
            let mut asked = ask();
            for poll in 0..polls {
                if poll > 0 {
                    tokio::task::yield_now().await;
                }
                if asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
            }
        }
        let kept = ask().await.unwrap();
        assert_eq!(kept.status(), StatusCode::OK);
        while manager.0.sessions.read().await.len() != face.sessions.len() {
            tokio::task::yield_now().await;
        }
        assert!(face.sessions.len() < 20);
    }
}
