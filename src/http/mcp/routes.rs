//! What is done with a request before rmcp has it, and with the answer after.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use tower_http::request_id::RequestId;

use super::message::{self, Message};
use super::sessions::Session;
use super::{Face, MODERN, SESSION, VERSION, plain};
use crate::http::auth::Visit;
use crate::http::problem::ApiError;
use crate::http::responses::{Always, Keyed, Reading, Sitting};
use crate::http::state::AppState;
use crate::http::{body, request_id};
use crate::mcp::Guest;

/// The session that a request names; without one, or in the version that has none, there is nothing to find.
fn named(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION).map(|id| id.to_str().unwrap_or_default())
}

/// The request whose answer is a stream that lasts (2026-07-28).
const LISTEN: &str = "subscriptions/listen";

fn is_modern(headers: &HeaderMap) -> bool {
    headers.get(VERSION).is_some_and(|version| version == MODERN)
}

/// The stream of a call that broke off, which ends with that call: rmcp's ids of such events have two parts.
fn takes_up_a_call(headers: &HeaderMap) -> bool {
    headers.get("last-event-id").is_some_and(|id| id.as_bytes().contains(&b'/'))
}

/// An answer with something that is given up at its end.
fn holding(response: Response, held: impl Send + 'static) -> Response {
    response.map(|body| {
        Body::from_stream(body.into_data_stream().inspect(move |_| {
            let _ = &held;
        }))
    })
}

/// Speak MCP.
///
/// Streamable HTTP, versions 2026-07-28 (stateless) and 2025-11-25, 2025-06-18 and 2025-03-26 (sessions): the body is one JSON-RPC
/// message, the answer JSON or a stream of events. Tools are those of `GET /tools`, and calls go the way of
/// `POST /tools/{name}/invoke`; what that takes beside `arguments` stands in `_meta`, e.g. `toolcrib/idempotencyKey`.
#[utoipa::path(post, operation_id = "mcp_message", path = "/mcp", tag = "mcp",
    request_body(content = HashMap<String, Value>, description = "A JSON-RPC message of MCP"),
    responses((status = 200, description = "The answer", content((Value = "application/json"), (String = "text/event-stream"))),
    (status = 202, description = "A notification was taken"), Always, Keyed, Reading, Sitting))]
pub(in crate::http) async fn post(
    State(AppState { mcp: face, registry, max_body, .. }): State<AppState>,
    Visit { caller, catalog }: Visit,
    request_id: Option<Extension<RequestId>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let body = body::json(&parts.headers, body, max_body).await?;
    let message = match Message::read(&body) {
        Ok(message) => message,
        Err(wrong) => return Ok(wrong.into_response()),
    };
    let mut guest = Guest {
        caller,
        request_id: request_id.and_then(|id| Some(id.header_value().to_str().ok()?.into())),
        trace: request_id::trace(&parts.headers),
        leaves_by_stream: true,
        ..Guest::operator()
    };
    let call = plain::Call::of(&parts.headers, message, &face.handler, &catalog, &guest.caller);
    let message = match call {
        Ok(call) => return Ok(call.answer(&registry, catalog, &guest).await),
        Err(message) => message,
    };
    // What follows may last.
    drop(catalog);
    let opens = message.method() == Some("initialize");
    if is_modern(&parts.headers) && !opens {
        parts.headers.remove(SESSION);
    }
    guest.leaves_by_stream = false;
    let Some(id) = named(&parts.headers) else {
        guest.leaves_by_stream = !opens;
        let place = if opens { Some(face.sessions.place(&guest.caller)?) } else { None };
        let listens = match message.method() {
            Some(LISTEN) => Some(face.streams.place(&guest.caller)?),
            _ => None,
        };
        let response = face.ask(parts, body, guest).await;
        if let (Some(id), Some(place)) = (named(response.headers()), place) {
            place.take(id);
        }
        return Ok(match listens {
            Some(place) => holding(response, place),
            None => response,
        });
    };
    let Some(session) = face.sessions.get(id, &guest.caller) else { return Ok(message::no_session(message.id)) };
    let held = match &message.id {
        Some(id) if message.method().is_some() => match session.begin(id) {
            Some(held) => held,
            None => return Ok(message::id_in_use(id)),
        },
        _ => session.visit(),
    };
    (guest.left, guest.told) = (session.left().clone(), session.told().clone());
    guest.held = Some(Arc::new(held));
    let response = face.ask(parts, body, guest).await;
    Ok(in_session(&face, session, response))
}

/// Listen to what the server says on its own.
///
/// The stream of a session (until 2025-11-25): `notifications/tools/list_changed`. Since 2026-07-28 `subscriptions/listen` is
/// posted instead.
#[utoipa::path(get, operation_id = "mcp_stream", path = "/mcp", tag = "mcp", responses(
    (status = 200, description = "The stream", body = String, content_type = "text/event-stream"), Always, Keyed, Sitting))]
pub(in crate::http) async fn get(
    State(AppState { mcp: face, .. }): State<AppState>,
    Visit { caller, .. }: Visit,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    let guest = Guest { caller, ..Guest::operator() };
    let id = named(&parts.headers).filter(|_| !is_modern(&parts.headers));
    let Some(id) = id else { return Ok(face.ask(parts, Bytes::new(), guest).await) };
    let Some(session) = face.sessions.get(id, &guest.caller) else { return Ok(message::no_session(None)) };
    let listens = match takes_up_a_call(&parts.headers) {
        true => None,
        false => Some(face.sessions.listen(&session, &face.streams, &guest.caller).await?),
    };
    let response = face.ask(parts, Bytes::new(), guest).await;
    let place = listens.map(|listens| listens.place.clone());
    Ok(in_session(&face, session.clone(), holding(response, place)))
}

/// End a session.
///
/// Calls under way go on or end as their tools' `on_disconnect` says.
#[utoipa::path(delete, operation_id = "end_mcp_session", path = "/mcp", tag = "mcp", responses(
    (status = 202, description = "It has ended"), Always, Keyed, Sitting))]
pub(in crate::http) async fn delete(
    State(AppState { mcp: face, .. }): State<AppState>,
    Visit { caller, .. }: Visit,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let id = named(&parts.headers).filter(|_| !is_modern(&parts.headers));
    let Some(id) = id else {
        let guest = Guest { caller, ..Guest::operator() };
        return face.ask(parts, Bytes::new(), guest).await;
    };
    match face.sessions.get(id, &caller) {
        Some(session) => face.sessions.end(&session),
        None => return message::no_session(None),
    }
    StatusCode::ACCEPTED.into_response()
}

/// An answer inside a session: its stream counts as use, and ends with it.
fn in_session(face: &Face, session: Arc<Session>, response: Response) -> Response {
    if response.status() == StatusCode::NOT_FOUND {
        // rmcp has ended it.
        face.sessions.end(&session);
        return response;
    }
    let left = session.left().clone();
    let response = holding(response, session.visit());
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(left.cancelled_owned())))
}
