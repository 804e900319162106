//! A server's URL: streamable HTTP by the SDK, over this service's HTTP client. Adds bounds, and texts for failures.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Request, Response};
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
    StreamableHttpError, StreamableHttpPostResponse,
};
use rmcp_sse_stream::Sse;
use url::Url;

use super::events;
use super::fault::{self, HttpFault};
use super::message::{LONGEST, SentRequest, parse};
use super::server_events::Unasked;
use super::transport_adapter::ConnectionState;
use crate::call::ToolError;
use crate::tools::http::address_policy::AddressPolicy;
use crate::tools::http::client::{Client, failure, host};
use crate::tools::http::response::{accepted, retry_after};
use crate::tools::http::{Clients, OwnPorts};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
/// Bytes that are read of an error response.
const LONGEST_NO: usize = 64 << 10;
/// Most requests at once. The number of calls is bounded elsewhere.
const AT_ONCE: usize = 1024;

/// The HTTP side of one server.
#[derive(Clone)]
pub(super) struct Remote {
    client: Client,
    url: Url,
    host: String,
    /// The server's name in the manifest.
    name: Arc<str>,
    unasked: Unasked,
}

type Fault = StreamableHttpError<HttpFault>;
type Headers = HashMap<HeaderName, HeaderValue>;

impl Remote {
    /// A client for the server at this URL. It refuses to connect to the service's own ports.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub(super) fn new(name: Arc<str>, url: &Url, own: &OwnPorts) -> Result<Self, String> {
        let client = Clients::new(own.clone()).get(AddressPolicy::open())?;
        Ok(Self { client, url: url.clone(), host: host(url), name, unasked: Unasked::default() })
    }

    /// A transport for one connection, not started yet. `headers` are sent with every request.
    ///
    /// # Errors
    /// A part of a sentence with the server as subject.
    pub(super) fn transport<'a>(
        &self,
        headers: impl IntoIterator<Item = (&'a String, &'a String)>,
        line: &Arc<ConnectionState>,
    ) -> Result<StreamableHttpClientTransport<Self>, String> {
        let mut fields = Headers::new();
        for (name, value) in headers {
            let (Ok(field), Ok(value)) = (HeaderName::try_from(name), secret(value)) else {
                return Err(format!("its header `{name}` cannot be sent: it has odd characters"));
            };
            fields.insert(field, value);
        }
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str())
            .custom_headers(fields)
            .max_concurrent_requests(AT_ONCE)
            // Another session may have other tools. So it needs a new connection, which lists them first.
            .reinit_on_expired_session(false);
        let client = Self { unasked: Unasked::new(line), ..self.clone() };
        Ok(StreamableHttpClientTransport::with_client(client, config))
    }

    async fn send(
        &self,
        method: Method,
        session: Option<&str>,
        headers: Headers,
        body: Option<Vec<u8>>,
    ) -> Result<Response, Fault> {
        let mut request = Request::new(method, self.url.clone());
        let fields = request.headers_mut();
        fields.extend(headers);
        fields.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(session) = session {
            let value = secret(session).map_err(|()| Fault::UnexpectedServerResponse("an odd session id".into()))?;
            fields.insert(SESSION, value);
        }
        if let Some(body) = body {
            fields.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
            *request.body_mut() = Some(body.into());
        }
        self.client.send(request).await.map_err(fault)
    }

    /// The failure for a response that is not a success, by its status alone.
    async fn refusal(&self, response: Response) -> Fault {
        let (name, status) = (&self.name, response.status());
        let message = match status.as_u16() {
            401 | 403 => {
                format!("the MCP server {name} does not let us in (HTTP {status}): see `headers` of its entry")
            }
            400..=428 | 430..=499 => format!("the MCP server {name} answered HTTP {status}"),
            _ => {
                let error = match accepted(response, &self.host, None).await {
                    Ok(_) => fault::bad_output(name, &format!("HTTP {status}")),
                    Err(error) => error,
                };
                return fault(error);
            }
        };
        no(status.as_u16(), message)
    }

    /// The body, up to `most` bytes.
    async fn read(&self, mut response: Response, most: usize) -> Result<Vec<u8>, Fault> {
        let too_long = || Err(fault(fault::too_long(&self.name)));
        if response.content_length().is_some_and(|length| length > most as u64) {
            return too_long();
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| fault(failure(&self.host, error)))? {
            if bytes.len() + chunk.len() > most {
                return too_long();
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Reads a response that is not a success. It may contain a JSON-RPC error, which answers this request whatever its
    /// id is.
    async fn said_no(&self, response: Response, asked: SentRequest) -> Result<StreamableHttpPostResponse, Fault> {
        let (status, is_json) = (response.status(), says(&response, JSON));
        let is_client_error = (400..=499).contains(&status.as_u16());
        let SentRequest { id: Some(id), is_discover, .. } = asked else { return Err(self.refusal(response).await) };
        let is_legacy = is_discover && is_client_error;
        // For these statuses the status says everything. The same holds for other errors with `Retry-After`.
        let speaks = match status.as_u16() {
            401 | 403 | 429 | 300..=399 => true,
            _ => !is_client_error && retry_after(&response).is_some(),
        };
        if speaks || !(is_json || is_legacy) {
            return Err(self.refusal(response).await);
        }
        let body = self.read(response, LONGEST_NO).await.unwrap_or_default();
        let error = match parse(&body) {
            Some(JsonRpcMessage::Error(error)) => error.error,
            // An older server, or a proxy before it, which does not know `server/discover`.
            _ if is_legacy => ErrorData::invalid_request(format!("HTTP {status}"), None),
            _ => {
                let message = format!("the MCP server {} answered HTTP {status}", self.name);
                return Err(match is_client_error {
                    true => no(status.as_u16(), message),
                    false => fault(ToolError::upstream(message)),
                });
            }
        };
        Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::error(error, Some(id)), None))
    }
}

impl StreamableHttpClient for Remote {
    type Error = HttpFault;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        use StreamableHttpPostResponse::{Accepted, Json, Sse};

        let (asked, body) = (SentRequest::of(&message), serde_json::to_vec(&message)?);
        let response = self.send(Method::POST, session.as_deref(), headers, Some(body)).await?;
        match response.status().as_u16() {
            // The SDK falls back to `initialize` if a discovery gets no response.
            202 | 204 if asked.id.is_none() || asked.is_discover => return Ok(Accepted),
            202 | 204 => {
                let status = response.status();
                return Err(fault(fault::bad_output(&self.name, &format!("HTTP {status}, and no answer"))));
            }
            404 if session.is_some() => return Err(Fault::SessionExpired),
            200..=299 => {}
            _ => return self.said_no(response, asked).await,
        }
        let session = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if says(&response, EVENTS) {
            return Ok(Sse(events::of(response, asked), session));
        }
        let is_json = says(&response, JSON);
        let body = self.read(response, LONGEST).await?;
        match parse(&body).filter(|_| is_json) {
            Some(message) => Ok(Json(message, session)),
            // A notification needs no response.
            None if asked.id.is_none() => Ok(Accepted),
            None => Err(fault(fault::bad_output(&self.name, "what it answered is no JSON-RPC message"))),
        }
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), Fault> {
        // Ignore the status: a server need not let the client end a session.
        self.send(Method::DELETE, Some(&session), headers, None).await.map(drop)
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        mut headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Fault> {
        let is_unasked = self.unasked.is_it(last_event.as_deref());
        if let Some(Ok(id)) = last_event.map(HeaderValue::try_from) {
            headers.insert(LAST_EVENT, id);
        }
        let response = self.send(Method::GET, session.as_deref(), headers, None).await?;
        match response.status().as_u16() {
            200..=299 if says(&response, EVENTS) => {
                let events = events::of(response, SentRequest::nothing());
                Ok(if is_unasked { self.unasked.opened(events) } else { events })
            }
            200..=299 | 404 | 405 => Err(Fault::ServerDoesNotSupportSse),
            _ => Err(self.refusal(response).await),
        }
    }
}

fn says(response: &Response, media_type: &str) -> bool {
    let said = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    said.trim_start().get(..media_type.len()).is_some_and(|start| start.eq_ignore_ascii_case(media_type))
}

/// The failure for an HTTP status. For these statuses the request was not let in, not found or not understood (RFC
/// 9110, 15.5), so nothing ran. Any other status, such as a timeout, may come while the tool runs.
fn no(status: u16, message: String) -> Fault {
    let error = ToolError::upstream_final(message);
    fault(match status {
        400 | 401 | 403..=406 | 411 | 413..=415 | 421 => error.before_anything(),
        _ => error,
    })
}

fn fault(error: ToolError) -> Fault {
    Fault::Client(HttpFault(error))
}

/// A header value that is hidden in logs.
fn secret(value: &str) -> Result<HeaderValue, ()> {
    let mut value = HeaderValue::try_from(value).map_err(drop)?;
    value.set_sensitive(true);
    Ok(value)
}
