//! `POST /calls`: runs the calls of a model's message, and answers with the messages to append.

mod answer;
mod request;
mod turn;

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tower_http::request_id::RequestId;

use self::answer::CallsAnswer;
pub(super) use self::request::MessageBody;
use self::request::{CallsQuery, CallsRequest};
use self::turn::Turn;
use super::auth::Authenticated;
use super::body::ModelMessage;
use super::json_response::json_response;
use super::problem::{ApiError, Problem};
use super::responses::{AuthResponses, BodyResponses, CommonResponses};
use super::{events, idempotency, query, request_id, run_id};
use crate::call::{Caller, IdempotencyKey, ProgressSink, json::parse_strict};
use crate::registry::Registry;

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
/// With `Accept: text/event-stream` the answer is a stream. It has `progress` events of all calls,
/// and a `call_result` event with each call's answer or problem when the call ends. The last event
/// is the one `result` event with the whole answer.
#[utoipa::path(post, operation_id = "run_calls", path = "/calls", tag = "tools", params(CallsQuery, idempotency::IdempotencyHeader, run_id::RunIdHeader),
    request_body(content = Value, content_type = "application/json",
        description = "The model's message, or an envelope around it. A text may also be sent as text/plain."),
    responses((status = 200, description = "The message is valid",
        content((CallsAnswer<'_> = "application/json"), (String = "text/event-stream")),
        headers(("idempotent-replayed" = bool, description = "True when all calls of the message are replayed."))),
    CommonResponses, AuthResponses, BodyResponses))]
pub(super) async fn run_calls(
    State(registry): State<Arc<Registry>>,
    Authenticated { caller, catalog }: Authenticated,
    query::QueryParams(query): query::QueryParams<CallsQuery>,
    request_id: Option<axum::Extension<RequestId>>,
    headers: HeaderMap,
    ModelMessage(body, reserved): ModelMessage,
) -> Result<Response, ApiError> {
    let key = idempotency::key_from_headers(&headers)?;
    let trace = request_id::trace_from_headers(&headers);
    let request_id = request_id.and_then(|id| Some(id.header_value().to_str().ok()?.into()));
    let (tools, owner) = (catalog.clone(), caller.clone());
    let read = move || {
        CallsRequest::from_parts(query, body)
            .and_then(|mut request| Ok((request.take_message(&tools, &owner)?, request)))
    };
    let run_id = run_id::run_id_from_headers(&headers)?;
    let (message, mut request) = reserved.parse_with(read).await?;
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
        idempotency::mark_replayed(&mut response);
    }
    Ok(response)
}

/// Runs the calls of a message without a server, as the operator. A message that is not JSON is a
/// model's text.
///
/// Returns the body that the route would have answered, and whether all tools ran without an error
/// result.
pub async fn calls_in_process(
    registry: &Arc<Registry>,
    message: &str,
    dialect: Option<String>,
    run_id: Option<String>,
    key: Option<IdempotencyKey>,
) -> (Value, bool) {
    let body = match parse_strict(message.as_bytes()) {
        Ok(json) => MessageBody::Json(json),
        // Strict parsing also refuses valid JSON, such as duplicate keys. That is not a model's
        // text.
        Err(error) if serde_json::from_str::<IgnoredAny>(message).is_ok() => {
            let problem = Problem::from(ApiError::Malformed(format!(
                "the message is not JSON: {error}"
            )));
            return (json!(problem), false);
        }
        Err(_) => MessageBody::Text(message.to_owned()),
    };
    let caller = Arc::new(Caller::anonymous());
    let (registry, catalog) = (registry.clone(), registry.catalog());
    let turn = Turn {
        registry,
        catalog,
        caller,
        key,
        request_id: None,
        trace: None,
        progress: None,
    };
    let request = CallsRequest::from_parts(CallsQuery::new(dialect, run_id), body);
    let read = request
        .and_then(|mut request| Ok((request.take_message(&turn.catalog, &turn.caller)?, request)));
    match read {
        Ok((message, request)) => {
            let answered = turn.run_calls(message, &request).await;
            (json!(answered.to_answer()), answered.is_ok())
        }
        Err(error) => (json!(Problem::from(error)), false),
    }
}
