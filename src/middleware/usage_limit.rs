//! Calls that count: the row, its units and its idempotency key are committed before the tool runs.
//!
//! Below the cache, so that a cached answer is free; above the deadline, so that dropping what runs never drops the
//! settling. It reserves; the record layer settles, since only there the call has ended. Reads without a limit and a
//! key pass, unless their answer is looked up later (`Prefer: respond-async`): then there must be something to find.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{CallError, Charge, Charged, Clock, Effect, Invocation, Limit, LimitScope, Per, ToolName};
use crate::ledger::{Ledger, ReserveError, Row, State};

/// What one tool's calls are charged to.
#[derive(Clone)]
pub struct Tariff {
    tool: ToolName,
    limits: Vec<Limit>,
    caller_limits: Arc<HashMap<Arc<str>, Vec<Limit>>>,
}

impl Tariff {
    /// The tool's own limits, and those that callers have over all tools.
    pub fn new(tool: &ToolName, limits: &[Limit], caller_limits: Arc<HashMap<Arc<str>, Vec<Limit>>>) -> Self {
        Self { tool: tool.clone(), limits: limits.to_vec(), caller_limits }
    }

    /// Limits that callers have over all tools.
    pub fn caller_limits(&self) -> &HashMap<Arc<str>, Vec<Limit>> {
        &self.caller_limits
    }

    /// One unit for each limit that counts a call of this caller in this run.
    pub fn charges(&self, caller: &Arc<str>, run: Option<&str>) -> Vec<Charge> {
        let of_tool = self.limits.iter().map(|limit| (self.tool.as_str(), limit));
        let of_caller = self.caller_limits.get(caller).into_iter().flatten().map(|limit| ("", limit));
        let charge = |(tool, limit): (&str, &Limit)| {
            let per_caller = tool.is_empty() || limit.scope == LimitScope::Caller || limit.per == Per::Run;
            Charge {
                tool: tool.to_owned(),
                caller: if per_caller { caller.to_string() } else { String::new() },
                run: if limit.per == Per::Run { run.unwrap_or_default().to_owned() } else { String::new() },
                per: limit.per,
                limit: limit.calls,
                scope: if tool.is_empty() { LimitScope::Caller } else { limit.scope },
            }
        };
        let mut charges: Vec<Charge> = Vec::new();
        for charge in of_tool.chain(of_caller).map(charge) {
            // Two limits that count the same units are one, the lower: a call is one unit, however often it is limited.
            match charges.iter_mut().find(|other| other.counts_with(&charge)) {
                Some(other) if other.limit <= charge.limit => {}
                Some(other) => *other = charge,
                None => charges.push(charge),
            }
        }
        charges
    }
}

/// See the module.
pub struct UsageLimit {
    ledger: Arc<dyn Ledger>,
    tariff: Arc<Tariff>,
    effect: Effect,
    clock: Clock,
}

impl UsageLimit {
    /// Charges by this tariff.
    pub fn layer(ledger: &Arc<dyn Ledger>, tariff: &Arc<Tariff>, effect: Effect, clock: &Clock) -> AroundLayer<Self> {
        let (ledger, tariff, clock) = (ledger.clone(), tariff.clone(), clock.clone());
        AroundLayer::new(Self { ledger, tariff, effect, clock })
    }
}

impl Around for UsageLimit {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        let charges = self.tariff.charges(&invocation.caller.name, invocation.run_id.as_deref());
        let is_looked_up = invocation.key.is_some() || invocation.detached;
        if !charges.is_empty() || self.effect != Effect::Read || is_looked_up {
            self.reserve(&invocation, charges).await?;
        }
        // Nothing has started yet: whoever has left or cancelled by now wants nothing to.
        if invocation.left.is_cancelled() || invocation.stop.is_cancelled() {
            return Err(CallError::Cancelled { started: false });
        }
        inner.call(invocation).await
    }
}

impl UsageLimit {
    async fn reserve(&self, invocation: &Invocation, charges: Vec<Charge>) -> Result<(), CallError> {
        let _whole = invocation.notes.reserving.lock().await;
        let asked = invocation.notes.lock().fingerprint.clone();
        let row = Row::begun(invocation, self.effect, State::Reserved).claiming(asked.as_ref(), Some(Row::FOREVER));
        match self.ledger.reserve(row, charges).await {
            Ok(reservation) => {
                let mut notes = invocation.notes.lock();
                (notes.reserved, notes.charged) = (true, reservation.charged);
                Ok(())
            }
            Err(ReserveError::LimitReached(full)) => Err(self.refusal(&full)),
            // Another call with the key came between the look for it and this; it runs, or has ended by now.
            Err(ReserveError::Claimed(invocation)) => Err(CallError::IdempotencyInProgress { invocation }),
            Err(ReserveError::Ledger(error)) => {
                Err(CallError::LedgerUnavailable { reason: error.to_string(), started: false })
            }
        }
    }

    fn refusal(&self, full: &Charged) -> CallError {
        let resets_at = full.charge.per.resets_at(full.window_start);
        let wait = resets_at.map(|at| at.as_millisecond() - self.clock.now().as_millisecond());
        CallError::UsageLimitReached {
            limit: full.charge.limit,
            per: full.charge.per,
            resets_at,
            retry_after: wait.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_name_whose_units_they_are() {
        let limit = |calls, per, scope| Limit { calls, per, scope };
        let all = [
            limit(9, Per::Day, LimitScope::Tool),
            limit(8, Per::Day, LimitScope::Caller),
            limit(7, Per::Run, LimitScope::Tool),
            // The lower of two that count the same units holds, in either order.
            limit(5, Per::Minute, LimitScope::Tool),
            limit(3, Per::Minute, LimitScope::Tool),
            limit(2, Per::Lifetime, LimitScope::Tool),
            limit(4, Per::Lifetime, LimitScope::Tool),
        ];
        let of_caller = HashMap::from([(Arc::from("a"), vec![limit(6, Per::Hour, LimitScope::Tool)])]);
        let tariff = Tariff::new(&ToolName::parse("t").unwrap(), &all, Arc::new(of_caller));
        let charges = tariff.charges(&"a".into(), Some("r"));
        let told: Vec<_> = charges.iter().map(|c| (&*c.tool, &*c.caller, &*c.run, c.limit, c.scope)).collect();
        assert_eq!(
            told,
            [
                ("t", "", "", 9, LimitScope::Tool),
                ("t", "a", "", 8, LimitScope::Caller),
                ("t", "a", "r", 7, LimitScope::Tool),
                ("t", "", "", 3, LimitScope::Tool),
                ("t", "", "", 2, LimitScope::Tool),
                ("", "a", "", 6, LimitScope::Caller),
            ]
        );
        assert_eq!(tariff.charges(&"b".into(), None).len(), 5);
    }
}
