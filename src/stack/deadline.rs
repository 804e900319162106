//! Ends a call at its deadline, which covers all attempts.
//!
//! This layer is below the usage limit: the deadline drops the work, never the settlement. The
//! deadline is set when the call starts, by the policy or earlier by the caller. So time in a queue
//! counts as well.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::Outcome;
use super::interceptor::{Inner, Interceptor};
use crate::call::Invocation;

/// The layer that applies the deadline of a call.
pub struct Deadline;

impl Interceptor for Deadline {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        let Some(deadline) = invocation.timing.deadline else {
            return inner.call(invocation).await;
        };
        let expired = invocation.timing.deadline_exceeded(true);
        // `timeout_at` would poll the call once, so a call whose deadline has passed would start.
        if deadline <= Instant::now() {
            return Err(invocation.timing.deadline_exceeded(false));
        }
        let call = timeout_at(deadline, inner.call(invocation));
        call.await.unwrap_or(Err(expired))
    }
}
