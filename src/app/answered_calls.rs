//! Tells the other replicas the last answered calls of runs, and follows theirs. So the guard against
//! repeated calls sees a run whose calls reach different replicas.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;

use crate::ledger::{AnsweredCall, Ledger};
use crate::tracking::run_news::RunNews;
use crate::tracking::runs::Runs;

/// Pause between two messages. A call waits for it only if another one was told just before.
const PAUSE: Duration = Duration::from_millis(50);

/// Tells the other replicas, until the ledger is closed.
pub(super) async fn tell(ledger: Arc<dyn Ledger>, news: RunNews) {
    loop {
        let calls = news.next().await;
        if let Err(error) = ledger.tell_answered(&calls).await {
            tracing::debug!(%error, "other replicas cannot be told which calls were answered");
        }
        sleep(PAUSE).await;
    }
}

/// Follows the other replicas, until the ledger is closed.
pub(super) async fn follow(runs: Runs, mut answered: Receiver<Vec<AnsweredCall>>) {
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
