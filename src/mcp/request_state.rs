//! The `requestState` of a call that waits for its caller's own decision (2026-07-28).
//!
//! A client sends the state back with the answer. It is signed, and its signature covers the call,
//! the caller, the tool and the arguments. So a state of another call, caller or request is
//! refused, and a state never decides twice, because the ledger keeps one decision for each call.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::call::{DigestKey, InvocationId, JsonObject};

/// Separates these signatures from all others with the same key.
const PURPOSE: &str = "mcp request state of an approval";
/// As [`PURPOSE`], for questions of tools.
const QUESTION_PURPOSE: &str = "mcp request state of a question";
/// The start of a question's state. A call's id never begins with it.
const QUESTION_PREFIX: &str = "q";

/// The request that a state belongs to.
#[derive(Clone, Copy)]
pub(super) struct StateScope<'a> {
    /// Name of the caller.
    pub(super) caller: &'a str,
    /// Name of the tool.
    pub(super) tool: &'a str,
    /// The arguments as received.
    pub(super) arguments: &'a JsonObject,
}

/// Why a state is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StateError {
    /// The state was not made for this request, or was changed.
    #[error(
        "requestState does not belong to this request: send it back unchanged, with the same name and arguments"
    )]
    Foreign,
    /// The state is too old.
    #[error("requestState has expired: call the tool again")]
    Expired,
}

impl StateScope<'_> {
    /// The state for a waiting call of this request.
    pub(super) fn seal(self, key: &DigestKey, call: InvocationId, expires: Timestamp) -> String {
        self.seal_as(key, None, call, expires)
    }

    /// The waiting call of a state that this service has made for this request.
    pub(super) fn open(
        self,
        key: &DigestKey,
        state: &str,
        now: Timestamp,
    ) -> Result<InvocationId, StateError> {
        self.open_as(key, None, state, now)
    }

    /// The state for a question of this request's call, with the number of the question.
    pub(super) fn seal_question(
        self,
        key: &DigestKey,
        (call, number): (InvocationId, u32),
        expires: Timestamp,
    ) -> String {
        let state = self.seal_as(key, Some(number), call, expires);
        format!("{QUESTION_PREFIX}{number}.{state}")
    }

    /// Whether a state belongs to a question of a tool, not to an approval.
    pub(super) fn is_of_question(state: &str) -> bool {
        state.starts_with(QUESTION_PREFIX)
    }

    /// The call and the number of the question of a state that this service has made for this
    /// request.
    pub(super) fn open_question(
        self,
        key: &DigestKey,
        state: &str,
        now: Timestamp,
    ) -> Result<(InvocationId, u32), StateError> {
        let state = state.strip_prefix(QUESTION_PREFIX);
        let parts = state.and_then(|state| state.split_once('.'));
        let (number, state) = parts.ok_or(StateError::Foreign)?;
        let number: u32 = number.parse().map_err(|_| StateError::Foreign)?;
        let call = self.open_as(key, Some(number), state, now)?;
        Ok((call, number))
    }

    fn seal_as(
        self,
        key: &DigestKey,
        question: Option<u32>,
        call: InvocationId,
        expires: Timestamp,
    ) -> String {
        let expires = expires.as_millisecond();
        let (purpose, data) = self.signed_data(question, call, expires);
        format!("{call}.{expires}.{}", key.tag(purpose, &data))
    }

    fn open_as(
        self,
        key: &DigestKey,
        question: Option<u32>,
        state: &str,
        now: Timestamp,
    ) -> Result<InvocationId, StateError> {
        let mut parts = state.splitn(3, '.');
        let mut next = || parts.next().ok_or(StateError::Foreign);
        let (call, expires, tag) = (next()?, next()?, next()?);
        let call: InvocationId = call.parse().map_err(|_| StateError::Foreign)?;
        let expires: i64 = expires.parse().map_err(|_| StateError::Foreign)?;
        let (purpose, data) = self.signed_data(question, call, expires);
        if !key.is_tag_of(purpose, &data, tag) {
            return Err(StateError::Foreign);
        }
        if now.as_millisecond() >= expires {
            return Err(StateError::Expired);
        }
        Ok(call)
    }

    /// What the signature covers, with its purpose. `question` is the number of a question.
    fn signed_data(
        self,
        question: Option<u32>,
        call: InvocationId,
        expires: i64,
    ) -> (&'static str, Value) {
        let data = json!([
            call.to_string(),
            expires,
            self.caller,
            self.tool,
            self.arguments
        ]);
        match question {
            Some(number) => (QUESTION_PURPOSE, json!([number, data])),
            None => (PURPOSE, data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_unchanged_state_of_the_same_request_opens() {
        let key = DigestKey::random().unwrap();
        let arguments = json!({"a": 1, "b": 2}).as_object().cloned().unwrap();
        let scope = StateScope {
            caller: "carol",
            tool: "pay",
            arguments: &arguments,
        };
        let (call, now) = (InvocationId::new(), Timestamp::UNIX_EPOCH);
        let later = Timestamp::from_millisecond(1000).unwrap();
        let state = scope.seal(&key, call, later);
        assert_eq!(scope.open(&key, &state, now), Ok(call));
        assert_eq!(scope.open(&key, &state, later), Err(StateError::Expired));
        let other = json!({"a": 1, "b": 3}).as_object().cloned().unwrap();
        for foreign in [
            StateScope {
                caller: "dave",
                ..scope
            },
            StateScope {
                tool: "mail",
                ..scope
            },
            StateScope {
                arguments: &other,
                ..scope
            },
        ] {
            assert_eq!(foreign.open(&key, &state, now), Err(StateError::Foreign));
        }
        let longer = state.replacen(".1000.", ".2000.", 1);
        let moved = state.replacen(&call.to_string(), &InvocationId::new().to_string(), 1);
        let unsigned = state.rsplit_once('.').unwrap().0.to_owned();
        for changed in [longer, moved, unsigned, String::new(), format!("{state}0")] {
            assert_eq!(scope.open(&key, &changed, now), Err(StateError::Foreign));
        }
        let question = scope.seal_question(&key, (call, 2), later);
        assert_eq!(scope.open_question(&key, &question, now), Ok((call, 2)));
        for foreign in [
            question.replacen("q2", "q1", 1),
            format!("q2.{state}"),
            state.clone(),
        ] {
            let opened = scope.open_question(&key, &foreign, now);
            assert_eq!(opened, Err(StateError::Foreign), "{foreign}");
        }
        assert_eq!(scope.open(&key, &question, now), Err(StateError::Foreign));
        let other_key = DigestKey::random().unwrap();
        assert_eq!(
            scope.open(&other_key, &state, now),
            Err(StateError::Foreign)
        );
    }
}
