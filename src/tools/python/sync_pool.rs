//! The workers for blocking functions. Each worker runs one call at a time, and the call owns it
//! meanwhile.
//!
//! A call takes a free worker, writes a line, reads lines until its end, and returns the worker.
//! There is no task and no queue between them. A dropped call takes its worker with it, because
//! nothing else stops a blocking function. The replacement starts in the background.
//!
//! The number of workers follows the calls, within the module's range: a call that has to wait
//! starts further workers, and those that no call needed for a while end. `State::missing_workers`
//! alone decides how many to start.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::config::WorkerRange;
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
    range: WorkerRange,
    state: Mutex<State>,
    /// One permit for each free worker. Waiting calls are served in order.
    permits: Semaphore,
    /// Whether no call should wait, because workers keep dying.
    unavailable: watch::Sender<bool>,
    /// Tasks that start workers, and the one that ends those above the minimum.
    tasks: Mutex<JoinSet<()>>,
    /// Must be the last field. Its drop waits until all workers have ended, so the workers must be
    /// dropped before.
    launcher: Arc<Launcher>,
}

struct State {
    idle_workers: Vec<IdleWorker>,
    /// The number of workers, idle or at work.
    worker_count: usize,
    /// The number of workers that are being started.
    starting: usize,
    /// The number of calls that wait for a worker.
    waiting: usize,
    /// The lowest number of idle workers since the last check for unneeded workers: so many were
    /// not needed. The idle workers are a stack, so these are at its bottom.
    least_idle: usize,
    /// Whether a task checks for unneeded workers.
    is_shrinking: bool,
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

impl State {
    /// How many workers to start now: one for each call that runs or waits, within the range. While
    /// workers keep dying, a further one is started only alone, and after a pause.
    fn missing_workers(&self, range: WorkerRange) -> usize {
        let present = self.worker_count + self.starting;
        let busy = self.worker_count.saturating_sub(self.idle_workers.len());
        let missing = (busy + self.waiting)
            .clamp(range.min, range.max)
            .saturating_sub(present);
        match self.restart_history.is_failing() && present >= range.min && self.starting > 0 {
            true => 0,
            false if self.restart_history.is_failing() && present >= range.min => missing.min(1),
            false => missing,
        }
    }

    fn pop_idle(&mut self) -> Option<IdleWorker> {
        let idle = self.idle_workers.pop();
        self.least_idle = self.least_idle.min(self.idle_workers.len());
        idle
    }
}

impl SyncPool {
    /// A pool with this worker, which starts those that the minimum needs. Call it within the
    /// runtime.
    pub(super) fn new(launcher: &Arc<Launcher>, first: Worker) -> Arc<Self> {
        let state = State {
            idle_workers: Vec::new(),
            worker_count: 0,
            starting: 0,
            waiting: 0,
            least_idle: 0,
            is_shrinking: false,
            restart_history: RestartHistory::default(),
            last_number: 0,
        };
        let pool = Arc::new(Self {
            runtime: Handle::current(),
            range: launcher.settings.workers,
            state: Mutex::new(state),
            permits: Semaphore::new(0),
            unavailable: watch::Sender::new(false),
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
        for _ in 0..MAX_WORKERS_PER_CALL {
            let mut lease = self.lease_worker(context, begin_by).await?;
            let Some(idle) = &mut lease.idle else {
                continue;
            };
            let id = idle.next_id;
            idle.next_id += 1;
            idle.worker.stderr.set_call(context);
            if idle
                .worker
                .write(&protocol::call_message(id, function, arguments, context))
                .await
                .is_err()
            {
                // The worker never had the whole line, so the call has not started. Another worker
                // may take it.
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
                Err(_) => {
                    let _waiting = WaitingCall::enter(self);
                    context.wait_for(self.wait_for_permit(begin_by)).await?;
                }
            }
            // `idle_workers` is empty if the worker died after its permit was taken. Then wait for
            // the next permit.
            let Some(mut idle) = self.state().pop_idle() else {
                continue;
            };
            let is_healthy = idle.worker.is_healthy();
            let lease = WorkerLease {
                pool: self.clone(),
                idle: Some(idle),
            };
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
            // `wait_for` returns a guard that holds a lock. Drop the guard here, not after the
            // other branches.
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
        let name = &self.launcher.name;
        let busy = match self.worker_count() {
            0 => return self.unavailable_error(),
            1 => format!("the worker process of the Python module {name} was busy"),
            count => format!("all {count} worker processes of the Python module {name} were busy"),
        };
        let message = format!("{busy}; `workers:` of the module sets how many there are");
        ToolError::unavailable_before_start(message, Some(BUSY_RETRY_AFTER))
    }

    fn unavailable_error(&self) -> ToolError {
        let restart_history = &self.state().restart_history;
        let reason = restart_history
            .fault
            .as_deref()
            .unwrap_or("its worker processes are gone");
        let message = format!(
            "the Python module {} is unavailable: {reason}",
            self.launcher.name
        );
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
        (
            restart_history.replaced,
            restart_history.fault.clone().zip(restart_history.fault_at),
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Removes the permit of a worker that died. If none is available, a caller already holds it;
    /// it will find the idle list empty and retry.
    fn remove_permit(&self) {
        if let Ok(permit) = self.permits.try_acquire() {
            permit.forget();
        }
    }

    /// Adds a worker that has loaded the module.
    fn add_worker(self: &Arc<Self>, worker: Worker) {
        let mut state = self.state();
        // The first worker was not started by this pool.
        state.starting = state.starting.saturating_sub(1);
        state.worker_count += 1;
        let begins_to_shrink = state.worker_count > self.range.min && !state.is_shrinking;
        state.is_shrinking |= begins_to_shrink;
        state.restart_history.record_start();
        state.last_number += 1;
        let number = state.last_number;
        let pool = Arc::downgrade(self);
        let watch = Watch::new(&self.runtime, worker.tree.pid(), move || {
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
        self.release_worker(IdleWorker {
            worker,
            number,
            next_id: 1,
            has_answered: false,
            _watch: watch,
        });
        self.publish_availability();
    }

    /// Makes a worker available to the next call. Adds the worker before its permit, so that a
    /// permit finds a worker.
    fn release_worker(&self, idle: IdleWorker) {
        self.state().idle_workers.push(idle);
        self.permits.add_permits(1);
    }

    fn replace_dead_idle(self: &Arc<Self>, number: u64) {
        // Two tasks may notice the end of an idle worker: its watch, which calls this, and a call
        // that takes it in `lease_worker`. Only the task that removes the worker from
        // `idle_workers` under the lock counts the death and replaces it. If a call was faster,
        // there is nothing to do here. If the watch was faster, its permit must go too.
        let found = {
            let mut state = self.state();
            let at = state
                .idle_workers
                .iter()
                .position(|idle| idle.number == number);
            let found = at.map(|at| state.idle_workers.remove(at));
            state.least_idle = state.least_idle.min(state.idle_workers.len());
            found
        };
        if let Some(idle) = found {
            self.remove_permit();
            WorkerLease {
                pool: self.clone(),
                idle: Some(idle),
            }
            .replace_dead("its worker process ended while it was idle");
        }
    }

    fn publish_availability(&self) {
        let state = self.state();
        let unavailable = state.worker_count == 0 && state.restart_history.is_failing();
        // Send under the lock. Otherwise an older value could overwrite a newer one of another
        // thread.
        self.unavailable
            .send_if_modified(|was| std::mem::replace(was, unavailable) != unavailable);
    }

    fn start_replacement(self: &Arc<Self>) {
        let started = self.start_missing_workers();
        self.state().restart_history.replaced += started as u64;
        self.publish_availability();
    }

    /// Starts the workers that are missing, in the background, and returns their number.
    fn start_missing_workers(self: &Arc<Self>) -> usize {
        let missing = {
            let mut state = self.state();
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
        tasks.spawn_on(task, &self.runtime);
    }

    /// Ends the workers above the minimum that no call has needed since the last check. Returns
    /// whether there are still workers above the minimum.
    fn end_unneeded(&self) -> bool {
        let (unneeded, goes_on) = {
            let mut state = self.state();
            let above = state.worker_count.saturating_sub(self.range.min);
            let count = state.least_idle.min(above).min(state.idle_workers.len());
            let unneeded: Vec<IdleWorker> = state.idle_workers.drain(..count).collect();
            state.worker_count -= count;
            state.least_idle = state.idle_workers.len();
            if count > 0 {
                state.restart_history.reset_early_deaths();
            }
            state.is_shrinking = state.worker_count > self.range.min;
            (unneeded, state.is_shrinking)
        };
        unneeded.iter().for_each(|_| self.remove_permit());
        goes_on
    }

    fn start_pause(&self) -> Duration {
        self.state().restart_history.next_pause(fastrand::f64())
    }

    /// Records that a worker did not start. Returns whether to try again, because the worker is
    /// still missing.
    fn record_failed_start(&self, began: Instant, fault: &str) -> bool {
        tracing::warn!(target: "toolcrib::python", module = &*self.launcher.name, "a worker could not be started: {fault}");
        let is_missing = {
            let mut state = self.state();
            state.restart_history.record_failed_start(began, fault);
            state.starting -= 1;
            let is_missing = state.missing_workers(self.range) > 0;
            state.starting += usize::from(is_missing);
            is_missing
        };
        self.publish_availability();
        is_missing
    }
}

/// A call that waits for a worker. Its entry starts a worker, if the range permits one more.
struct WaitingCall<'a>(&'a SyncPool);

impl<'a> WaitingCall<'a> {
    fn enter(pool: &'a Arc<SyncPool>) -> Self {
        pool.state().waiting += 1;
        pool.start_missing_workers();
        Self(pool)
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
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
    while let Some(pause) = pool.upgrade().map(|pool| pool.start_pause()) {
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

/// A worker that a call owns. A lease ends in one of three ways. `release` makes the worker
/// available again. `replace_dead` counts a death and replaces the worker. A plain drop, as after a
/// cancelled call, kills the worker and replaces it; that does not count as an early death.
struct WorkerLease {
    pool: Arc<SyncPool>,
    idle: Option<IdleWorker>,
}

impl WorkerLease {
    /// Reads the worker's messages until the end of the call.
    async fn wait_for_result(
        mut self,
        id: u64,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let Some(idle) = &mut self.idle else {
            return Err(self.pool.unavailable_error());
        };
        loop {
            let line = match idle.worker.next_event().await {
                WorkerEvent::Line => protocol::read_message(idle.worker.stdout.line()),
                WorkerEvent::TooLong => Err("it is longer than any result".into()),
                WorkerEvent::Ended(reason) => {
                    self.replace_dead(&reason);
                    return Err(ToolError::unavailable(format!(
                        "the function did not end: {reason}"
                    )));
                }
            };
            match line {
                Ok((call_id, WorkerMessage::Progress(data))) if call_id == id => {
                    context.progress(data);
                }
                Ok((call_id, WorkerMessage::Warning(warning))) if call_id == id => {
                    context.warn(warning);
                }
                // A thread of an earlier call still reports progress. The earlier call has ended,
                // so ignore it.
                Ok((call_id, WorkerMessage::Progress(_))) if call_id < id => {}
                Ok((call_id, WorkerMessage::End(end))) if call_id == id => {
                    self.release();
                    return end;
                }
                Ok((call_id, _)) => {
                    return Err(self.protocol_error(&format!("it is about call {call_id}")));
                }
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

    /// The error for a message that cannot be used. The caller returns it and drops the lease,
    /// which ends the worker.
    fn protocol_error(&self, reason: &str) -> ToolError {
        ToolError::BadOutput(format!(
            "the worker process wrote a line that cannot be used: {reason}"
        ))
    }

    /// Replaces a worker that has ended by itself.
    fn replace_dead(mut self, reason: &str) {
        if let Some(idle) = self.idle.take() {
            tracing::warn!(target: "toolcrib::python", module = &*self.pool.launcher.name, "a worker is replaced: {reason}");
            {
                let mut state = self.pool.state();
                state.worker_count -= 1;
                state.restart_history.record_death(
                    idle.worker.started_at,
                    idle.has_answered,
                    reason,
                );
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

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(
        range: WorkerRange,
        worker_count: usize,
        starting: usize,
        waiting: usize,
        early_deaths: usize,
    ) -> usize {
        let mut state = State {
            idle_workers: Vec::new(),
            worker_count,
            starting,
            waiting,
            least_idle: 0,
            is_shrinking: false,
            restart_history: RestartHistory::default(),
            last_number: 0,
        };
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
