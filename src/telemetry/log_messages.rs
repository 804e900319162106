//! Makes the messages of log lines.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tracing::Level;

use super::attributes::{Attributes, any, scope};
use super::queue::{Queue, Record};
use super::signal::Signal;
use crate::log::{FieldValue, LineSink, LoggedLine};

impl Record for LogRecord {
    const SIGNAL: Signal = Signal::Logs;
}

/// Takes the lines of the log.
pub(super) struct LogQueue(pub(super) Queue<LogRecord>);

impl LineSink for LogQueue {
    fn take(&self, line: LoggedLine<'_>) {
        self.0.push(to_record(line));
    }
}

fn to_record(line: LoggedLine<'_>) -> LogRecord {
    let mut attributes = Attributes::default();
    attributes.text("code.namespace", line.target);
    for (name, value) in line.fields {
        let value = match value {
            FieldValue::Text(text) => Value::StringValue(text),
            FieldValue::Integer(number) => Value::IntValue(number),
            FieldValue::Float(number) => Value::DoubleValue(number),
            FieldValue::Bool(value) => Value::BoolValue(value),
        };
        attributes.add(name, value);
    }
    let nanos = u64::try_from(line.at.as_nanosecond()).unwrap_or_default();
    let (trace_id, span_id) = line.span.unwrap_or_default();
    let bytes_unless_zero = |is_set: bool, bytes: Vec<u8>| if is_set { bytes } else { Vec::new() };
    LogRecord {
        time_unix_nano: nanos,
        observed_time_unix_nano: nanos,
        severity_number: severity(line.level).into(),
        severity_text: line.level.as_str().to_owned(),
        body: Some(any(Value::StringValue(line.message))),
        attributes: attributes.into_vec(),
        trace_id: bytes_unless_zero(trace_id != 0, trace_id.to_be_bytes().to_vec()),
        span_id: bytes_unless_zero(span_id != 0, span_id.to_be_bytes().to_vec()),
        flags: u32::from(line.is_sampled),
        ..LogRecord::default()
    }
}

fn severity(level: Level) -> SeverityNumber {
    match level {
        Level::ERROR => SeverityNumber::Error,
        Level::WARN => SeverityNumber::Warn,
        Level::INFO => SeverityNumber::Info,
        Level::DEBUG => SeverityNumber::Debug,
        Level::TRACE => SeverityNumber::Trace,
    }
}

/// The message of these lines, and their number.
pub(super) fn encode(log_records: Vec<LogRecord>, resource: Resource) -> (Vec<u8>, u64) {
    let count = log_records.len() as u64;
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope()),
                log_records,
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    (request.encode_to_vec(), count)
}
