//! OpenTelemetry: spans, metrics and logs over OTLP.
//!
//! A call only decides at its start whether it is recorded, and puts plain data into a bounded
//! queue at its end. One task for each signal makes messages of what has collected and sends them.
//! If the collector is down or slow, the queue fills up, and what does not fit is dropped and
//! counted. No call waits.
//!
//! - `settings`, `variables`: what the manifest and the `OTEL_*` variables configure
//! - `sampling`: which calls are recorded
//! - `tool_spans`: the part of a tool's stack that reports calls; `ended_span`: what it reports
//! - `span_messages`, `log_messages`, `metric_messages`: the messages of OTLP
//! - `queue`: the queue of a signal, and the task that sends it
//! - `exporter`, `grpc`: one request to the collector

mod attributes;
mod ended_span;
mod exporter;
mod grpc;
mod log_messages;
mod metric_messages;
mod queue;
mod resource;
mod sampling;
mod settings;
mod signal;
mod span_messages;
mod tool_spans;
mod variables;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::ended_span::EndedSpan;
use self::exporter::Exporter;
use self::log_messages::LogQueue;
use self::queue::Queue;
use self::sampling::Sampling;
use self::signal::Signal;
use crate::call::Correlation;
use crate::log::CallLog;
use crate::metrics::{MetricFamily, Metrics};

pub use self::ended_span::McpSpan;
pub use self::settings::{Config, Protocol, Settings, parse_endpoint, parse_header};
pub use self::tool_spans::{Content, EndedParts, ToolSpans};

/// How long the last batches may take when the service stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Gathers the metrics of the service.
pub type GatherMetrics = Box<dyn Fn() -> BoxFuture<'static, Vec<MetricFamily>> + Send + Sync>;

/// The telemetry of a service. It exists only if a collector is configured.
pub struct Telemetry {
    sampling: Sampling,
    /// Whether spans hold arguments and results.
    captures: bool,
    spans: Option<Queue<EndedSpan>>,
    exporter: Arc<Exporter>,
    metric_interval: Duration,
    started_at: SystemTime,
    stop: CancellationToken,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Telemetry {
    /// Starts the tasks that send spans and log lines. Must be called within a runtime.
    ///
    /// # Errors
    /// A sentence, if no HTTP client can be made.
    pub fn start(config: Config, metrics: &Metrics, log: &CallLog) -> Result<Arc<Self>, String> {
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let (stop, mut tasks) = (CancellationToken::new(), Vec::new());
        let (batching, log_batching) = (config.span_batching, config.log_batching);
        let (sampling, captures) = (config.sampling.clone(), config.capture);
        let metric_interval = config.metric_interval;
        let exporter = Arc::new(Exporter::new(config, metrics.telemetry_metrics())?);
        let spans = exporter.sends(Signal::Traces).then(|| {
            let (queue, task) = Queue::start(&exporter, &stop, batching, span_messages::encode);
            tasks.push(task);
            queue
        });
        if exporter.sends(Signal::Logs) {
            let (queue, task): (Queue<LogRecord>, _) =
                Queue::start(&exporter, &stop, log_batching, log_messages::encode);
            tasks.push(task);
            log.forward_to(Arc::new(LogQueue(queue)));
        }
        Ok(Arc::new(Self {
            sampling,
            captures,
            spans,
            exporter,
            metric_interval,
            started_at: SystemTime::now(),
            stop,
            tasks: Mutex::new(tasks),
        }))
    }

    /// Starts the task that sends the metrics.
    pub fn start_metrics(&self, gather: GatherMetrics) {
        if self.exporter.sends(Signal::Metrics) {
            let (exporter, stop) = (self.exporter.clone(), self.stop.clone());
            let (interval, started_at) = (self.metric_interval, self.started_at);
            self.tasks.lock().push(tokio::spawn(async move {
                metric_messages::run(&exporter, &stop, interval, started_at, gather).await;
            }));
        }
    }

    /// Decides whether a call is recorded, and makes its span.
    fn trace_call(&self, correlation: &mut Correlation) {
        if self.spans.is_some() {
            self.sampling.trace_call(correlation);
        }
    }

    fn record_span(&self, span: EndedSpan) {
        if let Some(spans) = &self.spans {
            spans.push(span);
        }
    }

    /// Sends what has collected and ends the tasks. Takes three seconds at most.
    pub async fn shut_down(&self) {
        self.stop.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let all = futures_util::future::join_all(tasks);
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, all).await;
    }
}
