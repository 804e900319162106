//! A model's endpoint, which speaks OpenAI Chat Completions. Failed requests are repeated.
//!
//! A request has no effect of its own, so it may be repeated whatever the tool's effect is. Texts
//! of the server are passed on without the key, and answers are read only up to a bound.

use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use futures_util::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request};
use serde_json::Value;
use sse_stream::SseByteStream;
use tokio::time::{Instant, sleep};
use url::Url;

use super::completion::{Completion, error_message};
use super::config::ModelConfig;
use super::stream::AnswerAssembler;
use crate::call::words;
use crate::call::{JsonObject, ToolError, TraceContext, UpstreamReason};
use crate::kinds::http::address_policy::AddressPolicy;
use crate::kinds::http::client::{HttpClient, Response, host_and_port, request_error};
use crate::kinds::http::received::read_whole_text;
use crate::kinds::http::response::parse_retry_after;
use crate::kinds::http::trace;
use crate::kinds::{ConfigFault, HttpClients};
use crate::runtime::backoff::Backoff;

/// Longest answer that is read, streamed or whole, in bytes.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Bytes that are read of an error response, and bytes of its text that are passed on.
const MAX_ERROR_BODY_BYTES: usize = 16 << 10;
pub(super) const MAX_ERROR_TEXT_BYTES: usize = 400;
/// Most requests for one answer, the first one included.
const MAX_ATTEMPTS: u32 = 3;
/// A longer `Retry-After` is not waited for.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(10);
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    longest: MAX_RETRY_WAIT,
};
/// Fields of the request that `model.options` must not set.
const RESERVED_FIELDS: [&str; 6] = words("model messages tools stream stream_options n");

/// Replaces a key in texts of the model's server.
const REDACTED: &str = "[redacted]";

/// The endpoint of one agent.
pub(super) struct Endpoint {
    client: HttpClient,
    url: Url,
    host: String,
    /// The name of the model.
    pub(super) model: Arc<str>,
    headers: HeaderMap,
    /// The body of each request, without messages and tools.
    body: JsonObject,
    /// Key and header values, which must not appear in any text of the server.
    secrets: Vec<String>,
    /// Returns a number from 0 to 1. A field, so that waits can be tested.
    random: fn() -> f64,
}

/// Receives parts of an answer while they arrive.
pub(super) trait AnswerListener: Send {
    /// Receives a piece of the answer's text.
    fn on_text(&mut self, text: &str);
    /// The request failed and is repeated, so earlier pieces are void.
    fn on_retry(&mut self, reason: &str);
}

impl Endpoint {
    pub(super) fn build(
        config: ModelConfig,
        clients: &HttpClients,
        faults: &mut Vec<ConfigFault>,
    ) -> Option<Self> {
        let before = faults.len();
        let mut fault =
            |path: &[&str], message: String| faults.push(ConfigFault::error(path, message));
        let url = completions_url(&config.base_url)
            .map_err(|message| fault(&["model", "base_url"], message))
            .ok();
        if config.name.trim().is_empty() {
            fault(&["model", "name"], "the model's name is missing".into());
        }
        for field in RESERVED_FIELDS
            .iter()
            .filter(|field| config.options.contains_key(**field))
        {
            fault(
                &["model", "options", field],
                "the agent sets this field of the request: leave it out".into(),
            );
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            match (
                HeaderName::from_bytes(name.as_bytes()),
                HeaderValue::from_str(value),
            ) {
                (Ok(name), Ok(value)) => drop(headers.insert(name, value)),
                _ => fault(
                    &["model", "headers", name],
                    "this is not a valid header field".into(),
                ),
            }
        }
        if let Some(key) = &config.key {
            match HeaderValue::from_str(&format!("Bearer {}", key.trim())) {
                Ok(value) if !key.trim().is_empty() => {
                    headers.insert(AUTHORIZATION, value);
                }
                _ => fault(
                    &["model", "key"],
                    "this cannot be sent as a key: it is empty or has invalid characters".into(),
                ),
            }
        }
        headers
            .values_mut()
            .for_each(|value| value.set_sensitive(true));
        let client = clients.get(AddressPolicy::allow_all());
        if faults.len() > before {
            return None;
        }
        let url = url?;
        if url.scheme() == "https" && !client.has_ca_certificates {
            let message = crate::kinds::http::client::NO_CA_CERTIFICATES;
            faults.push(ConfigFault::warning(&["model", "base_url"], message));
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static(if config.stream {
                "text/event-stream, application/json"
            } else {
                "application/json"
            }),
        );
        let secrets = config
            .key
            .iter()
            .chain(config.headers.values())
            .map(|secret| secret.trim().to_owned());
        Some(Self {
            client,
            host: host_and_port(&url),
            model: config.name.as_str().into(),
            url,
            headers,
            secrets: secrets.filter(|secret| secret.len() >= 4).collect(),
            body: base_body(config),
            random: fastrand::f64,
        })
    }

    /// Asks the model to answer these messages. Omits `tools` if it is empty, as the API requires.
    /// No further attempt starts after `end`. The requests are part of the trace `trace`.
    pub(super) async fn request_completion(
        &self,
        messages: &[Value],
        tools: &[Value],
        trace: Option<&TraceContext>,
        end: Instant,
        listener: &mut dyn AnswerListener,
    ) -> Result<Completion, ToolError> {
        let mut body = self.body.clone();
        body.insert("messages".into(), messages.into());
        if !tools.is_empty() {
            body.insert("tools".into(), tools.into());
        }
        let body = Value::Object(body).to_string();
        let mut attempt = 1;
        loop {
            let error = match self.send_request(&body, trace, listener).await {
                Ok(completion) => return Ok(completion),
                Err(error) => error,
            };
            let wait = self.retry_wait(attempt, &error).filter(|wait| {
                attempt < MAX_ATTEMPTS
                    && Instant::now()
                        .checked_add(*wait)
                        .is_some_and(|start| start < end)
            });
            let Some(wait) = wait else { return Err(error) };
            listener.on_retry(&error.to_string());
            sleep(wait).await;
            attempt += 1;
        }
    }

    /// How long to wait before the next attempt. `None`: it would fail again, or the server asks
    /// for too long a wait.
    fn retry_wait(&self, attempt: u32, error: &ToolError) -> Option<Duration> {
        let retry_after = match error {
            ToolError::Upstream(failure) if failure.retryable => failure.retry_after,
            ToolError::BadOutput(_) => None,
            _ => return None,
        };
        let wait = BACKOFF
            .wait_after(attempt, (self.random)())
            .max(retry_after.unwrap_or_default());
        (wait <= MAX_RETRY_WAIT).then_some(wait)
    }

    async fn send_request(
        &self,
        body: &str,
        trace: Option<&TraceContext>,
        listener: &mut dyn AnswerListener,
    ) -> Result<Completion, ToolError> {
        let mut request = Request::new(Method::POST, self.url.clone());
        *request.headers_mut() = self.headers.clone();
        trace::add_trace_headers(trace, request.headers_mut());
        *request.body_mut() = Some(body.to_owned().into());
        let response = self.client.send(request).await?;
        match response.status().as_u16() {
            200 => {}
            status => return Err(self.status_error(status, response).await),
        }
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        // A server that cannot stream sends a whole answer, even if a stream was requested.
        if content_type.is_some_and(|media_type| {
            media_type
                .trim()
                .to_ascii_lowercase()
                .starts_with("text/event-stream")
        }) {
            self.read_streamed_answer(response, listener).await
        } else {
            self.read_json_answer(response).await
        }
    }

    async fn read_json_answer(&self, response: Response) -> Result<Completion, ToolError> {
        let bytes = read_whole_text(response, MAX_ANSWER_BYTES)
            .await?
            .ok_or_else(|| self.too_long_error())?;
        let body: Value = serde_json::from_slice(&bytes)
            .map_err(|error| self.bad_output(format!("returned invalid JSON: {error}")))?;
        if let Some(message) = error_message(&body) {
            return Err(ToolError::upstream(
                self.server_message(format!("says: {message}")),
            ));
        }
        Completion::from_response(body)
            .map_err(|problem| self.bad_output(format!("gave an answer that {problem}")))
    }

    async fn read_streamed_answer(
        &self,
        response: Response,
        listener: &mut dyn AnswerListener,
    ) -> Result<Completion, ToolError> {
        let mut length = 0;
        let chunks = response.into_chunks().map(move |chunk| {
            let chunk = chunk.map_err(StreamError::Interrupted)?;
            length += chunk.len();
            match length > MAX_ANSWER_BYTES {
                true => Err(StreamError::TooLong),
                false => Ok(chunk),
            }
        });
        let mut events = std::pin::pin!(SseByteStream::new(chunks));
        let mut assembly = AnswerAssembler::default();
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(sse_stream::Error::Body(error)) => match error
                    .downcast::<StreamError>()
                    .map(|error| *error)
                {
                    Ok(StreamError::TooLong) => return Err(self.too_long_error()),
                    // The answer is complete. At most its token counts are missing.
                    Ok(StreamError::Interrupted(_)) if assembly.is_finished() => break,
                    Ok(StreamError::Interrupted(error)) => {
                        return Err(request_error(&self.host, error));
                    }
                    Err(_) => {
                        return Err(self.bad_output("answered a stream that cannot be read".into()));
                    }
                },
                Err(error) => {
                    return Err(
                        self.bad_output(format!("answered a stream that cannot be read: {error}"))
                    );
                }
            };
            let Some(data) = event
                .data
                .as_deref()
                .map(str::trim)
                .filter(|data| !data.is_empty())
            else {
                continue;
            };
            if data == "[DONE]" {
                break;
            }
            let chunk: Value = serde_json::from_str(data).map_err(|error| {
                self.bad_output(format!("sent a chunk that is not JSON: {error}"))
            })?;
            if let Some(message) = error_message(&chunk) {
                return Err(ToolError::upstream(self.server_message(format!(
                    "ended its answer early with an error: {message}"
                ))));
            }
            if let Some(text) = assembly.add_chunk(chunk) {
                listener.on_text(&text);
            }
        }
        if !assembly.is_finished() {
            return Err(ToolError::upstream(
                self.server_message("ended its answer early".into()),
            ));
        }
        assembly
            .finish()
            .map_err(|problem| self.bad_output(format!("streamed an answer that {problem}")))
    }

    /// The failure for a status other than 200. The server's own text is for people.
    async fn status_error(&self, status: u16, response: Response) -> ToolError {
        let wait = parse_retry_after(&response);
        let body = read_whole_text(response, MAX_ERROR_BODY_BYTES)
            .await
            .ok()
            .flatten()
            .unwrap_or_default();
        let detail = serde_json::from_slice(&body).ok();
        let detail = detail
            .and_then(|body| error_message(&body))
            .map(|detail| format!(": {detail}"))
            .unwrap_or_default();
        let message = self.server_message(format!("answered HTTP {status}{detail}"));
        let error = match status {
            408 | 429 => ToolError::upstream_busy(message).with_retry_after(wait),
            // Some servers use 529 for an overload.
            500 | 502..=504 | 529 => ToolError::upstream(message).with_retry_after(wait),
            _ => ToolError::upstream_permanent(message),
        };
        error.with_cause(UpstreamReason::Status(status), &self.host)
    }

    fn too_long_error(&self) -> ToolError {
        self.bad_output(format!(
            "answered more than {}",
            ByteSize(MAX_ANSWER_BYTES as u64)
        ))
    }

    fn bad_output(&self, text: String) -> ToolError {
        // The calling model reads it, and gets no address.
        ToolError::BadOutput(format!("the model's server {}", self.without_key(text)))
    }

    /// A sentence about the server, without its key. It may be long: the caller removes other
    /// secrets before it is shortened.
    fn server_message(&self, text: String) -> String {
        format!(
            "the model's server `{}` {}",
            self.host,
            self.without_key(text)
        )
    }

    fn without_key(&self, text: String) -> String {
        let secrets = self.secrets.iter();
        secrets.fold(text, |text, secret| text.replace(secret, REDACTED))
    }
}

/// Why a stream ended early.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    Interrupted(hyper::Error),
    #[error("too long")]
    TooLong,
}

/// The URL for completions. The error says what is wrong with the base URL.
fn completions_url(base_url: &str) -> Result<Url, String> {
    let example = "e.g. https://api.example.com/v1";
    let mut url = Url::parse(base_url.trim())
        .map_err(|error| format!("this is not a valid URL ({error}); {example}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("an http or https URL is expected here, {example}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("put the key into `model.key`, not into the URL".into());
    }
    let path = url.path().trim_end_matches('/');
    if path.ends_with("/chat/completions") {
        return Err("leave `/chat/completions` out: it is appended to this URL".into());
    }
    let path = format!("{path}/chat/completions");
    url.set_path(&path);
    Ok(url)
}

/// The part of the body that all requests share.
fn base_body(config: ModelConfig) -> JsonObject {
    let mut body = config.options;
    body.insert("model".into(), config.name.into());
    if let Some(temperature) = config.temperature {
        body.insert("temperature".into(), temperature.into());
    }
    if let Some(max_tokens) = config.max_tokens {
        body.insert("max_tokens".into(), max_tokens.into());
    }
    body.insert("stream".into(), config.stream.into());
    if config.stream {
        let options = serde_json::json!({"include_usage": true});
        body.insert("stream_options".into(), options);
    }
    body
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::UpstreamFailure;

    fn build_endpoint(model: Value) -> Result<Endpoint, Vec<ConfigFault>> {
        let mut faults = Vec::new();
        let endpoint = Endpoint::build(
            serde_json::from_value(model).unwrap(),
            &HttpClients::default(),
            &mut faults,
        );
        endpoint.ok_or(faults)
    }

    fn endpoint() -> Endpoint {
        let model = json!({"base_url": "http://127.0.0.1:1/v1/?v=2", "name": "m", "key": "sk-123456", "max_tokens": 5,
            "options": {"top_p": 0.5}, "headers": {"x-team": "blue"}, "stream": true});
        Endpoint {
            random: || 1.0,
            ..build_endpoint(model).unwrap()
        }
    }

    #[test]
    fn request_has_manifest_settings() {
        let endpoint = endpoint();
        assert_eq!(
            endpoint.url.as_str(),
            "http://127.0.0.1:1/v1/chat/completions?v=2"
        );
        assert_eq!(
            json!(endpoint.body),
            json!({"model": "m", "top_p": 0.5, "max_tokens": 5, "stream": true, "stream_options": {"include_usage": true}})
        );
        assert_eq!(
            (
                &endpoint.headers["x-team"],
                &endpoint.headers[AUTHORIZATION]
            ),
            (
                &HeaderValue::from_static("blue"),
                &HeaderValue::from_static("Bearer sk-123456"),
            )
        );
        assert!(!format!("{:?}", endpoint.headers).contains("sk-123456"));
    }

    #[test]
    fn waits_double_and_respect_retry_after() {
        let endpoint = endpoint();
        let busy = |seconds: Option<u64>| {
            ToolError::Upstream(UpstreamFailure {
                message: String::new(),
                retryable: true,
                unavailable: false,
                not_delivered: false,
                retry_after: seconds.map(Duration::from_secs),
                cause: None,
            })
        };
        let wait = |tries, error: &ToolError| {
            endpoint
                .retry_wait(tries, error)
                .map(|wait| wait.as_millis())
        };
        assert_eq!(
            [1, 2].map(|tries| wait(tries, &busy(None))),
            [Some(500), Some(1000)]
        );
        assert_eq!(
            (wait(1, &busy(Some(7))), wait(1, &busy(Some(11)))),
            (Some(7000), None)
        );
        assert_eq!(wait(1, &ToolError::BadOutput(String::new())), Some(500));
        assert_eq!(wait(1, &ToolError::upstream_permanent("")), None);
        assert_eq!(
            Endpoint {
                random: || 0.0,
                ..endpoint
            }
            .retry_wait(2, &busy(None)),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn server_messages_hide_the_key() {
        let words = endpoint().server_message("says: sk-123456 is wrong".into());
        assert_eq!(
            words,
            "the model's server `127.0.0.1:1` says: [redacted] is wrong"
        );
    }

    #[test]
    fn base_url_must_be_a_plain_url() {
        let fault = |url: &str| {
            build_endpoint(json!({"base_url": url, "name": "m"}))
                .err()
                .unwrap()[0]
                .message
                .clone()
        };
        assert!(fault("api.example.com/v1").contains("not a valid URL"));
        assert!(fault("unix:/tmp/x").contains("http or https"));
        assert!(fault("https://key@api.example.com/v1").contains("`model.key`"));
        assert!(fault("https://api.example.com/v1/chat/completions").contains("leave"));
    }
}
