//! The tool's bulkhead: so many calls run, so many wait for a moment, the rest is refused on arrival.
//!
//! Below the cache (a cached answer needs no place) and above the usage limit (a refused call costs no unit). One
//! permit covers all tries. tower's own `ConcurrencyLimit` waits without bound and `LoadShed` refuses without
//! waiting; this is the short bounded queue between them. A second bound spans all tools: it is there for the machine's
//! sake and not shared out, so a tool's own `max` is what keeps one that hangs from taking it all (16 of 256 by default;
//! `check` says where a manifest has it otherwise).
//!
//! A call that a tool makes runs on the place that its tool's call has among all, and below a call of the same tool on that
//! tool's place: else an agent would wait for places that are held until it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::{Instant, timeout_at};

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{CallError, Concurrency, Invocation, Lineage};
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

/// What a call holds of its tool and among all; nothing where it needs none of its own.
type Places = [Option<OwnedSemaphorePermit>; 2];

fn at_once(places: Option<&Arc<Semaphore>>) -> Result<Option<OwnedSemaphorePermit>, TryAcquireError> {
    places.map(|places| places.clone().try_acquire_owned()).transpose()
}

async fn in_time(places: Option<&Arc<Semaphore>>) -> Result<Option<OwnedSemaphorePermit>, AcquireError> {
    match places {
        Some(places) => places.clone().acquire_owned().await.map(Some),
        None => Ok(None),
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
    async fn enter(&self, invocation: &Invocation) -> Result<Places, CallError> {
        // A call whose time is over is refused on arrival: it must not take a place from one that can still be answered.
        if invocation.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(CallError::DeadlineExceeded { after: invocation.allowed(), started: false });
        }
        // One after the other: who has no place in its tool must not hold, even for a moment, one among all that another
        // call looks for.
        let Lineage { parent, .. } = &invocation.lineage;
        let of_tool = (!invocation.lineage.is_below(&invocation.tool)).then_some(&self.tool);
        let of_all = parent.is_none().then_some(&self.all);
        let held = match at_once(of_tool) {
            Ok(tool) => match at_once(of_all) {
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
                None => in_time(of_tool).await,
            };
            let all = in_time(of_all).await;
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
