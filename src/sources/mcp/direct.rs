//! Calls of a server with a URL: one HTTP request each. They bypass the tasks and queues of the SDK,
//! which take half of the processor time of such a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, FuturesUnordered};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{
    ClientCapabilities, ClientConfig, ErrorData, InputResponses, JsonRpcMessage, ProtocolVersion,
    RequestId, RequestMetaObject, ServerJsonRpcMessage, ServerNotification, ServerResult,
};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpPostResponse};
use rmcp_sse_stream::Sse;
use serde::Serialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::early_initialize::is_answer;
use super::events;
use super::fault::{self, CallFailure, InvalidMessage};
use super::message::{SentRequest, id_of_broken_response, parse_message};
use super::remote::{Fields, Remote};
use super::transport_adapter::{MAX_QUESTIONS, ServerQuestion, SharedConnectionState};
use crate::call::{JsonObject, ToolContext};

/// The first id of a request. The SDK counts its own requests from 0.
const FIRST_ID: i64 = 1 << 30;
const TOOL_NAME: HeaderName = HeaderName::from_static("mcp-name");
/// How often a stream that breaks off is continued without a new event. Its events must have ids.
const MAX_RESUMPTIONS: usize = 3;
/// Pause before a stream is continued again, if its server names none (`retry`).
const PAUSE: Duration = Duration::from_secs(1);

/// A tool as its server knows it.
pub(super) struct CalledTool {
    pub(super) name: String,
    /// Its name as a header of requests. `None`: requests have further headers (`x-mcp-header` of
    /// MCP 2026-07-28), or the name must be encoded.
    name_header: Option<HeaderValue>,
}

impl CalledTool {
    /// The tool with this name and this input schema.
    pub(super) fn new(name: &str, input_schema: &JsonObject) -> Self {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic()) && !name.starts_with("=?");
        let schema = serde_json::to_string(input_schema).unwrap_or_default();
        let is_plain = is_plain && !schema.contains("\"x-mcp-header\"");
        Self {
            name: name.to_owned(),
            name_header: HeaderValue::try_from(name).ok().filter(|_| is_plain),
        }
    }
}

/// One request of a call.
pub(super) struct CallRequest<'a> {
    pub(super) tool: &'a CalledTool,
    pub(super) arguments: &'a JsonObject,
    /// Answers to the questions of the last response.
    pub(super) answers: Option<InputResponses>,
    /// The state that the last response has sent along.
    pub(super) state: Option<String>,
    /// Our own members of `_meta`.
    pub(super) meta: &'a JsonObject,
}

#[derive(Serialize)]
struct Message<'a> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    method: &'static str,
    params: Params<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    name: &'a str,
    arguments: &'a JsonObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_responses: Option<&'a InputResponses>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_state: Option<&'a str>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<Meta<'a>>,
}

#[derive(Serialize)]
struct Meta<'a> {
    #[serde(flatten)]
    of_client: &'a JsonObject,
    #[serde(flatten)]
    own: &'a JsonObject,
}

/// Makes the calls of one connection.
pub(super) struct DirectCalls {
    remote: Remote,
    /// Headers of each request.
    headers: HeaderMap,
    /// `_meta` of a call whose caller cannot be asked, and of one whose caller can. Empty in a
    /// session, whose handshake contains it.
    metas: [JsonObject; 2],
    /// The version has sessions.
    pub(super) in_session: bool,
    session: Option<Arc<str>>,
    next_id: AtomicI64,
}

impl DirectCalls {
    /// Calls over `remote`, by a client with this configuration. `session` is the id of the session,
    /// if the server has given one.
    pub(super) fn new(
        remote: Remote,
        client: ClientConfig,
        version: &ProtocolVersion,
        session: Option<Arc<str>>,
    ) -> Self {
        let in_session = version.has_initialize();
        let mut headers = remote.headers.clone();
        if let Ok(value) = HeaderValue::try_from(version.as_str()) {
            headers.insert("mcp-protocol-version", value);
        }
        if !in_session {
            headers.insert("mcp-method", HeaderValue::from_static("tools/call"));
        }
        let meta = |capabilities| {
            if in_session {
                return JsonObject::new();
            }
            let (version, client) = (version.clone(), client.client_info.clone());
            RequestMetaObject::with_client_context(version, client, capabilities)
                .0
                .0
        };
        Self {
            remote,
            headers,
            metas: [
                meta(ClientCapabilities::default()),
                meta(client.capabilities.clone()),
            ],
            in_session,
            session,
            next_id: AtomicI64::new(FIRST_ID),
        }
    }

    /// Whether a call can go this way. Progress needs the SDK's own way.
    pub(super) fn can_carry(&self, tool: &CalledTool, context: &ToolContext) -> bool {
        (self.in_session || tool.name_header.is_some()) && !context.has_listener()
    }

    /// The id of the next request.
    pub(super) fn next_id(&self) -> RequestId {
        RequestId::Number(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a request. Dropping the future closes its stream. Without sessions that cancels the
    /// call at the server (MCP 2026-07-28, Transports).
    pub(super) async fn send(
        &self,
        id: RequestId,
        request: &CallRequest<'_>,
        state: &SharedConnectionState,
        context: &ToolContext,
    ) -> Result<Result<ServerResult, ErrorData>, CallFailure> {
        // A question on another stream may concern this call.
        let _running = self.in_session.then(|| state.register_call(context, true));
        let of_client = &self.metas[usize::from(context.can_ask())];
        let meta = Meta {
            of_client,
            own: request.meta,
        };
        let message = Message {
            jsonrpc: "2.0",
            id: &id,
            method: "tools/call",
            params: Params {
                name: &request.tool.name,
                arguments: request.arguments,
                input_responses: request.answers.as_ref(),
                request_state: request.state.as_deref(),
                meta: Some(meta).filter(|meta| !meta.of_client.is_empty() || !meta.own.is_empty()),
            },
        };
        let bad = |what: &str| CallFailure::Reported(fault::bad_output(&self.remote.name, what));
        let body = serde_json::to_vec(&message).map_err(|error| bad(&error.to_string()))?;
        let name = request
            .tool
            .name_header
            .clone()
            .filter(|_| !self.in_session);
        let headers = Fields::new(&self.headers, name.map(|name| (TOOL_NAME, name)));
        let (sent, session) = (SentRequest::direct(&id), self.session.as_deref());
        let response = self.remote.post(body, sent, session, &headers).await;
        let message = match response.map_err(|error| fault::send_failure(&error))? {
            StreamableHttpPostResponse::Json(message, _) => Some(message),
            StreamableHttpPostResponse::Sse(events, _) => {
                Box::pin(self.read_events(&id, events, state, context)).await
            }
            _ => None,
        };
        match message {
            Some(JsonRpcMessage::Response(response)) if is_answer(&id, Some(&response.id)) => {
                Ok(Ok(response.result))
            }
            Some(JsonRpcMessage::Error(error)) => Ok(Err(error.error)),
            Some(_) => Err(bad("its response answers another request")),
            None => Err(CallFailure::ConnectionLost),
        }
    }

    /// The response in a stream; `None` if the stream ends without one.
    async fn read_events(
        &self,
        id: &RequestId,
        mut events: BoxStream<'static, Result<Sse, SseError>>,
        state: &SharedConnectionState,
        context: &ToolContext,
    ) -> Option<ServerJsonRpcMessage> {
        let unusable =
            |reason: InvalidMessage| Some(JsonRpcMessage::error(reason.into(), Some(id.clone())));
        let (mut last_id, mut retry, mut pause, mut vain) = (None, None, Duration::ZERO, 0);
        // Answers to the server, which are made and sent while the stream is read.
        let mut answers = FuturesUnordered::new();
        while vain <= MAX_RESUMPTIONS {
            loop {
                let event = tokio::select! {
                    Some(()) = answers.next() => continue,
                    event = events.next(), if answers.len() < MAX_QUESTIONS => event,
                };
                let event = match event {
                    Some(Ok(event)) => event,
                    Some(Err(error)) if events::is_too_long(&error) => {
                        return unusable(InvalidMessage::TooLong);
                    }
                    Some(Err(_)) | None => break,
                };
                vain = 0;
                retry = event.retry.map(Duration::from_millis).or(retry);
                last_id = event.id.or(last_id);
                let data = event.data.unwrap_or_default();
                match parse_message(data.as_bytes()) {
                    Some(JsonRpcMessage::Notification(notification)) => {
                        if let ServerNotification::ToolListChangedNotification(_) =
                            notification.notification
                        {
                            state.note_change();
                        }
                    }
                    Some(JsonRpcMessage::Request(asked)) if self.in_session => {
                        let question =
                            ServerQuestion::read(&asked.request, asked.id, state.offers_forms);
                        answers.push(self.answer(question, context));
                    }
                    Some(JsonRpcMessage::Request(_)) => {}
                    None if id_of_broken_response(data.as_bytes()).as_ref() == Some(id) => {
                        return unusable(InvalidMessage::Unreadable);
                    }
                    None => {}
                    response => return response,
                }
            }
            vain += 1;
            let after = last_id.clone()?;
            sleep(retry.unwrap_or(pause)).await;
            pause = PAUSE;
            let (request, session) = (SentRequest::direct(id), self.session.as_deref());
            let resumed = self.remote.resume(after, request, session, &self.headers);
            events = resumed.await?;
        }
        None
    }

    /// Answers a request of the server. If the server is gone, it needs no answer.
    async fn answer(&self, question: ServerQuestion, context: &ToolContext) {
        let answer = match question {
            ServerQuestion::Form(form) => {
                let call = (context.clone(), CancellationToken::new());
                form.answer(Some(call).filter(|_| context.can_ask())).await
            }
            ServerQuestion::Other(answer) => *answer,
            ServerQuestion::Ignored => return,
        };
        if let Ok(body) = serde_json::to_vec(&answer) {
            let (request, session) = (SentRequest::default(), self.session.as_deref());
            let headers = Fields::new(&self.headers, None);
            let _ = self.remote.post(body, request, session, &headers).await;
        }
    }
}
