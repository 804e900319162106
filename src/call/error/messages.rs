//! Builds parts of the messages of failures.

use std::time::Duration;

use super::violation::{Violation, first_violation_message};
use crate::call::limit::LimitOwner;
use crate::call::meta::LimitUsage;
use crate::call::units::Count;

pub(super) fn overloaded_message(per_caller: Option<usize>) -> String {
    match per_caller {
        None => "too many calls are running".into(),
        Some(share) => {
            format!(
                "too many calls of this caller are running: it may run {share} of this tool at once"
            )
        }
    }
}

pub(super) fn too_many_waiting_message(most: u64, of_caller: bool) -> String {
    let whose = if of_caller { " of this caller" } else { "" };
    format!("{most} calls{whose} wait for approval already, and no more may wait")
}

pub(super) fn violations_message(violations: &[Violation]) -> String {
    match violations {
        [one] => format!("the arguments are invalid: {}", one.message),
        many => format!(
            "the arguments are invalid in {} positions: {}",
            many.len(),
            first_violation_message(many)
        ),
    }
}

pub(super) fn limit_reached_detail(usage: &LimitUsage, caller: &str) -> String {
    let calls = Count(usage.calls, "call");
    let per = usage.per.as_str();
    match usage.of {
        LimitOwner::Tool => format!("the limit of {calls} per {per} is reached"),
        LimitOwner::Caller => {
            format!("the limit of {calls} per {per} of caller {caller}, over all tools, is reached")
        }
    }
}

pub(super) fn limit_reached_message(usage: &LimitUsage) -> String {
    let calls = Count(usage.calls, "call");
    let per = usage.per.as_str();
    let (reached, without) = match usage.of {
        LimitOwner::Tool => (
            format!("The limit of {calls} per {per} is reached"),
            "this tool",
        ),
        LimitOwner::Caller => (
            format!("Your limit of {calls} per {per} over all tools is reached"),
            "tools",
        ),
    };
    match usage.resets_at {
        Some(at) => format!("{reached}. It resets at {at}. Continue without {without} for now."),
        None => format!("{reached}. Continue without {without}."),
    }
}

/// The note of a person, as the end of a sentence.
pub(super) fn note_suffix(note: Option<&str>) -> String {
    note.map_or_else(String::new, |note| format!(": {note}"))
}

pub(super) fn format_duration(duration: Duration) -> String {
    humantime::format_duration(Duration::from_millis(
        duration.as_millis().try_into().unwrap_or(u64::MAX),
    ))
    .to_string()
}
