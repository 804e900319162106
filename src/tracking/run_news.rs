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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn last_call_of_each_run_is_told_once() {
        let news = RunNews::default();
        let told = tokio::spawn({
            let news = news.clone();
            async move { news.next().await }
        });
        tokio::task::yield_now().await;
        assert!(!told.is_finished(), "there is nothing to tell");
        let (old, new) = (InvocationId::new(), InvocationId::new());
        news.add([1; 32], [2; 32], old, Instant::now());
        news.add([1; 32], [3; 32], new, Instant::now());
        let told = told.await.unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!(
            (told[0].run, told[0].call, told[0].invocation),
            ([1; 32], [3; 32], new)
        );
        assert!(news.take().is_empty());
    }

    #[test]
    fn runs_beyond_the_bound_are_not_told() {
        let news = RunNews::default();
        for number in 0..=MAX_WAITING {
            let mut run = [0; 32];
            run[..8].copy_from_slice(&number.to_le_bytes());
            news.add(run, [0; 32], InvocationId::new(), Instant::now());
        }
        let last = InvocationId::new();
        news.add([0; 32], [1; 32], last, Instant::now());
        let told = news.take();
        assert_eq!(told.len(), MAX_WAITING);
        assert!(told.iter().any(|call| call.invocation == last));
    }
}
