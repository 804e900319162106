//! What replicas tell each other: the last answered calls of runs, so that the guard against repeated
//! calls sees a run whose calls reach different replicas, and changes in the shared ledger.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;

use crate::ledger::{AnsweredCall, Ledger, SharedChange};
use crate::sources::live::LiveTools;
use crate::tracking::run_news::RunNews;
use crate::tracking::runs::Runs;

/// Pause between two messages. A call waits for it only if another message was sent just before.
const PAUSE: Duration = Duration::from_millis(50);

/// Tells the other replicas which calls were answered, until the ledger is closed.
pub(super) async fn tell_answers(ledger: Arc<dyn Ledger>, news: RunNews) {
    loop {
        let calls = news.next().await;
        if let Err(error) = ledger.tell_answered(&calls).await {
            tracing::debug!(%error, "other replicas cannot be told which calls were answered");
        }
        sleep(PAUSE).await;
    }
}

/// Follows the answers of other replicas, until the ledger is closed.
pub(super) async fn follow_answers(runs: Runs, mut answered: Receiver<Vec<AnsweredCall>>) {
    loop {
        match answered.recv().await {
            Ok(calls) => calls
                .iter()
                .for_each(|call| runs.set_answered_elsewhere(call)),
            // The runs of what was missed may repeat a call.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// Applies the changes of other replicas, until the ledger is closed.
pub(super) async fn follow_changes(live: Arc<LiveTools>, mut changes: Receiver<SharedChange>) {
    loop {
        match changes.recv().await {
            Ok(change) => apply(&live, change).await,
            // Changes were missed, so everything may have changed.
            Err(RecvError::Lagged(_)) => {
                apply(&live, SharedChange::Purged(None)).await;
                apply(&live, SharedChange::Tools).await;
            }
            Err(RecvError::Closed) => return,
        }
    }
}

async fn apply(live: &Arc<LiveTools>, change: SharedChange) {
    let shared = live.registry().shared();
    match change {
        SharedChange::Tools => match live.reload_shared_tools().await {
            Ok(()) => tracing::info!("another replica has changed switches or registered tools"),
            Err(error) => {
                tracing::error!(%error, "the switches and registered tools of another replica cannot be applied");
            }
        },
        SharedChange::Purged(tool) => shared.cache.purge_memory(tool.as_deref()).await,
        SharedChange::Cancel { call, caller } => {
            let calls = &shared.in_flight_calls;
            let is_allowed = |name: &str| caller.as_deref().is_none_or(|caller| caller == name);
            if calls.get(call).is_some_and(|row| is_allowed(&row.caller)) {
                calls.cancel(call);
            }
        }
    }
}
