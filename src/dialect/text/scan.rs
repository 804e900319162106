//! Scans a text once, from beginning to end, and collects what looks like a call.

use super::call::{Taken, several};
use super::{MOST_BROKEN, ParsedCall, misread, react};
use crate::dialect::message::TextSyntax;

/// The calls and warnings found in a text.
#[derive(Default)]
pub(super) struct ScannedText {
    pub(super) calls: Vec<(TextSyntax, ParsedCall)>,
    pub(super) warnings: Vec<String>,
}

/// The marks of explicit calls: begin, end, and the mark with which a model begins an invented result.
const MARKS: [(TextSyntax, &str, &str, &str); 2] = [
    (TextSyntax::Marked, "[TOOL_CALL]", "[/TOOL_CALL]", "[TOOL_RESULT]"),
    (TextSyntax::Tagged, "<tool_call>", "</tool_call>", "<tool_response>"),
];

/// Scans the text.
pub(super) fn scan(text: &str) -> ScannedText {
    let mut walk =
        Walk { text, at: 0, in_fence: false, answered: false, broken: 0, wasted: 0, seen: ScannedText::default() };
    while walk.at < text.len() {
        if walk.broken >= MOST_BROKEN || walk.wasted / MOST_BROKEN > text.len() {
            walk.seen.warnings.push("too much of the text is broken JSON; the rest was not read".to_owned());
            break;
        }
        if !walk.step() {
            let invented = "what the text says after its calls was not read: the model made up a result there";
            walk.seen.warnings.push(invented.to_owned());
            break;
        }
    }
    walk.seen
}

struct Walk<'a> {
    text: &'a str,
    at: usize,
    in_fence: bool,
    /// The final answer has begun. Lines in it that look like ReAct are ordinary text.
    answered: bool,
    /// The number of calls with broken JSON.
    broken: usize,
    /// The number of bytes that were read without result.
    wasted: usize,
    seen: ScannedText,
}

impl Walk<'_> {
    /// Advances by one step. Returns false at a result that the model invented.
    fn step(&mut self) -> bool {
        let rest = &self.text[self.at..];
        if self.at == 0 || self.text[..self.at].ends_with('\n') {
            if rest.trim_start_matches([' ', '\t']).starts_with("```") {
                self.fence();
                return true;
            }
            match react::label(rest).filter(|_| !self.answered) {
                Some((react::Label::Action, _)) => {
                    self.take(TextSyntax::React, react::action(rest));
                    return true;
                }
                Some((react::Label::Observation, _)) if self.has(TextSyntax::React) => return false,
                Some((react::Label::FinalAnswer, _)) => self.answered = true,
                _ => {}
            }
        }
        for (form, begin, _, result) in MARKS {
            if starts_with(rest, begin) {
                self.marked(form, begin);
                return true;
            }
            if starts_with(rest, result) && self.has(form) {
                return false;
            }
        }
        let next = rest.char_indices().skip(1).find(|(i, c)| matches!(c, '[' | '<') || rest[..*i].ends_with('\n'));
        self.at += next.map_or(rest.len(), |(i, _)| i);
        true
    }

    fn has(&self, form: TextSyntax) -> bool {
        self.seen.calls.iter().any(|(other, _)| *other == form)
    }

    fn take(&mut self, form: TextSyntax, taken: Taken) {
        self.wasted += taken.wasted;
        let Some(asks) = taken.asks else { return };
        let misread = asks.iter().filter(|ask| ask.is_err()).count();
        self.broken += misread.max(usize::from(taken.broken));
        self.seen.calls.extend(asks.into_iter().map(|ask| (form, ask)));
        self.at += taken.length;
    }

    /// A line of backticks opens or closes a fence.
    fn fence(&mut self) {
        let line = self.text[self.at..].find('\n').map_or(self.text.len() - self.at, |end| end + 1);
        self.at += line;
        self.in_fence = !self.in_fence;
        if !self.in_fence {
            return;
        }
        let taken = several(&self.text[self.at..], TextSyntax::Fenced);
        self.take(TextSyntax::Fenced, taken);
    }

    /// Reads a call after its begin mark.
    fn marked(&mut self, form: TextSyntax, begin: &str) {
        self.at += begin.len();
        let body = inside_fence(&self.text[self.at..]);
        let is_mark = MARKS.iter().any(|(_, begin, end, _)| starts_with(body, begin) || starts_with(body, end));
        if !is_mark && body.starts_with(['{', '[']) {
            self.at = self.text.len() - body.len();
            return self.take(form, several(body, form));
        }
        // There is no JSON after the mark. If the end mark follows before another call begins, this is a failed call.
        // Otherwise the text only mentions the mark.
        let what = if body.is_empty() {
            "the text ends where it should begin"
        } else if find_end(&body[..find_begin(body).unwrap_or(body.len())], form).is_some() {
            "there is no JSON object behind its mark"
        } else {
            return;
        };
        let asks = Some(vec![Err(misread(form, None, what.to_owned()))]);
        let length = self.text.len() - body.len() - self.at;
        self.take(form, Taken { asks, length, ..Taken::default() });
    }
}

/// The text after white space and the opening line of a fence.
pub(super) fn inside_fence(text: &str) -> &str {
    let text = text.trim_start();
    match text.strip_prefix("```") {
        Some(fenced) => fenced.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').trim_start(),
        None => text,
    }
}

/// The first position of the end mark of this syntax.
pub(super) fn find_end(text: &str, form: TextSyntax) -> Option<usize> {
    let (_, _, end, _) = MARKS.into_iter().find(|(other, ..)| *other == form)?;
    find(text, |here| starts_with(here, end))
}

/// The first position of a mark that begins a call.
pub(super) fn find_begin(text: &str) -> Option<usize> {
    find(text, |here| MARKS.iter().any(|(_, begin, ..)| starts_with(here, begin)))
}

fn find(text: &str, is_here: impl Fn(&str) -> bool) -> Option<usize> {
    let mut candidates = text.bytes().enumerate().filter(|(_, b)| matches!(b, b'[' | b'<'));
    candidates.find(|(i, _)| is_here(&text[*i..])).map(|(i, _)| i)
}

fn starts_with(text: &str, mark: &str) -> bool {
    text.as_bytes().get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark.as_bytes()))
}
