//! The `text` dialect: reads calls from the text of a model without tool calls. A call is between markers, in the
//! lines of ReAct, in a fenced block, or it is the whole text.
//!
//! A text may quote such calls. So a call extends exactly as far as its JSON, and markers inside JSON strings are
//! ordinary text.

mod call;
mod react;
mod reply;
mod scan;

pub(in crate::dialect) use call::is_no_tool;
pub use reply::{reminder, reply};

use super::json_repair;
use super::message::{Dialect, MalformedCall, Message, TextSyntax, ToolCall};

/// The maximum number of calls with broken JSON that are read in one text. All their corrections say the same. It
/// also bounds the time for finding their ends.
const MOST_BROKEN: usize = 16;

/// A call in the text, or something that looks like one.
type ParsedCall = Result<ToolCall, MalformedCall>;

/// Reads the calls of a text, in order. Without calls, the message has a warning that says so.
///
/// A text that is JSON as a whole is read as such. In any other text, markers take precedence over the lines of
/// ReAct, and these over fenced blocks. Calls in another syntax than the chosen one are ignored, but both kinds of
/// markers count together.
pub fn read(text: &str) -> Message {
    let text = behind_thought(text);
    let mut warnings = Vec::new();
    let (form, asks) = if let Some(asks) = call::whole(text) {
        (TextSyntax::Bare, asks)
    } else {
        let seen = scan::scan(text);
        warnings.extend(seen.warnings);
        let explicit = |form: &TextSyntax| matches!(form, TextSyntax::Marked | TextSyntax::Tagged);
        let forms = || seen.calls.iter().map(|(form, _)| *form);
        let form = forms()
            .find(explicit)
            .or_else(|| forms().find(|form| *form == TextSyntax::React))
            .or_else(|| forms().next())
            .unwrap_or_default();
        let same = |other: TextSyntax| other == form || (explicit(&form) && explicit(&other));
        (form, seen.calls.into_iter().filter(|(other, _)| same(*other)).map(|(_, ask)| ask).collect())
    };
    let mut asks: Vec<ParsedCall> = asks;
    let mut doubtful = false;
    for ask in &mut asks {
        match ask {
            Ok(ask) => {
                ask.doubtful = doubtful;
                doubtful |= ask.cut_off || json_repair::arguments(&ask.arguments, false, false).is_err();
            }
            Err(_) => doubtful = true,
        }
    }
    if asks.is_empty() {
        warnings.push("the text has no tool calls".to_owned());
    }
    Message { dialect: Dialect::Text, form, asks, warnings }
}

/// The text after the thoughts at its beginning, because a call inside a thought is not meant to run. Some prompts
/// contain the opening tag (DeepSeek R1, QwQ). Then the text has only the closing tag, on a line of its own.
fn behind_thought(text: &str) -> &str {
    for (begin, end) in [("<think>", "</think>"), ("<thinking>", "</thinking>")] {
        if let Some(thought) = text.trim_start().strip_prefix(begin) {
            return thought.split_once(end).map_or("", |(_, said)| said);
        }
    }
    text.split_once("\n</think>\n").filter(|(before, _)| !is_in_call(text, before.len())).map_or(text, |(_, said)| said)
}

/// Whether the position may be inside a text of a call that begins before it.
fn is_in_call(text: &str, place: usize) -> bool {
    let mut from = 0;
    while let Some(at) = text.get(from..place).and_then(|before| before.find(['[', '<', '`'])) {
        let at = from + at;
        let mark = ["[TOOL_CALL]", "<tool_call>", "```json"].into_iter().find(|mark| text[at..].starts_with(mark));
        let Some(mark) = mark else {
            from = at + 1;
            continue;
        };
        let body = at + mark.len();
        match json_repair::extent(&text[body..]) {
            Ok(Some(length)) if body + length <= place => from = body + length,
            _ => return true,
        }
    }
    false
}

/// A call that cannot be read. Its correction explains the syntax.
fn misread(form: TextSyntax, name: Option<String>, what: String) -> MalformedCall {
    let correction = format!("The tool call could not be read, so no tool ran: {what}. {}", reminder(form, &[]));
    MalformedCall { id: None, name, what, correction, is_other_method: false }
}

#[cfg(test)]
mod tests;
