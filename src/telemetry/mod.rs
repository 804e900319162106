//! OpenTelemetry: spans, metrics and logs over OTLP.
//!
//! A call only decides at its start whether it is recorded, and puts plain data into a bounded
//! queue at its end. One task for each signal makes messages of what has collected and sends them.
//! If the collector is down or slow, the queue fills up, and what does not fit is dropped and
//! counted. No call waits.
//!
//! - `pipeline`: `Telemetry`, which the service holds
//! - `settings`, `variables`: what the manifest and the `OTEL_*` variables configure
//! - `sampling`: which calls are recorded
//! - `tool_spans`: the part of a tool's stack that reports calls; `ended_span`: what it reports
//! - `span_messages`, `log_messages`, `metric_messages`: the messages of OTLP
//! - `queue`: the queue of a signal, and the task that sends it
//! - `signal`: the three signals, and values of their settings
//! - `exporter`: one request to the collector

mod attributes;
mod ended_span;
mod exporter;
mod log_messages;
mod metric_messages;
mod pipeline;
mod queue;
mod sampling;
mod settings;
mod signal;
mod span_messages;
mod tool_spans;
mod variables;

pub use self::ended_span::Content;
pub use self::metric_messages::GatherMetrics;
pub use self::pipeline::{McpSpan, Telemetry};
pub use self::settings::{Config, Settings, parse_header};
pub use self::signal::{Protocol, parse_endpoint};
pub use self::tool_spans::{EndedParts, ToolSpans};
