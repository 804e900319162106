//! Reads calls in the syntax of Python, whose arguments have names.

use super::call::{ReadResult, classify_text_arguments};
use super::marks::{PYTHONIC, Style};
use super::parsed_call::{ParsedCall, malformed_call};
use crate::message::ToolCall;

/// The calls of a text that is a list of calls as a whole.
pub(super) fn read_list(text: &str) -> Option<Vec<ParsedCall>> {
    let text = text.trim();
    let mut rest = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let (call, length) = read_call(rest, &PYTHONIC)?;
        calls.push(call);
        rest = rest[length..].trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

/// The calls of code up to the end mark of the style. Each call stands on a line of its own, in a
/// list, in `print(…)`, or after the name of a variable.
pub(super) fn read_code(text: &str, style: &Style) -> ReadResult {
    let (mut calls, mut at, mut is_broken) = (Vec::new(), 0, false);
    let is_between = |c: char| c.is_whitespace() || matches!(c, '[' | ']' | ',' | ';' | ')');
    loop {
        if text[at..].starts_with(style.end) {
            at += style.end.len();
            break;
        }
        let rest = &text[at..];
        let Some(first) = rest.chars().next() else {
            break;
        };
        if is_between(first) {
            at += first.len_utf8();
            continue;
        }
        let line = rest.len().min(rest.find('\n').unwrap_or(rest.len()));
        let line = rest[..line].find(style.end).unwrap_or(line);
        let begin = statement_start(&rest[..line]);
        match read_call(&rest[begin..], style) {
            Some((call, length)) => {
                at += begin + length;
                is_broken = call.as_ref().map_or(true, |call| call.cut_off);
                calls.push(call);
            }
            None => at += line.max(first.len_utf8()),
        }
        if is_broken {
            break;
        }
    }
    if calls.is_empty() {
        let what = "it is no call of a tool whose arguments have names";
        calls.push(Err(malformed_call(style.syntax, None, what.to_owned())));
    }
    ReadResult {
        calls: Some(calls),
        length: at,
        is_broken,
        ..ReadResult::default()
    }
}

/// Where the call of a line begins: after `x = ` and `print(`.
fn statement_start(line: &str) -> usize {
    let assigned = line
        .split_once('=')
        .filter(|(name, _)| is_name(name.trim()));
    let after = assigned.map_or(line, |(_, value)| value).trim_start();
    let after = after.strip_prefix("print(").unwrap_or(after).trim_start();
    line.len() - after.len()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '.')
}

/// The call at the beginning of the text, and its length. `None` if the text does not begin with a call.
fn read_call(text: &str, style: &Style) -> Option<(ParsedCall, usize)> {
    let open = text.find('(')?;
    let name = &text[..open];
    if name.len() > 128 || !is_name(name) {
        return None;
    }
    // What Gemini and Llama put around the name of a function.
    let name = name.strip_prefix("default_api.").unwrap_or(name);
    let name = name.strip_suffix(".call").unwrap_or(name).to_owned();
    let (mut members, mut at) = (Vec::new(), open + 1);
    let is_cut = loop {
        let (argument, length, end) = split_argument(&text[at..]);
        at += length;
        match argument
            .trim()
            .split_once('=')
            .filter(|(key, _)| is_name(key.trim()))
        {
            Some((key, value)) => members.push(format!("\"{}\": {}", key.trim(), value.trim())),
            None if argument.trim().is_empty() => {}
            None => {
                let what = format!("an argument of {name} has no name");
                return Some((Err(malformed_call(style.syntax, Some(name), what)), at));
            }
        }
        match end {
            Some(',') => {}
            Some(_) => break false,
            None => break true,
        }
    };
    let close = if is_cut { "" } else { "}" };
    let arguments = classify_text_arguments(&format!("{{{}{close}", members.join(", ")));
    let call = ToolCall {
        cut_off: is_cut,
        ..ToolCall::new(name, arguments)
    };
    Some((Ok(call), at))
}

/// The text of one argument, its length with the comma or bracket that ends it, and that character.
fn split_argument(text: &str) -> (&str, usize, Option<char>) {
    let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ',' | ')') if depth == 0 => return (&text[..at], at + 1, Some(c)),
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
    }
    (text, text.len(), None)
}
