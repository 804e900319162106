//! The layer: when to look, when to join, when to run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{Either, pending};
use tokio::time::sleep_until;

use super::super::Outcome;
use super::super::around::{Around, AroundLayer, Inner};
use super::shelf::Shelf;
use super::store::{Flight, Landed, Leader};
use crate::call::json::digest;
use crate::call::{
    CacheMode, CacheStatus, CacheWhen, CallError, ErrorKind, Invocation, JsonObject, Policy, ToolResult, WITHHELD,
};

/// See the module.
pub struct Cached {
    shelf: Arc<Shelf>,
    when: Option<CacheWhen>,
    /// A predicate that fails is told once: it would fill the log.
    warned: AtomicBool,
}

impl Around for Cached {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        match invocation.cache {
            // What is asked for under a key is asked for once, and its answer is kept with the key.
            _ if invocation.key.is_some() => {
                invocation.notes.lock().meta.cache = CacheStatus::Bypass;
                inner.call(invocation).await
            }
            // Nor is what came about without tools that others may use there.
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
    /// The cache of one tool; `None` without a shelf.
    pub fn layer(shelf: Option<&Arc<Shelf>>, policy: &Policy) -> Option<AroundLayer<Self>> {
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
        // A tool that may call fewer others below it may answer otherwise.
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
                Flight::Leading(leader) => {
                    // The flight before may have landed in between.
                    if let Some(hit) = self.shelf.look(&key).await {
                        let mut notes = invocation.notes.lock();
                        (notes.meta.cache, notes.origin) = (CacheStatus::Hit, Some(hit.origin));
                        leader.land(Landed { outcome: Ok(hit.result.clone()), origin: hit.origin });
                        return Ok(hit.result);
                    }
                    note(CacheStatus::Miss);
                    return self.lead(&mut inner, invocation, key, Some(leader)).await;
                }
                Flight::Joining(mut flight) => {
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
                        Some(Landed { outcome, origin }) => {
                            if outcome.is_ok() {
                                invocation.notes.lock().origin = Some(origin);
                            }
                            return outcome;
                        }
                        // The first call ended for reasons of its own: look again.
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

    /// Runs the call, stores its result, tells who joined.
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
            leader.land(Landed { outcome: outcome.clone(), origin });
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
                // It may quote what must not be on record.
                let error = if self.shelf.cache.is_in_memory() { WITHHELD } else { &*error };
                tracing::warn!(tool = self.shelf.tool.as_str(), error, "cache.when failed: the result is not stored");
            }
            false
        })
    }
}

/// Whether those who joined get this outcome too: what the tool said or how it failed, but nothing that happened to
/// the first caller alone.
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
