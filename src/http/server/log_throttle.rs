//! Throttles a log message about a frequent event, and counts the events between two messages.

use std::time::Duration;

use tokio::time::Instant;

/// Shortest time between two messages.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct LogThrottle {
    untold: u64,
    told: Option<Instant>,
}

impl LogThrottle {
    /// Counts one event. If a message is due, returns the number of events since the last message.
    pub(super) fn due(&mut self) -> Option<u64> {
        self.untold += 1;
        let now = Instant::now();
        if self.told.is_some_and(|told| now.duration_since(told) < PAUSE) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_happens_often_is_said_once_with_its_count() {
        let mut tally = LogThrottle::default();
        assert_eq!((tally.due(), tally.due(), tally.due()), (Some(1), None, None));
        advance(PAUSE).await;
        assert_eq!((tally.due(), tally.due()), (Some(3), None));
    }
}
