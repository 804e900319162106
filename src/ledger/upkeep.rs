//! What goes on beside the calls: forgetting what is older than the operator wants to keep, and holding counters of
//! limits against the rows that they count.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Error, Ledger, Watch};
use crate::call::Clock;

/// Rows deleted in one commit: about a millisecond for whoever waits behind it.
const A_FEW: u32 = 200;
/// Pause after such a commit, in times of how long it took: a ledger that has fallen behind catches up in a fifth of
/// its writer's time.
const REST: u32 = 4;
/// Pause when nothing is left to delete, at least and at most; in between a tenth of what is kept.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Pause between two looks. Each reads an index, not the rows.
const VERIFY_EVERY: Duration = Duration::from_secs(60);

/// Deletes calls that began longer than `keep` ago, a few at a time, until the ledger is closed.
pub async fn retain(ledger: Arc<dyn Ledger>, clock: Clock, keep: Duration) {
    let pause = (keep / 10).clamp(PAUSE[0], PAUSE[1]);
    loop {
        let began = Instant::now();
        // Further back than time goes, nothing is too old.
        let now = clock.now();
        let pruned = match now.checked_sub(keep) {
            Ok(before) => ledger.prune(before, now, A_FEW).await,
            Err(_) => Ok(0),
        };
        match pruned {
            Ok(rows) if rows >= u64::from(A_FEW) => sleep(began.elapsed() * REST).await,
            Err(Error::Closed | Error::Stopped(_)) => return,
            // A ledger in trouble says so itself.
            Ok(_) | Err(_) => sleep(pause).await,
        }
    }
}

/// Tells `watch` by how many units the counters differ from the rows, at once and every minute. A difference is a fault
/// of this program or somebody else's hand in the file; nothing is set right, since either side may be wrong.
pub async fn verify(ledger: Arc<dyn Ledger>, watch: Arc<dyn Watch>) {
    let mut before = 0;
    loop {
        match ledger.drift().await {
            Ok(units) => {
                watch.drift(units);
                if units != before && units > 0 {
                    tracing::error!(units, "counters of usage limits are not what the ledger's rows say");
                }
                before = units;
            }
            Err(error) => tracing::warn!(%error, "the counters of usage limits cannot be checked"),
        }
        sleep(VERIFY_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::memory::Memory;
    use super::super::{Query, contract};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_too_old_goes_and_nothing_else() {
        let ledger: Arc<dyn Ledger> = Arc::new(Memory::default());
        for _ in 0..500 {
            contract::record_at(&*ledger, "2026-06-15T12:00:00Z".parse().unwrap()).await;
        }
        contract::record_at(&*ledger, "2026-06-15T13:00:00Z".parse().unwrap()).await;
        let (clock, hand) = Clock::manual("2026-06-15T12:59:00Z".parse().unwrap());
        tokio::spawn(retain(ledger.clone(), clock, Duration::from_secs(3600)));
        let left = async || ledger.list(&Query { limit: 1000, ..Query::default() }).await.unwrap().len();
        sleep(Duration::from_secs(300)).await;
        assert_eq!(left().await, 501);
        hand.fetch_add(120_000, Ordering::SeqCst);
        sleep(Duration::from_secs(61)).await;
        assert_eq!(left().await, 1);
        assert_eq!(ledger.usage(None).await.unwrap()[0].calls, 501, "totals stay");
    }
}
