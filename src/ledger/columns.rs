//! Decodes columns that all engines store in the same form.

use jiff::Timestamp;

use super::approval::ApprovalState;
use crate::call::{Effect, ErrorKind};

/// A time in Unix milliseconds.
pub(super) fn parse_time(millis: i64) -> Result<Timestamp, sqlx::Error> {
    Timestamp::from_millisecond(millis).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// The kind of an error; `None` for one of a newer version.
pub(super) fn parse_kind(word: &str) -> Option<ErrorKind> {
    word.parse().ok()
}

/// The state of an approval.
pub(super) fn parse_approval_state(word: &str) -> Result<ApprovalState, sqlx::Error> {
    word.parse()
        .map_err(|_| sqlx::Error::Decode("the state of the approval is unknown".into()))
}

/// The effect of a tool.
pub(super) fn parse_effect(word: &str) -> Effect {
    let all = [Effect::Read, Effect::Idempotent, Effect::Write];
    all.into_iter()
        .find(|effect| effect.as_str() == word)
        .unwrap_or_default()
}
