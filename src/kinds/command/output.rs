//! Turns the output and the exit status of a program into a result.

use std::process::ExitStatus;

use serde::Deserialize;

use super::run::{RunLimits, RunOutcome, StreamCapture};
use crate::call::units::{Count, OmissionNote};
use crate::call::{
    CutEnds, Incomplete, ToolContext, ToolError, ToolResult, Unit, json::parse_result,
};

/// The most of standard output, in bytes, that an error result shows if standard error is empty.
const MAX_EXCERPT_BYTES: usize = 16 << 10;

/// What the result is made from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    /// JSON if the output parses as JSON, else text.
    #[default]
    Auto,
    /// JSON; anything else is a failure.
    Json,
    /// Text, also when it looks like JSON.
    Text,
    /// The file at this path below the working folder. `{{ stdout }}` is what the program printed.
    File(String),
}

/// The error result of a run whose program failed.
pub(super) fn failure_result(run: &RunOutcome, context: &ToolContext) -> Option<ToolResult> {
    if run.output_held_open {
        context.warn(
            "the program left a process behind that held its output open; that process was ended",
        );
    }
    let status = run.status.filter(|status| !status.success())?;
    Some(exit_result(status, &run.stderr, &run.stdout, context))
}

/// The result of a finished run, from its standard output.
pub(super) fn build_result(
    run: &RunOutcome,
    format: &Output,
    limits: &RunLimits,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    match run.stdout.is_complete() {
        true => complete_output_result(run.stdout.head(), format, context),
        false => truncated_output_result(&run.stdout, format, limits, context),
    }
}

/// An error result: the exit status, and the program's standard error or else its standard output.
fn exit_result(
    status: ExitStatus,
    stderr: &StreamCapture,
    stdout: &StreamCapture,
    context: &ToolContext,
) -> ToolResult {
    let exit = match status.code() {
        Some(code) => format!("exit status {code}"),
        None => format!("ended by {status}"),
    };
    let mut message = stderr.summary(context);
    if message.trim().is_empty() {
        message = shorten_output(stdout.summary(context), context);
    }
    ToolResult::error(match (message.trim(), status.code()) {
        ("", Some(code)) => format!("exited with status {code}"),
        ("", None) => exit,
        (message, _) => format!("{exit}: {message}"),
    })
}

/// The first and the last part of a text that is too long.
fn shorten_output(text: String, context: &ToolContext) -> String {
    if text.len() <= MAX_EXCERPT_BYTES {
        return text;
    }
    // The complete text is redacted before it is cut: half of a secret would not be found.
    let text = context.excerpt(text.as_bytes(), CutEnds::NONE);
    if text.len() <= MAX_EXCERPT_BYTES {
        return text;
    }
    let (head, tail) = (
        text.floor_char_boundary(MAX_EXCERPT_BYTES / 2),
        text.ceil_char_boundary(text.len() - MAX_EXCERPT_BYTES / 2),
    );
    format!(
        "{}\n{}\n{}",
        &text[..head],
        OmissionNote(tail - head, "byte"),
        &text[tail..]
    )
}

fn complete_output_result(
    bytes: &[u8],
    format: &Output,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    match format {
        Output::Json if bytes.trim_ascii().is_empty() => Err(ToolError::BadOutput(
            "the program printed nothing, but `output: json` requires JSON".into(),
        )),
        Output::Json => parse_json(bytes, context).map_err(|error| {
            ToolError::BadOutput(format!("the program's output is not JSON: {error}"))
        }),
        Output::Auto => Ok(parse_structured(bytes, context)
            .unwrap_or_else(|| text_result(trim_newline(bytes), context))),
        Output::Text | Output::File(_) => Ok(text_result(trim_newline(bytes), context)),
    }
}

/// The result for output that is a JSON object, array or string. Other JSON values, such as
/// numbers, read the same as text.
fn parse_structured(bytes: &[u8], context: &ToolContext) -> Option<ToolResult> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    matches!(text.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'))
        .then(|| parse_json(bytes, context).ok())
        .flatten()
}

fn parse_json(bytes: &[u8], context: &ToolContext) -> Result<ToolResult, serde_json::Error> {
    let (value, changes) = parse_result(bytes)?;
    for warning in changes.warnings("the output") {
        context.warn(warning);
    }
    Ok(ToolResult::json(value))
}

fn trim_newline(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap_or(bytes)
}

/// The result for output above `max_output`. With `output: json` that is an error, because a part
/// of a JSON text is not JSON.
fn truncated_output_result(
    stdout: &StreamCapture,
    format: &Output,
    limits: &RunLimits,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    let max_bytes = limits.max_output;
    if matches!(format, Output::Json) {
        let message = format!(
            "the program's output is longer than {} (max_output), so its JSON is incomplete",
            Count(max_bytes, "byte")
        );
        return Err(ToolError::BadOutput(message));
    }
    context.warn(if limits.stop_on_overflow {
        format!(
            "the output was cut after {} (max_output) and the program was stopped",
            Count(max_bytes, "byte")
        )
    } else {
        format!(
            "the output was cut after {} (max_output); {} {} left out",
            Count(max_bytes, "byte"),
            Count(stdout.omitted_bytes(), "byte"),
            if stdout.omitted_bytes() == 1 {
                "was"
            } else {
                "were"
            }
        )
    });
    warn_if_not_utf8(stdout.head(), context);
    let incomplete = Incomplete::new(Unit::Characters, "max_output");
    Ok(ToolResult::text(stdout.truncated_head(context)).with_incomplete(incomplete))
}

fn text_result(bytes: &[u8], context: &ToolContext) -> ToolResult {
    warn_if_not_utf8(bytes, context);
    ToolResult::text(String::from_utf8_lossy(bytes))
}

fn warn_if_not_utf8(bytes: &[u8], context: &ToolContext) {
    if std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_some()) {
        context.warn("the output is not UTF-8: invalid bytes are shown as \u{fffd}");
    }
}
