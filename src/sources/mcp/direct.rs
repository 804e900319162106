//! Calls of a server with a URL: one HTTP request each. They bypass the tasks and queues of the SDK,
//! which take half of the processor time of such a call.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt, future, stream};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientJsonRpcMessage, ErrorData, InputResponses,
    JsonRpcMessage, ProtocolVersion, RequestId, RequestMetaObject, ServerJsonRpcMessage,
    ServerNotification, ServerResult,
};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpPostResponse};
use rmcp_sse_stream::Sse;
use serde::Serialize;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::early_initialize::is_answer;
use super::events::{self, EventStream};
use super::fault::{self, CallFailure, InvalidMessage};
use super::message::{SentRequest, id_of_broken_response, parse_message};
use super::remote::{Fields, Remote};
use super::transport_adapter::{MAX_QUESTIONS, ServerQuestion, SharedConnectionState};
use crate::call::{JsonObject, ToolContext};

/// The first id of a request. The SDK counts its own requests from 0.
const FIRST_ID: i64 = 1 << 30;
const TOOL_NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Further attempts to reach a server that is to continue a stream.
const MAX_ATTEMPTS: usize = 3;
/// How long a response waits for the answers to requests that its server has sent before it.
const REPLY_TIME: Duration = Duration::from_secs(1);
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
    /// `_meta` of a call without a client for questions, and of a call with one. Empty in a session,
    /// whose handshake contains it.
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
        first: EventStream,
        state: &SharedConnectionState,
        context: &ToolContext,
    ) -> Option<ServerJsonRpcMessage> {
        let unusable =
            |reason: InvalidMessage| Some(JsonRpcMessage::error(reason.into(), Some(id.clone())));
        let mut events = pin!(self.follow(id, first));
        // Answers to requests of the server, which are sent while the stream is read: those of the
        // caller to questions, and all others.
        let (mut questions, mut replies) = (FuturesUnordered::new(), FuturesUnordered::new());
        let response = loop {
            let event = tokio::select! {
                Some(()) = questions.next() => continue,
                Some(()) = replies.next() => continue,
                event = events.next(), if replies.len() < MAX_QUESTIONS => event?,
            };
            let Ok(event) = event else {
                break unusable(InvalidMessage::TooLong);
            };
            let data = event.data.unwrap_or_default();
            match parse_message(data.as_bytes()) {
                Some(JsonRpcMessage::Notification(notification)) => {
                    if let ServerNotification::ToolListChangedNotification(_) =
                        notification.notification
                    {
                        state.note_change();
                    }
                }
                Some(JsonRpcMessage::Request(request)) if self.in_session => {
                    let (request, id) = (request.request, request.id);
                    match ServerQuestion::read(&request, id, state.offers_forms) {
                        ServerQuestion::Form(form)
                            if context.can_ask() && questions.len() < MAX_QUESTIONS =>
                        {
                            let call = (context.clone(), CancellationToken::new());
                            questions.push(self.reply(form.answer(Some(call))));
                        }
                        ServerQuestion::Form(form) => {
                            replies.push(self.reply(form.answer(None).boxed()));
                        }
                        ServerQuestion::Other(answer) => {
                            replies.push(self.reply(future::ready(*answer).boxed()));
                        }
                        ServerQuestion::Ignored => {}
                    }
                }
                Some(JsonRpcMessage::Request(_)) => {}
                None if id_of_broken_response(data.as_bytes()).as_ref() == Some(id) => {
                    break unusable(InvalidMessage::Unreadable);
                }
                None => {}
                response => break response,
            }
        };
        // Some servers send a request directly before their response, and wait for its answer.
        let _ = timeout(REPLY_TIME, replies.collect::<()>()).await;
        response
    }

    /// The events of a response. A stream that breaks off is continued after its last event, until
    /// the server refuses to. Its events must have ids.
    fn follow<'a>(
        &'a self,
        id: &'a RequestId,
        first: EventStream,
    ) -> impl Stream<Item = Result<Sse, SseError>> + 'a {
        struct Position {
            events: EventStream,
            last_id: Option<String>,
            /// The pause that the server names.
            retry: Option<Duration>,
            pause: Duration,
        }
        let begin = Position {
            events: first,
            last_id: None,
            retry: None,
            pause: Duration::ZERO,
        };
        stream::unfold(begin, move |mut at| async move {
            loop {
                match at.events.next().await {
                    Some(Ok(event)) => {
                        at.retry = event.retry.map(Duration::from_millis).or(at.retry);
                        at.last_id = event.id.clone().or(at.last_id);
                        return Some((Ok(event), at));
                    }
                    Some(Err(error)) if events::is_too_long(&error) => {
                        return Some((Err(error), at));
                    }
                    Some(Err(_)) | None => {}
                }
                let mut attempts = 0;
                at.events = loop {
                    let after = at.last_id.clone()?;
                    sleep(at.retry.unwrap_or(at.pause)).await;
                    at.pause = PAUSE;
                    let (request, session) = (SentRequest::direct(id), self.session.as_deref());
                    let resumed = self.remote.resume(after, request, session, &self.headers);
                    match resumed.await {
                        Ok(resumed) => break resumed?,
                        Err(_) if attempts < MAX_ATTEMPTS => attempts += 1,
                        Err(_) => return None,
                    }
                };
            }
        })
    }

    /// Sends an answer to the server. If the server is gone, it needs none.
    async fn reply(&self, answer: impl Future<Output = ClientJsonRpcMessage>) {
        if let Ok(body) = serde_json::to_vec(&answer.await) {
            let (request, session) = (SentRequest::default(), self.session.as_deref());
            let headers = Fields::new(&self.headers, None);
            let _ = self.remote.post(body, request, session, &headers).await;
        }
    }
}
