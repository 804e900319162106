//! The workers for blocking functions. Each worker runs one call at a time, and the call owns it meanwhile.
//!
//! A call takes a free worker, writes a line, reads lines until its end, and returns the worker. There is no task and
//! no queue between them. A dropped call takes its worker with it, because nothing else stops a blocking function. The
//! replacement starts in the background.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::exit_watch::Watch;
use super::protocol::{self, Function, ModuleListing, Role, WorkerMessage};
use super::worker::{Launcher, Worker, WorkerEvent};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::restart_history::RestartHistory;

/// Workers that one call may take, as long as it has not started on any of them.
const MAX_WORKERS_PER_CALL: usize = 3;
/// The `retry_after` of a call that found no free worker.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The workers, and the calls that wait for one.
pub(super) struct SyncPool {
    runtime: Handle,
    state: Mutex<State>,
    /// One permit for each free worker. Waiting calls are served in order.
    permits: Semaphore,
    /// Whether no call should wait, because workers keep dying.
    unavailable: watch::Sender<bool>,
    /// Tasks that start workers.
    starting: Mutex<JoinSet<()>>,
    /// Must be the last field. Its drop waits until all workers have ended, so the workers must be dropped before.
    launcher: Arc<Launcher>,
}

struct State {
    idle_workers: Vec<IdleWorker>,
    /// The number of workers, idle or at work.
    worker_count: usize,
    restart_history: RestartHistory,
    last_number: u64,
}

/// A worker, with what is known of it between two calls.
struct IdleWorker {
    worker: Worker,
    number: u64,
    next_id: u64,
    has_answered: bool,
    /// Notices the worker's end while no call reads from it.
    _watch: Watch,
}

impl SyncPool {
    /// A pool with this worker; starts `extra` others. Call it within the runtime.
    pub(super) fn new(launcher: &Arc<Launcher>, first: Worker, extra: usize) -> Arc<Self> {
        let state = State {
            idle_workers: Vec::new(),
            worker_count: 0,
            restart_history: RestartHistory::default(),
            last_number: 0,
        };
        let pool = Arc::new(Self {
            runtime: Handle::current(),
            state: Mutex::new(state),
            permits: Semaphore::new(0),
            unavailable: watch::Sender::new(false),
            starting: Mutex::default(),
            launcher: launcher.clone(),
        });
        pool.add_worker(first);
        (0..extra).for_each(|_| pool.start_worker());
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
        for _ in 0..MAX_WORKERS_PER_CALL {
            let mut lease = self.lease_worker(context, begin_by).await?;
            let Some(idle) = &mut lease.idle else { continue };
            let id = idle.next_id;
            idle.next_id += 1;
            idle.worker.stderr.set_call(context);
            if idle.worker.write(&protocol::call_message(id, function, arguments, context)).await.is_err() {
                // The worker never had the whole line, so the call has not started. Another worker may take it.
                let reason = idle.worker.exit_reason().await;
                lease.replace_dead(&reason);
                continue;
            }
            return lease.wait_for_result(id, context).await;
        }
        Err(self.unavailable_error())
    }

    /// Waits for this call's turn, and takes a free worker.
    async fn lease_worker(
        self: &Arc<Self>,
        context: &ToolContext,
        begin_by: Instant,
    ) -> Result<WorkerLease, ToolError> {
        loop {
            match self.permits.try_acquire() {
                Ok(permit) => permit.forget(),
                Err(_) => context.wait_for(self.wait_for_permit(begin_by)).await?,
            }
            // `idle_workers` is empty if the worker died after its permit was taken. Then wait for the next permit.
            let Some(mut idle) = self.state().idle_workers.pop() else { continue };
            let is_healthy = idle.worker.is_healthy();
            let lease = WorkerLease { pool: self.clone(), idle: Some(idle) };
            if is_healthy {
                return Ok(lease);
            }
            lease.replace_dead("its worker process ended while it was idle");
        }
    }

    /// Waits for a free worker. Ends early if workers keep dying, or when it is too late to start.
    async fn wait_for_permit(&self, begin_by: Instant) -> Result<(), ToolError> {
        let mut unavailable = self.unavailable.subscribe();
        let unavailable = async {
            // `wait_for` returns a guard that holds a lock. Drop the guard here, not after the other branches.
            let _ = unavailable.wait_for(|unavailable| *unavailable).await;
        };
        tokio::select! {
            biased;
            permit = self.permits.acquire() => permit.map(|permit| permit.forget()).map_err(|_| self.unavailable_error()),
            () = unavailable => Err(self.unavailable_error()),
            () = sleep_until(begin_by) => Err(self.busy_error()),
        }
    }

    fn busy_error(&self) -> ToolError {
        if self.worker_count() == 0 {
            return self.unavailable_error();
        }
        let message = format!("the worker processes of the Python module {} were all busy", self.launcher.name);
        ToolError::unavailable_before_start(message, Some(BUSY_RETRY_AFTER))
    }

    fn unavailable_error(&self) -> ToolError {
        let restart_history = &self.state().restart_history;
        let reason = restart_history.fault.as_deref().unwrap_or("its worker processes are gone");
        let message = format!("the Python module {} is unavailable: {reason}", self.launcher.name);
        ToolError::unavailable_before_start(message, Some(restart_history.retry_after()))
    }

    pub(super) fn is_unavailable(&self) -> bool {
        *self.unavailable.borrow()
    }

    pub(super) fn worker_count(&self) -> usize {
        self.state().worker_count
    }

    /// The number of workers replaced so far, and the last fault with its time.
    pub(super) fn replacements(&self) -> (u64, Option<(String, Instant)>) {
        let restart_history = &self.state().restart_history;
        (restart_history.replaced, restart_history.fault.clone().zip(restart_history.fault_at))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the permit of a worker that died. If none is available, a caller already holds it; it will find the idle
    /// list empty and retry.
    fn remove_permit(&self) {
        if let Ok(permit) = self.permits.try_acquire() {
            permit.forget();
        }
    }

    /// Adds a worker that has loaded the module.
    fn add_worker(self: &Arc<Self>, worker: Worker) {
        let mut state = self.state();
        state.worker_count += 1;
        state.restart_history.record_start();
        state.last_number += 1;
        let number = state.last_number;
        let pool = Arc::downgrade(self);
        let watch = Watch::new(&self.runtime, worker.tree.pid(), move || {
            pool.upgrade().into_iter().for_each(|pool| pool.replace_dead_idle(number));
        });
        drop(state);
        self.release_worker(IdleWorker { worker, number, next_id: 1, has_answered: false, _watch: watch });
        self.publish_availability();
    }

    /// Makes a worker available to the next call. Adds the worker before its permit, so that a permit finds a worker.
    fn release_worker(&self, idle: IdleWorker) {
        self.state().idle_workers.push(idle);
        self.permits.add_permits(1);
    }

    fn replace_dead_idle(self: &Arc<Self>, number: u64) {
        // Two tasks may notice the end of an idle worker: its watch, which calls this, and a call that takes it in
        // `lease_worker`. Only the task that removes the worker from `idle_workers` under the lock counts the death and replaces it.
        // If a call was faster, there is nothing to do here. If the watch was faster, its permit must go too.
        let found = {
            let mut state = self.state();
            let at = state.idle_workers.iter().position(|idle| idle.number == number);
            at.map(|at| state.idle_workers.remove(at))
        };
        if let Some(idle) = found {
            self.remove_permit();
            WorkerLease { pool: self.clone(), idle: Some(idle) }
                .replace_dead("its worker process ended while it was idle");
        }
    }

    fn publish_availability(&self) {
        let state = self.state();
        let unavailable = state.worker_count == 0 && state.restart_history.is_failing();
        // Send under the lock. Otherwise an older value could overwrite a newer one of another thread.
        self.unavailable.send_if_modified(|was| std::mem::replace(was, unavailable) != unavailable);
    }

    fn start_replacement(self: &Arc<Self>) {
        self.state().restart_history.replaced += 1;
        self.publish_availability();
        self.start_worker();
    }

    /// Starts a worker in the background. Pauses first, if other workers have died early.
    fn start_worker(self: &Arc<Self>) {
        let mut starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        while starting.try_join_next().is_some() {}
        starting.spawn_on(start_until_ready(Arc::downgrade(self), self.launcher.clone()), &self.runtime);
    }

    fn start_pause(&self) -> Duration {
        self.state().restart_history.next_pause(fastrand::f64())
    }

    fn record_failed_start(&self, began: Instant, fault: &str) {
        tracing::warn!(target: "toolcrib::python", module = &*self.launcher.name, "a worker could not be started: {fault}");
        self.state().restart_history.record_failed_start(began, fault);
        self.publish_availability();
    }
}

/// Starts workers until one is up. Holds only a weak reference while it waits, so that the pool can be dropped.
async fn start_until_ready(pool: Weak<SyncPool>, launcher: Arc<Launcher>) {
    while let Some(pause) = pool.upgrade().map(|pool| pool.start_pause()) {
        sleep(pause).await;
        let began = Instant::now();
        let started: Result<(Worker, ModuleListing), String> = launcher.start(Role::Sync).await;
        let Some(pool) = pool.upgrade() else { return };
        match started {
            Ok((worker, _)) => return pool.add_worker(worker),
            Err(fault) => pool.record_failed_start(began, &fault),
        }
    }
}

/// A worker that a call owns. A lease ends in one of three ways. `release` makes the worker available again.
/// `replace_dead` counts a death and replaces the worker. A plain drop, as after a cancelled call, kills the worker and replaces it;
/// that does not count as an early death.
struct WorkerLease {
    pool: Arc<SyncPool>,
    idle: Option<IdleWorker>,
}

impl WorkerLease {
    /// Reads the worker's messages until the end of the call.
    async fn wait_for_result(mut self, id: u64, context: &ToolContext) -> Result<ToolResult, ToolError> {
        let Some(idle) = &mut self.idle else { return Err(self.pool.unavailable_error()) };
        loop {
            let line = match idle.worker.next_event().await {
                WorkerEvent::Line => protocol::read_message(idle.worker.stdout.line()),
                WorkerEvent::TooLong => Err("it is longer than any result".into()),
                WorkerEvent::Ended(reason) => {
                    self.replace_dead(&reason);
                    return Err(ToolError::unavailable(format!("the function did not end: {reason}")));
                }
            };
            match line {
                Ok((call_id, WorkerMessage::Progress(data))) if call_id == id => context.progress(data),
                Ok((call_id, WorkerMessage::Warning(warning))) if call_id == id => context.warn(warning),
                // A thread of an earlier call still reports progress. The earlier call has ended, so ignore it.
                Ok((call_id, WorkerMessage::Progress(_))) if call_id < id => {}
                Ok((call_id, WorkerMessage::End(end))) if call_id == id => {
                    self.release();
                    return end;
                }
                Ok((call_id, _)) => return Err(self.protocol_error(&format!("it is about call {call_id}"))),
                Err(reason) => return Err(self.protocol_error(&reason)),
            }
        }
    }

    fn release(mut self) {
        if let Some(mut idle) = self.idle.take() {
            idle.has_answered = true;
            idle.worker.stdout.release_line();
            self.pool.release_worker(idle);
        }
    }

    /// The error for a message that cannot be used. The caller returns it and drops the lease, which ends the worker.
    fn protocol_error(&self, reason: &str) -> ToolError {
        ToolError::BadOutput(format!("the worker process wrote a line that cannot be used: {reason}"))
    }

    /// Replaces a worker that has ended by itself.
    fn replace_dead(mut self, reason: &str) {
        if let Some(idle) = self.idle.take() {
            tracing::warn!(target: "toolcrib::python", module = &*self.pool.launcher.name, "a worker is replaced: {reason}");
            {
                let mut state = self.pool.state();
                state.worker_count -= 1;
                state.restart_history.record_death(idle.worker.started_at, idle.has_answered, reason);
            }
            drop(idle);
            self.pool.start_replacement();
        }
    }
}

impl Drop for WorkerLease {
    fn drop(&mut self) {
        if let Some(idle) = self.idle.take() {
            {
                let mut state = self.pool.state();
                state.worker_count -= 1;
                state.restart_history.reset_early_deaths();
            }
            drop(idle);
            self.pool.start_replacement();
        }
    }
}
