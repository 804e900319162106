//! The workers for blocking functions. Each worker runs one call at a time, and the call owns it
//! meanwhile.
//!
//! A call takes a free worker, writes a line, reads lines until its end, and releases the worker.
//! There is no task and no queue between them. A dropped call takes its worker with it, because
//! nothing else stops a blocking function. The replacement starts in the background.
//!
//! If calls wait ([`WaitingCall`]), the call that ends writes the line of the next one before it
//! returns. So a busy worker does not idle until the task of the next call runs.
//!
//! The number of workers follows the calls, within the module's range: a call that has to wait
//! starts further workers, and those that no call needed for a while end. `PoolState::missing_workers`
//! alone decides how many to start.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::call_message::CallMessage;
use super::config::WorkerRange;
use super::language::log_as;
use super::pool_state::{CallEnd, PoolState, PooledWorker, Turn, WaitingCall, watch_exit};
use super::protocol::{Function, ModuleListing, Role};
use super::stderr_log::LogOwner;
use super::worker::{Launcher, Worker};
use crate::call::{JsonObject, QueuedAttempt, ToolContext, ToolError, ToolResult};
use crate::sources::SourceStatus;

/// Workers that one call may take, as long as it has not started on any of them.
const MAX_WORKERS_PER_CALL: usize = 3;
/// The `retry_after` of a call that found no free worker.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The workers, and the calls that wait for one.
pub(super) struct SyncPool {
    runtime: Handle,
    range: WorkerRange,
    state: Mutex<PoolState<StartedCall>>,
    /// Tasks that start workers, and the one that ends those above the minimum.
    tasks: Mutex<JoinSet<()>>,
    /// Must be the last field. Its drop waits until all workers have ended, so the workers must be
    /// dropped before.
    launcher: Arc<Launcher>,
}

impl SyncPool {
    /// A pool with this worker, which starts those that the minimum needs. Call it within the
    /// runtime.
    pub(super) fn new(launcher: &Arc<Launcher>, first: Worker) -> Arc<Self> {
        let pool = Arc::new(Self {
            runtime: Handle::current(),
            range: launcher.settings.workers,
            state: Mutex::new(PoolState::new()),
            tasks: Mutex::default(),
            launcher: launcher.clone(),
        });
        pool.add_worker(first);
        pool.start_missing_workers();
        pool
    }

    /// Runs a function, if a worker is free before `begin_by`. Dropping the future ends the worker.
    pub(super) async fn call(
        self: &Arc<Self>,
        function: &Function,
        arguments: &JsonObject,
        context: &ToolContext,
        begin_by: Instant,
    ) -> Result<ToolResult, ToolError> {
        let mut message = CallMessage::new(function, arguments, context);
        for _ in 0..MAX_WORKERS_PER_CALL {
            let started = match self.take_idle_worker() {
                Some(lease) => lease.start_call(message, log_owner(context)),
                None => self.wait_for_worker(message, context, begin_by).await?,
            };
            match started.write_rest().await {
                Ok((lease, id)) => return lease.wait_for_result(id, context).await,
                // The worker never had the whole line, so the call has not started. Another worker
                // may take it.
                Err(unsent) => message = unsent,
            }
        }
        Err(self.unavailable_error())
    }

    fn take_idle_worker(self: &Arc<Self>) -> Option<WorkerLease> {
        loop {
            let idle = self.state.lock().pop_idle()?;
            if let Some(lease) = self.lease(idle).if_healthy() {
                return Some(lease);
            }
        }
    }

    /// Waits for this call's turn. The call has started then.
    async fn wait_for_worker(
        self: &Arc<Self>,
        message: CallMessage,
        context: &ToolContext,
        begin_by: Instant,
    ) -> Result<StartedCall, ToolError> {
        let attempt = context.queue_attempt();
        let Some(mut place) = self.enqueue(message, context, &attempt) else {
            attempt.end();
            return Err(self.unavailable_error());
        };
        self.start_missing_workers();
        let is_disconnected = tokio::select! {
            biased;
            started = &mut place.worker => {
                attempt.end();
                return started.map_err(|_| self.unavailable_error());
            }
            () = attempt.disconnected() => true,
            () = sleep_until(begin_by) => false,
        };
        if !place.leave() {
            // It got a worker, or was refused, since this task looked.
            attempt.end();
            let started = (&mut place.worker).await;
            return started.map_err(|_| self.unavailable_error());
        }
        if is_disconnected {
            return attempt.cancel().await;
        }
        attempt.end();
        Err(self.busy_error())
    }

    /// Puts a call at the end of the queue, unless workers keep dying.
    fn enqueue(
        self: &Arc<Self>,
        message: CallMessage,
        context: &ToolContext,
        attempt: &QueuedAttempt,
    ) -> Option<Place<'_>> {
        let (sender, worker) = oneshot::channel();
        let turn = Turn {
            message,
            log_owner: log_owner(context),
            attempt: attempt.share(),
            worker: sender,
        };
        let call = Arc::new(WaitingCall(Mutex::new(Some(turn))));
        {
            let mut state = self.state.lock();
            if state.is_unavailable() {
                return None;
            }
            state.waiting_calls.push_back(call.clone());
        }
        // Workers may have become idle since the call looked for one.
        while let Some(idle) = { self.state.lock().pop_wanted() } {
            self.release_worker(idle);
        }
        Some(Place {
            pool: self,
            call,
            worker,
        })
    }

    fn busy_error(&self) -> ToolError {
        let module = self.launcher.describe_module();
        let workers = self.state.lock().worker_count;
        let busy = match workers {
            0 => return self.unavailable_error(),
            1 => format!("the worker process of {module} was busy"),
            count => format!("all {count} worker processes of {module} were busy"),
        };
        let message = format!("{busy}; `workers:` of the module sets how many there are");
        ToolError::unavailable_before_start(message, Some(BUSY_RETRY_AFTER))
    }

    fn unavailable_error(&self) -> ToolError {
        let subject = self.launcher.describe_module();
        let history = &self.state.lock().restart_history;
        history.unavailable_error(&subject, "its worker processes are gone")
    }

    pub(super) fn is_unavailable(&self) -> bool {
        self.state.lock().is_unavailable()
    }

    pub(super) fn status(&self) -> SourceStatus {
        let state = self.state.lock();
        let history = &state.restart_history;
        history.status(!state.is_unavailable(), state.worker_count)
    }

    /// Adds a worker that has loaded the module.
    fn add_worker(self: &Arc<Self>, worker: Worker) {
        let mut state = self.state.lock();
        // The first worker was not started by this pool.
        state.starting = state.starting.saturating_sub(1);
        state.worker_count += 1;
        let begins_to_shrink = state.worker_count > self.range.min && !state.is_shrinking;
        state.is_shrinking |= begins_to_shrink;
        state.restart_history.record_start();
        state.last_number += 1;
        let number = state.last_number;
        let pool = Arc::downgrade(self);
        let watch = watch_exit(&self.runtime, worker.tree.pid(), move || {
            pool.upgrade()
                .into_iter()
                .for_each(|pool| pool.replace_dead_idle(number));
        });
        drop(state);
        if begins_to_shrink {
            self.spawn(end_unneeded_workers(
                Arc::downgrade(self),
                self.range.idle_period,
            ));
        }
        self.release_worker(PooledWorker::new(Box::new(worker), number, watch));
    }

    /// Gives a worker to the call that has waited longest, or else keeps it for the next call.
    fn release_worker(self: &Arc<Self>, worker: PooledWorker) {
        let mut lease = self.lease(worker);
        // A worker that has just died must not get a call. If no call waits, the next one checks.
        if !self.state.lock().waiting_calls.is_empty() {
            lease = match lease.if_healthy() {
                Some(lease) => lease,
                None => return,
            };
        }
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.waiting_calls.pop_front();
                if next.is_none() {
                    state.idle_workers.extend(lease.worker.take());
                }
                next
            };
            let Some(next) = next else { return };
            match lease.give_to(&next) {
                None => return,
                Some(unused) => lease = unused,
            }
        }
    }

    fn lease(self: &Arc<Self>, worker: PooledWorker) -> WorkerLease {
        WorkerLease {
            pool: self.clone(),
            worker: Some(worker),
        }
    }

    fn replace_dead_idle(self: &Arc<Self>, number: u64) {
        // Two tasks may notice the end of an idle worker: its watch, which calls this, and a call
        // that takes it in `take_idle_worker`. Only the task that removes the worker from
        // `idle_workers` under the lock counts the death and replaces it. If a call was faster,
        // there is nothing to do here.
        let found = {
            let mut state = self.state.lock();
            let at = state
                .idle_workers
                .iter()
                .position(|idle| idle.number == number);
            let found = at.map(|at| state.idle_workers.remove(at));
            state.least_idle = state.least_idle.min(state.idle_workers.len());
            found
        };
        if let Some(idle) = found {
            self.lease(idle)
                .replace_dead("its worker process ended while it was idle");
        }
    }

    /// Ends the waits of all calls, if workers keep dying.
    fn refuse_if_unavailable(&self) {
        let refused = {
            let mut state = self.state.lock();
            match state.is_unavailable() {
                true => std::mem::take(&mut state.waiting_calls),
                false => return,
            }
        };
        for call in refused {
            call.withdraw();
        }
    }

    fn start_replacement(self: &Arc<Self>) {
        let started = self.start_missing_workers();
        self.state.lock().restart_history.replaced += started as u64;
        self.refuse_if_unavailable();
    }

    /// Starts the workers that are missing, in the background, and returns their number.
    fn start_missing_workers(self: &Arc<Self>) -> usize {
        let missing = {
            let mut state = self.state.lock();
            let missing = state.missing_workers(self.range);
            state.starting += missing;
            missing
        };
        for _ in 0..missing {
            self.spawn(start_until_ready(
                Arc::downgrade(self),
                self.launcher.clone(),
            ));
        }
        missing
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task.boxed(), &self.runtime);
    }

    /// Ends the workers above the minimum that no call has needed since the last check. Returns
    /// whether there are still workers above the minimum.
    fn end_unneeded(&self) -> bool {
        let (unneeded, goes_on) = {
            let mut state = self.state.lock();
            let above = state.worker_count.saturating_sub(self.range.min);
            let count = state.least_idle.min(above).min(state.idle_workers.len());
            let unneeded: Vec<_> = state.idle_workers.drain(..count).collect();
            state.worker_count -= count;
            state.least_idle = state.idle_workers.len();
            if count > 0 {
                state.restart_history.reset_early_deaths();
            }
            state.is_shrinking = state.worker_count > self.range.min;
            (unneeded, state.is_shrinking)
        };
        drop(unneeded);
        goes_on
    }

    /// Records that a worker did not start. Returns whether to try again, because the worker is
    /// still missing.
    fn record_failed_start(&self, began: Instant, fault: &str) -> bool {
        log_as!(
            self.launcher.settings.language,
            warn,
            module = &*self.launcher.name,
            "a worker could not be started: {fault}"
        );
        let is_missing = {
            let mut state = self.state.lock();
            state.restart_history.record_failed_start(began, fault);
            state.starting -= 1;
            let is_missing = state.missing_workers(self.range) > 0;
            state.starting += usize::from(is_missing);
            is_missing
        };
        self.refuse_if_unavailable();
        is_missing
    }
}

/// The place of a call in the queue. Dropping it leaves the queue. If the call has got a worker, its
/// function runs already, so the drop ends the worker.
struct Place<'a> {
    pool: &'a SyncPool,
    call: Arc<WaitingCall<StartedCall>>,
    worker: oneshot::Receiver<StartedCall>,
}

impl Place<'_> {
    /// Ends the wait. Returns false if the call does not wait any more.
    fn leave(&self) -> bool {
        let has_waited = self.call.withdraw();
        if has_waited {
            let mut state = self.pool.state.lock();
            state
                .waiting_calls
                .retain(|other| !Arc::ptr_eq(other, &self.call));
        }
        has_waited
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

fn log_owner(context: &ToolContext) -> LogOwner {
    (context.invocation_id, context.tool.clone())
}

/// Ends unneeded workers once in each period, until only the minimum is left.
async fn end_unneeded_workers(pool: Weak<SyncPool>, period: Duration) {
    loop {
        sleep(period).await;
        let Some(pool) = pool.upgrade() else { return };
        if !pool.end_unneeded() {
            return;
        }
    }
}

/// Starts a worker, and tries again while it is missing. Holds only a weak reference while it
/// waits, so that the pool can be dropped.
async fn start_until_ready(pool: Weak<SyncPool>, launcher: Arc<Launcher>) {
    let next_pause = |pool: Arc<SyncPool>| {
        pool.state
            .lock()
            .restart_history
            .next_pause(fastrand::f64())
    };
    while let Some(pause) = pool.upgrade().map(next_pause) {
        sleep(pause).await;
        let began = Instant::now();
        let started: Result<(Worker, ModuleListing), String> = launcher.start(Role::Sync).await;
        let Some(pool) = pool.upgrade() else { return };
        match started {
            Ok((worker, _)) => return pool.add_worker(worker),
            Err(fault) if pool.record_failed_start(began, &fault) => {}
            Err(_) => return,
        }
    }
}

/// A worker that a call owns. A lease ends in one of three ways. `release_worker` makes the
/// worker available again. `replace_dead` counts a death and replaces the worker. A plain drop, as after a
/// cancelled call, kills the worker and replaces it; that does not count as an early death.
struct WorkerLease {
    pool: Arc<SyncPool>,
    worker: Option<PooledWorker>,
}

/// A call whose line is at least in part in the pipe of its worker, if the worker lives.
struct StartedCall {
    lease: WorkerLease,
    message: CallMessage,
    id: u64,
    /// The number of bytes that the pipe took.
    written: usize,
}

impl StartedCall {
    /// Writes the rest of the line. Returns the message if the worker has ended before it had the
    /// whole line.
    async fn write_rest(mut self) -> Result<(WorkerLease, u64), CallMessage> {
        let Some(pooled) = &mut self.lease.worker else {
            return Err(self.message);
        };
        let rest = &self.message.line()[self.written..];
        if !rest.is_empty() && pooled.worker.write(rest).await.is_err() {
            let reason = pooled.worker.exit_reason().await;
            self.lease.replace_dead(&reason);
            return Err(self.message);
        }
        Ok((self.lease, self.id))
    }
}

impl WorkerLease {
    /// The lease, unless the worker has ended. Then the worker is replaced.
    fn if_healthy(mut self) -> Option<Self> {
        if self.worker.as_mut()?.worker.is_healthy() {
            return Some(self);
        }
        self.replace_dead("its worker process ended while it was idle");
        None
    }

    /// Starts a call: writes as much of its line as the pipe accepts now.
    fn start_call(mut self, mut message: CallMessage, log_owner: LogOwner) -> StartedCall {
        let start = |pooled: &mut PooledWorker| pooled.start_call(&mut message, log_owner);
        let (id, written) = self.worker.as_mut().map(start).unwrap_or_default();
        StartedCall {
            lease: self,
            message,
            id,
            written,
        }
    }

    /// Starts a call that waits. Returns the lease if the call does not wait any more, or must not
    /// start.
    fn give_to(self, call: &WaitingCall<StartedCall>) -> Option<Self> {
        let mut turn = call.0.lock();
        let Some(turn) = turn.take_if(|turn| turn.attempt.start()) else {
            return Some(self);
        };
        let started = self.start_call(turn.message, turn.log_owner);
        if started.written == 0 {
            turn.attempt.undo_start();
        }
        // Under the lock, the call cannot be dropped between the write and this.
        let _ = turn.worker.send(started);
        None
    }

    /// Waits for the end of the call.
    async fn wait_for_result(
        mut self,
        id: u64,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let Some(worker) = &mut self.worker else {
            return Err(self.pool.unavailable_error());
        };
        match worker.read_end(id, context).await {
            CallEnd::Answered(end) => {
                if let Some(worker) = self.worker.take() {
                    self.pool.release_worker(worker);
                }
                end
            }
            CallEnd::Died(reason) => {
                self.replace_dead(&reason);
                Err(ToolError::unavailable(format!(
                    "the function did not end: {reason}"
                )))
            }
            // The drop of the lease ends the worker.
            CallEnd::BadLine(reason) => Err(ToolError::BadOutput(format!(
                "the worker process wrote a line that cannot be used: {reason}"
            ))),
        }
    }

    /// Replaces a worker that has ended by itself.
    fn replace_dead(mut self, reason: &str) {
        if let Some(pooled) = self.worker.take() {
            log_as!(
                self.pool.launcher.settings.language,
                warn,
                module = &*self.pool.launcher.name,
                "a worker is replaced: {reason}"
            );
            {
                let mut state = self.pool.state.lock();
                state.worker_count -= 1;
                state.restart_history.record_death(
                    pooled.worker.started_at,
                    pooled.has_answered,
                    reason,
                );
            }
            drop(pooled);
            self.pool.start_replacement();
        }
    }
}

impl Drop for WorkerLease {
    fn drop(&mut self) {
        if let Some(pooled) = self.worker.take() {
            {
                let mut state = self.pool.state.lock();
                state.worker_count -= 1;
                state.restart_history.reset_early_deaths();
            }
            drop(pooled);
            self.pool.start_replacement();
        }
    }
}
