//! Waits between attempts.

use std::time::Duration;

/// Exponential backoff with "full jitter" (AWS Architecture Blog, "Exponential Backoff And
/// Jitter"): a random wait up to a bound that doubles with each attempt. So clients with a common
/// cause do not all try again at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    /// The bound of the first wait.
    pub(crate) first: Duration,
    /// The bound of any wait.
    pub(crate) longest: Duration,
}

impl Backoff {
    /// The wait after a number of attempts. `random` is from 0 to 1.
    pub(crate) fn wait_after(self, attempts: u32, random: f64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(16);
        self.first
            .saturating_mul(1 << doublings)
            .min(self.longest)
            .mul_f64(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_doubles_up_to_the_longest() {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
        };
        let bounds =
            [0, 1, 2, 3, 6, 7, 8, 1000].map(|attempts| backoff.wait_after(attempts, 1.0).as_secs());
        assert_eq!(bounds, [1, 1, 2, 4, 32, 60, 60, 60]);
        assert_eq!(backoff.wait_after(3, 0.25), Duration::from_secs(1));
        assert_eq!(backoff.wait_after(3, 0.0), Duration::ZERO);
    }
}
