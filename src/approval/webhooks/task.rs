//! Finds the waiting calls of which the receivers do not know, and tells all receivers.
//!
//! The ledger has the calls, so none is forgotten at a restart. A receiver may get a webhook twice
//! then. The replica that stored a call sends its webhooks; another one does if that replica has
//! ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::sender::Sender;
use crate::approval::receivers::{ApprovalNotices, Receiver};
use crate::call::InvocationId;
use crate::catalog::registry::Registry;
use crate::ledger::{self, ApprovalMark, ApprovalQuery, ApprovalRow, ApprovalState};

/// How often the task looks for calls.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Most calls whose webhooks are under way.
const MAX_CALLS: usize = 1000;
/// Size of a page of the search.
const PAGE_SIZE: u32 = 100;
/// Requests to all receivers at once.
const MAX_REQUESTS: usize = 16;
/// Pauses before the next attempts, in seconds. The last one repeats until the call is decided.
const RETRY_PAUSES: [u64; 7] = [1, 5, 30, 120, 600, 1800, 3600];

/// Sends webhooks as long as the service runs.
pub(crate) async fn send_approval_webhooks(registry: Arc<Registry>, notices: Arc<ApprovalNotices>) {
    let sender = match Sender::new(notices, registry.shared().clock.clone()) {
        Ok(sender) => sender,
        Err(error) => {
            tracing::error!(%error, "webhooks cannot be sent: no HTTP client");
            return;
        }
    };
    let notifier = Arc::new(Notifier {
        registry,
        sender,
        requests: Semaphore::new(MAX_REQUESTS),
        failing: Mutex::default(),
    });
    notifier.run().await;
}

struct Notifier {
    registry: Arc<Registry>,
    sender: Sender,
    requests: Semaphore,
    /// Names of the receivers whose last request failed.
    failing: Mutex<HashSet<Arc<str>>>,
}

impl Notifier {
    async fn run(self: Arc<Self>) {
        let mut under_way: HashSet<InvocationId> = HashSet::new();
        let mut tasks = JoinSet::new();
        let mut ticks = interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => match self.find_calls(&under_way).await {
                    Ok(found) => for row in found {
                        under_way.insert(row.invocation);
                        tasks.spawn(self.clone().notify(row).boxed());
                    },
                    Err(error) => tracing::debug!(%error, "waiting calls cannot be read"),
                },
                Some(ended) = tasks.join_next() => {
                    if let Ok(id) = ended {
                        under_way.remove(&id);
                    }
                }
            }
        }
    }

    /// The waiting calls that this process must report.
    async fn find_calls(
        &self,
        under_way: &HashSet<InvocationId>,
    ) -> Result<Vec<ApprovalRow>, ledger::Error> {
        let shared = self.registry.shared();
        let own = shared.waiting_calls.process(&*shared.ledger);
        let mut living: Option<HashSet<Arc<str>>> = None;
        let mut found = Vec::new();
        let mut before = None;
        while under_way.len() + found.len() < MAX_CALLS {
            let query = ApprovalQuery {
                state: Some(ApprovalState::Waiting),
                unnotified: true,
                before,
                limit: PAGE_SIZE,
                ..ApprovalQuery::default()
            };
            let page = shared.ledger.list_approvals(&query).await?;
            let Some(last) = page.last() else { break };
            before = Some(last.invocation);
            for row in page {
                if under_way.contains(&row.invocation) {
                    continue;
                }
                if row.runner != own {
                    if living.is_none() {
                        let processes = shared.ledger.living_processes().await?;
                        living = Some(processes.into_iter().collect());
                    }
                    if living.as_ref().is_some_and(|all| all.contains(&row.runner)) {
                        continue;
                    }
                }
                found.push(row);
            }
        }
        Ok(found)
    }

    /// Tells all receivers about a call. Ends early when the call is decided.
    async fn notify(self: Arc<Self>, row: ApprovalRow) -> InvocationId {
        let id = row.invocation;
        let receivers = &self.sender.notices.receivers;
        join_all(receivers.iter().map(|one| self.deliver(one, &row))).await;
        let ledger = &self.registry.shared().ledger;
        if let Err(error) = ledger.mark_approval(id, ApprovalMark::Notified).await {
            // The call is found again, and the receivers get the webhook twice.
            tracing::debug!(%id, %error, "a sent webhook could not be noted");
        }
        id
    }

    async fn deliver(&self, receiver: &Receiver, row: &ApprovalRow) {
        let last_pause = RETRY_PAUSES.last().into_iter().cycle();
        for pause in RETRY_PAUSES.iter().chain(last_pause) {
            let sent = {
                // The semaphore is never closed.
                let _request = self.requests.acquire().await;
                self.sender.send(receiver, row).await
            };
            self.note_outcome(receiver, row, sent.as_ref().err());
            if sent.is_ok() {
                return;
            }
            sleep(Duration::from_secs(*pause)).await;
            let ledger = &self.registry.shared().ledger;
            if let Ok(found) = ledger.find_approval(row.invocation).await
                && found.is_none_or(|row| row.state != ApprovalState::Waiting)
            {
                return;
            }
        }
    }

    /// Counts a request, and logs when a receiver begins to fail and when it works again.
    fn note_outcome(&self, receiver: &Receiver, row: &ApprovalRow, failure: Option<&String>) {
        let metrics = &self.registry.shared().metrics;
        metrics
            .service_counters()
            .count_approval_webhook(failure.is_none());
        let name = &receiver.name;
        let mut failing = self.failing.lock();
        match failure {
            Some(error) if failing.insert(name.clone()) => {
                tracing::warn!(receiver = %name, id = %row.invocation, error,
                    "a webhook could not be delivered; it is sent again as long as the call waits");
            }
            None if failing.remove(name) => {
                tracing::info!(receiver = %name, "webhooks are delivered again");
            }
            _ => {}
        }
    }
}
