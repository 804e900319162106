//! The handlers of `/mcp`: the work before rmcp gets a request, and on the answer after that.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::header::ACCEPT;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, StreamExt};
use rmcp::model::InitializeRequestParams;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;
use tower_http::request_id::RequestId;
use utoipa::IntoParams;

use super::accepted::{self, accepts};
use super::listen::ToolListSubscription;
use super::message::{self, Message};
use super::sessions::{Session, UseError};
use super::streams::stream_end;
use super::{
    LISTEN_METHOD, McpService, SESSION_HEADER, STATELESS_VERSION, VERSION_HEADER, stateless,
};
use crate::call::Selection;
use crate::call::json::Mended;
use crate::catalog::registry::Registry;
use crate::http::edge::auth::Authenticated;
use crate::http::edge::memory::Reservation;
use crate::http::edge::{body, request_id};
use crate::http::headers::call_headers;
use crate::http::openapi::documented::JsonRpcError;
use crate::http::openapi::responses::{
    AuthResponses, BodyResponses, CommonResponses, McpSessionResponses,
};
use crate::http::problem::{ApiError, Problem};
use crate::http::query::QueryParams;
use crate::http::state::AppState;
use crate::mcp::McpPeer;
use crate::telemetry::McpSpan;

/// The session id in the headers, if there is one.
fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(SESSION_HEADER)
        .map(|id| id.to_str().unwrap_or_default())
}

fn is_modern(headers: &HeaderMap) -> bool {
    headers
        .get(VERSION_HEADER)
        .is_some_and(|version| version == STATELESS_VERSION)
}

/// Whether a request opens the listening stream of a session.
///
/// It must be a GET that accepts events. axum passes HEAD requests to this handler too, but rmcp
/// refuses them.
fn opens_stream(parts: &Parts) -> bool {
    parts.method == Method::GET && accepts(&parts.headers, accepted::EVENTS)
}

/// Whether the client is a browser that shows pages.
fn wants_page(headers: &HeaderMap) -> bool {
    let types = headers.get(ACCEPT).map(HeaderValue::as_bytes);
    types.is_some_and(|types| types.starts_with(b"text/html"))
}

/// The name of a header that occurs more than once but must not.
fn find_duplicate_header(headers: &HeaderMap) -> Option<&'static str> {
    [VERSION_HEADER, SESSION_HEADER]
        .into_iter()
        .find(|name| headers.get_all(*name).iter().count() > 1)
}

/// Whether an `initialize` can be read. Otherwise rmcp would report that the session is missing.
fn is_valid_initialize(message: &Message) -> bool {
    message
        .fields
        .get("params")
        .is_some_and(|params| InitializeRequestParams::deserialize(params).is_ok())
}

/// The query of `/mcp`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct McpQuery {
    /// Only the tools with this tag.
    tag: Option<String>,
}

/// The part of the tools that a request names in its query or path.
pub(in crate::http) struct Selected(Selection);

impl FromRequestParts<AppState> for Selected {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let Authenticated { caller, catalog } =
            Authenticated::from_request_parts(parts, state).await?;
        let QueryParams(McpQuery { tag }) = QueryParams::from_request_parts(parts, state).await?;
        let in_path = Option::<Path<String>>::from_request_parts(parts, state).await;
        let in_path = in_path.ok().flatten().map(|Path(name)| name);
        let selection = Selection::new(tag, in_path);
        let checked = catalog.check_selection(&caller, &selection);
        checked.map_err(ApiError::NotFound)?;
        Ok(Self(selection))
    }
}

/// Speak MCP.
///
/// Streamable HTTP, versions 2026-07-28 (stateless) and 2025-11-25, 2025-06-18 and 2025-03-26
/// (sessions). The body is one JSON-RPC message, the answer is JSON or a stream of events. The
/// tools are those of `GET /tools`, and a call works like `POST /tools/{name}/invoke`. The fields
/// that this route takes beside `arguments` are keys of `_meta`, such as `toolcrib/idempotencyKey`.
/// `/mcp/NAME` is the same server with the tools of one toolset.
#[utoipa::path(post, operation_id = "mcp_message", path = "/mcp", tag = "mcp",
    request_body(content = HashMap<String, Value>, description = "A JSON-RPC message of MCP"),
    params(
        ("mcp-session-id" = Option<String>, Header, description = "The session, until 2025-11-25; `initialize` starts one."),
        ("mcp-protocol-version" = Option<String>, Header, description = "The version, since 2025-06-18."),
        call_headers::RunIdHeader, McpQuery),
    responses(CommonResponses, AuthResponses, BodyResponses, McpSessionResponses,
    (status = 200, description = "The answer", content((Value = "application/json"), (Value = "text/event-stream"))),
    (status = 202, description = "The notification was accepted"),
    (status = 400, description = "Not a message of MCP, or not valid in this session or version; a problem if the body ended early.",
        content((JsonRpcError = "application/json"), (Problem = "application/problem+json"))),
    (status = 403, description = "The Host, the Origin or the other site is not allowed; without sessions: the caller may not use the tool",
        content((JsonRpcError = "application/json"), (Problem = "application/problem+json"))),
    (status = 404, description = "No such session; without sessions: no such method", body = JsonRpcError, content_type = "application/json"),
    (status = 406, description = "The client must accept application/json, or text/event-stream too for subscriptions", body = JsonRpcError, content_type = "application/json"),
    (status = 409, description = "Without sessions: idempotency_in_progress", body = JsonRpcError, content_type = "application/json"),
    (status = 422, description = "Without sessions: idempotency_mismatch", body = JsonRpcError, content_type = "application/json"),
    (status = 500, description = "Internal error", content((JsonRpcError = "application/json"), (Problem = "application/problem+json")))))]
pub(in crate::http) async fn post(
    State(state): State<AppState>,
    authenticated: Authenticated,
    request_id: Option<Extension<RequestId>>,
    Selected(selection): Selected,
    request: Request,
) -> Result<Response, ApiError> {
    let peer = (selection, false);
    answer_post(state, authenticated, request_id, request, peer).await
}

/// Answers one message about the tools of a selection. The flag is set for a client of MCP Toolbox.
pub(super) async fn answer_post(
    state: AppState,
    Authenticated { caller, catalog }: Authenticated,
    request_id: Option<Extension<RequestId>>,
    request: Request,
    (selection, is_toolbox): (Selection, bool),
) -> Result<Response, ApiError> {
    let service = &state.mcp;
    let (mut parts, body) = request.into_parts();
    let body = body::read_json_body(&parts.headers, body, state.max_body).await?;
    // Twice, because rmcp parses the body again.
    let reserved = state.memory.reserve_json(&body, 2).await?;
    let parse = move || {
        let mended = match Mended::of_document(&body).text {
            Cow::Borrowed(text) => body.slice_ref(text),
            Cow::Owned(text) => text.into(),
        };
        Ok((Message::parse(&mended), mended))
    };
    let (parsed, body) = reserved.parse_with(parse).await?;
    let message = match parsed {
        Ok(message) => message,
        Err(error) => return Ok(error.into_response()),
    };
    if let Some(header) = find_duplicate_header(&parts.headers) {
        return Ok(message::duplicate_header(header, message.id));
    }
    let takes_streams = accepts(&parts.headers, accepted::EVENTS);
    // A stream without end has no other form.
    if accepts(&parts.headers, accepted::JSON)
        && (takes_streams || message.method() != Some(LISTEN_METHOD))
    {
        parts.headers.insert(ACCEPT, accepted::BOTH_TYPES);
    }
    let peer = McpPeer {
        caller,
        request_id: request_id.and_then(|id| Some(id.header_value().to_str().ok()?.into())),
        trace: request_id::trace_from_headers(&parts.headers),
        run_id: call_headers::run_id_from_headers(&parts.headers)?.map(Into::into),
        stream_end_disconnects: true,
        keep_alive: Some(Arc::new(reserved.clone())),
        protocol_version: header_text(&parts.headers, VERSION_HEADER),
        transport: "tcp",
        selection,
        is_toolbox,
        ..McpPeer::operator()
    };
    let call = stateless::StatelessCall::from_message(
        &parts.headers,
        message,
        &service.handler,
        &catalog,
        &peer.caller,
    );
    let message = match call {
        Ok(call) => return Ok(call.run(&state.registry, catalog, &peer).await),
        Err(message) => message,
    };
    // The rest may take long, and must not keep an old catalog alive.
    drop(catalog);
    let span = start_span(&state.registry, &message, &peer);
    let answer = answer_message(&state, message, (parts, body), peer, reserved).await;
    if let Some(span) = span {
        span.end(error_type(&answer));
    }
    match takes_streams {
        true => answer,
        false => Ok(accepted::to_one_body(answer?).await),
    }
}

/// The methods whose requests get a span. A call has the span of its tool, and listening has no
/// end.
const TRACED_METHODS: [&str; 4] = ["initialize", "ping", "server/discover", "tools/list"];

fn start_span(registry: &Registry, message: &Message, peer: &McpPeer) -> Option<McpSpan> {
    let telemetry = registry.shared().telemetry.as_ref()?;
    let (id, method) = (message.id.as_ref()?, message.method()?);
    if !TRACED_METHODS.contains(&method) {
        return None;
    }
    let request = peer.describe_request(Some(message::id_text(id)));
    telemetry.start_mcp_span(
        method,
        request,
        message.trace().or_else(|| peer.trace.clone()),
    )
}

/// The status of a request that failed.
fn error_type(answer: &Result<Response, ApiError>) -> Option<String> {
    match answer {
        Ok(response) => {
            let status = response.status();
            (status.is_client_error() || status.is_server_error())
                .then(|| status.as_u16().to_string())
        }
        Err(_) => Some("_OTHER".to_owned()),
    }
}

fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Answers a message that rmcp gets.
async fn answer_message(
    state: &AppState,
    message: Message,
    (mut parts, body): (Parts, Bytes),
    mut peer: McpPeer,
    reserved: Reservation,
) -> Result<Response, ApiError> {
    let service = &state.mcp;
    let is_initialize = message.method() == Some("initialize");
    if is_modern(&parts.headers) && !is_initialize {
        parts.headers.remove(SESSION_HEADER);
    }
    let Some(id) = session_id(&parts.headers) else {
        return match message.method() {
            Some("initialize") if !is_modern(&parts.headers) && !is_valid_initialize(&message) => {
                Ok(message::invalid_initialize(message.id))
            }
            Some("initialize") if !peer.is_toolbox => {
                peer.stream_end_disconnects = false;
                open_session(service.clone(), parts, body, peer).await
            }
            Some(LISTEN_METHOD) => {
                let slot = service.streams.reserve_slot(&peer.caller)?;
                let end = stream_end(
                    state.shutdown.clone(),
                    state.registry.clone(),
                    &parts.headers,
                    peer.caller.clone(),
                );
                if !peer.is_toolbox
                    && let Some(plain) = ToolListSubscription::read(&parts.headers, &message)
                {
                    let snapshot = service.handler.list_snapshot(&peer);
                    return Ok(plain.stream(snapshot, end, slot));
                }
                let response = service.forward_to_rmcp(parts, body, peer).await;
                Ok(stream_until(end, slot, response))
            }
            _ => {
                // rmcp parses the body itself, so free our copy.
                drop(message);
                Ok(service.forward_to_rmcp(parts, body, peer).await)
            }
        };
    };
    peer.stream_end_disconnects = false;
    let Some(session) = service.sessions.get(id, &peer.caller) else {
        return Ok(message::session_not_found(message.id));
    };
    let session_use = match &message.id {
        Some(id) if message.method().is_some() => session.begin_request(id),
        _ => session.begin_use(),
    };
    let session_use = match session_use {
        Ok(session_use) => session_use,
        Err(refused) => return Ok(refusal_response(refused, message.id)),
    };
    peer.session_id = Some(id.into());
    (peer.session_ended, peer.notifies) = (session.ended.clone(), session.notifies.clone());
    peer.keep_alive = Some(Arc::new((session_use, reserved)));
    let Message { id, fields } = message;
    drop(fields);
    Ok(answer_in_session(
        service,
        &session,
        id,
        service.forward_to_rmcp(parts, body, peer),
    )
    .await)
}

/// Listen to the server's notifications.
///
/// The stream of a session (until 2025-11-25): `notifications/tools/list_changed`. Since
/// 2026-07-28, clients post `subscriptions/listen` instead.
#[utoipa::path(get, operation_id = "mcp_stream", path = "/mcp", tag = "mcp",
    params(("mcp-session-id" = String, Header, description = "The session"), McpQuery),
    responses(CommonResponses, AuthResponses, McpSessionResponses,
    (status = 200, description = "The stream", body = String, content_type = "text/event-stream"),
    (status = 400, description = "The header with the session is missing; a problem if a parameter is not known",
        content((JsonRpcError = "application/json"), (Problem = "application/problem+json"))),
    (status = 404, description = "There is no such session", body = JsonRpcError, content_type = "application/json"),
    (status = 405, description = "Since 2026-07-28 there is no such stream", body = JsonRpcError, content_type = "application/json"),
    (status = 406, description = "The client must accept text/event-stream", body = JsonRpcError, content_type = "application/json"),
    (status = 500, description = "Internal error", content((JsonRpcError = "application/json"), (Problem = "application/problem+json")))))]
pub(in crate::http) async fn get(
    State(state): State<AppState>,
    Authenticated { caller, .. }: Authenticated,
    Selected(selection): Selected,
    request: Request,
) -> Result<Response, ApiError> {
    let service = &state.mcp;
    let (mut parts, _) = request.into_parts();
    if let Some(header) = find_duplicate_header(&parts.headers) {
        return Ok(message::duplicate_header(header, None));
    }
    if wants_page(&parts.headers) {
        return Ok(message::not_a_page());
    }
    if accepts(&parts.headers, accepted::EVENTS) {
        parts.headers.insert(ACCEPT, accepted::BOTH_TYPES);
    }
    let peer = McpPeer {
        caller,
        selection,
        ..McpPeer::operator()
    };
    let id = session_id(&parts.headers).filter(|_| !is_modern(&parts.headers));
    let Some(id) = id else {
        return Ok(service.forward_to_rmcp(parts, Bytes::new(), peer).await);
    };
    let Some(session) = service.sessions.get(id, &peer.caller) else {
        return Ok(message::session_not_found(None));
    };
    let opening = match opens_stream(&parts) {
        true => Some(
            service
                .sessions
                .open_stream(&session, &service.streams, &peer.caller)
                .await?,
        ),
        false => None,
    };
    let end = stream_end(
        state.shutdown.clone(),
        state.registry.clone(),
        &parts.headers,
        peer.caller.clone(),
    );
    let response = answer_in_session(
        service,
        &session,
        None,
        service.forward_to_rmcp(parts, Bytes::new(), peer),
    )
    .await;
    let slot = opening.map(|opening| opening.slot.clone());
    Ok(stream_until(end, slot, response))
}

/// End a session.
///
/// The `on_disconnect` of each tool decides whether its calls in flight continue or end.
#[utoipa::path(delete, operation_id = "end_mcp_session", path = "/mcp", tag = "mcp",
    params(("mcp-session-id" = String, Header, description = "The session"), McpQuery),
    responses(CommonResponses, AuthResponses, McpSessionResponses,
    (status = 204, description = "The session has ended"),
    (status = 400, description = "The header with the session is missing; a problem if a parameter is not known",
        content((JsonRpcError = "application/json"), (Problem = "application/problem+json"))),
    (status = 404, description = "There is no such session", body = JsonRpcError, content_type = "application/json"),
    (status = 405, description = "Since 2026-07-28 there are no sessions", body = JsonRpcError, content_type = "application/json"),
    (status = 500, description = "Internal error", content((JsonRpcError = "application/json"), (Problem = "application/problem+json")))))]
pub(in crate::http) async fn delete(
    State(state): State<AppState>,
    Authenticated { caller, .. }: Authenticated,
    _: Selected,
    request: Request,
) -> Response {
    let service = &state.mcp;
    let (parts, _) = request.into_parts();
    if let Some(header) = find_duplicate_header(&parts.headers) {
        return message::duplicate_header(header, None);
    }
    let id = session_id(&parts.headers).filter(|_| !is_modern(&parts.headers));
    let Some(id) = id else {
        let peer = McpPeer {
            caller,
            ..McpPeer::operator()
        };
        return service.forward_to_rmcp(parts, Bytes::new(), peer).await;
    };
    match service.sessions.get(id, &caller) {
        Some(session) if service.sessions.end(&session) => StatusCode::NO_CONTENT.into_response(),
        _ => message::session_not_found(None),
    }
}

/// Opens a session, in a task of its own.
///
/// If the client disconnects, the handler's future is dropped. That could happen after rmcp has
/// made the session and before our table has it. Nothing would ever end such a session. The task
/// completes in any case. If its answer can no longer be sent, it ends the new session.
async fn open_session(
    service: McpService,
    parts: Parts,
    body: Bytes,
    peer: McpPeer,
) -> Result<Response, ApiError> {
    let slot = service.sessions.reserve_slot(&peer.caller)?;
    let (opened, answer) = oneshot::channel();
    let task = async move {
        let response = service.forward_to_rmcp(parts, body, peer).await;
        let session = session_id(response.headers()).map(|id| slot.create(id));
        if let (Err(_), Some(session)) = (opened.send(response), session) {
            // The client has disconnected and never learns the session's id.
            service.sessions.end(&session);
        }
    };
    tokio::spawn(task.boxed());
    answer.await.map_err(|_| ApiError::Internal)
}

/// Answers a request inside a session. A stream in the answer counts as a use of the session, and
/// ends with the session.
async fn answer_in_session(
    service: &McpService,
    session: &Session,
    id: Option<Value>,
    answer: impl Future<Output = Response>,
) -> Response {
    let session_use = match session.begin_use() {
        Ok(session_use) => session_use,
        Err(refused) => return refusal_response(refused, id),
    };
    let response = match session.run_until_ended(answer).await {
        Ok(response) => response,
        Err(refused) => return refusal_response(refused, id),
    };
    let failed = response.status() == StatusCode::NOT_FOUND || response.status().is_server_error();
    if failed && service.sessions.end_if_rmcp_closed(session).await {
        return message::session_not_found(id);
    }
    stream_until(
        session.ended.clone().cancelled_owned(),
        session_use,
        response,
    )
}

fn refusal_response(refused: UseError, id: Option<Value>) -> Response {
    match refused {
        UseError::Ended => message::session_not_found(id),
        UseError::IdInUse => message::id_in_use(id.unwrap_or_default()),
    }
}

/// Cuts off the response's stream when `end` returns, and keeps `kept_alive` until the stream ends.
/// A response without a stream is unchanged.
fn stream_until(
    end: impl Future<Output = ()> + Send + 'static,
    kept_alive: impl Send + 'static,
    response: Response,
) -> Response {
    if !accepted::is_stream(&response) {
        return response;
    }
    response.map(|body| {
        let frames = body.into_data_stream().inspect(move |_| {
            let _ = &kept_alive;
        });
        Body::from_stream(frames.take_until(Box::pin(end)))
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Waker};

    use super::*;
    use crate::App;
    use crate::manifest::ServerSettings;

    /// A unit test, because rmcp's table cannot be seen from outside.
    #[tokio::test]
    async fn disconnect_while_opening_leaves_no_session() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = format!("sqlite://{}", folder.path().join("test.db").display());
        let app = App::builder().ledger(ledger).build().await.unwrap();
        let service = McpService::new(app.registry().clone(), &ServerSettings::default());
        let manager = service.sessions.rmcp_manager();
        let body = r#"{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
            "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}"#;
        let open = || {
            let request = Request::post("/mcp")
                .header("host", "localhost")
                .header("content-type", "application/json");
            let request = request.header("accept", "application/json, text/event-stream");
            let (parts, ()) = request.body(()).unwrap().into_parts();
            Box::pin(open_session(
                service.clone(),
                parts,
                Bytes::from(body),
                McpPeer::operator(),
            ))
        };
        for polls in 1..20 {
            let mut opening = open();
            for poll in 0..polls {
                if poll > 0 {
                    tokio::task::yield_now().await;
                }
                if opening
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .is_ready()
                {
                    break;
                }
            }
        }
        let opened = open().await.unwrap();
        assert_eq!(opened.status(), StatusCode::OK);
        while manager.0.sessions.read().await.len() != service.sessions.len() {
            tokio::task::yield_now().await;
        }
        assert!(service.sessions.len() < 20);
    }
}
