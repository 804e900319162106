//! The cache layer: decides when to read a stored result, when to join a call in flight, and when
//! to run the tool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{Either, pending};
use tokio::time::sleep_until;

use super::store::{Completed, FlightRole, Hit, Leader};
use super::tool_cache::ToolCache;
use crate::call::json::hash_parts;
use crate::call::{
    CacheMode, CacheReport, CacheStatus, CacheWhen, ErrorKind, Invocation, JsonObject,
    NOT_RECORDED, Policy, ToolResult,
};
use crate::stack::Outcome;
use crate::stack::interceptor::{Inner, Interceptor, InterceptorLayer};

/// The layer for tools whose results may be stored.
pub struct Cached {
    tool_cache: Arc<ToolCache>,
    predicate: Option<CacheWhen>,
    /// Whether a failure of the predicate was logged. It is logged once, because it may repeat for
    /// each call.
    has_warned: AtomicBool,
    /// Whether a result was for one caller only, though the scope is `shared`. Then calls do not
    /// wait for each other: each would run in the end.
    has_personal_results: AtomicBool,
}

impl Interceptor for Cached {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        match invocation.cache {
            _ if self.must_bypass(&invocation) => {
                invocation.report.cache.lock().status = CacheStatus::Bypass;
                inner.call(invocation).await
            }
            // No stored result answers a call that a person has approved.
            CacheMode::Use if !invocation.is_approved() => {
                let key = self.cache_key(&invocation);
                self.read_or_run(inner, invocation, key).await
            }
            _ => {
                invocation.report.cache.lock().status = CacheStatus::Refresh;
                let key = self.cache_key(&invocation);
                self.run_as_leader(&mut inner, invocation, key, None).await
            }
        }
    }
}

impl Cached {
    /// Makes the layer of one tool; `None` if the tool stores no results.
    pub fn layer(
        tool_cache: Option<&Arc<ToolCache>>,
        policy: &Policy,
    ) -> Option<InterceptorLayer<Self>> {
        Some(InterceptorLayer::new(Self {
            tool_cache: tool_cache?.clone(),
            predicate: policy.cache_when.clone(),
            has_warned: AtomicBool::new(false),
            has_personal_results: AtomicBool::new(false),
        }))
    }

    /// Whether a call neither reads nor stores a result.
    fn must_bypass(&self, invocation: &Invocation) -> bool {
        // A call with an idempotency key always runs, and its result is stored with the key.
        invocation.idempotency_key.is_some()
            || invocation.cache == CacheMode::Bypass
            // A result that was made without the denied tools is no answer for callers that may use
            // those tools.
            || self.tool_cache.calls_tools() && !invocation.call_chain.deny.is_empty()
    }

    fn cache_key(&self, invocation: &Invocation) -> [u8; 32] {
        let key = self.tool_cache.cache_key(
            &invocation.caller,
            invocation.call_chain.agent.as_ref(),
            &invocation.input.arguments,
            &invocation.input.context,
        );
        // A tool that may nest fewer calls may give another result.
        match invocation
            .call_chain
            .remaining_depth
            .filter(|_| self.tool_cache.calls_tools())
        {
            Some(depth) => hash_parts([key.as_slice(), &depth.to_le_bytes()]),
            None => key,
        }
    }

    async fn read_or_run(
        &self,
        mut inner: impl Inner,
        invocation: Box<Invocation>,
        key: [u8; 32],
    ) -> Outcome {
        let set_status = |status| invocation.report.cache.lock().status = status;
        loop {
            if let Some(hit) = self.tool_cache.cache.get(&key) {
                return Ok(take_hit(&invocation, hit));
            }
            // Calls do not wait for each other if each would run in the end.
            let leader = match self.has_personal_results.load(Ordering::Relaxed) {
                true => None,
                false => match self.tool_cache.cache.join_flight(key) {
                    FlightRole::Leading(leader) => Some(leader),
                    FlightRole::Joining(mut flight) => {
                        set_status(CacheStatus::Joined);
                        let deadline = match invocation.timing.deadline {
                            Some(deadline) => Either::Left(sleep_until(deadline)),
                            None => Either::Right(pending()),
                        };
                        let completed = tokio::select! {
                            completed = flight.wait_for_outcome() => completed,
                            () = deadline => return Err(invocation.timing.deadline_exceeded(false)),
                        };
                        // The leader may end without a result for its followers, for example
                        // because it was cancelled. Look again: one of the followers becomes the
                        // next leader.
                        let Some(Completed { outcome, origin }) = completed else {
                            continue;
                        };
                        if outcome.is_ok() {
                            invocation.report.cache.lock().origin = Some(origin);
                        }
                        return outcome;
                    }
                },
            };
            // Between the lookup above and `join_flight`, an earlier flight may have ended and
            // stored its result. Without this second lookup, the tool would run twice. It also
            // reads Redis and the ledger, which only the leader does: its followers wait for the
            // result.
            if let Some(hit) = self.tool_cache.look_up(&key, Some(invocation.id)).await {
                let origin = hit.origin;
                let result = take_hit(&invocation, hit);
                if let Some(leader) = leader {
                    leader.complete(Completed {
                        outcome: Ok(result.clone()),
                        origin,
                    });
                }
                return Ok(result);
            }
            set_status(CacheStatus::Miss);
            return self
                .run_as_leader(&mut inner, invocation, key, leader)
                .await;
        }
    }

    /// Runs the call, stores its result, and passes the outcome to the calls that joined. Without a
    /// shared outcome, the leader is dropped here, and a follower takes over.
    async fn run_as_leader(
        &self,
        inner: &mut impl Inner,
        call: Box<Invocation>,
        key: [u8; 32],
        leader: Option<Leader>,
    ) -> Outcome {
        let (origin, arguments, tool) = (
            call.id,
            call.input.arguments.clone(),
            self.tool_cache.tool.as_str(),
        );
        let (purges, report) = (self.tool_cache.cache.mark_purges(tool), call.report.clone());
        let questions = call.delivery.questions.clone();
        let outcome = inner.call(call).await;
        // The answers of one caller are not for others.
        if questions.is_some_and(|questions| questions.was_asked()) {
            return outcome;
        }
        // The tool called another tool that sends the caller's own credentials.
        if self.tool_cache.is_shared() && report.uses_caller_credentials() {
            self.has_personal_results.store(true, Ordering::Relaxed);
            return outcome;
        }
        if let Ok(result) = &outcome
            && !result.is_error
            && self.is_cacheable(&arguments, result)
        {
            self.tool_cache
                .cache
                .store(key, tool, origin, result, self.tool_cache.ttl(), purges)
                .await;
        }
        if let Some(leader) = leader
            && is_shared_outcome(&outcome)
        {
            leader.complete(Completed {
                outcome: outcome.clone(),
                origin,
            });
        }
        outcome
    }

    fn is_cacheable(&self, arguments: &JsonObject, result: &ToolResult) -> bool {
        if result.not_cached {
            return false;
        }
        let Some(predicate) = &self.predicate else {
            return true;
        };
        predicate
            .evaluate(arguments, result)
            .unwrap_or_else(|error| {
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    // The message may quote data that must not be recorded.
                    let error = if self.tool_cache.cache.is_memory_only() {
                        NOT_RECORDED
                    } else {
                        &*error
                    };
                    tracing::warn!(
                        tool = self.tool_cache.tool.as_str(),
                        error,
                        "cache.when failed: the result is not stored"
                    );
                }
                false
            })
    }
}

/// The stored result, which is noted as the origin of the answer. The row of the call that found the
/// result in Redis has the result itself.
fn take_hit(invocation: &Invocation, hit: Hit) -> Arc<ToolResult> {
    let origin = Some(hit.origin).filter(|origin| *origin != invocation.id);
    *invocation.report.cache.lock() = CacheReport {
        status: CacheStatus::Hit,
        origin,
    };
    hit.result
}

/// Whether the calls that joined get this outcome too. They get the result or the failure of the
/// tool. They do not get an outcome that concerns only the leader, such as its deadline or
/// cancellation.
fn is_shared_outcome(outcome: &Outcome) -> bool {
    match outcome {
        Ok(_) => true,
        Err(error) => matches!(
            error.kind(),
            ErrorKind::UpstreamFailed
                | ErrorKind::BadOutput
                | ErrorKind::ToolUnavailable
                | ErrorKind::AttemptTimedOut
                | ErrorKind::InvalidArguments
        ),
    }
}
