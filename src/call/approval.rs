//! Decides which calls wait for a person, and which calls a rule denies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::canonical::canonical_json;
use super::json::{JsonObject, hash_parts};

/// What a condition sees of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallFacts<'a> {
    /// The arguments as the tool would get them.
    pub arguments: &'a JsonObject,
    /// Name of the caller.
    pub caller: &'a str,
    /// The run that the caller has named.
    pub run: Option<&'a str>,
}

type Predicate = dyn Fn(CallFacts<'_>) -> Result<bool, String> + Send + Sync;

/// A condition on a call, compiled from an expression.
#[derive(Clone, derive_more::Debug)]
#[debug("{text}")]
pub struct CallCondition {
    text: Arc<str>,
    predicate: Arc<Predicate>,
}

impl CallCondition {
    /// A condition from its text and the function that evaluates it.
    pub fn new(
        text: &str,
        predicate: impl Fn(CallFacts<'_>) -> Result<bool, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            text: text.into(),
            predicate: Arc::new(predicate),
        }
    }

    /// The text of the expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the condition holds. A condition that fails, or that meets a missing field, holds:
    /// the careful answer is to ask.
    pub fn holds(&self, call: CallFacts<'_>) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.predicate)(call)))
            .unwrap_or_else(|_| Err("it panicked".into()))
            .unwrap_or(true)
    }
}

impl PartialEq for CallCondition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for CallCondition {}

/// Which calls of a tool wait for a person, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalPolicy {
    /// The calls that wait; `None`: every call.
    pub when: Option<CallCondition>,
    /// The callers that may decide, besides admins. An admin is always permitted.
    pub by: Vec<Arc<str>>,
    /// How long a request waits for the decision before it is answered that the call waits.
    pub wait: Duration,
    /// How long a call waits for its decision.
    pub expires: Duration,
    /// The message for the person that decides.
    pub message: Option<Arc<str>>,
}

impl ApprovalPolicy {
    /// Default of `wait`.
    pub const DEFAULT_WAIT: Duration = Duration::from_secs(20);
    /// Default of `expires`.
    pub const DEFAULT_EXPIRES: Duration = Duration::from_secs(24 * 3600);
}

impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self {
            when: None,
            by: Vec::new(),
            wait: Self::DEFAULT_WAIT,
            expires: Self::DEFAULT_EXPIRES,
            message: None,
        }
    }
}

/// Denies calls without a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyRule {
    /// The calls that are denied.
    pub when: CallCondition,
    /// The text for the model.
    pub say: Arc<str>,
}

/// Hash of what a person approves: the tool's definition, and the arguments as the tool gets them.
pub fn approval_hash(definition_hash: &str, arguments: &JsonObject) -> [u8; 32] {
    hash_parts([
        b"approval".as_slice(),
        definition_hash.as_bytes(),
        &canonical_json(arguments),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn condition_that_fails_holds() {
        let call = CallFacts {
            arguments: &JsonObject::new(),
            caller: "a",
            run: None,
        };
        assert!(CallCondition::new("x", |_| Err("no such field".into())).holds(call));
        assert!(CallCondition::new("x", |_| panic!("broken")).holds(call));
        assert!(!CallCondition::new("x", |_| Ok(false)).holds(call));
    }

    #[test]
    fn hash_depends_on_definition_and_arguments_but_not_on_their_order() {
        let object = |value: serde_json::Value| value.as_object().cloned().unwrap();
        let one = object(json!({"a": 1, "b": 2}));
        let same = object(json!({"b": 2, "a": 1}));
        assert_eq!(approval_hash("d", &one), approval_hash("d", &same));
        assert_ne!(approval_hash("d", &one), approval_hash("e", &one));
        let other = object(json!({"a": 1, "b": 3}));
        assert_ne!(approval_hash("d", &one), approval_hash("d", &other));
    }
}
