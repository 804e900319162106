//! A server's URL: streamable HTTP by the SDK, over this service's HTTP client. Adds bounds, and
//! texts for failures.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use hyper::body::Bytes;
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, Request};
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransport,
    StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
};
use rmcp_sse_stream::Sse;
use url::Url;

use super::events::{self, EventStream};
use super::fault::{self, HttpFault, InvalidMessage};
use super::message::{MAX_MESSAGE_BYTES, SentRequest, parse_message};
use super::transport_adapter::SharedConnectionState;
use crate::call::ToolError;
use crate::call::media_type::media_type_essence;
use crate::kinds::ProcessEnv;
use crate::kinds::http::AuthConfig;
use crate::kinds::http::address_policy::AddressPolicy;
use crate::kinds::http::auth::RequestAuth;
use crate::kinds::http::client::{HttpClient, Response, host_and_port, request_error};
use crate::kinds::http::received::read_whole;
use crate::kinds::http::response::{check_status, header_text, parse_retry_after};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";
/// Bytes that are read of an error response.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Most requests at once. The number of calls is bounded elsewhere.
const MAX_CONCURRENT_REQUESTS: usize = 1024;

/// What a URL may be if a server does not know `initialize` there.
const OLD_TRANSPORT: &str = "`url` must be the endpoint of streamable HTTP, which often ends with /mcp. If \
     the server has only the older HTTP+SSE transport, let a program translate: \
     `command: [npx, -y, mcp-remote, URL, --transport, sse-only]`";

/// The HTTP side of one server.
#[derive(Clone)]
pub(super) struct Remote {
    client: HttpClient,
    auth: Option<RequestAuth>,
    url: Url,
    host: String,
    /// The server's name in the manifest.
    pub(super) name: Arc<str>,
    /// Headers of each request of one connection.
    pub(super) headers: HeaderMap,
    server_events: ServerEvents,
}

type Fault = StreamableHttpError<HttpFault>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// The headers of a request, beside those that each request has.
pub(super) struct Fields<'a> {
    of_connection: &'a HeaderMap,
    own: Option<(HeaderName, HeaderValue)>,
}

impl<'a> Fields<'a> {
    /// Headers of every request of a connection, and one of this request.
    pub(super) fn new(
        of_connection: &'a HeaderMap,
        own: Option<(HeaderName, HeaderValue)>,
    ) -> Self {
        Self { of_connection, own }
    }
}

impl Remote {
    /// A client for the server at this URL. It refuses to connect to the service's own ports.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub(super) fn new(
        name: Arc<str>,
        url: &Url,
        auth: Option<&AuthConfig>,
        process_env: &ProcessEnv,
    ) -> Result<Self, String> {
        let clients = process_env.http_clients();
        let client = clients.get(AddressPolicy::allow_all());
        // Warnings were reported when the manifest was read.
        let auth =
            auth.map(|auth| RequestAuth::build(auth, AddressPolicy::allow_private(), &clients));
        let auth = auth.transpose().map_err(|errors| {
            let messages: Vec<String> = errors.into_iter().map(|error| error.message).collect();
            messages.join("; ")
        })?;
        let (url, host, server_events) = (url.clone(), host_and_port(url), ServerEvents::default());
        Ok(Self {
            client,
            auth: auth.map(|(auth, _)| auth),
            url,
            host,
            name,
            headers: HeaderMap::new(),
            server_events,
        })
    }

    /// A transport for one connection to `url`, not started yet, and the same client for requests
    /// beside it. `headers` are sent with every request.
    ///
    /// # Errors
    /// A part of a sentence with the server as subject.
    pub(super) fn open_transport<'a>(
        &self,
        url: Url,
        headers: impl IntoIterator<Item = (&'a String, &'a String)>,
        state: &Arc<SharedConnectionState>,
    ) -> Result<(StreamableHttpClientTransport<Self>, Self), String> {
        let mut fields = Headers::new();
        for (name, value) in headers {
            let (Ok(field), Ok(value)) = (HeaderName::try_from(name), sensitive_value(value))
            else {
                return Err(format!(
                    "its header `{name}` cannot be sent: it contains invalid characters"
                ));
            };
            fields.insert(field, value);
        }
        let client = Self {
            server_events: ServerEvents::new(state),
            url,
            headers: fields.clone().into_iter().collect(),
            ..self.clone()
        };
        let config = StreamableHttpClientTransportConfig::with_uri(client.url.as_str())
            .custom_headers(fields)
            .max_concurrent_requests(MAX_CONCURRENT_REQUESTS)
            // Another session may have other tools. So it needs a new connection, which lists them
            // first.
            .reinit_on_expired_session(false);
        let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
        Ok((transport, client))
    }

    async fn send_request(
        &self,
        method: Method,
        session: Option<&str>,
        headers: &Fields<'_>,
        body: Option<Vec<u8>>,
    ) -> Result<Response, Fault> {
        let session = session.map(sensitive_value).transpose();
        let session = session
            .map_err(|()| Fault::UnexpectedServerResponse("an invalid session id".into()))?;
        let body = body.map(Bytes::from);
        let request_to = |url: Url| {
            let mut request = Request::new(method.clone(), url);
            let fields = request.headers_mut();
            headers.of_connection.clone_into(fields);
            fields.extend(headers.own.clone());
            let accept = HeaderValue::from_static("application/json, text/event-stream");
            fields.insert(ACCEPT, accept);
            fields.extend(session.clone().map(|value| (SESSION_ID, value)));
            if let Some(body) = &body {
                fields.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
                *request.body_mut() = Some(body.clone().into());
            }
            request
        };
        let response = self.send_authorized(request_to(self.url.clone())).await?;
        match target_of_same_origin(&response) {
            Some(url) => Box::pin(self.send_authorized(request_to(url))).await,
            None => Ok(response),
        }
    }

    async fn send_authorized(&self, request: Request) -> Result<Response, Fault> {
        let sent = match &self.auth {
            Some(auth) => Box::pin(auth.send(&self.client, request)).await,
            None => self.client.send(request).await,
        };
        sent.map_err(http_fault)
    }

    /// The failure for a response that is not a success, by its status alone.
    async fn response_failure(&self, response: Response) -> Fault {
        let (name, status) = (&self.name, response.status());
        let message = match status.as_u16() {
            401 | 403 => {
                let key = if self.auth.is_some() {
                    "auth"
                } else {
                    "headers"
                };
                format!(
                    "the MCP server {name} refuses access (HTTP {status}): see `{key}` of its entry"
                )
            }
            400..=428 | 430..=499 => format!("the MCP server {name} answered HTTP {status}"),
            _ => {
                let error = match check_status(response, &self.host, None).await {
                    Ok(_) => fault::bad_output(name, &format!("HTTP {status}")),
                    Err(error) => error,
                };
                return http_fault(error);
            }
        };
        status_failure(status.as_u16(), message)
    }

    /// The body, up to `max_bytes` bytes.
    async fn read_body(&self, response: Response, max_bytes: usize) -> Result<Vec<u8>, Fault> {
        let body = read_whole(response, max_bytes).await;
        let body = body.map_err(|error| http_fault(request_error(&self.host, error)))?;
        body.ok_or_else(|| http_fault(fault::response_too_long(&self.name)))
    }

    /// Reads a response that is not a success. It may contain a JSON-RPC error, which answers this
    /// request whatever its id is.
    async fn read_error_response(
        &self,
        response: Response,
        request: SentRequest,
        session: Option<&str>,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let (status, is_json) = (response.status(), has_media_type(&response, JSON));
        let is_client_error = (400..=499).contains(&status.as_u16());
        if session.is_some() && matches!(status.as_u16(), 404 | 410) {
            return Err(Fault::SessionExpired);
        }
        // Many servers answer 400 to the id of a session that they have lost.
        let may_be_session = session.is_some() && status.as_u16() == 400;
        let SentRequest {
            id: Some(id),
            is_discover,
            is_initialize,
            ..
        } = request
        else {
            return Err(self.response_failure(response).await);
        };
        // Older servers answer a request that they do not know with an error of any kind.
        let is_legacy = is_discover && (is_client_error || matches!(status.as_u16(), 500 | 501));
        // A server of the old transport has no such method at its URL.
        if is_initialize && matches!(status.as_u16(), 404 | 405) {
            let message = format!(
                "the MCP server {} answered HTTP {status}: {OLD_TRANSPORT}",
                self.name
            );
            return Err(status_failure(status.as_u16(), message));
        }
        // For these statuses the status says everything. The same holds for other errors with
        // `Retry-After`.
        let status_is_enough = match status.as_u16() {
            401 | 403 | 429 | 300..=399 => true,
            _ => !is_client_error && parse_retry_after(&response).is_some(),
        };
        if status_is_enough || !(is_json || is_legacy || may_be_session) {
            return Err(self.response_failure(response).await);
        }
        let body = self
            .read_body(response, MAX_ERROR_BYTES)
            .await
            .unwrap_or_default();
        let error = match parse_message(&body) {
            Some(JsonRpcMessage::Error(error))
                if may_be_session && fault::is_session_loss(&error.error) =>
            {
                return Err(Fault::SessionExpired);
            }
            Some(JsonRpcMessage::Error(error)) => error.error,
            None if may_be_session && fault::names_session(&String::from_utf8_lossy(&body)) => {
                return Err(Fault::SessionExpired);
            }
            // An older server, or a proxy before it, which does not know `server/discover`.
            _ if is_legacy => ErrorData::invalid_request(format!("HTTP {status}"), None),
            _ => {
                let message = format!("the MCP server {} answered HTTP {status}", self.name);
                return Err(match is_client_error {
                    true => status_failure(status.as_u16(), message),
                    false => http_fault(ToolError::upstream(message)),
                });
            }
        };
        Ok(StreamableHttpPostResponse::Json(
            JsonRpcMessage::error(error, Some(id)),
            None,
        ))
    }

    /// Sends a message, and reads the head of the response or all of it.
    pub(super) async fn post(
        &self,
        body: Vec<u8>,
        request: SentRequest,
        session: Option<&str>,
        headers: &Fields<'_>,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        use StreamableHttpPostResponse::{Accepted, Json, Sse};

        let response = self
            .send_request(Method::POST, session, headers, Some(body))
            .await?;
        match response.status().as_u16() {
            202 | 204 if request.id.is_none() => return Ok(Accepted),
            202 | 204 if request.is_discover => return Ok(request.without_discovery()),
            202 | 204 => {
                let status = response.status();
                return Err(http_fault(fault::bad_output(
                    &self.name,
                    &format!("HTTP {status} without a response"),
                )));
            }
            200..=299 => {}
            _ => {
                return Box::pin(self.read_error_response(response, request, session)).await;
            }
        }
        let session = header_text(&response, SESSION_ID).map(str::to_owned);
        if request.is_initialize {
            let given = session.as_deref().map(Arc::from);
            *self.server_events.connection_state.session.lock() = given;
        }
        if has_media_type(&response, EVENT_STREAM) {
            return Ok(Sse(events::read_events(response, request), session));
        }
        let is_json = has_media_type(&response, JSON);
        let body = self.read_body(response, MAX_MESSAGE_BYTES).await?;
        match parse_message(&body).filter(|_| is_json) {
            Some(message) => Ok(Json(message, session)),
            // A notification needs no response.
            None if request.id.is_none() => Ok(Accepted),
            None if request.is_discover => Ok(request.without_discovery()),
            None => Err(http_fault(fault::bad_output(
                &self.name,
                "its response is not a JSON-RPC message",
            ))),
        }
    }

    /// Continues the stream of a response after the event with this id. `None`: the server refuses.
    ///
    /// # Errors
    /// The server was not reached.
    pub(super) async fn resume(
        &self,
        last_event: String,
        request: SentRequest,
        session: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Option<EventStream>, Fault> {
        let Ok(id) = HeaderValue::try_from(last_event) else {
            return Ok(None);
        };
        let headers = Fields::new(headers, Some((LAST_EVENT_ID, id)));
        let response = self
            .send_request(Method::GET, session, &headers, None)
            .await?;
        let is_stream = response.status().is_success() && has_media_type(&response, EVENT_STREAM);
        Ok(is_stream.then(|| events::read_events(response, request)))
    }
}

impl SentRequest {
    /// What the SDK gets instead of an unusable answer to `server/discover`. It goes on with
    /// `initialize` then.
    fn without_discovery(self) -> StreamableHttpPostResponse {
        let error = ErrorData::from(InvalidMessage::Unreadable);
        StreamableHttpPostResponse::Json(JsonRpcMessage::error(error, self.id), None)
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
        let (request, body) = (
            SentRequest::from_message(&message),
            serde_json::to_vec(&message)?,
        );
        let headers = headers.into_iter().collect();
        let headers = Fields::new(&headers, None);
        self.post(body, request, session.as_deref(), &headers).await
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), Fault> {
        // Ignore the status: a server need not let the client end a session.
        let headers = headers.into_iter().collect();
        let headers = Fields::new(&headers, None);
        self.send_request(Method::DELETE, Some(&session), &headers, None)
            .await
            .map(drop)
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        mut headers: Headers,
    ) -> Result<EventStream, Fault> {
        let is_notification_stream = self
            .server_events
            .is_notification_stream(last_event.as_deref());
        if let Some(Ok(id)) = last_event.map(HeaderValue::try_from) {
            headers.insert(LAST_EVENT_ID, id);
        }
        let headers = headers.into_iter().collect();
        let headers = Fields::new(&headers, None);
        let response = self
            .send_request(Method::GET, session.as_deref(), &headers, None)
            .await?;
        match response.status().as_u16() {
            200..=299 if has_media_type(&response, EVENT_STREAM) => {
                let events = events::read_events(response, SentRequest::default());
                Ok(if is_notification_stream {
                    self.server_events.watch_stream(events)
                } else {
                    events
                })
            }
            200..=299 | 404 | 405 => Err(Fault::ServerDoesNotSupportSse),
            _ => Err(self.response_failure(response).await),
        }
    }
}

/// Where a redirect leads that keeps the method and the origin. Servers of older SDKs redirect
/// `/mcp` to `/mcp/`. Another origin would get the credentials of this one.
fn target_of_same_origin(response: &Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 307 | 308) {
        return None;
    }
    let location = header_text(response, LOCATION)?;
    let url = response.url().join(location).ok()?;
    (url.origin() == response.url().origin()).then_some(url)
}

fn has_media_type(response: &Response, media_type: &str) -> bool {
    let content_type = header_text(response, CONTENT_TYPE).unwrap_or_default();
    media_type_essence(content_type).eq_ignore_ascii_case(media_type)
}

/// The failure for an HTTP status. For these statuses the request was refused, not found or not
/// understood (RFC 9110, 15.5), so nothing ran. Any other status, such as a timeout, may come while
/// the tool runs.
fn status_failure(status: u16, message: String) -> Fault {
    let error = ToolError::upstream_permanent(message);
    http_fault(match status {
        400 | 401 | 403..=406 | 411 | 413..=415 | 421 => error.not_delivered(),
        _ => error,
    })
}

fn http_fault(error: ToolError) -> Fault {
    Fault::Client(HttpFault(error))
}

/// A header value that is hidden in logs.
fn sensitive_value(value: &str) -> Result<HeaderValue, ()> {
    let mut value = HeaderValue::try_from(value).map_err(drop)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The stream on which a server with sessions sends its own notifications, such as changed tools.
/// While the stream is not open, such notifications are lost. So each gap counts as a change.
#[derive(Clone, Default)]
struct ServerEvents {
    connection_state: Arc<SharedConnectionState>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    was_open: bool,
    /// Id of the last event on the stream.
    last_event_id: Option<String>,
}

/// Dropped with the stream. Its end counts as a change.
struct OpenStream(Arc<SharedConnectionState>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.note_change();
    }
}

impl ServerEvents {
    /// For the connection with this state.
    pub(super) fn new(connection_state: &Arc<SharedConnectionState>) -> Self {
        Self {
            connection_state: connection_state.clone(),
            state: Arc::default(),
        }
    }

    /// Whether this request opens or resumes the notification stream. Broken response streams are
    /// resumed in the same way.
    pub(super) fn is_notification_stream(&self, after: Option<&str>) -> bool {
        after.is_none_or(|after| self.state.lock().last_event_id.as_deref() == Some(after))
    }

    /// Wraps the stream, which was opened for the first time or again.
    pub(super) fn watch_stream(&self, events: EventStream) -> EventStream {
        if std::mem::replace(&mut self.state.lock().was_open, true) {
            self.connection_state.note_change();
        }
        let (open, this) = (OpenStream(self.connection_state.clone()), self.clone());
        let record_id = move |event: &Result<Sse, SseError>| {
            let _open = &open;
            if let Ok(Sse { id: Some(id), .. }) = event {
                this.state.lock().last_event_id = Some(id.clone());
            }
        };
        events.inspect(record_id).boxed()
    }
}
