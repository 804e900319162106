//! Calls of a server with a URL and without sessions: one HTTP request each. They bypass the
//! tasks and queues of the SDK, which take half of the processor time of such a call.

use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{HeaderMap, HeaderValue};
use rmcp::ServiceError;
use rmcp::model::{
    ClientCapabilities, ClientConfig, InputResponses, JsonRpcMessage, ProtocolVersion, RequestId,
    RequestMetaObject, ServerJsonRpcMessage, ServerNotification, ServerResult,
};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpPostResponse};
use rmcp_sse_stream::Sse;
use serde::Serialize;

use super::early_initialize::is_answer;
use super::fault::{self, CallFailure};
use super::message::{SentRequest, parse_message};
use super::remote::Remote;
use super::transport_adapter::SharedConnectionState;
use crate::call::{JsonObject, ToolContext};

/// The first id of a request. The SDK counts its own requests from 0.
const FIRST_ID: i64 = 1 << 32;
/// How often a stream that breaks off is continued, if its events have ids.
const MAX_RESUMPTIONS: usize = 3;

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
    #[serde(rename = "_meta")]
    meta: Meta<'a>,
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
    /// `_meta` of a call whose caller cannot be asked, and of one whose caller can.
    metas: [JsonObject; 2],
    next_id: AtomicI64,
}

impl DirectCalls {
    /// Calls over `remote`, by a client with this configuration.
    pub(super) fn new(remote: Remote, client: ClientConfig, version: &ProtocolVersion) -> Self {
        let mut headers = remote.headers.clone();
        if let Ok(value) = HeaderValue::try_from(version.as_str()) {
            headers.insert("mcp-protocol-version", value);
        }
        headers.insert("mcp-method", HeaderValue::from_static("tools/call"));
        let meta = |capabilities| {
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
            next_id: AtomicI64::new(FIRST_ID),
        }
    }

    /// Whether a call can go this way. Progress needs the SDK's own way.
    pub(super) fn can_carry(&self, tool: &CalledTool, context: &ToolContext) -> bool {
        tool.name_header.is_some() && !context.has_listener()
    }

    /// Sends a request. Dropping the future closes its stream, which cancels the call at the server
    /// (MCP 2026-07-28, Transports).
    pub(super) async fn send(
        &self,
        request: &CallRequest<'_>,
        state: &SharedConnectionState,
        context: &ToolContext,
    ) -> Result<ServerResult, CallFailure> {
        let id = RequestId::Number(self.next_id.fetch_add(1, Ordering::Relaxed));
        let message = Message {
            jsonrpc: "2.0",
            id: &id,
            method: "tools/call",
            params: Params {
                name: &request.tool.name,
                arguments: request.arguments,
                input_responses: request.answers.as_ref(),
                request_state: request.state.as_deref(),
                meta: Meta {
                    of_client: &self.metas[usize::from(context.can_ask())],
                    own: request.meta,
                },
            },
        };
        let bad = |what: &str| CallFailure::Reported(fault::bad_output(&self.remote.name, what));
        let body = serde_json::to_vec(&message).map_err(|error| bad(&error.to_string()))?;
        let mut headers = self.headers.clone();
        if let Some(name) = &request.tool.name_header {
            headers.insert("mcp-name", name.clone());
        }
        let sent = SentRequest {
            id: Some(id.clone()),
            ..SentRequest::default()
        };
        let response = self.remote.post(body, sent, None, headers).await;
        let message = match response.map_err(|error| fault::send_failure(&error))? {
            StreamableHttpPostResponse::Json(message, _) => Some(message),
            StreamableHttpPostResponse::Sse(events, _) => self.read_events(events, state).await,
            _ => None,
        };
        match message {
            Some(JsonRpcMessage::Response(response)) if is_answer(&id, Some(&response.id)) => {
                Ok(response.result)
            }
            Some(JsonRpcMessage::Error(error)) => {
                let error = ServiceError::McpError(error.error);
                Err(fault::call_failure(&self.remote.name, error, context))
            }
            Some(_) => Err(bad("its response answers another request")),
            None => Err(CallFailure::ConnectionLost),
        }
    }

    /// The response in a stream; `None` if the stream ends without one.
    async fn read_events(
        &self,
        mut events: BoxStream<'static, Result<Sse, SseError>>,
        state: &SharedConnectionState,
    ) -> Option<ServerJsonRpcMessage> {
        let mut last_id = None;
        for _ in 0..=MAX_RESUMPTIONS {
            while let Some(Ok(event)) = events.next().await {
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
                    Some(JsonRpcMessage::Request(_)) | None => {}
                    response => return response,
                }
            }
            events = self
                .remote
                .resume(last_id.clone()?, self.headers.clone())
                .await?;
        }
        None
    }
}
