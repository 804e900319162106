//! The tool's bulkhead: so many calls run, so many wait for a moment, the rest is refused on arrival.
//!
//! Below the cache (a cached answer needs no place) and above the usage limit (a refused call costs no unit). One
//! permit covers all tries. tower's own `ConcurrencyLimit` waits without bound and `LoadShed` refuses without
//! waiting; this is the short bounded queue between them. A second bound spans all tools: it is there for the machine's
//! sake and not shared out, so a tool's own `max` is what keeps one that hangs from taking it all (16 of 256 by default;
//! `check` says where a manifest has it otherwise).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{CallError, Concurrency, Invocation};
use crate::metrics::ToolMetrics;

/// Told to a caller that finds everything full.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// See the module.
pub struct ConcurrencyLimit {
    tool: Arc<Semaphore>,
    all: Arc<Semaphore>,
    waiting: AtomicUsize,
    settings: Concurrency,
    metrics: ToolMetrics,
}

impl ConcurrencyLimit {
    /// The places of a tool with these settings.
    pub fn places(settings: Concurrency) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(settings.max.min(Semaphore::MAX_PERMITS)))
    }

    /// A bulkhead for one tool; `tool` has its places and outlives this stack when the tool is changed at run time,
    /// `all` is the bound over all tools.
    pub fn layer(
        settings: Concurrency,
        tool: Arc<Semaphore>,
        all: Arc<Semaphore>,
        metrics: &ToolMetrics,
    ) -> AroundLayer<Self> {
        AroundLayer::new(Self { tool, all, waiting: AtomicUsize::new(0), settings, metrics: metrics.clone() })
    }
}

impl Around for ConcurrencyLimit {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        let _permits = self.enter(&invocation).await?;
        let _counted = self.metrics.running();
        inner.call(invocation).await
    }
}

/// Counts a waiting call for as long as it waits, also when it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ConcurrencyLimit {
    async fn enter(&self, invocation: &Invocation) -> Result<[OwnedSemaphorePermit; 2], CallError> {
        // A call whose time is over is refused on arrival: it must not take a place from one that can still be answered.
        if invocation.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(CallError::DeadlineExceeded { after: invocation.allowed(), started: false });
        }
        // One after the other: who has no place in its tool must not hold, even for a moment, one among all that another
        // call looks for.
        let held = match self.tool.clone().try_acquire_owned() {
            Ok(tool) => match self.all.clone().try_acquire_owned() {
                Ok(all) => return Ok([tool, all]),
                Err(_) => Some(tool),
            },
            Err(_) => None,
        };
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.waiting);
        if before >= self.settings.queue {
            return Err(CallError::Overloaded { retry_after: RETRY_AFTER });
        }
        let _counted = self.metrics.queued();
        let patience = Instant::now() + self.settings.wait;
        let until = invocation.deadline.map_or(patience, |deadline| deadline.min(patience));
        let both = async {
            // The tool's place first: a call that waits for its own tool takes nothing from the others.
            let tool = match held {
                Some(tool) => Ok(tool),
                None => self.tool.clone().acquire_owned().await,
            };
            let all = self.all.clone().acquire_owned().await;
            (tool, all)
        };
        let entered = tokio::select! {
            entered = timeout_at(until, both) => entered,
            () = invocation.left.cancelled() => return Err(CallError::Cancelled { started: false }),
        };
        match entered {
            Ok((Ok(tool), Ok(all))) => Ok([tool, all]),
            Ok(_) => Err(CallError::Draining),
            Err(_) if invocation.deadline.is_some_and(|deadline| deadline <= until) => {
                Err(CallError::DeadlineExceeded { after: invocation.allowed(), started: false })
            }
            Err(_) => Err(CallError::Overloaded { retry_after: RETRY_AFTER }),
        }
    }
}
