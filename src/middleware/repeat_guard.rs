//! The same call twice in a row within a run: said so instead of run.
//!
//! A model that asks the same again has not understood the answer it has, and the same answer will not help it. Under
//! validation, so that equal calls look equal; above the cache, since a stored answer is the same answer too. Calls
//! without a run pass: nobody can say what came before them. What an agent's model calls is a run of its own. Only what was answered, and to somebody, can be repeated.

use std::sync::Arc;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::canonical::canonical;
use crate::call::json::digest;
use crate::call::{CallError, ContextFields, Invocation, Lineage, Policy};
use crate::runs::{CallDigest, Runs};

/// See the module.
pub struct RepeatGuard {
    runs: Runs,
    definition_hash: String,
    /// A call with another value of a declared field is another call.
    context: ContextFields,
    repeatable: bool,
}

impl RepeatGuard {
    /// Guards one tool. The calls of a repeatable one pass, and come between those of others all the same.
    pub fn layer(runs: &Runs, policy: &Policy, definition_hash: &str, context: &ContextFields) -> AroundLayer<Self> {
        let (runs, definition_hash, context) = (runs.clone(), definition_hash.to_owned(), context.clone());
        AroundLayer::new(Self { runs, definition_hash, context, repeatable: policy.repeatable })
    }

    /// A tool that has changed, another part of the result and another way with the cache are another call.
    fn digest(&self, invocation: &Invocation) -> CallDigest {
        let how = serde_json::to_vec(&(invocation.page.unwrap_or_default(), invocation.cache)).unwrap_or_default();
        let (hash, arguments) = (self.definition_hash.as_bytes(), canonical(&*invocation.arguments));
        match self.context.declared(&invocation.context) {
            None => digest([hash, &arguments, &how]),
            Some(context) => digest([hash, &arguments, &how, &canonical(&context)]),
        }
    }
}

/// What the calls of one model are in: the caller's run; of an agent's model, that call of the agent.
fn conversation(invocation: &Invocation) -> Option<Arc<str>> {
    let Lineage { parent, parent_attempt, .. } = &invocation.lineage;
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
