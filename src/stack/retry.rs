//! Decides which failed attempts are repeated, and when. This is the policy; tower's retry layer
//! repeats the call.
//!
//! Only tools whose effect permits retries have this layer. A budget keeps
//! retries from multiplying the load on a backend that is unavailable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tower::retry::RetryLayer;

use super::Outcome;
use crate::call::{CallError, Invocation, Policy, ToolResult};
use crate::runtime::backoff::Backoff;

const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    longest: Duration::from_secs(5),
};

/// The longest `retry_after` of an upstream that a call without a deadline waits for. During the
/// wait the call holds its permit. Beyond this bound, the call fails and passes the time on to its
/// caller.
const MAX_UPSTREAM_WAIT: Duration = Duration::from_secs(10);

/// The retry layer for a tool with this policy; `None` if the policy permits one attempt only.
pub fn layer(policy: &Policy) -> Option<RetryLayer<RetryTransient>> {
    let attempts = policy.max_attempts();
    (attempts > 1).then(|| {
        RetryLayer::new(RetryTransient {
            attempts,
            budget: Arc::default(),
            spent: SpentTokens::default(),
            random: fastrand::f64,
        })
    })
}

/// The retry policy of one tool. tower clones it for each call.
#[derive(Clone)]
pub struct RetryTransient {
    attempts: u32,
    budget: Arc<RetryBudget>,
    /// The tokens paid for the call's latest retry.
    spent: SpentTokens,
    /// Returns a random number from 0 to 1. It is a field so that tests can replace it.
    random: fn() -> f64,
}

impl RetryTransient {
    /// How long to wait after this attempt. `retry_after` is the upstream's `retry_after`.
    fn wait_after(&self, attempt: u32, retry_after: Option<Duration>) -> Duration {
        BACKOFF
            .wait_after(attempt, (self.random)())
            .max(retry_after.unwrap_or_default())
    }
}

impl tower::retry::Policy<Box<Invocation>, Arc<ToolResult>, CallError> for RetryTransient {
    type Future = BoxFuture<'static, ()>;

    fn retry(
        &mut self,
        request: &mut Box<Invocation>,
        result: &mut Outcome,
    ) -> Option<Self::Future> {
        let error = match result {
            Ok(_) => {
                self.budget.refund(self.spent);
                return None;
            }
            Err(error) if error.is_transient() => error,
            Err(_) => return None,
        };
        if request.attempt >= self.attempts {
            return None;
        }
        let wait = self.wait_after(request.attempt, error.retry_after());
        let fits = match request.timing.deadline {
            // A wait beyond the deadline would only replace a clear failure by a deadline error.
            Some(deadline) => Instant::now()
                .checked_add(wait)
                .is_some_and(|end| end < deadline),
            None => wait <= MAX_UPSTREAM_WAIT,
        };
        if !fits {
            return None;
        }
        self.spent = self
            .budget
            .spend(matches!(error, CallError::AttemptTimedOut { .. }))?;
        request.attempt += 1;
        Some(tokio::time::sleep(wait).boxed())
    }

    fn clone_request(&mut self, request: &Box<Invocation>) -> Option<Box<Invocation>> {
        Some(request.clone())
    }
}

/// Tokens of a full bucket. Each bucket starts full.
const CAPACITY: u32 = 500;
/// Tokens that a retry costs.
const RETRY_COST: u32 = 5;
/// Tokens that a retry costs after an attempt that timed out, because that attempt held a permit
/// for its whole timeout.
const TIMEOUT_RETRY_COST: u32 = 10;
/// Tokens that a call returns if its first attempt succeeds.
const FIRST_SUCCESS_REFUND: u32 = 1;

/// The bucket of one tool. It bounds the retries.
///
/// Its numbers are those of the AWS SDKs' standard retry mode (AWS SDKs and Tools Reference Guide,
/// "Retry behavior"). A tool that is unavailable empties the bucket; from then on each call has one
/// attempt instead of three. Successful calls fill the bucket again.
#[derive(Debug)]
pub(super) struct RetryBudget(AtomicU32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(CAPACITY))
    }
}

/// The tokens that a call paid for its latest retry. They return if that retry succeeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SpentTokens(u32);

impl RetryBudget {
    /// Pays for a retry; `None` if too few tokens are left.
    pub(super) fn spend(&self, after_timeout: bool) -> Option<SpentTokens> {
        let cost = if after_timeout {
            TIMEOUT_RETRY_COST
        } else {
            RETRY_COST
        };
        let subtract = |tokens: u32| tokens.checked_sub(cost);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract)
            .is_ok()
            .then_some(SpentTokens(cost))
    }

    /// Returns tokens for a call that succeeded after it paid `paid`.
    pub(super) fn refund(&self, paid: SpentTokens) {
        // For most calls the bucket is full. Then no shared memory is written.
        let more = |tokens: u32| {
            (tokens < CAPACITY).then(|| (tokens + paid.0.max(FIRST_SUCCESS_REFUND)).min(CAPACITY))
        };
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_attempt_tools_have_no_retry_layer() {
        assert!(layer(&Policy::default()).is_none());
    }

    #[test]
    fn backoff_doubles_and_respects_retry_after() {
        let budget = Arc::default();
        let policy = RetryTransient {
            attempts: 9,
            budget,
            spent: SpentTokens::default(),
            random: || 1.0,
        };
        let waits: Vec<u128> = (1..9)
            .map(|attempt| policy.wait_after(attempt, None).as_millis())
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(
            policy.wait_after(1, Some(Duration::from_secs(7))),
            Duration::from_secs(7)
        );
        let none = RetryTransient {
            random: || 0.0,
            ..policy
        };
        assert_eq!(none.wait_after(3, None), Duration::ZERO);
    }

    fn remaining_tokens(budget: &RetryBudget) -> u32 {
        budget.0.load(Ordering::Relaxed)
    }

    #[test]
    fn full_bucket_pays_for_a_hundred_retries() {
        for (after_timeout, retries) in [(false, 100), (true, 50)] {
            let budget = RetryBudget::default();
            let paid = std::iter::from_fn(|| budget.spend(after_timeout)).count();
            assert_eq!((paid, remaining_tokens(&budget)), (retries, 0));
        }
    }

    #[test]
    fn successful_retry_is_refunded() {
        let budget = RetryBudget::default();
        let paid = budget.spend(true).unwrap();
        assert_eq!(remaining_tokens(&budget), 490);
        budget.refund(paid);
        assert_eq!(remaining_tokens(&budget), 500);
        // Never more than the capacity.
        budget.refund(SpentTokens::default());
        assert_eq!(remaining_tokens(&budget), 500);
        while budget.spend(false).is_some() {}
        for _ in 0..4 {
            budget.refund(SpentTokens::default());
        }
        assert!(
            budget.spend(false).is_none(),
            "four successes do not pay for a retry"
        );
        budget.refund(SpentTokens::default());
        assert!(budget.spend(true).is_none() && budget.spend(false).is_some());
    }
}
