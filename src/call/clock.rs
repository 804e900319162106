//! Wall-clock time as a value that is passed in, so that tests of windows and expiry need not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// A source of wall-clock time. Durations never use it: they are measured on the monotonic clock.
#[derive(Clone, derive_more::Debug)]
#[debug("Clock")]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock that stands still. Tests move it by its second value, in Unix milliseconds.
    pub fn manual(start: Timestamp) -> (Self, Arc<AtomicI64>) {
        let hand = Arc::new(AtomicI64::new(start.as_millisecond()));
        let shared = hand.clone();
        let clock = Self(Arc::new(move || {
            Timestamp::from_millisecond(shared.load(Ordering::SeqCst))
                .unwrap_or(Timestamp::UNIX_EPOCH)
        }));
        (clock, hand)
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}
