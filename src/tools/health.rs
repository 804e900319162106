//! Decides when a worker or connection that died is replaced. After several early deaths there is a pause before the
//! next start.

use std::time::Duration;

use tokio::time::Instant;

/// After this many early deaths in a row, there is a pause before the next start.
const PATIENCE: u32 = 3;
/// A worker that lived this long did not die of its start.
const SOUND: Duration = Duration::from_secs(10);
/// The upper bound of the first pause. The bound doubles with each further early death.
const FIRST: Duration = Duration::from_millis(500);
/// The upper bound of any pause.
const LONGEST: Duration = Duration::from_secs(30);

/// The history of the workers of one role, or of the connections to one server.
#[derive(Default)]
pub(in crate::tools) struct Health {
    /// Early deaths and failed starts since the last worker that lived.
    bad: u32,
    /// The time when the last of them was counted.
    counted: Option<Instant>,
    /// The time of the next start, if there is a pause.
    next: Option<Instant>,
    /// The last failure since the last good start.
    pub fault: Option<String>,
    /// The time of that failure.
    pub fault_at: Option<Instant>,
    /// The number of workers that were replaced.
    pub replaced: u64,
}

impl Health {
    /// Records that a worker has ended by itself. `has_answered` is whether it ever answered a call.
    pub(in crate::tools) fn died(&mut self, born: Instant, has_answered: bool, why: &str) {
        if has_answered || born.elapsed() >= SOUND {
            self.lived();
        } else {
            self.count(born);
        }
        self.fail(why);
    }

    /// Records that a worker could not be started. `began` is the time when the start was attempted.
    pub(in crate::tools) fn failed(&mut self, began: Instant, why: &str) {
        self.count(began);
        self.fail(why);
    }

    /// Records that a worker has started: earlier failures are over.
    pub(in crate::tools) fn started(&mut self) {
        (self.fault, self.fault_at) = (None, None);
    }

    fn fail(&mut self, why: &str) {
        (self.fault, self.fault_at) = (Some(why.to_owned()), Some(Instant::now()));
    }

    /// Records the end of a worker that did not die of its start: it had worked, or it was ended on purpose.
    pub(in crate::tools) fn lived(&mut self) {
        self.bad = 0;
    }

    /// Counts an early death. Workers that were already running, or starting, at the last counted death share its
    /// cause and are not counted. So eight workers that die at once count as one.
    fn count(&mut self, began: Instant) {
        if self.counted.is_none_or(|counted| began >= counted) {
            self.bad = self.bad.saturating_add(1);
            self.counted = Some(Instant::now());
        }
    }

    /// How long to wait before the next start. `random` is from 0 to 1 (full jitter), so that modules with a common
    /// cause do not all restart at once.
    pub(in crate::tools) fn pause(&mut self, random: f64) -> Duration {
        let Some(doublings) = self.bad.checked_sub(PATIENCE) else {
            self.next = None;
            return Duration::ZERO;
        };
        let most = FIRST.saturating_mul(1 << doublings.min(6)).min(LONGEST);
        let pause = most.mul_f64(random);
        self.next = Some(Instant::now() + pause);
        pause
    }

    /// Whether the next worker is unlikely to live, so that no call should wait for it.
    pub(in crate::tools) fn is_bad(&self) -> bool {
        self.bad >= PATIENCE
    }

    /// The time until the next start, at least one second, for the caller's `Retry-After`.
    pub(in crate::tools) fn retry_after(&self) -> Duration {
        let left = self.next.map(|next| next.saturating_duration_since(Instant::now())).unwrap_or_default();
        left.max(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_begin_with_the_third_early_death_and_end_at_half_a_minute() {
        let mut health = Health::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            health.failed(Instant::now(), "no");
            pauses.push(health.pause(1.0).as_millis());
        }
        assert_eq!(pauses, [0, 0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000]);
        assert_eq!(health.retry_after(), LONGEST);
        assert_eq!(health.pause(0.25), LONGEST / 4, "full jitter");
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_lived_is_replaced_at_once() {
        let mut health = Health::default();
        let early = |health: &mut Health| (0..5).for_each(|_| health.died(Instant::now(), false, "early"));
        early(&mut health);
        assert!(health.is_bad());
        let born = Instant::now();
        tokio::time::advance(SOUND).await;
        health.died(born, false, "late");
        assert_eq!((health.is_bad(), health.pause(1.0)), (false, Duration::ZERO));
        early(&mut health);
        health.died(Instant::now(), true, "in its second call");
        assert_eq!((health.is_bad(), health.pause(1.0)), (false, Duration::ZERO));
        early(&mut health);
        health.lived();
        assert!(!health.is_bad());
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_go_down_together_count_once() {
        let (mut health, born) = (Health::default(), Instant::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        (0..8).for_each(|_| health.died(born, false, "the database is gone"));
        assert!(!health.is_bad());
        for _ in 0..2 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let began = Instant::now();
            tokio::time::advance(Duration::from_secs(1)).await;
            (0..8).for_each(|_| health.failed(began, "it still is"));
        }
        assert!(health.is_bad());
        assert_eq!(health.pause(1.0), FIRST);
    }
}
