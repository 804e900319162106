//! How long this process may run calls. Another replica settles the calls of a process that it has
//! not seen for [`LEASE`]; from then on, the process must not run them.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A replica without a commit for this long has ended for the others, even if its lock is held: its
/// machine may be frozen or cut off.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// A replica whose lock is free has ended if it does not come back within this time.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// A replica without other commits commits this often.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
/// The process counts the grace shorter than the others do.
const MARGIN: Duration = Duration::from_secs(1);

/// The lease of this process.
pub(super) struct Lease(Mutex<Instant>);

impl Lease {
    /// A lease from this time on.
    pub(super) fn new(from: Instant) -> Self {
        Self(Mutex::new(from))
    }

    /// Notes that a commit that began at this time has succeeded.
    pub(super) fn renew(&self, began: Instant) {
        *self.0.lock() = began;
    }

    /// Whether no other replica can have settled this one. The process cannot know whether it still
    /// has its lock, so the grace counts. The clock runs on while the process is stopped.
    pub(super) fn is_held(&self) -> bool {
        self.0.lock().elapsed() < GRACE - MARGIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_ends_without_commits() {
        let now = Instant::now();
        let lease = Lease::new(now.checked_sub(GRACE).unwrap());
        assert!(!lease.is_held());
        lease.renew(now);
        assert!(lease.is_held());
    }
}
