//! A call in a text, or what looks like one.

use super::reply::syntax_reminder;
use crate::message::{MalformedCall, TextSyntax, ToolCall};

/// A call in the text, or something that looks like one.
pub(super) type ParsedCall = Result<ToolCall, MalformedCall>;

/// A call that cannot be read. Its correction explains the syntax.
pub(super) fn malformed_call(
    syntax: TextSyntax,
    name: Option<String>,
    what: String,
) -> MalformedCall {
    let correction = format!(
        "The tool call could not be read, so no tool ran: {what}. {}",
        syntax_reminder(syntax, &[])
    );
    MalformedCall {
        name,
        ..MalformedCall::new(what, correction)
    }
}
