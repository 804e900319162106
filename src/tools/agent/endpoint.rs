//! A model's endpoint, which speaks OpenAI Chat Completions. Failed requests are repeated.
//!
//! A request has no effect of its own, so it may be repeated whatever the tool's effect is. Texts of the server are
//! passed on without the key, and answers are read only up to a bound.

use std::time::Duration;

use bytesize::ByteSize;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Response};
use serde_json::Value;
use sse_stream::SseByteStream;
use tokio::time::{Instant, sleep};
use url::Url;

use super::completion::{Completion, complaint};
use super::config::ModelConfig;
use super::stream::Assembly;
use crate::call::{JsonObject, ToolError, TraceContext};
use crate::tools::http::address_policy::AddressPolicy;
use crate::tools::http::client::{Client, failure, host};
use crate::tools::http::response::retry_after;
use crate::tools::http::trace;
use crate::tools::{BuildContext, ConfigFault};

/// Longest answer that is read, streamed or whole, in bytes.
const LONGEST_ANSWER: usize = 4 << 20;
/// Bytes that are read of an error response, and bytes of its text that are passed on.
const LONGEST_ERROR: usize = 16 << 10;
pub(super) const LONGEST_COMPLAINT: usize = 400;
/// Most requests for one answer, the first one included.
const TRIES: u32 = 3;
/// Bound of the wait before the second request. It doubles before the third. "Full jitter", as for a tool's retries.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// A longer `Retry-After` is not waited for.
const LONGEST_ASKED: Duration = Duration::from_secs(10);
/// Fields of the request that `model.options` must not set.
const OWN_FIELDS: [&str; 6] = ["model", "messages", "tools", "stream", "stream_options", "n"];

/// The endpoint of one agent.
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    host: String,
    headers: HeaderMap,
    /// The body of each request, without messages and tools.
    body: JsonObject,
    /// Key and header values, which must not appear in any text of the server.
    secrets: Vec<String>,
    /// Returns a number from 0 to 1. A field, so that waits can be tested.
    random: fn() -> f64,
}

/// Receives parts of an answer while they arrive.
pub(super) trait Listener: Send {
    /// Receives a piece of the answer's text.
    fn text(&mut self, text: &str);
    /// The request failed and is repeated, so earlier pieces are void.
    fn again(&mut self, why: &str);
}

impl Endpoint {
    pub(super) fn build(
        config: ModelConfig,
        context: &BuildContext<'_>,
        faults: &mut Vec<ConfigFault>,
    ) -> Option<Self> {
        let before = faults.len();
        let mut fault = |path: &[&str], message: String| faults.push(ConfigFault::error(path, message));
        let url = completions(&config.base_url).map_err(|message| fault(&["model", "base_url"], message)).ok();
        if config.name.trim().is_empty() {
            fault(&["model", "name"], "the model's name is missing".into());
        }
        for field in OWN_FIELDS.iter().filter(|field| config.options.contains_key(**field)) {
            fault(&["model", "options", field], "this field of the request is the agent's own: leave it out".into());
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
                (Ok(name), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                _ => fault(&["model", "headers", name], "this is no header field".into()),
            }
        }
        if let Some(key) = &config.key {
            match HeaderValue::from_str(&format!("Bearer {}", key.trim())) {
                Ok(mut value) if !key.trim().is_empty() => {
                    value.set_sensitive(true);
                    headers.insert(AUTHORIZATION, value);
                }
                _ => fault(&["model", "key"], "this cannot be sent as a key: it is empty or has odd characters".into()),
            }
        }
        let client = context.clients.get(AddressPolicy::open()).map_err(|message| fault(&["model"], message)).ok();
        if faults.len() > before {
            return None;
        }
        let (client, url) = (client?, url?);
        if url.scheme() == "https" && !client.has_roots() {
            let message = crate::tools::http::client::NO_ROOTS;
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
        let secrets = config.key.iter().chain(config.headers.values()).map(|secret| secret.trim().to_owned());
        Some(Self {
            client,
            host: host(&url),
            url,
            headers,
            secrets: secrets.filter(|secret| secret.len() >= 4).collect(),
            body: body(config),
            random: fastrand::f64,
        })
    }

    /// Asks the model to answer these messages. Omits `tools` if it is empty, as the API requires. No further attempt
    /// starts after `end`. The requests are part of the trace `of` the call.
    pub(super) async fn ask(
        &self,
        messages: &[Value],
        tools: &[Value],
        of: Option<&TraceContext>,
        end: Instant,
        listener: &mut dyn Listener,
    ) -> Result<Completion, ToolError> {
        let mut body = self.body.clone();
        body.insert("messages".into(), messages.into());
        if !tools.is_empty() {
            body.insert("tools".into(), tools.into());
        }
        let body = Value::Object(body).to_string();
        let mut tries = 1;
        loop {
            let error = match self.once(&body, of, listener).await {
                Ok(completion) => return Ok(completion),
                Err(error) => error,
            };
            let wait = self
                .wait(tries, &error)
                .filter(|wait| tries < TRIES && Instant::now().checked_add(*wait).is_some_and(|then| then < end));
            let Some(wait) = wait else { return Err(error) };
            listener.again(&error.to_string());
            sleep(wait).await;
            tries += 1;
        }
    }

    /// How long to wait before the next attempt. `None`: it would fail again, or the server asks for too long a wait.
    fn wait(&self, tries: u32, error: &ToolError) -> Option<Duration> {
        let asked = match error {
            ToolError::Upstream { retryable: true, retry_after, .. } => *retry_after,
            ToolError::BadOutput(_) => None,
            _ => return None,
        };
        let bound = FIRST_WAIT.saturating_mul(1 << (tries - 1).min(8));
        let wait = bound.mul_f64((self.random)()).max(asked.unwrap_or_default());
        (wait <= LONGEST_ASKED).then_some(wait)
    }

    async fn once(
        &self,
        body: &str,
        of: Option<&TraceContext>,
        listener: &mut dyn Listener,
    ) -> Result<Completion, ToolError> {
        let mut request = Request::new(Method::POST, self.url.clone());
        *request.headers_mut() = self.headers.clone();
        trace::send_on(of, request.headers_mut());
        *request.body_mut() = Some(body.to_owned().into());
        let response = self.client.send(request).await?;
        match response.status().as_u16() {
            200 => {}
            status => return Err(self.refused(status, response).await),
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        // A server that cannot stream sends a whole answer, even if a stream was requested.
        if content_type.is_some_and(|said| said.trim().to_ascii_lowercase().starts_with("text/event-stream")) {
            self.streamed(response, listener).await
        } else {
            self.whole(response).await
        }
    }

    async fn whole(&self, response: Response) -> Result<Completion, ToolError> {
        let bytes = self.read(response, LONGEST_ANSWER).await?.ok_or_else(|| self.too_long())?;
        let body: Value =
            serde_json::from_slice(&bytes).map_err(|error| self.bad(format!("answered what is no JSON: {error}")))?;
        if let Some(said) = complaint(&body) {
            return Err(ToolError::upstream(self.words(format!("says: {said}"))));
        }
        Completion::read(body).map_err(|what| self.bad(format!("gave an answer that {what}")))
    }

    async fn streamed(&self, response: Response, listener: &mut dyn Listener) -> Result<Completion, ToolError> {
        let chunks = stream::try_unfold((response, 0), |(mut response, before)| async move {
            let Some(chunk) = response.chunk().await.map_err(Broken::Off)? else { return Ok(None) };
            let length = before + chunk.len();
            if length > LONGEST_ANSWER {
                return Err(Broken::TooLong);
            }
            Ok(Some((chunk, (response, length))))
        });
        let mut events = std::pin::pin!(SseByteStream::new(chunks.into_stream()));
        let mut assembly = Assembly::default();
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(sse_stream::Error::Body(error)) => match error.downcast::<Broken>().map(|broken| *broken) {
                    Ok(Broken::TooLong) => return Err(self.too_long()),
                    // The answer is complete. At most its token counts are missing.
                    Ok(Broken::Off(_)) if assembly.is_finished() => break,
                    Ok(Broken::Off(error)) => return Err(failure(&self.host, error)),
                    Err(_) => return Err(self.bad("answered a stream that cannot be read".into())),
                },
                Err(error) => return Err(self.bad(format!("answered a stream that cannot be read: {error}"))),
            };
            let Some(data) = event.data.as_deref().map(str::trim).filter(|data| !data.is_empty()) else { continue };
            if data == "[DONE]" {
                break;
            }
            let chunk: Value = serde_json::from_str(data)
                .map_err(|error| self.bad(format!("sent a chunk that is no JSON: {error}")))?;
            if let Some(said) = complaint(&chunk) {
                return Err(ToolError::upstream(self.words(format!("broke off, saying: {said}"))));
            }
            if let Some(text) = assembly.add(chunk) {
                listener.text(&text);
            }
        }
        if !assembly.is_finished() {
            return Err(ToolError::upstream(self.words("broke off in the middle of its answer".into())));
        }
        assembly.finish().map_err(|what| self.bad(format!("streamed an answer that {what}")))
    }

    /// The body, up to `most` bytes; `None` if it is longer.
    async fn read(&self, mut response: Response, most: usize) -> Result<Option<Vec<u8>>, ToolError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&self.host, error))? {
            if bytes.len() + chunk.len() > most {
                return Ok(None);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes))
    }

    /// The failure for a status other than 200. The server's own text is for people.
    async fn refused(&self, status: u16, response: Response) -> ToolError {
        let wait = retry_after(&response);
        let said = self.read(response, LONGEST_ERROR).await.ok().flatten().unwrap_or_default();
        let said = match serde_json::from_slice::<Value>(&said) {
            Ok(body) => complaint(&body),
            Err(_) => None,
        };
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        let message = self.words(format!("answered HTTP {status}{said}"));
        match status {
            // Some servers use 529 for an overload.
            408 | 429 | 500 | 502..=504 | 529 => ToolError::Upstream {
                message,
                retryable: true,
                down: status >= 500,
                untouched: false,
                retry_after: wait,
            },
            _ => ToolError::upstream_final(message),
        }
    }

    fn too_long(&self) -> ToolError {
        self.bad(format!("answered more than {}", ByteSize(LONGEST_ANSWER as u64)))
    }

    fn bad(&self, what: String) -> ToolError {
        ToolError::BadOutput(self.words(what))
    }

    /// A sentence about the server, without its key. It may be long: the caller removes other secrets before it is
    /// shortened.
    fn words(&self, what: String) -> String {
        let what = self.secrets.iter().fold(what, |what, secret| what.replace(secret, crate::tools::agent::HIDDEN));
        format!("the model's server `{}` {what}", self.host)
    }
}

/// Why a stream ended early.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Off(reqwest::Error),
    #[error("too long")]
    TooLong,
}

/// The URL for completions. The error says what is wrong with the base URL.
fn completions(base_url: &str) -> Result<Url, String> {
    let example = "e.g. https://api.example.com/v1";
    let mut url = Url::parse(base_url.trim()).map_err(|error| format!("this is no URL ({error}); {example}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("an http or https URL is expected here, {example}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a key belongs into `model.key`, not into the URL".into());
    }
    let path = url.path().trim_end_matches('/');
    if path.ends_with("/chat/completions") {
        return Err("leave `/chat/completions` out: it is put behind this URL".into());
    }
    let path = format!("{path}/chat/completions");
    url.set_path(&path);
    Ok(url)
}

/// The part of the body that all requests share.
fn body(config: ModelConfig) -> JsonObject {
    let ModelConfig { name, stream, temperature, max_tokens, options, .. } = config;
    let mut body = options;
    body.insert("model".into(), name.into());
    if let Some(temperature) = temperature {
        body.insert("temperature".into(), temperature.into());
    }
    if let Some(max_tokens) = max_tokens {
        body.insert("max_tokens".into(), max_tokens.into());
    }
    body.insert("stream".into(), stream.into());
    if stream {
        body.insert("stream_options".into(), serde_json::json!({"include_usage": true}));
    }
    body
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::call::Effect;
    use crate::tools::Clients;

    fn built(model: Value) -> Result<Endpoint, Vec<ConfigFault>> {
        let (schema, clients) = (json!({}), Clients::default());
        let context = BuildContext {
            base: Path::new(""),
            input_schema: &schema,
            fields: &[],
            effect: Effect::Read,
            trusted: true,
            clients: &clients,
            databases: &crate::tools::Databases::default(),
        };
        let mut faults = Vec::new();
        let endpoint = Endpoint::build(serde_json::from_value(model).unwrap(), &context, &mut faults);
        endpoint.ok_or(faults)
    }

    fn endpoint() -> Endpoint {
        let model = json!({"base_url": "http://127.0.0.1:1/v1/?v=2", "name": "m", "key": "sk-123456", "max_tokens": 5,
            "options": {"top_p": 0.5}, "headers": {"x-team": "blue"}, "stream": true});
        Endpoint { random: || 1.0, ..built(model).unwrap() }
    }

    #[test]
    fn a_request_says_what_the_manifest_says() {
        let endpoint = endpoint();
        assert_eq!(endpoint.url.as_str(), "http://127.0.0.1:1/v1/chat/completions?v=2");
        assert_eq!(
            json!(endpoint.body),
            json!({"model": "m", "top_p": 0.5, "max_tokens": 5, "stream": true, "stream_options": {"include_usage": true}})
        );
        assert_eq!(
            (&endpoint.headers["x-team"], &endpoint.headers[AUTHORIZATION]),
            (&HeaderValue::from_static("blue"), &HeaderValue::from_static("Bearer sk-123456"),)
        );
        assert!(!format!("{:?}", endpoint.headers).contains("sk-123456"));
    }

    #[test]
    fn waits_double_and_respect_what_is_asked_up_to_a_bound() {
        let endpoint = endpoint();
        let busy = |seconds: Option<u64>| ToolError::Upstream {
            message: String::new(),
            retryable: true,
            down: false,
            untouched: false,
            retry_after: seconds.map(Duration::from_secs),
        };
        let wait = |tries, error: &ToolError| endpoint.wait(tries, error).map(|wait| wait.as_millis());
        assert_eq!([1, 2].map(|tries| wait(tries, &busy(None))), [Some(500), Some(1000)]);
        assert_eq!((wait(1, &busy(Some(7))), wait(1, &busy(Some(11)))), (Some(7000), None));
        assert_eq!(wait(1, &ToolError::BadOutput(String::new())), Some(500));
        assert_eq!(wait(1, &ToolError::upstream_final("")), None);
        assert_eq!(Endpoint { random: || 0.0, ..endpoint }.wait(2, &busy(None)), Some(Duration::ZERO));
    }

    #[test]
    fn what_a_server_says_is_without_the_key() {
        let words = endpoint().words("says: sk-123456 is wrong".into());
        assert_eq!(words, "the model's server `127.0.0.1:1` says: [redacted] is wrong");
    }

    #[test]
    fn a_base_is_a_plain_url() {
        let fault = |url: &str| built(json!({"base_url": url, "name": "m"})).err().unwrap()[0].message.clone();
        assert!(fault("api.example.com/v1").contains("no URL"));
        assert!(fault("unix:/tmp/x").contains("http or https"));
        assert!(fault("https://key@api.example.com/v1").contains("`model.key`"));
        assert!(fault("https://api.example.com/v1/chat/completions").contains("leave"));
    }
}
