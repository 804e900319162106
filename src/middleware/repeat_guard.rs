//! Refuses a call that repeats the last answered call of its run.
//!
//! A model that sends the same call again has not understood the answer, and the same answer would not help. This layer
//! is below validation, so equal calls are equal. It is above the cache, because a stored result is the same answer
//! too.
//!
//! Calls without a run pass, because the call before them is unknown. The calls of an agent's model form a run of their
//! own. Only a call counts that was answered while its caller was still connected.

use std::sync::Arc;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::canonical::canonical;
use crate::call::json::digest;
use crate::call::{CallChain, CallError, ContextFields, Invocation, Policy};
use crate::runs::{CallDigest, Runs};

/// The layer that refuses a repeated call.
pub struct RepeatGuard {
    runs: Runs,
    definition_hash: String,
    /// A call with another value of a declared field is another call.
    context: ContextFields,
    repeatable: bool,
}

impl RepeatGuard {
    /// Guards one tool. Calls of a repeatable tool pass, but they count as calls in between.
    pub fn layer(runs: &Runs, policy: &Policy, definition_hash: &str, context: &ContextFields) -> AroundLayer<Self> {
        let (runs, definition_hash, context) = (runs.clone(), definition_hash.to_owned(), context.clone());
        AroundLayer::new(Self { runs, definition_hash, context, repeatable: policy.repeatable })
    }

    /// Calls that differ in definition, page or cache mode are not repeats.
    fn digest(&self, invocation: &Invocation) -> CallDigest {
        let how = serde_json::to_vec(&(invocation.page.unwrap_or_default(), invocation.cache)).unwrap_or_default();
        let (hash, arguments) = (self.definition_hash.as_bytes(), canonical(&*invocation.arguments));
        match self.context.declared(&invocation.context) {
            None => digest([hash, &arguments, &how]),
            Some(context) => digest([hash, &arguments, &how, &canonical(&context)]),
        }
    }
}

/// The sequence in which a call can be a repeat: the caller's run, or for a nested call one attempt of its parent call.
fn conversation(invocation: &Invocation) -> Option<Arc<str>> {
    let CallChain { parent, parent_attempt, .. } = &invocation.lineage;
    parent.map_or_else(|| invocation.run_id.clone(), |parent| Some(format!("{parent}/{parent_attempt}").into()))
}

impl Around for RepeatGuard {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        let Some(run) = conversation(&invocation) else { return inner.call(invocation).await };
        let call = self.digest(&invocation);
        let (caller, id, left) = (invocation.caller.name.clone(), invocation.id, invocation.left.clone());
        if !self.repeatable
            && let Some(earlier) = self.runs.last_was(&caller, &run, &call)
        {
            return Err(CallError::RepeatedCall { tool: invocation.tool.to_string(), earlier });
        }
        let outcome = inner.call(invocation).await;
        if outcome.is_ok() && !left.is_cancelled() {
            self.runs.answered(&caller, &run, call, id);
        }
        outcome
    }
}
