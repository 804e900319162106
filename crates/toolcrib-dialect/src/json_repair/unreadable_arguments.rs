//! Arguments that cannot be read, and the messages about them.

use super::tokens::{FaultKind, TokenFault};

/// The number of characters shown on each side of a fault.
const CONTEXT_CHARS: usize = 24;

/// The advice for most faults.
const RESEND_ADVICE: &str = "Send the whole call again, with the arguments as one strict JSON object: keys and texts in double \
                     quotes, a quote inside a text as \\\", a line end as \\n, every bracket closed, nothing around it.";

/// Why arguments are not a JSON object, or must not be used as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableArguments {
    /// The fault, for people: a sentence without its full stop.
    pub detail: String,
    /// The correction, for the model: whole sentences.
    pub correction: String,
}

impl UnreadableArguments {
    /// A message that quotes nothing of the arguments.
    pub fn without_quotes() -> Self {
        let correction = "The arguments could not be read, so the tool did not run. Send the whole call again, its \
                          arguments as one strict JSON object.";
        Self {
            detail: "they are not a JSON object".into(),
            correction: correction.into(),
        }
    }

    fn new(what: String, advice: &str) -> Self {
        let correction =
            format!("The arguments could not be read, so the tool did not run: {what}. {advice}");
        Self {
            detail: what,
            correction,
        }
    }

    pub(super) fn cut_off() -> Self {
        let what = "the call ends before it is complete, and a tool with effects does not run on part of its arguments";
        Self {
            detail: what.to_owned(),
            correction:
                "The call was cut off before its end, so the tool did not run. Send the whole call again; if it \
                         is long, do the work in several smaller calls."
                    .to_owned(),
        }
    }

    pub(super) fn not_an_object(kind: &str) -> Self {
        Self::new(
            format!("the arguments are of JSON type {kind}, not an object"),
            "Send the call again with the arguments as one JSON object that has the parameters' names as keys, e.g. \
             {\"city\": \"Oslo\"}.",
        )
    }

    pub(super) fn no_object(text: &str) -> Self {
        let shown: String = text.trim().chars().take(2 * CONTEXT_CHARS).collect();
        Self::new(
            format!("there is no JSON object in `{shown}`"),
            RESEND_ADVICE,
        )
    }

    pub(super) fn unclosed(text: &str) -> Self {
        let text = text.trim_end();
        Self::at_position(
            text,
            text.len(),
            "the text ends before the JSON object does",
        )
    }

    pub(super) fn from_strict_error(error: &serde_json::Error) -> Self {
        Self::new(error.to_string(), RESEND_ADVICE)
    }

    pub(super) fn at_position(text: &str, at: usize, what: &str) -> Self {
        Self::new(
            format!("{what}: {}", describe_position(text, at)),
            RESEND_ADVICE,
        )
    }

    /// The fault of a token. `start` is where the text of the tokens begins.
    pub(super) fn from_fault(text: &str, start: usize, fault: &TokenFault) -> Self {
        let advice = match fault.kind {
            FaultKind::TooDeep => {
                let advice = "Send the call again with arguments that are nested less deeply.";
                return Self::new(fault.kind.to_string(), advice);
            }
            FaultKind::Escape(_) => {
                "Send the whole call again, with every backslash inside a text written twice."
            }
            FaultKind::Word(_) => {
                "Send the whole call again. If this belongs to a text, put that text in double quotes and write every \
                 quote inside it as \\\"."
            }
            _ => RESEND_ADVICE,
        };
        let position = describe_position(text, start + fault.at);
        Self::new(format!("{}: {position}", fault.kind), advice)
    }
}

/// The line and column, counted in characters from 1, and the text around the position.
fn describe_position(text: &str, at: usize) -> String {
    let (before, after) = text.split_at_checked(at).unwrap_or((text, ""));
    let line = before.matches('\n').count() + 1;
    let this_line = before.rsplit('\n').next().unwrap_or_default();
    let column = this_line.chars().count() + 1;
    let skip = before
        .char_indices()
        .rev()
        .nth(CONTEXT_CHARS - 1)
        .map_or(0, |(i, _)| i);
    let ahead = after
        .char_indices()
        .nth(CONTEXT_CHARS)
        .map_or(after.len(), |(i, _)| i);
    let shown = format!("{}{}", &before[skip..], &after[..ahead]);
    format!(
        "line {line}, column {column}, in `{}`",
        shown.replace(['\n', '\r'], " ")
    )
}
