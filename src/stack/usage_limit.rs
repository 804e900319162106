//! Reserves a call: commits its row, its units and its idempotency key before the tool runs.
//!
//! A read with a limit and without a key takes its units only. They may come from those that the
//! ledger has set aside, so that no commit precedes the tool. The row is written with the end.
//!
//! This layer is below the cache, so a stored result is free. It is above the deadline, so a
//! deadline drops the work but never the settlement. Only `record` settles, because the call ends
//! there. A read without limit and without key is not reserved, unless its answer is fetched later
//! (`Prefer: respond-async`): then its row must exist before.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Outcome;
use super::interceptor::{Inner, Interceptor};
use crate::call::{
    CallError, Charge, ChargeReport, Charged, Clock, Effect, Invocation, Limit, LimitScope, Per,
    ToolName,
};
use crate::ledger::{Error, Ledger, ReserveError, Row, State};

/// The limits that apply to the calls of one tool.
#[derive(Clone)]
pub struct ChargeRules {
    tool: ToolName,
    limits: Vec<Limit>,
    caller_limits: Arc<HashMap<Arc<str>, Vec<Limit>>>,
}

impl ChargeRules {
    /// Combines the tool's own limits with those that callers have over all tools.
    pub fn new(
        tool: &ToolName,
        limits: &[Limit],
        caller_limits: Arc<HashMap<Arc<str>, Vec<Limit>>>,
    ) -> Self {
        Self {
            tool: tool.clone(),
            limits: limits.to_vec(),
            caller_limits,
        }
    }

    /// The limits that callers have over all tools.
    pub fn caller_limits(&self) -> &HashMap<Arc<str>, Vec<Limit>> {
        &self.caller_limits
    }

    /// One unit for each limit that counts a call of this caller in this run.
    pub fn charges_for(&self, caller: &Arc<str>, run: Option<&str>) -> Vec<Charge> {
        let own = self.caller_limits.get(caller).into_iter().flatten();
        let of_tool = self.limits.iter().map(|limit| (self.tool.as_str(), limit));
        let of_caller = own.map(|limit| ("", limit));
        without_shared_counters(
            of_tool
                .chain(of_caller)
                .map(|(tool, limit)| charge_for(tool, caller, run, limit)),
        )
    }

    /// One unit for each of these limits that a caller has over all tools.
    pub fn charges_of_caller(caller: &str, limits: &[Limit]) -> Vec<Charge> {
        let charges = limits
            .iter()
            .map(|limit| charge_for("", caller, None, limit));
        without_shared_counters(charges)
    }
}

/// The unit that a call costs of one limit. `tool` is empty for a limit over all tools.
fn charge_for(tool: &str, caller: &str, run: Option<&str>, limit: &Limit) -> Charge {
    let is_per_caller =
        tool.is_empty() || limit.scope == LimitScope::Caller || limit.per == Per::Run;
    let counted_caller = if is_per_caller { caller } else { "" };
    let counted_run = run.filter(|_| limit.per == Per::Run).unwrap_or_default();
    Charge {
        tool: tool.to_owned(),
        caller: counted_caller.to_owned(),
        run: counted_run.to_owned(),
        per: limit.per,
        limit: limit.calls,
        scope: if tool.is_empty() {
            LimitScope::Caller
        } else {
            limit.scope
        },
    }
}

/// Two limits that count the same units become one, the lower. A call costs one unit, however many
/// limits count it.
fn without_shared_counters(all: impl Iterator<Item = Charge>) -> Vec<Charge> {
    let mut charges: Vec<Charge> = Vec::new();
    for charge in all {
        match charges
            .iter_mut()
            .find(|other| other.shares_counter(&charge))
        {
            Some(other) if other.limit <= charge.limit => {}
            Some(other) => *other = charge,
            None => charges.push(charge),
        }
    }
    charges
}

/// The layer that reserves calls.
pub struct UsageLimit {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) charge_rules: Arc<ChargeRules>,
    pub(super) effect: Effect,
    pub(super) clock: Clock,
    /// Whether the ledger is behind a network, and may not answer.
    pub(super) is_remote: bool,
}

impl Interceptor for UsageLimit {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        let charges = self
            .charge_rules
            .charges_for(&invocation.caller.name, invocation.run.id.as_deref());
        let needs_row = self.effect != Effect::Read
            || invocation.idempotency_key.is_some()
            || invocation.delivery.responds_async
            // The row proves that an approval was used.
            || invocation.is_approved();
        if needs_row || !charges.is_empty() {
            self.reserve(&invocation, charges, needs_row).await?;
        }
        // The tool has not started. A caller that disconnected or cancelled during the commit does
        // not want it to start.
        if invocation.signals.disconnected.is_cancelled()
            || invocation.signals.cancelled.is_cancelled()
        {
            return Err(CallError::Cancelled { started: false });
        }
        inner.call(invocation).await
    }
}

impl UsageLimit {
    async fn reserve(
        &self,
        invocation: &Invocation,
        charges: Vec<Charge>,
        needs_row: bool,
    ) -> Result<(), CallError> {
        // Held until the report has the charged units. A cancellation waits for it (`record.rs`),
        // so it can refund the units.
        let _reserving = invocation.report.reservation_lock.lock().await;
        let reserving = async {
            if needs_row {
                let fingerprint = invocation.report.replay.lock().fingerprint.clone();
                let row = Row::from_invocation(invocation, self.effect, State::Reserved)
                    .with_claim(fingerprint.as_ref(), Some(Row::FOREVER));
                self.ledger.reserve(row, charges).await
            } else {
                let started_at = invocation.timing.started_at;
                self.ledger
                    .take_units(invocation.id, started_at, charges)
                    .await
            }
        };
        // A remote ledger undoes a reservation whose caller has gone.
        let deadline = invocation.timing.deadline.filter(|_| self.is_remote);
        let reserved = wait_until(deadline, reserving).await;
        match reserved {
            Ok(reservation) => {
                *invocation.report.charge.lock() = ChargeReport {
                    reserved: true,
                    charged: reservation.charged,
                };
                Ok(())
            }
            Err(ReserveError::LimitReached(reached)) => {
                Err(self.limit_error(&reached, &invocation.caller.name))
            }
            // Between the lookup in `replay` and this commit, another call claimed the key. It
            // still runs, or has ended by now.
            Err(ReserveError::KeyClaimed(invocation)) => {
                Err(CallError::IdempotencyInProgress { invocation })
            }
            Err(ReserveError::Ledger(error)) => Err(CallError::ledger_unavailable(&error)),
        }
    }

    fn limit_error(&self, reached: &Charged, caller: &Arc<str>) -> CallError {
        let usage = Box::new(reached.to_usage());
        let now = self.clock.now().as_millisecond();
        let wait = usage.resets_at.map(|at| at.as_millisecond() - now);
        CallError::UsageLimitReached {
            usage,
            caller: caller.clone(),
            retry_after: wait
                .map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0))),
        }
    }
}

/// Waits for the ledger until the deadline of the call.
pub(super) async fn wait_until<T, E: From<Error>>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let Some(deadline) = deadline else {
        return work.await;
    };
    timeout_at(deadline, work).await.unwrap_or_else(|_| {
        let reason = "the database did not answer within the time of the call";
        Err(Error::Failed(reason.into()).into())
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn charges_name_tool_caller_and_run() {
        let limit = |calls, per, scope| Limit { calls, per, scope };
        let all = [
            limit(9, Per::Day, LimitScope::Tool),
            limit(8, Per::Day, LimitScope::Caller),
            limit(7, Per::Run, LimitScope::Tool),
            // The lower of two limits that count the same units applies, in either order.
            limit(5, Per::Minute, LimitScope::Tool),
            limit(3, Per::Minute, LimitScope::Tool),
            limit(2, Per::Lifetime, LimitScope::Tool),
            limit(4, Per::Lifetime, LimitScope::Tool),
        ];
        let of_caller =
            HashMap::from([(Arc::from("a"), vec![limit(6, Per::Hour, LimitScope::Tool)])]);
        let charge_rules =
            ChargeRules::new(&ToolName::parse("t").unwrap(), &all, Arc::new(of_caller));
        let charges = charge_rules.charges_for(&"a".into(), Some("r"));
        let summary: Vec<_> = charges
            .iter()
            .map(|c| (&*c.tool, &*c.caller, &*c.run, c.limit, c.scope))
            .collect();
        assert_eq!(
            summary,
            [
                ("t", "", "", 9, LimitScope::Tool),
                ("t", "a", "", 8, LimitScope::Caller),
                ("t", "a", "r", 7, LimitScope::Tool),
                ("t", "", "", 3, LimitScope::Tool),
                ("t", "", "", 2, LimitScope::Tool),
                ("", "a", "", 6, LimitScope::Caller),
            ]
        );
        assert_eq!(charge_rules.charges_for(&"b".into(), None).len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_ends_at_the_deadline() {
        let began = Instant::now();
        let deadline = Some(began + Duration::from_secs(3));
        let never = std::future::pending::<Result<(), Error>>();
        assert!(wait_until(deadline, never).await.is_err());
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        let found = wait_until(deadline, async { Ok::<_, Error>(1) }).await;
        assert_eq!(
            found.unwrap(),
            1,
            "a ready answer counts at the deadline too"
        );
    }
}
