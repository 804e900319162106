//! Shows the other replicas the calls that run here. A call that no limit counts has no row before
//! its end, so the others could not know of it.

use std::collections::HashSet;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::{MissedTickBehavior, interval};

use crate::call::InvocationId;
use crate::ledger::Error;
use crate::stack::order::SharedParts;

/// How often the calls are shown.
const INTERVAL: Duration = Duration::from_secs(1);
/// Shorter calls are not shown, so most calls cost nothing.
const MIN_AGE: SignedDuration = SignedDuration::from_millis(500);
/// Most calls that a replica shows, the oldest first.
const MAX_SHOWN: usize = 1000;
/// After so many intervals all calls are shown again: a failover loses them.
const REPEAT: u32 = 10;

/// Shows the calls until the ledger is closed.
pub(super) async fn show(shared: SharedParts) {
    let mut shown = Some(HashSet::new());
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for tick in 1_u32.. {
        ticks.tick().await;
        let is_repetition = tick.is_multiple_of(REPEAT);
        if let Err(error) = show_once(&shared, &mut shown, is_repetition).await {
            tracing::debug!(%error, "running calls cannot be shown to other replicas");
            shown = None;
        }
    }
}

/// `shown` are the calls of the last time; `None` after a failure.
async fn show_once(
    shared: &SharedParts,
    shown: &mut Option<HashSet<InvocationId>>,
    is_repetition: bool,
) -> Result<(), Error> {
    let now = shared.clock.now();
    let calls = &shared.in_flight_calls;
    let running = calls.started_before(now.checked_sub(MIN_AGE).unwrap_or(now), MAX_SHOWN);
    let is_shown = |id| shown.as_ref().is_some_and(|shown| shown.contains(id));
    let count = shown.as_ref().map(HashSet::len);
    let is_same = count == Some(running.len()) && running.iter().all(is_shown);
    if is_same && (!is_repetition || running.is_empty()) {
        return Ok(());
    }
    let new: Vec<_> = running
        .iter()
        .filter(|id| is_repetition || !is_shown(id))
        .filter_map(|id| calls.get(*id))
        .collect();
    shared.ledger.show_running(&running, &new).await?;
    *shown = Some(running.into_iter().collect());
    Ok(())
}
