//! The state of the workers for blocking functions: which are idle, how many are missing.

use std::collections::VecDeque;
use std::sync::Arc;

use super::config::WorkerRange;
use super::pooled_worker::PooledWorker;
use super::waiting_calls::WaitingCall;
use crate::sources::restart_history::RestartHistory;

/// What the tasks of a pool share. `C` is what a waiting call gets: a call that has started.
pub(super) struct PoolState<C> {
    pub idle_workers: Vec<PooledWorker>,
    /// The number of workers, idle or at work.
    pub worker_count: usize,
    /// The number of workers that are being started.
    pub starting: usize,
    /// The calls that wait for a worker. While there is one, no worker is idle.
    pub waiting_calls: VecDeque<Arc<WaitingCall<C>>>,
    /// The lowest number of idle workers since the last check for unneeded workers: so many were
    /// not needed. The idle workers are a stack, so these are at its bottom.
    pub least_idle: usize,
    /// Whether a task checks for unneeded workers.
    pub is_shrinking: bool,
    pub restart_history: RestartHistory,
    pub last_number: u64,
}

impl<C> PoolState<C> {
    /// The state of a pool without workers.
    pub(super) fn new() -> Self {
        Self {
            idle_workers: Vec::new(),
            worker_count: 0,
            starting: 0,
            waiting_calls: VecDeque::new(),
            least_idle: 0,
            is_shrinking: false,
            restart_history: RestartHistory::default(),
            last_number: 0,
        }
    }

    /// How many workers to start now: one for each call that runs or waits, within the range. While
    /// workers keep dying, a further one is started only alone, and after a pause.
    pub(super) fn missing_workers(&self, range: WorkerRange) -> usize {
        let present = self.worker_count + self.starting;
        let busy = self.worker_count.saturating_sub(self.idle_workers.len());
        let missing = (busy + self.waiting_calls.len())
            .clamp(range.min, range.max)
            .saturating_sub(present);
        match self.restart_history.is_failing() && present >= range.min && self.starting > 0 {
            true => 0,
            false if self.restart_history.is_failing() && present >= range.min => missing.min(1),
            false => missing,
        }
    }

    /// Whether no call should wait, because workers keep dying.
    pub(super) fn is_unavailable(&self) -> bool {
        self.worker_count == 0 && self.restart_history.is_failing()
    }

    /// An idle worker for a waiting call.
    pub(super) fn pop_wanted(&mut self) -> Option<PooledWorker> {
        match self.waiting_calls.is_empty() {
            true => None,
            false => self.pop_idle(),
        }
    }

    pub(super) fn pop_idle(&mut self) -> Option<PooledWorker> {
        let idle = self.idle_workers.pop();
        self.least_idle = self.least_idle.min(self.idle_workers.len());
        idle
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;
    use crate::call::JsonObject;
    use crate::kinds::http::tests::test_context;
    use crate::sources::python::call_message::CallMessage;
    use crate::sources::python::protocol::Function;
    use crate::sources::python::waiting_calls::Turn;

    fn turn() -> Turn<()> {
        let (context, _call) = test_context();
        let function = json!({"name": "f", "description": "", "input_schema": {}, "mode": "sync"});
        let function: Function = serde_json::from_value(function).unwrap();
        Turn {
            message: CallMessage::new(&function, &JsonObject::new(), &context),
            log_owner: (context.invocation_id, context.tool.clone()),
            attempt: context.queue_attempt(),
            worker: oneshot::channel().0,
        }
    }

    fn missing(
        range: WorkerRange,
        worker_count: usize,
        starting: usize,
        waiting: usize,
        early_deaths: usize,
    ) -> usize {
        let mut state = PoolState::new();
        (state.worker_count, state.starting) = (worker_count, starting);
        for _ in 0..waiting {
            let call = WaitingCall(Mutex::new(Some(turn())));
            state.waiting_calls.push_back(Arc::new(call));
        }
        (0..early_deaths).for_each(|_| {
            state
                .restart_history
                .record_failed_start(Instant::now(), "no");
        });
        state.missing_workers(range)
    }

    #[tokio::test]
    async fn missing_workers_follow_the_calls() {
        let on_demand = WorkerRange {
            min: 1,
            max: 4,
            idle_period: Duration::MAX,
        };
        for (range, worker_count, starting, waiting, early_deaths, expected) in [
            (WorkerRange::exactly(3), 1, 0, 0, 0, 2),
            (WorkerRange::exactly(3), 1, 2, 9, 0, 0),
            (WorkerRange::exactly(3), 0, 0, 0, 9, 3),
            (on_demand, 1, 0, 1, 0, 1),
            (on_demand, 1, 1, 2, 0, 1),
            (on_demand, 1, 0, 9, 0, 3),
            (on_demand, 4, 0, 9, 0, 0),
            (on_demand, 0, 0, 0, 0, 1),
            // While workers keep dying: the minimum, and then one at a time.
            (on_demand, 0, 0, 0, 9, 1),
            (on_demand, 1, 0, 9, 9, 1),
            (on_demand, 1, 1, 9, 9, 0),
        ] {
            let found = missing(range, worker_count, starting, waiting, early_deaths);
            assert_eq!(
                found, expected,
                "{worker_count} {starting} {waiting} {early_deaths}"
            );
        }
    }
}
