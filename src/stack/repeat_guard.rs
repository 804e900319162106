//! Refuses a call that repeats the last answered call of its run.
//!
//! A model that sends the same call again has not understood the answer, and the same answer would
//! not help. This layer is below validation, so equal calls are equal. It is above the cache,
//! because a stored result is the same answer too.
//!
//! What a `read` reads may change. So the same read passes again once its answer is older than a
//! stored result may be, or than a minute if the tool has no cache.
//!
//! Calls without a run pass, because the call before them is unknown. Calls of a script pass, because
//! no model reads their answers. The calls of an agent's model
//! form a run of their own. Only a call counts that was answered while its caller was still
//! connected.
//!
//! Replicas tell each other the last answered call of a run a few milliseconds after its answer. A
//! call never waits for that, except before it is refused.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Outcome;
use super::interceptor::{Inner, Interceptor, InterceptorLayer};
use crate::call::canonical::canonical_json;
use crate::call::json::hash_parts;
use crate::call::{CallChain, CallError, ContextFields, Effect, Invocation, InvocationId, Policy};
use crate::tracking::runs::{CallDigest, Runs};

/// How long a refusal waits for what other replicas have answered since.
const NEWS_TIME: Duration = Duration::from_millis(150);

/// How long the answer of a read without a cache is taken for current.
const READ_TIME: Duration = Duration::from_mins(1);

/// The layer that refuses a repeated call.
pub struct RepeatGuard {
    runs: Runs,
    definition_hash: String,
    /// A call with another value of a declared field is another call.
    context: ContextFields,
    repeatable: bool,
    /// How long an answer is current. `None`: always, because the same call does the same again.
    current_for: Option<Duration>,
}

impl RepeatGuard {
    /// Guards one tool. Calls of a repeatable tool pass, but they count as calls in between.
    pub fn layer(
        runs: &Runs,
        policy: &Policy,
        definition_hash: &str,
        context: &ContextFields,
    ) -> InterceptorLayer<Self> {
        InterceptorLayer::new(Self {
            runs: runs.clone(),
            definition_hash: definition_hash.to_owned(),
            context: context.clone(),
            repeatable: policy.repeatable,
            current_for: (policy.effect == Effect::Read)
                .then(|| policy.cache.as_ref().map_or(READ_TIME, |cache| cache.ttl)),
        })
    }

    /// The call of the run that this one repeats.
    async fn find_repeated(
        &self,
        caller: &str,
        run: &str,
        call: &CallDigest,
        is_nested: bool,
    ) -> Option<InvocationId> {
        let find = || self.runs.find_repeated(caller, run, call, self.current_for);
        let found = find()?;
        if is_nested || self.runs.news().is_none() {
            return Some(found);
        }
        sleep(NEWS_TIME).await;
        find()
    }

    /// Calls that differ in definition, page or cache mode are not repeats.
    fn call_digest(&self, invocation: &Invocation) -> CallDigest {
        let options =
            serde_json::to_vec(&(invocation.paging.page.unwrap_or_default(), invocation.cache))
                .unwrap_or_default();
        let (hash, arguments) = (
            self.definition_hash.as_bytes(),
            canonical_json(&*invocation.input.arguments),
        );
        match self.context.declared_in(&invocation.input.context) {
            None => hash_parts([hash, &arguments, &options]),
            Some(context) => hash_parts([hash, &arguments, &options, &canonical_json(&context)]),
        }
    }
}

/// The sequence in which a call can be a repeat: the run that the caller named, or for a nested
/// call one attempt of its parent call.
fn sequence_id(invocation: &Invocation) -> Option<Arc<str>> {
    let CallChain {
        parent,
        parent_attempt,
        from_script,
        ..
    } = &invocation.call_chain;
    if *from_script {
        return None;
    }
    let named_run = || {
        invocation
            .run
            .id
            .clone()
            .filter(|_| !invocation.run.is_implied)
    };
    parent.map_or_else(named_run, |parent| {
        Some(format!("{parent}/{parent_attempt}").into())
    })
}

impl Interceptor for RepeatGuard {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        let Some(run) = sequence_id(&invocation) else {
            return inner.call(invocation).await;
        };
        let call = self.call_digest(&invocation);
        // The calls of one parent all reach this replica.
        let is_nested = invocation.call_chain.parent.is_some();
        let (caller, id) = (invocation.caller.name.clone(), invocation.id);
        let (signals, report) = (invocation.signals.clone(), invocation.report.clone());
        if !self.repeatable
            && let Some(earlier) = self.find_repeated(&caller, &run, &call, is_nested).await
        {
            return Err(CallError::RepeatedCall {
                tool: invocation.tool.to_string(),
                earlier,
            });
        }
        let outcome = inner.call(invocation).await;
        if outcome.is_ok() && !report.waits_for_approval() && !signals.disconnected.is_cancelled() {
            self.runs
                .set_last_answered(&caller, &run, call, id, !is_nested);
        }
        outcome
    }
}
