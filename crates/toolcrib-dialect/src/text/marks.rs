//! The marks around calls, and the opening line of a fence.

use crate::message::TextSyntax;

/// The marks of explicit calls: begin, end, and the mark with which a model begins an invented
/// result.
pub(super) const CALL_MARKS: [(TextSyntax, &str, &str, &str); 2] = [
    (
        TextSyntax::Marked,
        "[TOOL_CALL]",
        "[/TOOL_CALL]",
        "[TOOL_RESULT]",
    ),
    (
        TextSyntax::Tagged,
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
    ),
];

/// The text after white space and the opening line of a fence.
pub(super) fn skip_fence_opening(text: &str) -> &str {
    let text = text.trim_start();
    match text.strip_prefix("```") {
        Some(fenced) => fenced
            .trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_')
            .trim_start(),
        None => text,
    }
}

/// The first position of the end mark of this syntax.
pub(super) fn find_end_mark(text: &str, syntax: TextSyntax) -> Option<usize> {
    let (_, _, end, _) = CALL_MARKS
        .into_iter()
        .find(|(other, ..)| *other == syntax)?;
    find_mark(text, |here| starts_with_mark(here, end))
}

/// The first position of a mark that begins a call.
pub(super) fn find_begin_mark(text: &str) -> Option<usize> {
    find_mark(text, |here| {
        CALL_MARKS
            .iter()
            .any(|(_, begin, ..)| starts_with_mark(here, begin))
    })
}

fn find_mark(text: &str, is_here: impl Fn(&str) -> bool) -> Option<usize> {
    let mut candidates = text
        .bytes()
        .enumerate()
        .filter(|(_, b)| matches!(b, b'[' | b'<'));
    candidates
        .find(|(i, _)| is_here(&text[*i..]))
        .map(|(i, _)| i)
}

pub(super) fn starts_with_mark(text: &str, mark: &str) -> bool {
    text.as_bytes()
        .get(..mark.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(mark.as_bytes()))
}
