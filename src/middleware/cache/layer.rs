//! The cache layer: decides when to read a stored result, when to join a call in flight, and when to run the tool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{Either, pending};
use tokio::time::sleep_until;

use super::super::Outcome;
use super::super::around::{Around, AroundLayer, Inner};
use super::store::{Completed, InFlight, Leader};
use super::tool_cache::ToolCache;
use crate::call::json::digest;
use crate::call::{
    CacheMode, CacheStatus, CacheWhen, CallError, ErrorKind, Invocation, JsonObject, Policy, ToolResult, WITHHELD,
};

/// The layer for tools whose results may be stored.
pub struct Cached {
    shelf: Arc<ToolCache>,
    when: Option<CacheWhen>,
    /// Whether a failure of the predicate was logged. It is logged once, because it may repeat for each call.
    warned: AtomicBool,
}

impl Around for Cached {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        match invocation.cache {
            // A call with an idempotency key always runs, and its result is stored with the key.
            _ if invocation.key.is_some() => {
                invocation.notes.lock().meta.cache = CacheStatus::Bypass;
                inner.call(invocation).await
            }
            // A result that was made without the denied tools is no answer for callers that may use those tools.
            _ if self.shelf.calls_tools() && !invocation.lineage.deny.is_empty() => {
                invocation.notes.lock().meta.cache = CacheStatus::Bypass;
                inner.call(invocation).await
            }
            CacheMode::Bypass => {
                invocation.notes.lock().meta.cache = CacheStatus::Bypass;
                inner.call(invocation).await
            }
            CacheMode::Refresh => {
                let key = self.key(&invocation);
                self.refresh(inner, invocation, key).await
            }
            CacheMode::Use => {
                let key = self.key(&invocation);
                self.answer(inner, invocation, key).await
            }
        }
    }
}

impl Cached {
    /// Makes the layer of one tool; `None` if the tool stores no results.
    pub fn layer(shelf: Option<&Arc<ToolCache>>, policy: &Policy) -> Option<AroundLayer<Self>> {
        let (when, warned) = (policy.cache_when.clone(), AtomicBool::new(false));
        Some(AroundLayer::new(Self { shelf: shelf?.clone(), when, warned }))
    }

    fn key(&self, invocation: &Invocation) -> [u8; 32] {
        let key = self.shelf.key(
            &invocation.caller,
            invocation.lineage.agent.as_ref(),
            &invocation.arguments,
            &invocation.context,
        );
        // A tool that may nest fewer calls may give another result.
        match invocation.lineage.levels.filter(|_| self.shelf.calls_tools()) {
            Some(levels) => digest([key.as_slice(), &levels.to_le_bytes()]),
            None => key,
        }
    }

    async fn answer(&self, mut inner: impl Inner, invocation: Invocation, key: [u8; 32]) -> Outcome {
        let note = |status| invocation.notes.lock().meta.cache = status;
        loop {
            if let Some(hit) = self.shelf.cache.get(&key) {
                let mut notes = invocation.notes.lock();
                (notes.meta.cache, notes.origin) = (CacheStatus::Hit, Some(hit.origin));
                return Ok(hit.result);
            }
            match self.shelf.cache.board(key) {
                InFlight::Leading(leader) => {
                    // Between the lookup above and `board`, an earlier flight may have ended and stored its result.
                    // Without this second lookup, the tool would run twice. It also reads the ledger, which only the
                    // leader does: its followers wait for the result.
                    if let Some(hit) = self.shelf.look(&key).await {
                        let mut notes = invocation.notes.lock();
                        (notes.meta.cache, notes.origin) = (CacheStatus::Hit, Some(hit.origin));
                        leader.land(Completed { outcome: Ok(hit.result.clone()), origin: hit.origin });
                        return Ok(hit.result);
                    }
                    note(CacheStatus::Miss);
                    return self.lead(&mut inner, invocation, key, Some(leader)).await;
                }
                InFlight::Joining(mut flight) => {
                    note(CacheStatus::Joined);
                    let deadline = match invocation.deadline {
                        Some(deadline) => Either::Left(sleep_until(deadline)),
                        None => Either::Right(pending()),
                    };
                    let landed = tokio::select! {
                        landed = flight.landed() => landed,
                        () = deadline => return Err(CallError::DeadlineExceeded { after: invocation.allowed(), started: false }),
                    };
                    match landed {
                        Some(Completed { outcome, origin }) => {
                            if outcome.is_ok() {
                                invocation.notes.lock().origin = Some(origin);
                            }
                            return outcome;
                        }
                        // The leader ended without a result for its followers, for example because it was canceled.
                        // Look again: one of the followers becomes the next leader.
                        None => continue,
                    }
                }
            }
        }
    }

    async fn refresh(&self, mut inner: impl Inner, invocation: Invocation, key: [u8; 32]) -> Outcome {
        invocation.notes.lock().meta.cache = CacheStatus::Refresh;
        self.lead(&mut inner, invocation, key, None).await
    }

    /// Runs the call, stores its result, and passes the outcome to the calls that joined. Without a shared outcome, the
    /// leader is dropped here, and a follower takes over.
    async fn lead(&self, inner: &mut impl Inner, call: Invocation, key: [u8; 32], leader: Option<Leader>) -> Outcome {
        let (origin, arguments, tool) = (call.id, call.arguments.clone(), self.shelf.tool.as_str());
        let purges = self.shelf.cache.purges();
        let outcome = inner.call(call).await;
        if let Ok(result) = &outcome
            && !result.is_error
            && self.is_worth_keeping(&arguments, result)
        {
            self.shelf.cache.store(key, tool, origin, result, self.shelf.ttl(), purges).await;
        }
        if let Some(leader) = leader
            && concerns_all(&outcome)
        {
            leader.land(Completed { outcome: outcome.clone(), origin });
        }
        outcome
    }

    fn is_worth_keeping(&self, arguments: &JsonObject, result: &ToolResult) -> bool {
        if result.not_cached {
            return false;
        }
        let Some(when) = &self.when else { return true };
        when.holds(arguments, result).unwrap_or_else(|error| {
            if !self.warned.swap(true, Ordering::Relaxed) {
                // The message may quote data that must not be recorded.
                let error = if self.shelf.cache.is_in_memory() { WITHHELD } else { &*error };
                tracing::warn!(tool = self.shelf.tool.as_str(), error, "cache.when failed: the result is not stored");
            }
            false
        })
    }
}

/// Whether the calls that joined get this outcome too. They get the result or the failure of the tool. They do not get
/// an outcome that concerns only the leader, such as its deadline or cancellation.
fn concerns_all(outcome: &Outcome) -> bool {
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
