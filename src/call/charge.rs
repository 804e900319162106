//! Units of usage, which count against limits.

use jiff::Timestamp;

use super::limit::{LimitOwner, LimitScope, Per};
use super::meta::LimitUsage;

/// One unit to be counted against one limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Charge {
    /// Name of the tool, or empty for a limit over all tools of the caller.
    pub tool: String,
    /// Name of the caller, or empty for a limit over all callers of the tool.
    pub caller: String,
    /// The run, or empty for a limit that is not per run.
    pub run: String,
    /// The window of the limit.
    pub per: Per,
    /// Maximum number of calls in the window.
    pub limit: u64,
    /// The scope that the limit declares.
    pub scope: LimitScope,
}

impl Charge {
    /// Whose limit it is.
    pub fn owner(&self) -> LimitOwner {
        match self.tool.is_empty() {
            true => LimitOwner::Caller,
            false => LimitOwner::Tool,
        }
    }

    /// Whether both charges use the same counter.
    pub fn shares_counter(&self, other: &Self) -> bool {
        (&self.tool, &self.caller, &self.run, self.per)
            == (&other.tool, &other.caller, &other.run, other.per)
    }
}

/// A charge with the window in which it was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charged {
    /// The unit and its limit.
    pub charge: Charge,
    /// Start of the window, in Unix milliseconds.
    pub window_start: i64,
    /// Units counted in the window, including this one.
    pub used: u64,
}

impl Charged {
    /// The charge in the window at `now`. `stored` is the counter's last window start and its
    /// units. The window never goes back: if the clock does, the calls count in the later window.
    pub fn from_counter(charge: Charge, stored: Option<(i64, u64)>, now: Timestamp) -> Self {
        let current = charge.per.window_start(now);
        let (window_start, used) = match stored {
            Some((start, used)) if start >= current => (start, used),
            _ => (current, 0),
        };
        Self {
            charge,
            window_start,
            used,
        }
    }

    /// The state of the limit, in the form of answers.
    pub fn to_usage(&self) -> LimitUsage {
        LimitUsage {
            limit: self.charge.limit,
            calls: self.charge.limit,
            per: self.charge.per,
            scope: self.charge.scope,
            of: self.charge.owner(),
            used: self.used,
            remaining: self.charge.limit.saturating_sub(self.used),
            resets_at: self.charge.per.resets_at(self.window_start),
        }
    }
}
