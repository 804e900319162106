//! Throttles a log message about a frequent event, and counts the events between two messages.

use std::time::Duration;

use tokio::time::Instant;

/// Shortest time between two messages.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct LogThrottle {
    unreported: u64,
    last_message: Option<Instant>,
}

impl LogThrottle {
    /// Counts one event. If a message is due, returns the number of events since the last message.
    pub(super) fn count_event(&mut self) -> Option<u64> {
        self.unreported += 1;
        let now = Instant::now();
        if self
            .last_message
            .is_some_and(|last| now.duration_since(last) < MESSAGE_INTERVAL)
        {
            return None;
        }
        self.last_message = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn frequent_events_are_logged_with_their_count() {
        let mut throttle = LogThrottle::default();
        assert_eq!(
            (
                throttle.count_event(),
                throttle.count_event(),
                throttle.count_event()
            ),
            (Some(1), None, None)
        );
        advance(MESSAGE_INTERVAL).await;
        assert_eq!(
            (throttle.count_event(), throttle.count_event()),
            (Some(3), None)
        );
    }
}
