//! What the other replicas are to be told of runs: the last answered call of each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::call::InvocationId;
use crate::ledger::AnsweredCall;

/// Most runs that wait. Beyond it, others are not told, so a repeated call may pass there.
const MAX_WAITING: usize = 2048;

/// The calls that wait to be told. Clones share them.
#[derive(Clone, Default)]
pub struct RunNews(Arc<Waiting>);

#[derive(Default)]
struct Waiting {
    by_run: Mutex<HashMap<[u8; 32], News>>,
    is_filled: Notify,
}

struct News {
    call: [u8; 32],
    invocation: InvocationId,
    at: Instant,
}

impl RunNews {
    /// Adds the last answered call of a run, in place of an earlier one that waits.
    pub(super) fn add(&self, run: [u8; 32], call: [u8; 32], invocation: InvocationId, at: Instant) {
        let mut waiting = self.0.by_run.lock();
        let was_empty = waiting.is_empty();
        if waiting.len() < MAX_WAITING || waiting.contains_key(&run) {
            let news = News {
                call,
                invocation,
                at,
            };
            waiting.insert(run, news);
        }
        drop(waiting);
        if was_empty {
            self.0.is_filled.notify_one();
        }
    }

    /// Waits until there is a call, and takes all.
    pub async fn next(&self) -> Vec<AnsweredCall> {
        loop {
            let found = self.take();
            if !found.is_empty() {
                return found;
            }
            self.0.is_filled.notified().await;
        }
    }

    /// Takes all calls that wait.
    pub fn take(&self) -> Vec<AnsweredCall> {
        let waiting = std::mem::take(&mut *self.0.by_run.lock());
        let told = |(run, news): ([u8; 32], News)| AnsweredCall {
            run,
            call: news.call,
            invocation: news.invocation,
            age: news.at.elapsed(),
        };
        waiting.into_iter().map(told).collect()
    }
}
