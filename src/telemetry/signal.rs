//! The three signals, and values of their settings: protocol, URL and queue.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use strum::IntoStaticStr;
use url::Url;

/// The settings of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batching {
    /// Records that may wait. More are dropped.
    pub(super) waiting: usize,
    /// Records in one request.
    pub(super) together: usize,
    /// How long records collect.
    pub(super) delay: Duration,
}

impl Batching {
    /// The largest queue: its records take about a kilobyte each.
    pub(super) const MAX_WAITING: usize = 65_536;
}

/// A signal of OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    pub(super) const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    /// The name in metrics, in the path of HTTP and, in capitals, in variables.
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }

    /// The path of HTTP.
    pub(super) fn http_path(self) -> String {
        format!("/v1/{}", self.as_str())
    }

    /// The method of gRPC.
    pub(super) fn grpc_path(self) -> &'static str {
        match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }
}

/// The protocol of the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// OTLP over HTTP with protobuf bodies, usually at port 4318.
    #[default]
    Http,
    /// OTLP over gRPC, usually at port 4317.
    Grpc,
}

/// Reads the URL of a collector.
///
/// # Errors
/// What is wrong with it.
pub fn parse_endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("write http://HOST:PORT or https://HOST:PORT".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("put the password into `headers`, not into the URL".to_owned());
    }
    Ok(url)
}
