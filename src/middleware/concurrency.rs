//! The tool's bulkhead: so many calls run, so many wait for a moment, the rest is refused on arrival.
//!
//! Below the cache (a cached answer needs no place) and above the usage limit (a refused call costs no unit). One
//! permit covers all tries. tower's own `ConcurrencyLimit` waits without bound and `LoadShed` refuses without
//! waiting; this is the short bounded queue between them. A second bound spans all tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tower::{Layer, Service};

use super::CallFuture;
use crate::call::{CallError, Concurrency, Invocation, ToolResult};

/// Told to a caller that finds everything full.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone)]
pub struct ConcurrencyLayer(Arc<Bulkhead>);

struct Bulkhead {
    tool: Arc<Semaphore>,
    all: Arc<Semaphore>,
    waiting: AtomicUsize,
    settings: Concurrency,
}

impl ConcurrencyLayer {
    /// A bulkhead for one tool; `all` is the bound over all of them.
    pub fn new(settings: Concurrency, all: Arc<Semaphore>) -> Self {
        let tool = Arc::new(Semaphore::new(settings.max));
        Self(Arc::new(Bulkhead { tool, all, waiting: AtomicUsize::new(0), settings }))
    }
}

impl<S> Layer<S> for ConcurrencyLayer {
    type Service = ConcurrencyLimit<S>;

    fn layer(&self, inner: S) -> ConcurrencyLimit<S> {
        ConcurrencyLimit { inner, bulkhead: self.0.clone() }
    }
}

/// See the module.
#[derive(Clone)]
pub struct ConcurrencyLimit<S> {
    inner: S,
    bulkhead: Arc<Bulkhead>,
}

impl<S> Service<Invocation> for ConcurrencyLimit<S>
where
    S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Arc<ToolResult>;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, invocation: Invocation) -> CallFuture {
        let ready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, ready);
        let bulkhead = self.bulkhead.clone();
        async move {
            let _permits = bulkhead.enter(&invocation).await?;
            inner.call(invocation).await
        }
        .boxed()
    }
}

/// Counts a waiting call for as long as it waits, also when it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Bulkhead {
    async fn enter(&self, invocation: &Invocation) -> Result<[OwnedSemaphorePermit; 2], CallError> {
        if let (Ok(tool), Ok(all)) = (self.tool.clone().try_acquire_owned(), self.all.clone().try_acquire_owned()) {
            return Ok([tool, all]);
        }
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.waiting);
        if before >= self.settings.queue {
            return Err(CallError::Overloaded { retry_after: RETRY_AFTER });
        }
        let patience = Instant::now() + self.settings.wait;
        let until = invocation.deadline.map_or(patience, |deadline| deadline.min(patience));
        let both = async {
            // The tool's place first: a call that waits for its own tool takes nothing from the others.
            let tool = self.tool.clone().acquire_owned().await;
            let all = self.all.clone().acquire_owned().await;
            (tool, all)
        };
        match timeout_at(until, both).await {
            Ok((Ok(tool), Ok(all))) => Ok([tool, all]),
            Ok(_) => Err(CallError::Draining),
            Err(_) if invocation.deadline.is_some_and(|deadline| deadline <= until) => {
                Err(CallError::DeadlineExceeded { after: invocation.allowed() })
            }
            Err(_) => Err(CallError::Overloaded { retry_after: RETRY_AFTER }),
        }
    }
}
