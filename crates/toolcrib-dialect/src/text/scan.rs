//! Scans a text once, from beginning to end, and collects what looks like a call.

use super::call::{ReadResult, read_calls};
use super::marks::{
    STYLES, Style, TOOL_CODE, begin_of, find_begin_mark, find_end_mark, skip_fence_opening,
    starts_with_mark,
};
use super::parsed_call::{ParsedCall, malformed_call};
use super::react;
use super::styled::read_styled;
use crate::message::TextSyntax;

/// The maximum number of calls with broken JSON that are read in one text. All their corrections
/// say the same. It also bounds the time for finding their ends.
const MAX_BROKEN_CALLS: usize = 16;

/// The calls and warnings found in a text.
#[derive(Default)]
pub(super) struct ScannedText {
    pub(super) calls: Vec<(TextSyntax, ParsedCall)>,
    pub(super) warnings: Vec<String>,
}

/// Scans the text.
pub(super) fn scan_text(text: &str) -> ScannedText {
    let mut scanner = Scanner {
        text,
        ..Scanner::default()
    };
    while scanner.position < text.len() {
        if scanner.broken_calls >= MAX_BROKEN_CALLS
            || scanner.wasted_bytes / MAX_BROKEN_CALLS > text.len()
        {
            scanner
                .found
                .warnings
                .push("too much of the text is broken JSON; the rest was not read".to_owned());
            break;
        }
        if !scanner.step() {
            let invented =
                "the text after the calls was not read: the model made up a result there";
            scanner.found.warnings.push(invented.to_owned());
            break;
        }
    }
    scanner.found
}

#[derive(Default)]
struct Scanner<'a> {
    text: &'a str,
    position: usize,
    in_fence: bool,
    /// The final answer has begun. Lines in it that look like ReAct are ordinary text.
    in_final_answer: bool,
    /// The number of calls with broken JSON.
    broken_calls: usize,
    /// The number of bytes that were read without result.
    wasted_bytes: usize,
    found: ScannedText,
}

impl Scanner<'_> {
    /// Advances by one step. Returns false at a result that the model invented.
    fn step(&mut self) -> bool {
        let rest = &self.text[self.position..];
        if self.position == 0 || self.text[..self.position].ends_with('\n') {
            let line = rest.trim_start_matches([' ', '\t']);
            if line.starts_with(TOOL_CODE.result) && self.has_call_in(TextSyntax::ToolCode) {
                return false;
            }
            if line.starts_with(TOOL_CODE.begin) {
                self.position += rest.len() - line.len();
                self.read_marked_call(&TOOL_CODE);
                return true;
            }
            if line.starts_with("```") {
                self.read_fence();
                return true;
            }
            match react::read_label(rest).filter(|_| !self.in_final_answer) {
                Some((react::Label::Action, _)) => {
                    self.add_calls(TextSyntax::React, react::read_action(rest));
                    return true;
                }
                Some((react::Label::Observation, _)) if self.has_call_in(TextSyntax::React) => {
                    return false;
                }
                Some((react::Label::FinalAnswer, _)) => self.in_final_answer = true,
                _ => {}
            }
        }
        let is_invented =
            |style: &Style| starts_with_mark(rest, style.result) && self.has_call_in(style.syntax);
        if STYLES.iter().any(is_invented) {
            return false;
        }
        if let Some(style) = begin_of(rest) {
            self.read_marked_call(style);
            return true;
        }
        let next = rest
            .char_indices()
            .skip(1)
            .find(|(i, c)| matches!(c, '[' | '<') || rest[..*i].ends_with('\n'));
        self.position += next.map_or(rest.len(), |(i, _)| i);
        true
    }

    fn has_call_in(&self, syntax: TextSyntax) -> bool {
        self.found.calls.iter().any(|(other, _)| *other == syntax)
    }

    fn add_calls(&mut self, syntax: TextSyntax, parsed: ReadResult) {
        self.wasted_bytes += parsed.wasted_bytes;
        let Some(calls) = parsed.calls else { return };
        let malformed = calls.iter().filter(|call| call.is_err()).count();
        self.broken_calls += malformed.max(usize::from(parsed.is_broken));
        self.found
            .calls
            .extend(calls.into_iter().map(|call| (syntax, call)));
        self.position += parsed.length;
    }

    /// A line of backticks opens or closes a fence.
    fn read_fence(&mut self) {
        let line = self.text[self.position..]
            .find('\n')
            .map_or(self.text.len() - self.position, |end| end + 1);
        self.position += line;
        self.in_fence = !self.in_fence;
        if !self.in_fence {
            return;
        }
        let parsed = read_calls(&self.text[self.position..], TextSyntax::Fenced);
        self.add_calls(TextSyntax::Fenced, parsed);
    }

    /// Reads a call after its begin mark.
    fn read_marked_call(&mut self, style: &Style) {
        let syntax = style.syntax;
        self.position += style.begin.len();
        if let Some(parsed) = read_styled(&self.text[self.position..], style) {
            return self.add_calls(syntax, parsed);
        }
        let body = skip_fence_opening(&self.text[self.position..]);
        let is_mark = begin_of(body).is_some()
            || STYLES.iter().any(|style| starts_with_mark(body, style.end));
        if !is_mark && body.starts_with(['{', '[']) {
            self.position = self.text.len() - body.len();
            return self.add_calls(syntax, read_calls(body, syntax));
        }
        // There is no JSON after the mark. If the end mark follows before another call begins, this
        // is a failed call. Otherwise the text only mentions the mark.
        let what = if body.is_empty() {
            "the text ends where the call should begin"
        } else if find_end_mark(&body[..find_begin_mark(body).unwrap_or(body.len())], syntax)
            .is_some()
        {
            "there is no JSON object after its mark"
        } else {
            return;
        };
        let length = self.text.len() - body.len() - self.position;
        let call = Err(malformed_call(syntax, None, what.to_owned()));
        self.add_calls(syntax, ReadResult::one(call, length, false));
    }
}
