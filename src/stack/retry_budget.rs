//! Bounds the retries of one tool.
//!
//! A bucket of tokens, with the numbers of the AWS SDKs' standard retry mode (AWS SDKs and Tools
//! Reference Guide, "Retry behavior"). A tool that is unavailable empties the bucket; from then on
//! each call has one attempt instead of three. Successful calls fill the bucket again.

use std::sync::atomic::{AtomicU32, Ordering};

/// Tokens of a full bucket. Each bucket starts full.
const CAPACITY: u32 = 500;
/// Tokens that a retry costs.
const RETRY_COST: u32 = 5;
/// Tokens that a retry costs after an attempt that timed out, because that attempt held a permit
/// for its whole timeout.
const TIMEOUT_RETRY_COST: u32 = 10;
/// Tokens that a call returns if its first attempt succeeds.
const FIRST_SUCCESS_REFUND: u32 = 1;

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
