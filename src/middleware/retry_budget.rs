//! What one tool's retries may cost.
//!
//! A bucket of tokens, with the numbers of the AWS SDKs' standard retry mode (AWS SDKs and Tools Reference Guide, "Retry
//! behavior"): a tool that is down uses it up and is then asked once a call, not three times; a tool that is up fills it.

use std::sync::atomic::{AtomicU32, Ordering};

/// Tokens of a full bucket, which is how it starts.
const CAPACITY: u32 = 500;
/// What a retry costs.
const RETRY: u32 = 5;
/// What a retry costs after a try that ran out of time: it held a place for that long.
const RETRY_AFTER_TIMEOUT: u32 = 10;
/// What a call gives back that succeeds at its first try.
const FIRST_SUCCESS: u32 = 1;

/// The bucket of one tool.
#[derive(Debug)]
pub(super) struct RetryBudget(AtomicU32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(CAPACITY))
    }
}

/// What one call has paid for its latest retry, and gets back if that succeeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Paid(u32);

impl RetryBudget {
    /// Pays for a retry; `None`: there is not enough left.
    pub(super) fn pay(&self, after_timeout: bool) -> Option<Paid> {
        let cost = if after_timeout { RETRY_AFTER_TIMEOUT } else { RETRY };
        let left = |tokens: u32| tokens.checked_sub(cost);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok().then_some(Paid(cost))
    }

    /// A call has succeeded, after it paid so much.
    pub(super) fn succeeded(&self, paid: Paid) {
        // Most calls find it full, and then nothing is written that other threads read.
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
        // Never more than full.
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
