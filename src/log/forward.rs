//! Passes the lines of the log on, beside writing them. Nothing is passed on until there is a sink.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::RwLock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::ended_call::{EndedCall, TARGET};
use crate::call::TraceContext;

/// Targets whose lines are not passed on. Sending lines makes lines of the HTTP client, which would
/// never end. The lines of rmcp hold arguments and results.
const KEPT_TARGETS: [&str; 6] = ["h2", "hyper", "opentelemetry", "reqwest", "rmcp", "rustls"];

/// Takes the lines of the log. It must not block.
pub trait LineSink: Send + Sync {
    /// Takes one line.
    fn take(&self, line: LoggedLine<'_>);
}

/// One line of the log as data.
#[derive(Debug)]
pub struct LoggedLine<'a> {
    /// When it happened.
    pub at: Timestamp,
    /// Its importance.
    pub level: Level,
    /// The module that wrote it.
    pub target: &'a str,
    /// What happened.
    pub message: String,
    /// Values beside the message.
    pub fields: Vec<(&'static str, FieldValue)>,
    /// The trace and the span that the line belongs to. A span of 0 is unknown.
    pub span: Option<(u128, u64)>,
    /// Whether that span is recorded.
    pub is_sampled: bool,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// True or false.
    Bool(bool),
}

/// The place of the sink. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Forwarding(Arc<RwLock<Option<Arc<dyn LineSink>>>>);

impl Forwarding {
    /// Sets the sink. A process has one; later ones are ignored.
    pub(super) fn start(&self, sink: Arc<dyn LineSink>) {
        self.0.write().get_or_insert(sink);
    }

    pub(super) fn forward_call(&self, ended: &EndedCall) {
        if let Some(sink) = self.sink() {
            sink.take(line_of_call(ended));
        }
    }

    fn sink(&self) -> Option<Arc<dyn LineSink>> {
        self.0.read().clone()
    }
}

fn line_of_call(ended: &EndedCall) -> LoggedLine<'static> {
    let mut fields = vec![
        ("invocation_id", FieldValue::Text(ended.id.to_string())),
        ("tool", FieldValue::Text(ended.tool.to_string())),
        ("caller", FieldValue::Text(ended.caller.name.to_string())),
        ("state", FieldValue::Text(ended.state.as_str().to_owned())),
        ("cache", FieldValue::Text(ended.cache.as_str().to_owned())),
        ("attempts", FieldValue::Integer(ended.attempts.into())),
        ("duration_ms", FieldValue::Float(ended.duration_ms())),
    ];
    let texts = [
        ("request_id", ended.request_id.as_deref()),
        ("run_id", ended.run_id.as_deref()),
        ("tool_use_id", ended.tool_use_id.as_deref()),
        ("kind", ended.kind.map(|kind| kind.as_str())),
        ("detail", ended.detail.as_deref()),
    ];
    let texts = texts
        .into_iter()
        .filter_map(|(name, text)| Some((name, FieldValue::Text(text?.to_owned()))));
    fields.extend(texts);
    if ended.replayed {
        fields.push(("replayed", FieldValue::Bool(true)));
    }
    let recorded = ended
        .span
        .as_ref()
        .map(|span| (span.trace_id, span.span_id));
    let caller = || ended.trace.as_deref().map(TraceContext::ids);
    LoggedLine {
        at: ended.at,
        level: ended.level(),
        target: TARGET,
        message: "call".to_owned(),
        fields,
        span: recorded.or_else(|| Some((caller()?.0, 0))),
        is_sampled: recorded.is_some(),
    }
}

/// Passes on the lines of the program that are not about the end of a call.
pub struct ForwardLayer(pub(super) Forwarding);

impl<S: Subscriber> Layer<S> for ForwardLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (Some(sink), metadata) = (self.0.sink(), event.metadata()) else {
            return;
        };
        let root = metadata.target().split("::").next().unwrap_or_default();
        if KEPT_TARGETS.iter().any(|kept| root.starts_with(kept)) {
            return;
        }
        let mut visitor = FieldVisitor::default();
        event.record(&mut visitor);
        sink.take(LoggedLine {
            at: Timestamp::now(),
            level: *metadata.level(),
            target: metadata.target(),
            message: visitor.message,
            fields: visitor.fields,
            span: None,
            is_sampled: false,
        });
    }
}

#[derive(Default)]
struct FieldVisitor {
    message: String,
    fields: Vec<(&'static str, FieldValue)>,
}

impl FieldVisitor {
    fn add(&mut self, field: &Field, value: FieldValue) {
        match (field.name(), value) {
            ("message", FieldValue::Text(text)) => self.message = text,
            (name, value) => self.fields.push((name, value)),
        }
    }
}

impl Visit for FieldVisitor {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, FieldValue::Float(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, FieldValue::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(
            field,
            FieldValue::Integer(i64::try_from(value).unwrap_or(i64::MAX)),
        );
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, FieldValue::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, FieldValue::Text(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, FieldValue::Text(format!("{value:?}")));
    }
}
