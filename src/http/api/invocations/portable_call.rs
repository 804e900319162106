//! Reads a call back from a line that `toolcrib export` has written. Unknown fields are ignored: a newer
//! version may have written them.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::recorded_result::{AttemptError, recorded_result};
use crate::call::{
    CacheStatus, Content, Digest, Effect, ErrorKind, Failure, InvocationId, LimitUsage, Meta,
    ToolResult, Truncated, Violation,
};
use crate::http::api::wire::InvocationView;
use crate::ledger::{AttemptRow, RecordedCall, Row, State, UnreadableRow};

/// The fields of a line.
#[derive(Deserialize)]
struct Line {
    invocation_id: InvocationId,
    tool: Arc<str>,
    caller: Arc<str>,
    run_id: Option<Arc<str>>,
    tool_use_id: Option<Arc<str>>,
    idempotency_key: Option<Arc<str>>,
    parent: Option<InvocationId>,
    state: State,
    kind: Option<ErrorKind>,
    detail: Option<Arc<str>>,
    effect: Effect,
    cache: CacheStatus,
    attempts: u32,
    started_at: Timestamp,
    duration_ms: Option<f64>,
    arguments: Option<Box<RawValue>>,
    arguments_digest: Option<Digest>,
    arguments_truncated: Option<Truncated>,
    replica: Option<Arc<str>>,
    count: u32,
    result: Option<Value>,
    result_digest: Option<Digest>,
    attempt_errors: Vec<AttemptError>,
}

/// The part of an answer that is recorded.
#[derive(Deserialize)]
struct AnswerFields {
    content: Vec<Content>,
    structured_content: Option<Value>,
    is_error: bool,
    result_as_answer: bool,
    meta: Meta,
}

/// The part of a problem that is recorded.
#[derive(Deserialize)]
struct ProblemFields {
    status: u16,
    detail: String,
    retryable: bool,
    retry_after_ms: Option<u64>,
    #[serde(default)]
    usage: Vec<LimitUsage>,
    #[serde(default)]
    violations: Vec<Violation>,
    content: Vec<Content>,
}

/// Result and `meta` as the ledger keeps them.
type End = (Option<Arc<str>>, Option<Arc<str>>);

/// Reads one line. The call holds no key, whatever its request named.
///
/// # Errors
/// A sentence that says what is wrong, and what would be right.
pub(crate) fn read_imported_call(line: &[u8]) -> Result<RecordedCall, String> {
    let line: Line = serde_json::from_slice(line).map_err(|error| describe(&error))?;
    if line.invocation_id.created_at().is_none() {
        return Err("invocation_id is not a UUID of version 7".into());
    }
    match (line.state, line.duration_ms) {
        (State::Waiting | State::Reserved | State::Running, _) => {
            let state = line.state.as_str();
            return Err(format!(
                "the call has not ended (state {state}); export it again after its end"
            ));
        }
        (State::Unknown, None) => {}
        (_, None) => return Err("duration_ms is null; only the state unknown has none".into()),
        (_, Some(millis)) if !(0.0..1e12).contains(&millis) => {
            return Err("duration_ms is not a number of milliseconds".into());
        }
        _ => {}
    }
    if line.count == 0 || (line.count > 1 && line.state != State::Refused) {
        return Err("count is 1, or more in the state refused".into());
    }
    let (result, meta) = read_end(&line)?;
    let attempt = |error: AttemptError| AttemptRow {
        invocation: line.invocation_id,
        attempt: error.attempt,
        kind: error.kind,
        message: error.message,
        duration_us: to_micros(error.duration_ms),
    };
    let arguments = match (&line.arguments_digest, &line.arguments_truncated) {
        (Some(digest), _) => digest.to_column(),
        (None, Some(truncated)) => truncated.to_column(),
        (None, None) => line
            .arguments
            .as_deref()
            .map_or("null", RawValue::get)
            .to_owned(),
    };
    Ok(RecordedCall {
        attempts: line.attempt_errors.into_iter().map(attempt).collect(),
        origin_result: None,
        row: Row {
            id: line.invocation_id,
            tool: line.tool,
            caller: line.caller,
            run_id: line.run_id,
            tool_use_id: line.tool_use_id,
            state: line.state,
            kind: line.kind,
            effect: line.effect,
            cache: line.cache,
            attempts: line.attempts,
            started_at: line.started_at,
            duration_us: line.duration_ms.map(to_micros),
            arguments: arguments.into(),
            result,
            origin: None,
            meta,
            idempotency_key: line.idempotency_key,
            fingerprint: None,
            parent: line.parent,
            key_until: None,
            detail: line.detail,
            replica: line.replica,
            count: line.count.into(),
        },
    })
}

fn read_end(line: &Line) -> Result<End, String> {
    let in_result = |error: serde_json::Error| format!("result: {}", describe(&error));
    let to_text =
        |value: serde_json::Result<String>| value.map(Arc::<str>::from).map_err(in_result);
    let Some(value) = &line.result else {
        let digest = line.result_digest.as_ref();
        return Ok((digest.map(|digest| digest.to_column().into()), None));
    };
    let Some(kind) = line.kind else {
        let answer = AnswerFields::deserialize(value).map_err(in_result)?;
        let result = ToolResult {
            content: answer.content,
            structured_content: answer.structured_content,
            is_error: answer.is_error,
            result_as_answer: answer.result_as_answer.then_some(true),
            ..ToolResult::default()
        };
        let (result, meta) = (
            serde_json::to_string(&result),
            serde_json::to_string(&answer.meta),
        );
        return Ok((Some(to_text(result)?), Some(to_text(meta)?)));
    };
    let problem = ProblemFields::deserialize(value).map_err(in_result)?;
    let for_model = problem.content.into_iter().find_map(|block| match block {
        Content::Text { text } => Some(text),
        _ => None,
    });
    let failure = Failure {
        kind,
        detail: problem.detail,
        retryable: problem.retryable,
        retry_after_ms: problem.retry_after_ms,
        limit: problem.usage.into_iter().next().map(Box::new),
        violations: problem.violations,
        for_model: for_model.unwrap_or_default(),
        // These two decide the status of the problem.
        started: match kind {
            ErrorKind::ToolUnavailable => problem.status == 502,
            _ => line.attempts > 0,
        },
        conflict: kind == ErrorKind::InvalidRequest && problem.status == 409,
        digest: line.result_digest.clone().map(Box::new),
    };
    Ok((Some(to_text(serde_json::to_string(&failure))?), None))
}

fn to_micros(millis: f64) -> i64 {
    (millis * 1000.0).round() as i64
}

/// The message of the parser. A line has one line, so only the column is of use.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text);
    match error.column() {
        0 => message.to_owned(),
        column => format!("{message} (column {column})"),
    }
}

/// The fields of an exported call.
#[derive(Serialize)]
struct ExportedCall {
    #[serde(flatten)]
    invocation: InvocationView,
    result: Value,
    result_digest: Option<Digest>,
    attempt_errors: Vec<AttemptError>,
}

/// The call as JSON.
///
/// # Errors
/// When its row cannot be read. The cause is logged.
pub(crate) fn exported_call(call: RecordedCall) -> Result<Value, UnreadableRow> {
    // The definition of the tool is not part of the ledger.
    let (result, result_digest) = recorded_result(&call.row, call.origin_result, || false)?;
    Ok(json!(ExportedCall {
        invocation: InvocationView::from(&call.row),
        result,
        result_digest,
        attempt_errors: call.attempts.into_iter().map(AttemptError::from).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::CallError;

    fn ended_row(state: State) -> Row {
        let text = |text: &str| Some(Arc::<str>::from(text));
        let started_at = "2026-06-15T12:00:30.25Z".parse().unwrap();
        Row {
            id: InvocationId::new(),
            tool: "t".into(),
            caller: "a".into(),
            run_id: text("r-7"),
            tool_use_id: text("call_1"),
            state,
            kind: None,
            effect: Effect::Idempotent,
            cache: CacheStatus::Miss,
            attempts: 2,
            started_at,
            duration_us: Some(1_234_567),
            arguments: r#"{"b":1,"a":18446744073709551615}"#.into(),
            result: text(
                r#"{"content":[{"type":"text","text":"☃"}],"structured_content":{"z":1.5,"a":[]},"is_error":false}"#,
            ),
            origin: None,
            meta: Some(serde_json::to_string(&Meta::default()).unwrap().into()),
            idempotency_key: text("k"),
            fingerprint: None,
            parent: Some(InvocationId::new()),
            key_until: None,
            detail: None,
            replica: None,
            count: 1,
        }
    }

    fn call_of(row: Row) -> RecordedCall {
        let attempt = AttemptRow {
            invocation: row.id,
            attempt: 1,
            kind: ErrorKind::UpstreamFailed,
            message: "503".into(),
            duration_us: 17,
        };
        RecordedCall {
            row,
            attempts: vec![attempt],
            origin_result: None,
        }
    }

    fn failed_row(error: &CallError, state: State, attempts: u32) -> Row {
        let failure = Failure::from_error(error, Effect::Write);
        Row {
            kind: Some(failure.kind),
            attempts,
            result: Some(serde_json::to_string(&failure).unwrap().into()),
            meta: None,
            detail: Some("a sentence".into()),
            ..ended_row(state)
        }
    }

    #[test]
    fn every_kind_of_end_survives_the_way_there_and_back() {
        let digest = Digest {
            hmac_sha256: "ab".into(),
            bytes: 7,
        };
        let refused = CallError::Draining;
        let incomplete = r#"{"content":[],"structured_content":[1,2],"is_error":false,"incomplete":{"unit":"items","limit":"max_rows"}}"#;
        for row in [
            ended_row(State::Succeeded),
            ended_row(State::Failed),
            Row {
                result: Some(incomplete.into()),
                ..ended_row(State::Succeeded)
            },
            Row {
                result: Some(digest.to_column().into()),
                meta: None,
                arguments: digest.to_column().into(),
                ..ended_row(State::Succeeded)
            },
            Row {
                result: None,
                meta: None,
                duration_us: None,
                ..ended_row(State::Unknown)
            },
            Row {
                count: 90,
                ..failed_row(&refused, State::Refused, 0)
            },
            failed_row(&CallError::Cancelled { started: true }, State::Unknown, 1),
        ] {
            let line = exported_call(call_of(row)).unwrap();
            let again = read_imported_call(line.to_string().as_bytes()).unwrap();
            assert_eq!(exported_call(again).unwrap(), line);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let whole = exported_call(call_of(ended_row(State::Succeeded))).unwrap();
        let error_with = |field: &str, value: Value| {
            let mut line = whole.clone();
            line[field] = value;
            read_imported_call(line.to_string().as_bytes()).unwrap_err()
        };
        for (field, value, message) in [
            ("state", json!("running"), "has not ended (state running)"),
            ("state", json!("done"), "unknown variant `done`"),
            (
                "duration_ms",
                Value::Null,
                "only the state unknown has none",
            ),
            ("duration_ms", json!(-1), "not a number of milliseconds"),
            ("count", json!(2), "or more in the state refused"),
            (
                "result",
                json!({"content": []}),
                "result: missing field `is_error`",
            ),
            (
                "invocation_id",
                json!("0d3ee2a5-6f4a-4b47-8e3c-5f7d1ec7c8a1"),
                "UUID of version 7",
            ),
        ] {
            let error = error_with(field, value);
            assert!(error.contains(message), "{field}: {error}");
        }
        assert_eq!(
            read_imported_call(b"{}").unwrap_err(),
            "missing field `invocation_id` (column 2)"
        );
        assert_eq!(
            read_imported_call(b"nothing").unwrap_err(),
            "expected ident (column 2)"
        );
    }
}
