//! One request to the collector for a resource, and what the operator learns about failures.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::resource::v1::Resource;
use parking_lot::Mutex;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, TE};
use reqwest::{Body, Client, ClientBuilder, RequestBuilder, Response, redirect, retry};
use rustls::crypto::{CryptoProvider, ring};
use url::Url;

use super::attributes::Attributes;
use super::settings::Config;
use super::signal::{Protocol, Signal};
use crate::metrics::{ExportOutcome, TelemetryMetrics};

/// The longest answer that is read. It holds a sentence at most.
const MAX_ANSWER_BYTES: usize = 64 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends messages to the collector.
pub(super) struct Exporter {
    client: Client,
    protocol: Protocol,
    endpoints: [Option<Url>; 3],
    headers: HeaderMap,
    resource: Resource,
    metrics: Arc<TelemetryMetrics>,
    /// The signals whose last request failed.
    failing: Mutex<[bool; 3]>,
}

impl Exporter {
    pub(super) fn new(config: Config, metrics: Arc<TelemetryMetrics>) -> Result<Self, String> {
        if CryptoProvider::get_default().is_none() {
            // This fails only if another thread was faster, and then a provider is installed too.
            let _ = ring::default_provider().install_default();
        }
        let builder = || client_builder(&config);
        // An image without CA certificates can still use plain HTTP.
        let client = builder()
            .build()
            .or_else(|_| builder().tls_certs_only([]).build());
        let client = client.map_err(|error| format!("telemetry: no HTTP client: {error}"))?;
        Ok(Self {
            client,
            protocol: config.protocol,
            headers: config.headers,
            resource: build_resource(&config.resource),
            endpoints: config.endpoints,
            metrics,
            failing: Mutex::default(),
        })
    }

    /// Whether a signal has a collector.
    pub(super) fn sends(&self, signal: Signal) -> bool {
        self.endpoints[signal as usize].is_some()
    }

    pub(super) fn resource(&self) -> Resource {
        self.resource.clone()
    }

    pub(super) fn count(&self, signal: Signal, outcome: ExportOutcome, records: u64) {
        self.metrics.count(signal.as_str(), outcome, records);
    }

    /// Sends one message with this number of records. Counts those that the collector has rejected.
    pub(super) async fn send(
        &self,
        signal: Signal,
        message: Vec<u8>,
        records: u64,
    ) -> Result<(), Failure> {
        let Some(endpoint) = self.endpoints[signal as usize].clone() else {
            return Ok(());
        };
        let request = self
            .client
            .post(endpoint.clone())
            .headers(self.headers.clone());
        let answer = match self.protocol {
            Protocol::Http => {
                let kind = HeaderValue::from_static("application/x-protobuf");
                let request = request.header(CONTENT_TYPE, kind).body(message);
                match request.send().await {
                    Ok(response) => read_http(response).await,
                    Err(error) => Err(connection_failure(error)),
                }
            }
            Protocol::Grpc => match grpc_request(request, &message).send().await {
                Ok(response) => read_grpc(response).await,
                Err(error) => Err(connection_failure(error)),
            },
        };
        self.note_outcome(signal, &endpoint, answer.as_ref().err());
        let rejected = rejected_records(&answer?).min(records);
        self.count(signal, ExportOutcome::Rejected, rejected);
        self.count(signal, ExportOutcome::Exported, records - rejected);
        Ok(())
    }

    /// Logs when the collector begins to fail, and when it works again: one line for each, however
    /// many requests fail.
    fn note_outcome(&self, signal: Signal, endpoint: &Url, failure: Option<&Failure>) {
        let mut failing = self.failing.lock();
        let were_failing = failing.contains(&true);
        failing[signal as usize] = failure.is_some();
        match failure {
            Some(failure) if !were_failing => {
                let host = endpoint.host_str().unwrap_or_default();
                tracing::warn!(
                    collector = host,
                    signal = signal.as_str(),
                    error = failure.message,
                    "telemetry cannot be delivered; calls are not affected"
                );
            }
            None if were_failing && !failing.contains(&true) => {
                tracing::info!("telemetry is delivered again");
            }
            _ => {}
        }
    }
}

fn client_builder(config: &Config) -> ClientBuilder {
    let builder = Client::builder()
        .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .connect_timeout(CONNECT_TIMEOUT.min(config.timeout))
        .timeout(config.timeout);
    match config.protocol {
        Protocol::Http => builder.http1_only(),
        Protocol::Grpc => builder.http2_prior_knowledge(),
    }
}

/// A failure below HTTP. It names no URL.
fn connection_failure(error: reqwest::Error) -> Failure {
    if error.is_timeout() {
        return Failure::retryable("no answer in time");
    }
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    Failure::retryable(cause.to_string())
}

/// Reads an answer of OTLP over HTTP.
async fn read_http(response: Response) -> Result<Vec<u8>, Failure> {
    let status = response.status();
    if status.is_success() {
        return read_body(response).await;
    }
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let is_retryable = matches!(status.as_u16(), 429 | 502..=504);
    Err(Failure {
        message: format!("status {status}"),
        is_retryable,
        retry_after,
    })
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(connection_failure)? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Ok(Vec::new());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The number of records that the collector has rejected. The answers of all signals have the same
/// fields. An answer that is not a message means that nothing was rejected.
fn rejected_records(answer: &[u8]) -> u64 {
    ExportTraceServiceResponse::decode(answer)
        .ok()
        .and_then(|answer| answer.partial_success)
        .map_or(0, |partial| {
            u64::try_from(partial.rejected_spans).unwrap_or(0)
        })
}

/// Why a request failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    /// Whether the same message may succeed later.
    pub(super) is_retryable: bool,
    /// When the collector wants the next request.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn permanent(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            is_retryable: false,
            retry_after: None,
        }
    }

    pub(super) fn retryable(message: impl Into<String>) -> Self {
        Self {
            is_retryable: true,
            ..Self::permanent(message)
        }
    }
}

/// The resource with these attributes, and with defaults for those that every service has.
pub(super) fn build_resource(own: &BTreeMap<String, String>) -> Resource {
    let instance = uuid::Uuid::now_v7().to_string();
    let defaults = [
        ("service.name", env!("CARGO_PKG_NAME")),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", &instance),
        ("telemetry.sdk.language", "rust"),
        // The messages are made from the data of the ledger, not by the SDK of OpenTelemetry.
        ("telemetry.sdk.name", env!("CARGO_PKG_NAME")),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    let mut attributes = Attributes::default();
    for (name, value) in defaults {
        if !own.contains_key(name) {
            attributes.text(name, value);
        }
    }
    for (name, value) in own {
        attributes.text(name, value);
    }
    Resource {
        attributes: attributes.into_vec(),
        ..Resource::default()
    }
}

const GRPC_STATUS: &str = "grpc-status";
const GRPC_MESSAGE: &str = "grpc-message";
/// The flag for compression, and the length of the message.
const PREFIX_BYTES: usize = 5;

/// Makes the request that carries a message.
fn grpc_request(request: RequestBuilder, message: &[u8]) -> RequestBuilder {
    let mut framed = Vec::with_capacity(PREFIX_BYTES + message.len());
    framed.push(0);
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    request
        .header(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
        .header(TE, HeaderValue::from_static("trailers"))
        .body(framed)
}

/// Reads the answer: its message, if the status says that the call succeeded.
async fn read_grpc(response: Response) -> Result<Vec<u8>, Failure> {
    let status = response.status();
    if !status.is_success() {
        let message = format!("status {status}; is this a collector that speaks gRPC?");
        return Err(match status.as_u16() {
            429 | 502..=504 => Failure::retryable(message),
            _ => Failure::permanent(message),
        });
    }
    let (head, body) = hyper::http::Response::<Body>::from(response).into_parts();
    // Without a message, the status is in the headers.
    if head.headers.contains_key(GRPC_STATUS) {
        return read_status(&head.headers).map(|()| Vec::new());
    }
    let body = http_body_util::Limited::new(body, MAX_ANSWER_BYTES)
        .collect()
        .await;
    let body = body.map_err(|error| Failure::retryable(error.to_string()))?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    read_status(&trailers)?;
    let bytes = body.to_bytes();
    Ok(bytes.get(PREFIX_BYTES..).unwrap_or_default().to_vec())
}

fn read_status(fields: &HeaderMap) -> Result<(), Failure> {
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
    let code = text(GRPC_STATUS).unwrap_or("none");
    let message = || {
        format!(
            "gRPC status {code}: {}",
            text(GRPC_MESSAGE).unwrap_or_default()
        )
    };
    match code {
        "0" => Ok(()),
        // OTLP: cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
        "1" | "4" | "10" | "11" | "14" | "15" => Err(Failure::retryable(message())),
        _ => Err(Failure::permanent(message())),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderName;

    use super::*;

    fn status(fields: &[(&'static str, &'static str)]) -> Result<(), Failure> {
        let fields = fields.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        read_status(&fields.collect())
    }

    #[test]
    fn status_decides_about_a_retry() {
        assert!(status(&[("grpc-status", "0")]).is_ok());
        assert!(status(&[("grpc-status", "14")]).unwrap_err().is_retryable);
        let denied = status(&[("grpc-status", "16"), ("grpc-message", "no key")]).unwrap_err();
        assert!(!denied.is_retryable && denied.message.contains("no key"));
        assert!(status(&[]).is_err(), "a broken answer is not a success");
    }
}
