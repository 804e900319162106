//! Reads calls between marks whose names or arguments are not JSON.

use serde_json::Value;

use super::call::{ReadResult, classify_text_arguments, is_cut_off, json_extent, read_calls};
use super::marks::{Grammar, Style, begin_of, find_end_mark, skip_fence_opening, starts_with_mark};
use super::parsed_call::{ParsedCall, malformed_call};
use super::python;
use crate::message::{RawArguments, ToolCall};
use crate::strict_json::JsonObject;

/// The longest text between a begin mark and the arguments, in bytes. A longer one is no call.
const MAX_HEAD: usize = 300;

/// Reads the call after the begin mark of a style. `None` if the text only mentions the mark.
pub(super) fn read_styled(text: &str, style: &Style) -> Option<ReadResult> {
    let body = text.trim_start();
    let skipped = text.len() - body.len();
    // Some models write JSON with the name between these marks as well.
    let is_mark = begin_of(body).is_some() || starts_with_mark(body, style.end);
    let is_json = !is_mark
        && body.starts_with(['{', '['])
        && !matches!(style.grammar, Grammar::Parameters { .. });
    if is_json {
        let parsed = read_json_list(body, style);
        if parsed.calls.is_some() {
            return Some(after(skipped, parsed));
        }
    }
    match style.grammar {
        Grammar::Json => None,
        Grammar::Named { after, separators } => read_named(text, style, after, separators),
        Grammar::Parameters {
            name_end,
            open,
            key_end,
            close,
        } => {
            let (name, from) = head(text, &[name_end])?;
            let body = &text[from..];
            if body.trim_start().starts_with('{') {
                return Some(after(from, read_arguments(body, plain_name(name), style)));
            }
            let end = read_parameters(body, plain_name(name), style, (open, key_end, close));
            Some(after(from, end))
        }
        Grammar::Python => Some(after(skipped, python::read_code(body, style))),
    }
}

fn after(skipped: usize, parsed: ReadResult) -> ReadResult {
    ReadResult {
        length: skipped + parsed.length,
        ..parsed
    }
}

/// Calls in JSON, which Llama separates by semicolons.
fn read_json_list(text: &str, style: &Style) -> ReadResult {
    let mut all = read_calls(text, style.syntax);
    while !all.is_broken && all.calls.is_some() {
        let rest = &text[all.length..];
        let Some(next) = rest.trim_start().strip_prefix(';').map(str::trim_start) else {
            break;
        };
        if !next.starts_with('{') {
            break;
        }
        let parsed = read_calls(next, style.syntax);
        all.length += rest.len() - next.len() + parsed.length;
        all.is_broken = parsed.is_broken;
        all.calls
            .get_or_insert_default()
            .extend(parsed.calls.unwrap_or_default());
    }
    all
}

/// The text before the first of the separators, and the position after it.
fn head<'t>(text: &'t str, separators: &[&str]) -> Option<(&'t str, usize)> {
    let start = &text[..text.floor_char_boundary(MAX_HEAD)];
    let found = separators
        .iter()
        .filter_map(|separator| Some((start.find(separator)?, separator)));
    let (at, separator) = found.min_by_key(|(at, _)| *at)?;
    // A brace is the beginning of the arguments.
    let from = if *separator == "{" {
        at
    } else {
        at + separator.len()
    };
    Some((&text[..at], from))
}

fn read_named(text: &str, style: &Style, mark: &str, separators: &[&str]) -> Option<ReadResult> {
    let (head, from) = head(text, separators)?;
    let Some((_, name)) = head.split_once(mark) else {
        // The channel of the model's thoughts: calls in them are not meant to run.
        let thought = head.trim_start().starts_with("analysis");
        let end = text[from..]
            .find("<|end|>")
            .map_or(text.len(), |end| from + end);
        return thought.then(|| ReadResult {
            calls: Some(Vec::new()),
            length: end,
            ..ReadResult::default()
        });
    };
    let (mut name, mut from) = (plain_name(name), from);
    // DeepSeek V3 writes the type first, and the name on the line after the separator.
    if name == "function" && !text[from..].trim_start().starts_with('{') {
        let line = text[from..].lines().next().unwrap_or_default();
        name = plain_name(line);
        from += line.len();
    }
    Some(after(from, read_arguments(&text[from..], name, style)))
}

/// The name without the namespace and the number that Harmony and Kimi add.
fn plain_name(name: &str) -> &str {
    let name = name.trim().trim_start_matches("functions.");
    let end = name.find(|c: char| c.is_whitespace() || matches!(c, '<' | '[' | ':' | '"'));
    &name[..end.unwrap_or(name.len())]
}

/// Reads arguments that are one JSON object, and the end mark after them.
fn read_arguments(text: &str, name: &str, style: &Style) -> ReadResult {
    let body = skip_fence_opening(text);
    let skipped = text.len() - body.len();
    let (closed, end, wasted_bytes) = match body.starts_with('{') {
        true => json_extent(body, style.syntax),
        false => (true, find_end_mark(body, style.syntax).unwrap_or(0), 0),
    };
    let raw = body[..end].trim();
    let cut_off = !closed && is_cut_off(raw, end == body.len());
    let call = ToolCall {
        cut_off,
        ..ToolCall::new(name.to_owned(), classify_text_arguments(raw))
    };
    ReadResult {
        wasted_bytes,
        ..ReadResult::one(checked(call, style), skipped + end, !closed)
    }
}

fn checked(call: ToolCall, style: &Style) -> ParsedCall {
    let what = "it has no tool's name";
    match call.name.is_empty() {
        true => Err(malformed_call(style.syntax, None, what.to_owned())),
        false => Ok(call),
    }
}

/// Reads parameters whose values are texts. The schema of the tool decides what they stand for.
fn read_parameters(text: &str, name: &str, style: &Style, marks: (&str, &str, &str)) -> ReadResult {
    let (open, key_end, close) = marks;
    let (mut arguments, mut at) = (JsonObject::new(), 0);
    let ended = loop {
        let rest = text[at..].trim_start();
        at = text.len() - rest.len();
        let Some(parameter) = rest.strip_prefix(open) else {
            break rest.starts_with(style.end);
        };
        let Some((key, from)) = head(parameter, &[key_end]) else {
            break false;
        };
        let value = &parameter[from..];
        // A value may contain the mark, so the end of the parameter is followed by a mark.
        let is_end = |end: &usize| {
            let next = value[end + close.len()..].trim_start();
            next.is_empty() || next.starts_with(open) || next.starts_with(style.end)
        };
        let Some(end) = value.match_indices(close).map(|(end, _)| end).find(is_end) else {
            break false;
        };
        let one_line_less = |value: &'_ str| -> String {
            let value = value.strip_prefix('\n').unwrap_or(value);
            value.strip_suffix('\n').unwrap_or(value).to_owned()
        };
        let shown = Value::String(one_line_less(&value[..end]));
        at += open.len() + from + end + close.len();
        if arguments.insert(key.trim().to_owned(), shown).is_some() {
            let what = format!("it has the parameter {} twice", key.trim());
            let call = Err(malformed_call(style.syntax, Some(name.to_owned()), what));
            return ReadResult::one(call, at, true);
        }
    };
    let length = if ended {
        at + style.end.len()
    } else {
        text.len()
    };
    let call = ToolCall {
        cut_off: !ended,
        ..ToolCall::new(name.to_owned(), RawArguments::Object(arguments))
    };
    ReadResult::one(checked(call, style), length, !ended)
}
