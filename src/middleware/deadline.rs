//! What is left of the whole call, over all tries.
//!
//! Below the usage limit: what is dropped here is the work, never its settling. The moment itself is set when the
//! call begins (policy, or nearer if the caller asked), so waiting in a queue uses it up too.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{CallError, Invocation};

/// See the module.
pub struct Deadline;

impl Deadline {
    /// The layer.
    pub fn layer() -> AroundLayer<Self> {
        AroundLayer::new(Self)
    }
}

impl Around for Deadline {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        let Some(deadline) = invocation.deadline else { return inner.call(invocation).await };
        let after = invocation.allowed();
        // A call whose time is over must not start: `timeout_at` would poll it once.
        if deadline <= Instant::now() {
            return Err(CallError::DeadlineExceeded { after, started: false });
        }
        let call = timeout_at(deadline, inner.call(invocation));
        call.await.unwrap_or(Err(CallError::DeadlineExceeded { after, started: true }))
    }
}
