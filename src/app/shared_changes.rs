//! Follows the changes that other replicas make in the shared ledger.

use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::ledger::SharedChange;
use crate::sources::live::LiveTools;

/// Applies the changes of other replicas, until the ledger is closed.
pub(super) async fn follow(live: Arc<LiveTools>, mut changes: Receiver<SharedChange>) {
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
