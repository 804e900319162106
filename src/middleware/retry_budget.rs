//! Bounds the retries of one tool.
//!
//! A bucket of tokens, with the numbers of the AWS SDKs' standard retry mode (AWS SDKs and Tools Reference Guide,
//! "Retry behavior"). A tool that is unavailable empties the bucket; from then on each call has one attempt instead of
//! three. Successful calls fill the bucket again.

use std::sync::atomic::{AtomicU32, Ordering};

/// Tokens of a full bucket. Each bucket starts full.
const CAPACITY: u32 = 500;
/// Tokens that a retry costs.
const RETRY: u32 = 5;
/// Tokens that a retry costs after an attempt that timed out, because that attempt held a permit for its whole timeout.
const RETRY_AFTER_TIMEOUT: u32 = 10;
/// Tokens that a call returns if its first attempt succeeds.
const FIRST_SUCCESS: u32 = 1;

/// The bucket of one tool.
#[derive(Debug)]
pub(super) struct RetryBudget(AtomicU32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(CAPACITY))
    }
}

/// The tokens that a call paid for its latest retry. They return if that retry succeeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Paid(u32);

impl RetryBudget {
    /// Pays for a retry; `None` if too few tokens are left.
    pub(super) fn pay(&self, after_timeout: bool) -> Option<Paid> {
        let cost = if after_timeout { RETRY_AFTER_TIMEOUT } else { RETRY };
        let left = |tokens: u32| tokens.checked_sub(cost);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok().then_some(Paid(cost))
    }

    /// Returns tokens for a call that succeeded after it paid `paid`.
    pub(super) fn succeeded(&self, paid: Paid) {
        // For most calls the bucket is full. Then no shared memory is written.
        let more = |tokens: u32| (tokens < CAPACITY).then(|| (tokens + paid.0.max(FIRST_SUCCESS)).min(CAPACITY));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(budget: &RetryBudget) -> u32 {
        budget.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_full_bucket_is_a_hundred_retries_or_fifty_after_timeouts() {
        for (after_timeout, retries) in [(false, 100), (true, 50)] {
            let budget = RetryBudget::default();
            let paid = std::iter::from_fn(|| budget.pay(after_timeout)).count();
            assert_eq!((paid, left(&budget)), (retries, 0));
        }
    }

    #[test]
    fn a_retry_that_succeeds_is_free_and_a_first_success_gives_one_back() {
        let budget = RetryBudget::default();
        let paid = budget.pay(true).unwrap();
        assert_eq!(left(&budget), 490);
        budget.succeeded(paid);
        assert_eq!(left(&budget), 500);
        // Never more than the capacity.
        budget.succeeded(Paid::default());
        assert_eq!(left(&budget), 500);
        while budget.pay(false).is_some() {}
        for _ in 0..4 {
            budget.succeeded(Paid::default());
        }
        assert!(budget.pay(false).is_none(), "four successes do not pay for a retry");
        budget.succeeded(Paid::default());
        assert!(budget.pay(true).is_none() && budget.pay(false).is_some());
    }
}
