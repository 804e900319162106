//! Reads the lines of ReAct: `Thought:`, `Action:`, `Action Input:`, `Observation:`,
//! `Final Answer:`.

use super::call::{
    ReadResult, classify_text_arguments, is_cut_off, is_reserved_action, read_calls,
};
use super::marks::{find_begin_mark, skip_fence_opening, starts_with_mark};
use super::parsed_call::malformed_call;
use crate::json_repair;
use crate::message::{TextSyntax, ToolCall};

/// The label at the beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Thought,
    Action,
    ActionInput,
    Observation,
    FinalAnswer,
}

const LABELS: [(&str, Label); 6] = [
    ("Action Input:", Label::ActionInput),
    ("Action:", Label::Action),
    ("Observation:", Label::Observation),
    ("Final Answer:", Label::FinalAnswer),
    ("Thought:", Label::Thought),
    ("Question:", Label::Thought),
];

/// The label at the beginning of a line, and its length including decoration (`**Action:**`).
pub(super) fn read_label(line: &str) -> Option<(Label, usize)> {
    let start = line.trim_start_matches([' ', '\t', '*', '#', '>']);
    let mut labels = LABELS.into_iter();
    let (word, label) = labels.find(|(word, _)| starts_with_mark(start, word))?;
    let behind = start[word.len()..].trim_start_matches('*');
    Some((label, line.len() - behind.len()))
}

/// The start of the next line with a label, at `from` or later.
fn next_label(text: &str, from: usize) -> Option<usize> {
    let mut lines = text[from..].match_indices('\n').map(|(i, _)| from + i + 1);
    lines.find(|at| read_label(&text[*at..]).is_some())
}

/// The calls of the `Action:` at the beginning of the text.
pub(super) fn read_action(text: &str) -> ReadResult {
    let start = read_label(text).map_or(0, |(_, length)| length);
    let mut parsed = ReadResult {
        calls: Some(Vec::new()),
        ..ReadResult::default()
    };
    // LangChain's structured chat writes the whole call as JSON, usually in a fence.
    let body = skip_fence_opening(&text[start..]);
    if body.starts_with(['{', '[']) {
        let json_call = read_calls(body, TextSyntax::Fenced);
        if json_call.calls.is_some() {
            return ReadResult {
                length: text.len() - body.len() + json_call.length,
                ..json_call
            };
        }
        parsed.wasted_bytes = json_call.wasted_bytes;
    }
    let end = next_label(text, start).unwrap_or(text.len());
    let name = text[start..end]
        .trim()
        .trim_matches(['`', '"', '\'', '*', ' ']);
    let input = read_label(&text[end..])
        .filter(|(label, _)| *label == Label::ActionInput)
        .map(|(_, length)| end + length);
    if name.is_empty()
        || is_reserved_action(name)
        || (input.is_none() && name.contains(char::is_whitespace))
    {
        return ReadResult {
            length: input.unwrap_or(end),
            ..parsed
        };
    }
    // An action without input at the very end may be incomplete: its input may have been about to
    // follow.
    let (end, raw, cut_off, is_broken) = match input {
        Some(input) => read_input(text, input),
        None => (end, "", end == text.len(), false),
    };
    // A name together with its arguments (`search[x]`, `search(x)`) is not a tool's name.
    let call = if name.contains(['(', '[', '{', '\n']) {
        let shown: String = name.chars().take(60).collect();
        Err(malformed_call(
            TextSyntax::React,
            None,
            format!("`{shown}` is not just a tool's name"),
        ))
    } else {
        Ok(ToolCall {
            cut_off,
            ..ToolCall::new(name.to_owned(), classify_text_arguments(raw))
        })
    };
    ReadResult {
        wasted_bytes: parsed.wasted_bytes,
        ..ReadResult::one(call, end, is_broken)
    }
}

/// For the input that begins at `start`: its end, its text, whether it was cut off, and whether its
/// end is a guess.
fn read_input(text: &str, start: usize) -> (usize, &str, bool, bool) {
    let body = skip_fence_opening(&text[start..]);
    let from = text.len() - body.len();
    let (inside, is_broken) = match json_repair::find_extent(body) {
        _ if !body.starts_with(['{', '[']) => (0, false),
        Ok(Some(length)) => (length, false),
        Ok(None) | Err(_) => (0, true),
    };
    let next = next_label(text, from + inside);
    let end = next.unwrap_or(text.len());
    let end = find_begin_mark(&text[(from + inside).min(end)..end])
        .map_or(end, |mark| from + inside + mark);
    let raw = text[from..end.max(from)]
        .trim()
        .trim_end_matches('`')
        .trim_end();
    (
        end.max(from),
        raw,
        is_broken && next.is_none() && is_cut_off(raw, true),
        is_broken,
    )
}
