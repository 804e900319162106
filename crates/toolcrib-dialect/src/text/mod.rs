//! The `text` dialect: reads calls from the text of a model without tool calls. A call is between
//! markers, in the lines of ReAct, in a fenced block, or it is the whole text.
//!
//! A text may quote such calls. So a call extends exactly as far as its JSON, and markers inside
//! JSON strings are ordinary text.

mod call;
mod marks;
mod parsed_call;
mod python;
mod react;
mod reply;
mod scan;
mod styled;

pub(crate) use call::is_reserved_action;
pub(crate) use marks::find_begin_mark;
pub use reply::{syntax_reminder, write_reply};

use self::marks::is_explicit;
use self::parsed_call::ParsedCall;
use super::json_repair;
use super::message::{Dialect, Message, TextSyntax};

/// Reads the calls of a text, in order. Without calls, the message has a warning that says so.
///
/// A text that is JSON as a whole is read as such. In any other text, markers take precedence over
/// the lines of ReAct, and these over fenced blocks. Calls in another syntax than the chosen one
/// are ignored, but both kinds of markers count together.
pub fn read_text(text: &str) -> Message {
    let text = skip_thoughts(text);
    let mut warnings = Vec::new();
    let (syntax, calls) = if let Some(calls) = call::read_whole_text(text) {
        (TextSyntax::Bare, calls)
    } else if let Some(calls) = python::read_list(text) {
        (TextSyntax::Pythonic, calls)
    } else {
        let scanned = scan::scan_text(text);
        warnings.extend(scanned.warnings);
        let syntaxes = || scanned.calls.iter().map(|(syntax, _)| *syntax);
        let syntax = syntaxes()
            .find(|syntax| is_explicit(*syntax))
            .or_else(|| syntaxes().find(|syntax| *syntax == TextSyntax::React))
            .or_else(|| syntaxes().next())
            .unwrap_or_default();
        let is_chosen =
            |other: TextSyntax| other == syntax || (is_explicit(syntax) && is_explicit(other));
        (
            syntax,
            scanned
                .calls
                .into_iter()
                .filter(|(other, _)| is_chosen(*other))
                .map(|(_, call)| call)
                .collect(),
        )
    };
    let mut calls: Vec<ParsedCall> = calls;
    let mut doubtful = false;
    for call in &mut calls {
        match call {
            Ok(call) => {
                call.doubtful = doubtful;
                doubtful |= call.cut_off
                    || json_repair::read_arguments(&call.arguments, false, false).is_err();
            }
            Err(_) => doubtful = true,
        }
    }
    if calls.is_empty() {
        warnings.push("the text has no tool calls".to_owned());
    }
    Message {
        dialect: Dialect::Text,
        syntax,
        calls,
        warnings,
    }
}

/// The text after the thoughts at its beginning, because a call inside a thought is not meant to
/// run. Some prompts contain the opening tag (DeepSeek R1, QwQ). Then the text has only the closing
/// tag, on a line of its own.
fn skip_thoughts(text: &str) -> &str {
    for (begin, end) in [("<think>", "</think>"), ("<thinking>", "</thinking>")] {
        if let Some(thought) = text.trim_start().strip_prefix(begin) {
            return thought.split_once(end).map_or("", |(_, rest)| rest);
        }
    }
    text.split_once("\n</think>\n")
        .filter(|(before, _)| !is_in_call(text, before.len()))
        .map_or(text, |(_, rest)| rest)
}

/// Whether the position may be inside a text of a call that begins before it.
fn is_in_call(text: &str, position: usize) -> bool {
    let mut from = 0;
    while let Some(at) = text
        .get(from..position)
        .and_then(|before| before.find(['[', '<', '`']))
    {
        let at = from + at;
        let mark = ["[TOOL_CALL]", "<tool_call>", "```json"]
            .into_iter()
            .find(|mark| text[at..].starts_with(mark));
        let Some(mark) = mark else {
            from = at + 1;
            continue;
        };
        let body = at + mark.len();
        match json_repair::find_extent(&text[body..]) {
            Ok(Some(length)) if body + length <= position => from = body + length,
            _ => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests;
