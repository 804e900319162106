//! The three signals.

/// A signal of OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
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
