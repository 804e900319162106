//! The handler of `POST /calls`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use tower_http::request_id::RequestId;

use super::answer::CallsAnswer;
use super::request::{CallsQuery, CallsRequest};
use super::resume;
use super::turn::Turn;
use crate::call::ProgressSink;
use crate::catalog::registry::Registry;
use crate::http::edge::auth::Authenticated;
use crate::http::edge::body::ModelMessage;
use crate::http::edge::request_id;
use crate::http::headers::call_headers;
use crate::http::json_response::json_response;
use crate::http::openapi::responses::{
    AuthResponses, BodyResponses, CommonResponses, LedgerResponses, LookupResponses,
};
use crate::http::problem::ApiError;
use crate::http::{events, query};

/// Run the tool calls of a model's message.
///
/// The body is the model's unchanged message: an OpenAI chat message or completion, OpenAI
/// Responses items, an Anthropic, Gemini or Bedrock Converse message, an MCP `tools/call`,
/// `{"tool_name": …, "arguments": {…}}`, or text (`text/plain`). It may be in an envelope:
/// `{"message": …, "run_id": …, "deny": […], "context": {…}}`. The calls run side by side. The
/// answer has the messages to append, in the same dialect. It is 200 whenever the message is valid.
/// With an `Idempotency-Key` each call gets a key of its own, made of that key and of the model's
/// id for the call.
///
/// A call that waits for approval has `state: waiting` in `results`, and its message tells the model
/// that it waits. `{"resume": [ID…], "dialect": D}` answers later, for the calls that have ended, one
/// user message in words. With `waiting: hold`, `messages` is empty and `waiting` has the ids of these
/// calls. Then `resume` with these ids answers all results of the message, once every call has ended.
///
/// With `Accept: text/event-stream` the answer is a stream. It has `progress` events of all calls,
/// and a `call_result` event with each call's answer or problem when the call ends. The last event
/// is the one `result` event with the whole answer.
#[utoipa::path(post, operation_id = "run_calls", path = "/calls", tag = "tools", params(CallsQuery, call_headers::IdempotencyHeader, call_headers::RunIdHeader),
    request_body(content = Value, content_type = "application/json",
        description = "The model's message, or an envelope around it. A text may also be sent as text/plain."),
    responses((status = 200, description = "The message is valid",
        content((CallsAnswer<'_> = "application/json"), (String = "text/event-stream")),
        headers(("idempotent-replayed" = bool, description = "True when all calls of the message are replayed."))),
    CommonResponses, AuthResponses, BodyResponses, LookupResponses, LedgerResponses))]
pub(in crate::http) async fn run_calls(
    State(registry): State<Arc<Registry>>,
    Authenticated { caller, catalog }: Authenticated,
    query::QueryParams(query): query::QueryParams<CallsQuery>,
    request_id: Option<axum::Extension<RequestId>>,
    headers: HeaderMap,
    ModelMessage(body, reserved): ModelMessage,
) -> Result<Response, ApiError> {
    let key = call_headers::key_from_headers(&headers)?;
    let trace = request_id::trace_from_headers(&headers);
    let request_id = request_id.and_then(|id| Some(id.header_value().to_str().ok()?.into()));
    let (tools, owner) = (catalog.clone(), caller.clone());
    let read = move || {
        let mut request = CallsRequest::from_parts(query, body)?;
        let message = match request.resume.is_empty() {
            true => Some(request.take_message(&tools, &owner)?),
            false => None,
        };
        Ok((message, request))
    };
    let run_id = call_headers::run_id_from_headers(&headers)?;
    let (message, mut request) = reserved.parse_with(read).await?;
    let Some(message) = message else {
        let (ids, dialect) = (&request.resume, request.dialect);
        let answer = resume::resume(&registry, &caller, ids, dialect).await?;
        return Ok(json_response(&answer));
    };
    request.options.run_id = request.options.run_id.or(run_id.map(Into::into));
    let mut turn = Turn {
        registry,
        catalog,
        caller,
        key,
        request_id,
        trace,
        progress: None,
    };
    if events::are_preferred(&headers) {
        let (sink, listener) = ProgressSink::channel();
        turn.progress = Some(sink);
        return Ok(events::stream_events(listener, async move {
            let _reserved = reserved;
            events::to_json_text(&turn.run_calls(message, &request).await.to_answer())
        }));
    }
    let answered = turn.run_calls(message, &request).await;
    let mut response = json_response(&answered.to_answer());
    if answered.is_replayed() {
        call_headers::mark_replayed(&mut response);
    }
    Ok(response)
}
