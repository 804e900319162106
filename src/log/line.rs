//! Formats the end of a call as a line of text, like the other lines of the log
//! (tracing-subscriber's).

use std::borrow::Cow;
use std::io::Write as _;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use tracing::Level;

use super::ended_call::EndedCall;
use super::ended_call::TARGET;
use crate::call::{CacheStatus, InvocationId};

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Human {
        /// With colors, for a terminal.
        colour: bool,
    },
    /// One JSON object on each line.
    Json,
}

/// The fields of a line, in this order.
#[derive(Serialize)]
struct LineFields<'a> {
    timestamp: Timestamp,
    level: &'static str,
    message: &'static str,
    invocation_id: InvocationId,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<Cow<'a, str>>,
    tool: &'a str,
    caller: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_use_id: Option<&'a str>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    cache: &'static str,
    attempts: u32,
    duration_ms: f64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    target: &'static str,
}

impl Format {
    /// Appends the line of a call.
    pub(super) fn append_call(self, out: &mut Vec<u8>, ended: &EndedCall) {
        match self {
            Self::Json => append_json(
                out,
                &LineFields {
                    timestamp: ended.at,
                    level: ended.level().as_str(),
                    message: "call",
                    invocation_id: ended.id,
                    request_id: ended.request_id.as_deref(),
                    trace_id: ended.trace_id(),
                    tool: ended.tool.as_str(),
                    caller: &ended.caller.name,
                    run_id: ended.run_id.as_deref(),
                    tool_use_id: ended.tool_use_id.as_deref(),
                    state: ended.state.as_str(),
                    kind: ended.kind.map(|kind| kind.as_str()),
                    detail: ended.detail.as_deref(),
                    cache: ended.cache.as_str(),
                    attempts: ended.attempts,
                    duration_ms: ended.duration_ms(),
                    replayed: ended.replayed,
                    target: TARGET,
                },
            ),
            Self::Human { colour } => append_human(out, colour, ended),
        }
    }

    /// Appends a line with the number of lost lines.
    pub(super) fn append_lost(self, out: &mut Vec<u8>, now: Timestamp, lines: u64) {
        let (level, message) = (Level::WARN, "log lines were lost: nothing read the output");
        match self {
            Self::Json => {
                let line = json!({
                    "timestamp": now,
                    "level": level.as_str(),
                    "message": message,
                    "lines": lines,
                    "target": TARGET,
                });
                append_json(out, &line);
            }
            Self::Human { colour } => {
                append_prefix(out, colour, now, level);
                let _ = writeln!(out, "{message} lines={lines}");
            }
        }
    }
}

/// Appends JSON. Writing to memory does not fail.
fn append_json(out: &mut Vec<u8>, fields: &impl Serialize) {
    let _ = serde_json::to_writer(&mut *out, fields);
    out.push(b'\n');
}

fn append_prefix(out: &mut Vec<u8>, colour: bool, at: Timestamp, level: Level) {
    let (dim, hue, plain) = match (colour, level) {
        (false, _) => ("", "", ""),
        (true, Level::ERROR) => ("\x1b[2m", "\x1b[31m", "\x1b[0m"),
        (true, Level::WARN) => ("\x1b[2m", "\x1b[33m", "\x1b[0m"),
        (true, _) => ("\x1b[2m", "\x1b[32m", "\x1b[0m"),
    };
    let _ = write!(
        out,
        "{dim}{at:.6}{plain} {hue}{:>5}{plain} {dim}{TARGET}:{plain} ",
        level.as_str()
    );
}

fn append_human(out: &mut Vec<u8>, colour: bool, ended: &EndedCall) {
    append_prefix(out, colour, ended.at, ended.level());
    let (tool, state, took) = (
        ended.tool.as_str(),
        ended.state.as_str(),
        ended.duration_ms(),
    );
    let _ = write!(out, "{tool} {state} in {took} ms");
    if let Some(kind) = ended.kind {
        let _ = write!(out, " kind={}", kind.as_str());
    }
    if let Some(detail) = &ended.detail {
        let _ = write!(out, " detail={detail:?}");
    }
    if ended.cache != CacheStatus::Off {
        let _ = write!(out, " cache={}", ended.cache.as_str());
    }
    if ended.attempts > 1 {
        let _ = write!(out, " attempts={}", ended.attempts);
    }
    if ended.replayed {
        out.extend_from_slice(b" replayed");
    }
    let _ = write!(out, " caller={:?}", &*ended.caller.name);
    // These values come from the caller. As quoted text they cannot start a new line or move the
    // cursor.
    for (name, id) in [
        ("run_id", &ended.run_id),
        ("tool_use_id", &ended.tool_use_id),
        ("request_id", &ended.request_id),
    ] {
        if let Some(id) = id {
            let _ = write!(out, " {name}={id:?}");
        }
    }
    if let Some(id) = ended.trace_id() {
        let _ = write!(out, " trace_id={id}");
    }
    let _ = writeln!(out, " invocation_id={}", ended.id);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::call::{Caller, ErrorKind, ToolName, TraceContext};
    use crate::ledger::State;

    fn ended() -> EndedCall {
        EndedCall {
            span: None,
            at: "2026-06-15T12:00:30.123Z".parse().unwrap(),
            id: "01902d5e-0000-7000-8000-000000000001".parse().unwrap(),
            request_id: Some("r-1".into()),
            trace: TraceContext::from_headers(
                [&b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"[..]],
                [],
            )
            .map(Arc::new),
            tool: ToolName::parse("get_weather").unwrap(),
            caller: Arc::new(Caller::new("agent", false)),
            run_id: Some("run\n\u{1b}[2J\"".into()),
            tool_use_id: None,
            state: State::Failed,
            kind: Some(ErrorKind::UpstreamFailed),
            detail: Some("127.0.0.1:9 refused the connection".into()),
            cache: CacheStatus::Miss,
            attempts: 3,
            duration_us: 12_400,
            replayed: false,
        }
    }

    #[test]
    fn json_line_uses_the_ledger_names() {
        let mut out = Vec::new();
        Format::Json.append_call(&mut out, &ended());
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(
            serde_json::from_slice::<Value>(&out).unwrap(),
            json!({"timestamp": "2026-06-15T12:00:30.123Z", "level": "WARN", "message": "call", "target": "toolcrib::call",
                "invocation_id": "01902d5e-0000-7000-8000-000000000001", "request_id": "r-1",
                "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "tool": "get_weather", "caller": "agent", "run_id": "run\n\u{1b}[2J\"", "state": "failed", "kind": "upstream_failed",
                "detail": "127.0.0.1:9 refused the connection",
                "cache": "miss", "attempts": 3, "duration_ms": 12.4})
        );
    }

    #[test]
    fn human_line_escapes_values_of_the_caller() {
        let mut out = Vec::new();
        Format::Human { colour: false }.append_call(&mut out, &ended());
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "2026-06-15T12:00:30.123000Z  WARN toolcrib::call: get_weather failed in 12.4 ms kind=upstream_failed \
             detail=\"127.0.0.1:9 refused the connection\" cache=miss attempts=3 caller=\"agent\" run_id=\"run\\n\\u{1b}[2J\\\"\" request_id=\"r-1\" \
             trace_id=4bf92f3577b34da6a3ce929d0e0e4736 invocation_id=01902d5e-0000-7000-8000-000000000001\n"
        );
    }
}
