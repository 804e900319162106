//! Decides where values are validated: small ones in place, large ones in a bounded pool of
//! blocking threads.
//!
//! A running validation cannot be interrupted, only signalled to end. So it holds its slot until
//! it has ended, even if its call is over by then.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::call::JsonObject;
use crate::runtime::blocking;
use crate::schema::{MAX_STEPS, Meter, value_weight};

/// Bound for validation in place. Each value counts 1, and each 16 bytes of text count 1. So the
/// bound is a text of 16 KiB or a list of 1,000 numbers.
const SMALL_WEIGHT: u64 = 1024;

/// Whether a value is validated in place.
pub(super) fn is_small(value: &Value) -> bool {
    value_weight(value, SMALL_WEIGHT) <= SMALL_WEIGHT
}

/// Whether arguments are validated in place.
pub(super) fn is_small_object(arguments: &JsonObject) -> bool {
    let mut remaining = SMALL_WEIGHT;
    arguments.iter().all(|(name, value)| {
        let weight = value_weight(value, remaining).saturating_add(name.len() as u64 / 16);
        remaining = remaining.saturating_sub(weight);
        remaining > 0
    })
}

/// Why a value was not validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValidationError {
    /// The time was over before a slot was free.
    NoFreeSlot,
    /// The time was over before the validation ended.
    TimedOut,
    /// The service is stopping.
    ShuttingDown,
}

/// Bounds how many large values are validated at the same time, over all tools. Clones share the
/// bound.
#[derive(Debug, Clone)]
pub struct ValidationPool {
    slots: Arc<Semaphore>,
}

impl Default for ValidationPool {
    /// As many slots as the machine has cores, less one for all other work, but at least one.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            slots: Arc::new(Semaphore::new(cores.saturating_sub(1).max(1))),
        }
    }
}

impl ValidationPool {
    /// A pool with this many slots.
    #[cfg(test)]
    pub(super) fn with_slots(slots: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(slots)),
        }
    }

    /// Runs `work` on a thread of the pool, until `until` at the latest.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        until: Instant,
        work: impl FnOnce(&Meter<'_>) -> T + Send + 'static,
    ) -> Result<T, ValidationError> {
        let slot = match timeout_at(until, self.slots.clone().acquire_owned()).await {
            Ok(Ok(slot)) => slot,
            Ok(Err(_)) => return Err(ValidationError::ShuttingDown),
            Err(_) => return Err(ValidationError::NoFreeSlot),
        };
        // Dropped with this future, for whatever reason: the validation then ends soon and frees
        // its slot.
        let cancel = CancelOnDrop(Arc::new(AtomicBool::new(false)));
        let cancelled = cancel.0.clone();
        let job = blocking::run_blocking(move || {
            let _slot = slot;
            work(&Meter::new(MAX_STEPS, Some(&cancelled)))
        });
        match timeout_at(until, job).await {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(ValidationError::ShuttingDown),
            Err(_) => Err(ValidationError::TimedOut),
        }
    }
}

/// Ends the validation when it is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::schema::{Schema, SchemaOwner, StopReason};

    /// Validates a value in a loop until it is told to end.
    fn endless(meter: &Meter<'_>) -> StopReason {
        let schema = Schema::compile(
            Arc::new(json!({"items": {"type": "integer"}})),
            SchemaOwner::Own,
        )
        .unwrap();
        let value = json!(vec![1; 1000]);
        loop {
            if let Err(stop) = schema.first_violation(&value, meter) {
                return stop;
            }
        }
    }

    fn after(milliseconds: u64) -> Instant {
        Instant::now() + Duration::from_millis(milliseconds)
    }

    #[tokio::test]
    async fn timed_out_validation_frees_its_slot() {
        let pool = ValidationPool::with_slots(1);
        assert_eq!(
            pool.run(after(5), endless).await,
            Err(ValidationError::TimedOut)
        );
        // The slot is free once the validation has noticed.
        assert_eq!(pool.run(after(60_000), |_| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn running_validation_holds_its_slot() {
        let pool = ValidationPool::with_slots(1);
        let (release, hold) = std::sync::mpsc::sync_channel::<()>(1);
        let running = pool.run(after(5), move |_| hold.recv().is_ok());
        assert_eq!(running.await, Err(ValidationError::TimedOut));
        assert_eq!(
            pool.run(after(5), |_| 7).await,
            Err(ValidationError::NoFreeSlot)
        );
        release.send(()).unwrap();
        assert_eq!(pool.run(after(60_000), |_| 7).await, Ok(7));
    }

    #[test]
    fn weight_counts_values_and_texts() {
        let is_small = |value: Value| is_small_object(value.as_object().unwrap());
        assert!(is_small(json!({"a": [1, 2], "b": "x".repeat(10_000)})));
        assert!(!is_small(json!({"a": vec![1; 2000]})));
        assert!(!is_small(json!({"b": "x".repeat(20_000)})));
        assert!(!is_small(json!({"x".repeat(20_000): 1})));
        assert!(is_small(json!({"x".repeat(10_000): 1})));
        assert!(
            super::is_small(&json!("x".repeat(10_000)))
                && !super::is_small(&json!("x".repeat(20_000)))
        );
        assert!(super::is_small(&json!(vec![1; 1023])) && !super::is_small(&json!(vec![1; 1024])));
    }
}
