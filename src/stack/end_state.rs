//! The state of a call at its end, and what follows from it.

use super::Outcome;
use crate::call::{CallError, Effect};
use crate::ledger::State;

/// Whether a call with at least one attempt keeps its idempotency key at its end. A cancelled call
/// that may be repeated does not keep it: the next call with the key then runs, instead of getting
/// the cancellation again.
pub(super) fn claims_key(state: State, effect: Effect) -> bool {
    match state {
        State::Refused | State::Waiting | State::Reserved | State::Running => false,
        State::Cancelled => !effect.may_repeat(),
        State::Succeeded | State::Failed | State::TimedOut | State::Unknown => true,
    }
}

/// The state of the call at its end. A write that had an attempt may have had an effect if it was
/// then cancelled, timed out, or lost its process. Its state is `Unknown`.
pub(super) fn final_state(outcome: &Outcome, effect: Effect, attempts: u32) -> State {
    let in_doubt = effect == Effect::Write && attempts > 0;
    match outcome {
        Ok(result) if result.is_error => State::Failed,
        Ok(_) => State::Succeeded,
        Err(error) if error.is_refusal() => State::Refused,
        Err(CallError::DeadlineExceeded { .. } | CallError::AttemptTimedOut { .. }) if in_doubt => {
            State::Unknown
        }
        Err(CallError::DeadlineExceeded { .. } | CallError::AttemptTimedOut { .. }) => {
            State::TimedOut
        }
        Err(CallError::Cancelled { .. } | CallError::ToolUnavailable { started: true, .. })
            if in_doubt =>
        {
            State::Unknown
        }
        Err(CallError::Cancelled { .. }) => State::Cancelled,
        Err(_) => State::Failed,
    }
}
