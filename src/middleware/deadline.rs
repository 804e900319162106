//! What is left of the whole call, over all tries.
//!
//! Below the usage limit: what is dropped here is the work, never its settling. The moment itself is set when the
//! call begins (policy, or nearer if the caller asked), so waiting in a queue uses it up too.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tokio::time::timeout_at;
use tower::{Layer, Service};

use super::CallFuture;
use crate::call::{CallError, Invocation, ToolResult};

/// See the module.
#[derive(Clone, Copy)]
pub struct DeadlineLayer;

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Deadline<S> {
    inner: S,
}

impl<S> Service<Invocation> for Deadline<S>
where
    S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError>,
    S::Future: Send + 'static,
{
    type Response = Arc<ToolResult>;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, invocation: Invocation) -> CallFuture {
        let Some(deadline) = invocation.deadline else { return self.inner.call(invocation).boxed() };
        let after = invocation.allowed();
        let call = self.inner.call(invocation);
        async move {
            // Checked first: a call whose time is over must not start.
            if deadline <= tokio::time::Instant::now() {
                return Err(CallError::DeadlineExceeded { after });
            }
            timeout_at(deadline, call).await.unwrap_or(Err(CallError::DeadlineExceeded { after }))
        }
        .boxed()
    }
}
