//! Units of usage, counted against limits.

use jiff::Timestamp;

use super::notes::LimitUsage;
use super::policy::{LimitScope, Per};

/// One unit to be counted against one limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Charge {
    /// Tool, or empty: over all tools of the caller.
    pub tool: String,
    /// Caller, or empty: over all callers of the tool.
    pub caller: String,
    /// Run, or empty.
    pub run: String,
    /// The window's span.
    pub per: Per,
    /// Calls allowed in it.
    pub limit: u64,
    /// What the limit said its scope is.
    pub scope: LimitScope,
}

impl Charge {
    /// Whether both are counted in the same place.
    pub fn counts_with(&self, other: &Self) -> bool {
        (&self.tool, &self.caller, &self.run, self.per) == (&other.tool, &other.caller, &other.run, other.per)
    }
}

/// A charge with the window it fell into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charged {
    /// The charge.
    pub charge: Charge,
    /// Start of the window, Unix milliseconds.
    pub window_start: i64,
    /// Units counted in it, this one included.
    pub used: u64,
}

impl Charged {
    /// The charge against what is stored for its key (window start and units), at `now`. The window never goes back:
    /// a clock that does counts on in the later window.
    pub fn at(charge: Charge, stored: Option<(i64, u64)>, now: Timestamp) -> Self {
        let current = charge.per.window_start(now);
        let (window_start, used) = match stored {
            Some((start, used)) if start >= current => (start, used),
            _ => (current, 0),
        };
        Self { charge, window_start, used }
    }

    /// Where the limit stands, in the answer's words.
    pub fn usage(&self) -> LimitUsage {
        LimitUsage {
            limit: self.charge.limit,
            calls: self.charge.limit,
            per: self.charge.per,
            scope: self.charge.scope,
            used: self.used,
            remaining: self.charge.limit.saturating_sub(self.used),
            resets_at: self.charge.per.resets_at(self.window_start),
        }
    }
}
