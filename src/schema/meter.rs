//! Bounds the work of one validation.
//!
//! The validator has no bound of its own: it collects all errors before it returns the first, and a
//! schema may apply to the same part of a value many times. So each access to a value spends a
//! step. When no steps remain, every container appears empty, and the validation ends at once. Its
//! verdict is then invalid.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};

use super::fault::abbreviate;

/// Steps between two checks of the cancellation flag: well under a millisecond.
const STEPS_BETWEEN_CHECKS: u64 = 16 * 1024;
/// Stack that one validation may use, in bytes. Threads have 2 MiB, and the futures of a call are
/// below it on the stack.
const MAX_STACK: usize = 640 * 1024;
/// Assumed memory of one error without its pointer into the value, in bytes. It covers the fields
/// of the library's error.
const ERROR_BYTES: usize = 512;

/// Steps of a validation on a runtime thread: about a millisecond. A longer validation moves to
/// another thread.
pub const INLINE_STEPS: u64 = 50_000;
/// Steps of a validation on a thread that may block: about a second of one core in a release build.
pub const MAX_STEPS: u64 = 100_000_000;

/// Why a validation ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// It used all its steps, or all its stack.
    Work,
    /// It found more errors than memory allows.
    Errors,
    /// The call that waited for it has ended.
    Cancelled,
}

/// The remaining budget of one validation. It stays on the thread that validates.
pub struct Meter<'a> {
    /// Steps until the next check of the flag.
    until_check: Cell<u64>,
    /// Steps after that check.
    after_check: Cell<u64>,
    /// Bytes that further errors may use.
    errors: Cell<usize>,
    is_first_error: Cell<bool>,
    stopped: Cell<Option<StopReason>>,
    cancelled: Option<&'a AtomicBool>,
    /// A pattern that no one compared an accepted text with.
    unjudged: RefCell<Option<String>>,
    /// An address on the stack at the start of the validation.
    stack: usize,
    /// Steps for each byte of a text that a pattern or a format may read.
    pub(super) text_weight: Cell<u64>,
    /// Steps for each byte of a property's name that patterns are matched with.
    pub(super) name_weight: Cell<u64>,
    /// The number of passes over a value so far.
    #[cfg(test)]
    passes: Cell<usize>,
}

impl<'a> Meter<'a> {
    /// Allows `steps` steps. Setting `cancelled` ends the validation.
    pub fn new(steps: u64, cancelled: Option<&'a AtomicBool>) -> Self {
        let here = 0_u8;
        let meter = Self {
            until_check: Cell::new(0),
            after_check: Cell::new(steps),
            errors: Cell::new(0),
            is_first_error: Cell::new(true),
            stopped: Cell::new(None),
            cancelled,
            unjudged: RefCell::default(),
            stack: std::ptr::from_ref(&here).addr(),
            text_weight: Cell::new(1),
            name_weight: Cell::new(1),
            #[cfg(test)]
            passes: Cell::new(0),
        };
        meter.refill(0);
        meter
    }

    /// Why it ended early, if it did.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.stopped.get()
    }

    /// Notes that a text was accepted without a comparison with this pattern.
    pub(super) fn report_unjudged(&self, pattern: &str) {
        self.unjudged
            .borrow_mut()
            .get_or_insert_with(|| pattern.to_owned());
    }

    /// A warning about texts that were accepted and not judged.
    pub fn unjudged_warning(&self) -> Option<String> {
        let pattern = self.unjudged.take()?;
        Some(format!(
            "a text takes too long to compare with the pattern {}, so it is passed on unchecked",
            abbreviate(&pattern)
        ))
    }

    /// The remaining steps.
    #[cfg(test)]
    pub(super) fn remaining(&self) -> u64 {
        self.until_check.get() + self.after_check.get()
    }

    /// The number of passes over the value.
    #[cfg(test)]
    pub(super) fn passes(&self) -> usize {
        self.passes.get()
    }

    /// Begins a pass that may keep errors of `error_bytes` bytes. A stop because of errors applied
    /// only to the pass before.
    pub(super) fn begin_pass(&self, error_bytes: usize) {
        #[cfg(test)]
        self.passes.set(self.passes.get() + 1);
        self.errors.set(error_bytes);
        self.is_first_error.set(true);
        if self.stopped.get() == Some(StopReason::Errors) {
            self.stopped.set(None);
            self.refill(0);
        }
    }

    /// Spends steps. Returns `false` if the validation must end.
    #[inline]
    pub(super) fn spend(&self, steps: u64) -> bool {
        match self.until_check.get().checked_sub(steps) {
            Some(left) if left > 0 => {
                self.until_check.set(left);
                true
            }
            _ => self.refill(steps),
        }
    }

    #[cold]
    fn refill(&self, steps: u64) -> bool {
        if self.stopped.get().is_some() {
            return false;
        }
        if self
            .cancelled
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
        {
            return self.stop(StopReason::Cancelled);
        }
        let Some(left) = (self.until_check.get() + self.after_check.get())
            .checked_sub(steps)
            .filter(|left| *left > 0)
        else {
            return self.stop(StopReason::Work);
        };
        let now = left.min(STEPS_BETWEEN_CHECKS);
        self.until_check.set(now);
        self.after_check.set(left - now);
        true
    }

    /// Spends one step, and checks the depth of the stack.
    #[inline]
    pub(super) fn descend(&self) -> bool {
        let here = 0_u8;
        if std::ptr::from_ref(&here).addr().abs_diff(self.stack) > MAX_STACK {
            return self.stop(StopReason::Work);
        }
        self.spend(1)
    }

    /// Reserves memory for an error whose pointer has `pointer` bytes. Returns `false` if no memory
    /// remains.
    pub(super) fn reserve_error(&self, pointer: usize) -> bool {
        if !self.spend(8) {
            return false;
        }
        let (left, cost) = (self.errors.get(), ERROR_BYTES + pointer);
        match left.checked_sub(cost) {
            Some(left) => self.errors.set(left),
            // The first error is always kept, independent of the length of its pointer.
            None if self.is_first_error.get() => self.errors.set(0),
            None => return self.stop(StopReason::Errors),
        }
        self.is_first_error.set(false);
        true
    }

    #[cold]
    fn stop(&self, reason: StopReason) -> bool {
        if reason == StopReason::Errors {
            // The remaining steps are available to the next pass.
            self.after_check
                .set(self.after_check.get() + self.until_check.get());
        }
        self.until_check.set(0);
        self.stopped.set(Some(reason));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spending_all_steps_stops() {
        for (steps, may) in [(9, true), (10, false), (11, false)] {
            let meter = Meter::new(10, None);
            assert_eq!(meter.spend(steps), may, "{steps}");
            assert_eq!(
                (meter.stop_reason(), meter.remaining()),
                if may {
                    (None, 1)
                } else {
                    (Some(StopReason::Work), 0)
                }
            );
            assert_eq!(meter.spend(0), may, "once it has ended, it has ended");
        }
    }

    #[test]
    fn cancel_flag_stops_soon() {
        let flag = AtomicBool::new(false);
        let meter = Meter::new(MAX_STEPS, Some(&flag));
        assert!(meter.spend(1));
        flag.store(true, Ordering::Relaxed);
        assert!((0..STEPS_BETWEEN_CHECKS).any(|_| !meter.spend(1)));
        assert_eq!(meter.stop_reason(), Some(StopReason::Cancelled));
    }

    #[test]
    fn error_stop_ends_one_pass_only() {
        let meter = Meter::new(1000, None);
        meter.begin_pass(2 * ERROR_BYTES);
        assert!(meter.reserve_error(0) && meter.reserve_error(0) && !meter.reserve_error(0));
        assert_eq!(
            (meter.stop_reason(), meter.remaining(), meter.spend(1)),
            (Some(StopReason::Errors), 976, false)
        );
        meter.begin_pass(ERROR_BYTES);
        assert_eq!(
            (meter.stop_reason(), meter.spend(1), meter.remaining()),
            (None, true, 975)
        );
        meter.spend(2000);
        meter.begin_pass(ERROR_BYTES);
        assert_eq!(
            (meter.stop_reason(), meter.spend(1)),
            (Some(StopReason::Work), false)
        );
    }

    #[test]
    fn first_error_is_always_kept() {
        let meter = Meter::new(1000, None);
        for _ in 0..2 {
            meter.begin_pass(ERROR_BYTES);
            assert!(meter.reserve_error(9999) && !meter.reserve_error(0));
        }
        meter.begin_pass(2 * ERROR_BYTES);
        assert!(
            meter.reserve_error(1) && !meter.reserve_error(0),
            "a pointer takes memory too"
        );
    }
}
