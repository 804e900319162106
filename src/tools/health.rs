//! How often workers and connections die, and what follows: none is started at once that has just shown that it will not live.

use std::time::Duration;

use tokio::time::Instant;

/// So many early deaths in a row, and there is a pause before the next start.
const PATIENCE: u32 = 3;
/// A worker that lived so long did not die of its start.
const SOUND: Duration = Duration::from_secs(10);
/// The longest first pause; each further one may be twice as long.
const FIRST: Duration = Duration::from_millis(500);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30);

/// What is known of the workers of one role, or of the connections to one server.
#[derive(Default)]
pub(in crate::tools) struct Health {
    /// Early deaths and failed starts since the last worker that lived.
    bad: u32,
    /// When the last of them was.
    counted: Option<Instant>,
    /// When the next start is due, if there is a pause.
    next: Option<Instant>,
    /// What went wrong since the last good start.
    pub fault: Option<String>,
    /// When that was.
    pub fault_at: Option<Instant>,
    /// Workers that were replaced.
    pub replaced: u64,
}

impl Health {
    /// A worker has ended by itself; whether it had ever answered a call.
    pub(in crate::tools) fn died(&mut self, born: Instant, has_answered: bool, why: &str) {
        if has_answered || born.elapsed() >= SOUND {
            self.lived();
        } else {
            self.count(born);
        }
        self.fail(why);
    }

    /// A worker could not be started; the start began then.
    pub(in crate::tools) fn failed(&mut self, began: Instant, why: &str) {
        self.count(began);
        self.fail(why);
    }

    /// A worker is up: what went wrong before is over.
    pub(in crate::tools) fn started(&mut self) {
        (self.fault, self.fault_at) = (None, None);
    }

    fn fail(&mut self, why: &str) {
        (self.fault, self.fault_at) = (Some(why.to_owned()), Some(Instant::now()));
    }

    /// A worker is gone that did not die of its start: it had worked, or it had to be ended.
    pub(in crate::tools) fn lived(&mut self) {
        self.bad = 0;
    }

    /// Those that were under way together count as one: eight workers that go down at once are one misfortune.
    fn count(&mut self, began: Instant) {
        if self.counted.is_none_or(|counted| began >= counted) {
            self.bad = self.bad.saturating_add(1);
            self.counted = Some(Instant::now());
        }
    }

    /// How long to wait before the next start; `random` is from 0 to 1. Full jitter: modules that share a cause do not
    /// all come back at once.
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

    /// Whether nobody should wait for the next worker.
    pub(in crate::tools) fn is_bad(&self) -> bool {
        self.bad >= PATIENCE
    }

    /// How long until the next start, rounded up to what a caller can wait for.
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
