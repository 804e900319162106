//! Turns the output and the exit status of a program into a result.

use std::process::ExitStatus;

use super::Output;
use super::run::{Capture, Limits, Run};
use crate::call::units::Count;
use crate::call::{ToolContext, ToolError, ToolResult, Torn, json::parse_strict};

/// The most of standard output, in bytes, that an error result shows if standard error is empty.
const EXCERPT: usize = 16 << 10;

/// The result of a finished run.
pub(super) fn answer(
    run: &Run,
    output: Output,
    limits: &Limits,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    if run.held_open {
        context.warn("the program left a process behind that held its output open; that process was ended");
    }
    match run.status {
        Some(status) if !status.success() => Ok(refusal(status, &run.stderr, &run.stdout, context)),
        Some(_) | None if run.stdout.is_whole() => whole(run.stdout.head(), output, context),
        Some(_) | None => cut(&run.stdout, output, limits, context),
    }
}

/// An error result: the exit status, and the program's standard error or else its standard output.
fn refusal(status: ExitStatus, stderr: &Capture, stdout: &Capture, context: &ToolContext) -> ToolResult {
    let how = match status.code() {
        Some(code) => format!("exit status {code}"),
        None => format!("ended by {status}"),
    };
    let mut words = stderr.summary(context);
    if words.trim().is_empty() {
        words = excerpt(stdout.summary(context), context);
    }
    ToolResult::error(match (words.trim(), status.code()) {
        ("", Some(code)) => format!("exited with status {code}"),
        ("", None) => how,
        (words, _) => format!("{how}: {words}"),
    })
}

/// The first and the last part of a text that is too long.
fn excerpt(text: String, context: &ToolContext) -> String {
    if text.len() <= EXCERPT {
        return text;
    }
    // The complete text is redacted before it is cut: half of a secret would not be found.
    let text = context.excerpt(text.as_bytes(), Torn::NOWHERE);
    if text.len() <= EXCERPT {
        return text;
    }
    let (head, tail) = (text.floor_char_boundary(EXCERPT / 2), text.ceil_char_boundary(text.len() - EXCERPT / 2));
    format!("{}\n[… {} left out …]\n{}", &text[..head], Count(tail - head, "byte"), &text[tail..])
}

fn whole(bytes: &[u8], output: Output, context: &ToolContext) -> Result<ToolResult, ToolError> {
    match output {
        Output::Json if bytes.trim_ascii().is_empty() => {
            Err(ToolError::BadOutput("the program printed nothing where JSON was promised".into()))
        }
        Output::Json => parse_strict(bytes)
            .map(ToolResult::json)
            .map_err(|error| ToolError::BadOutput(format!("the program's output is not JSON: {error}"))),
        Output::Auto => Ok(structured(bytes).unwrap_or_else(|| text(without_newline(bytes), context))),
        Output::Text => Ok(text(without_newline(bytes), context)),
    }
}

/// The result for output that is a JSON object, array or string. Other JSON values, such as numbers, read the same as
/// text.
fn structured(bytes: &[u8]) -> Option<ToolResult> {
    matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'))
        .then(|| parse_strict(bytes).map(ToolResult::json).ok())
        .flatten()
}

fn without_newline(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap_or(bytes)
}

/// The result for output above `max_output`. With `output: json` that is an error, because a part of a JSON text is
/// not JSON.
fn cut(stdout: &Capture, output: Output, limits: &Limits, context: &ToolContext) -> Result<ToolResult, ToolError> {
    let most = limits.max_output;
    if output == Output::Json {
        let message = format!(
            "the program's output is longer than {} (max_output), so its JSON is not whole",
            Count(most, "byte")
        );
        return Err(ToolError::BadOutput(message));
    }
    context.warn(if limits.stop_on_overflow {
        format!("the output was cut after {} (max_output) and the program was stopped", Count(most, "byte"))
    } else {
        format!(
            "the output was cut after {} (max_output); {} {} left out",
            Count(most, "byte"),
            Count(stdout.left_out(), "byte"),
            if stdout.left_out() == 1 { "was" } else { "were" }
        )
    });
    note_unreadable(stdout.head(), context);
    Ok(ToolResult::text(stdout.head_of_more(context)))
}

fn text(bytes: &[u8], context: &ToolContext) -> ToolResult {
    note_unreadable(bytes, context);
    ToolResult::text(String::from_utf8_lossy(bytes))
}

fn note_unreadable(bytes: &[u8], context: &ToolContext) {
    if std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_some()) {
        context.warn("the output is not UTF-8: what could not be read is shown as \u{fffd}");
    }
}
