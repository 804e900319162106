//! The telemetry of a service: its queues, and the tasks that send them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ended_span::{EndedSpan, Subject, Times};
use super::exporter::Exporter;
use super::log_messages::{self, LogQueue};
use super::metric_messages::{self, GatherMetrics};
use super::queue::Queue;
use super::sampling::Sampling;
use super::settings::Config;
use super::signal::Signal;
use super::span_messages;
use crate::call::{CallSpan, CallTrace, Correlation, McpRequest, TraceContext};
use crate::log::CallLog;
use crate::metrics::Metrics;

/// How long the last batches may take when the service stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The telemetry of a service. It exists only if a collector is configured.
pub struct Telemetry {
    sampling: Sampling,
    /// Whether spans hold arguments and results.
    pub(super) captures: bool,
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
            let task = async move {
                metric_messages::run(&exporter, &stop, interval, started_at, gather).await;
            };
            self.tasks.lock().push(tokio::spawn(task.boxed()));
        }
    }

    /// Decides whether a call is recorded, and makes its span.
    pub(super) fn trace_call(&self, correlation: &mut Correlation) {
        if self.spans.is_some() {
            self.sampling.trace_call(correlation);
        }
    }

    pub(super) fn record_span(&self, span: EndedSpan) {
        if let Some(spans) = &self.spans {
            spans.push(span);
        }
    }

    /// Starts the span of a request of MCP; `None` if it is not recorded.
    pub fn start_mcp_span(
        self: &Arc<Self>,
        method: &str,
        request: McpRequest,
        caller_trace: Option<Arc<TraceContext>>,
    ) -> Option<McpSpan> {
        let mut correlation = Correlation {
            trace: caller_trace,
            mcp: Some(Arc::new(request)),
            ..Correlation::default()
        };
        self.trace_call(&mut correlation);
        let CallTrace::Recorded(span) = correlation.span else {
            return None;
        };
        Some(McpSpan {
            telemetry: self.clone(),
            span,
            caller_trace: correlation.trace,
            started: Instant::now(),
            method: method.to_owned(),
        })
    }

    /// Sends what has collected and ends the tasks. Takes three seconds at most.
    pub async fn shut_down(&self) {
        self.stop.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let all = futures_util::future::join_all(tasks);
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, all).await;
    }
}

/// The span of a request of MCP that calls no tool. It is recorded when it is ended.
pub struct McpSpan {
    telemetry: Arc<Telemetry>,
    span: Arc<CallSpan>,
    caller_trace: Option<Arc<TraceContext>>,
    started: Instant,
    method: String,
}

impl McpSpan {
    /// Ends the span. `error` is the `error.type` of a request that failed.
    pub fn end(self, error: Option<String>) {
        self.telemetry.record_span(EndedSpan {
            span: self.span,
            caller_trace: self.caller_trace,
            times: Times::until_now(self.started),
            subject: Subject::Mcp {
                method: self.method,
                error,
            },
        });
    }
}
