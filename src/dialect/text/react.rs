//! Reads the lines of ReAct: `Thought:`, `Action:`, `Action Input:`, `Observation:`, `Final Answer:`.

use super::call::{Taken, is_cut_off, is_no_tool, several, written_text};
use super::misread;
use super::scan::{find_begin, inside_fence};
use crate::dialect::json_repair;
use crate::dialect::message::{TextSyntax, ToolCall};

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
pub(super) fn label(line: &str) -> Option<(Label, usize)> {
    let start = line.trim_start_matches([' ', '\t', '*', '#', '>']);
    let (word, label) = LABELS.into_iter().find(|(word, _)| {
        start.as_bytes().get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes()))
    })?;
    let behind = start[word.len()..].trim_start_matches('*');
    Some((label, line.len() - behind.len()))
}

/// The start of the next line with a label, at `from` or later.
fn next_label(text: &str, from: usize) -> Option<usize> {
    let lines = text[from..].match_indices('\n').map(|(i, _)| from + i + 1);
    lines.into_iter().find(|at| label(&text[*at..]).is_some())
}

/// The calls of the `Action:` at the beginning of the text.
pub(super) fn action(text: &str) -> Taken {
    let start = label(text).map_or(0, |(_, length)| length);
    let mut taken = Taken { asks: Some(Vec::new()), ..Taken::default() };
    // LangChain's structured chat writes the whole call as JSON, usually in a fence.
    let body = inside_fence(&text[start..]);
    if body.starts_with(['{', '[']) {
        let whole = several(body, TextSyntax::Fenced);
        if whole.asks.is_some() {
            return Taken { length: text.len() - body.len() + whole.length, ..whole };
        }
        taken.wasted = whole.wasted;
    }
    let end = next_label(text, start).unwrap_or(text.len());
    let name = text[start..end].trim().trim_matches(['`', '"', '\'', '*', ' ']);
    let input = label(&text[end..]).filter(|(label, _)| *label == Label::ActionInput).map(|(_, length)| end + length);
    if name.is_empty() || is_no_tool(name) || (input.is_none() && name.contains(char::is_whitespace)) {
        return Taken { length: input.unwrap_or(end), ..taken };
    }
    // An action without input at the very end may be incomplete: its input may have been about to follow.
    let (end, raw, cut_off, broken) = match input {
        Some(input) => input_at(text, input),
        None => (end, "", end == text.len(), false),
    };
    // A name together with its arguments (`search[x]`, `search(x)`) is not a tool's name.
    let asked = if name.contains(['(', '[', '{', '\n']) {
        let shown: String = name.chars().take(60).collect();
        Err(misread(TextSyntax::React, None, format!("`{shown}` is not just a tool's name")))
    } else {
        Ok(ToolCall { id: None, name: name.to_owned(), arguments: written_text(raw), cut_off, doubtful: false })
    };
    Taken { asks: Some(vec![asked]), length: end, broken, ..taken }
}

/// For the input that begins at `start`: its end, its text, whether it was cut off, and whether its end is a guess.
fn input_at(text: &str, start: usize) -> (usize, &str, bool, bool) {
    let body = inside_fence(&text[start..]);
    let from = text.len() - body.len();
    let (inside, broken) = match json_repair::extent(body) {
        _ if !body.starts_with(['{', '[']) => (0, false),
        Ok(Some(length)) => (length, false),
        Ok(None) | Err(_) => (0, true),
    };
    let next = next_label(text, from + inside);
    let end = next.unwrap_or(text.len());
    let end = find_begin(&text[(from + inside).min(end)..end]).map_or(end, |mark| from + inside + mark);
    let raw = text[from..end.max(from)].trim().trim_end_matches('`').trim_end();
    (end.max(from), raw, broken && next.is_none() && is_cut_off(raw, true), broken)
}
