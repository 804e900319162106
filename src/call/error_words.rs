//! Builds parts of the messages of failures.

use std::time::Duration;

use super::error::{CallError, Violation, first_message};

pub(super) fn overloaded(per_caller: Option<usize>) -> String {
    match per_caller {
        None => "too many calls are running".into(),
        Some(share) => {
            format!("too many calls of this caller are running: of this tool it may have {share} at once")
        }
    }
}

pub(super) fn count_violations(violations: &[Violation]) -> String {
    match violations {
        [one] => format!("the arguments do not fit: {}", one.message),
        many => format!("the arguments break the schema in {} places: {}", many.len(), first_message(many)),
    }
}

pub(super) fn another_context(what: &str) -> String {
    format!("The tool did not run: the program that calls it must send another context. {what}")
}

pub(super) fn not_on_record(error: &CallError) -> String {
    format!("There is no answer to show: {error}. Do not call the tool again; look for the result later.")
}

pub(super) fn in_words(duration: Duration) -> String {
    humantime::format_duration(Duration::from_millis(duration.as_millis().try_into().unwrap_or(u64::MAX))).to_string()
}
