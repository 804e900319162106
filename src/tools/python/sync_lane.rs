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

use super::protocol::{self, Function, Listing, Role, WorkerMessage};
use super::watch::Watch;
use super::worker::{Launcher, Next, Worker};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::health::Health;

/// Workers that one call may take, as long as it has not started on any of them.
const TRIES: usize = 3;
/// The `retry_after` of a call that found no free worker.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// The workers, and the calls that wait for one.
pub(super) struct SyncLane {
    runtime: Handle,
    state: Mutex<State>,
    /// One permit for each free worker. Waiting calls are served in order.
    free: Semaphore,
    /// Whether no call should wait, because workers keep dying.
    down: watch::Sender<bool>,
    /// Tasks that start workers.
    coming: Mutex<JoinSet<()>>,
    /// Must be the last field. Its drop waits until all workers have ended, so the workers must be dropped before.
    launcher: Arc<Launcher>,
}

struct State {
    idle: Vec<Idle>,
    /// The number of workers, idle or at work.
    alive: usize,
    health: Health,
    numbers: u64,
}

/// A worker, with what is known of it between two calls.
struct Idle {
    worker: Worker,
    number: u64,
    next_id: u64,
    has_answered: bool,
    /// Notices the worker's end while no call reads from it.
    _watch: Watch,
}

impl SyncLane {
    /// A pool with this worker; starts `more` others. Call it within the runtime.
    pub(super) fn new(launcher: &Arc<Launcher>, first: Worker, more: usize) -> Arc<Self> {
        let state = State { idle: Vec::new(), alive: 0, health: Health::default(), numbers: 0 };
        let lane = Arc::new(Self {
            runtime: Handle::current(),
            state: Mutex::new(state),
            free: Semaphore::new(0),
            down: watch::Sender::new(false),
            coming: Mutex::default(),
            launcher: launcher.clone(),
        });
        lane.welcome(first);
        (0..more).for_each(|_| lane.start_one());
        lane
    }

    /// Runs a function, if a worker is free before `begin_by`. Dropping the future ends the worker.
    pub(super) async fn call(
        self: &Arc<Self>,
        function: &Function,
        arguments: &JsonObject,
        context: &ToolContext,
        begin_by: Instant,
    ) -> Result<ToolResult, ToolError> {
        for _ in 0..TRIES {
            let mut lease = self.lease(context, begin_by).await?;
            let Some(idle) = &mut lease.idle else { continue };
            let id = idle.next_id;
            idle.next_id += 1;
            idle.worker.prints.belong_to(context);
            if idle.worker.write(&protocol::call(id, function, arguments, context)).await.is_err() {
                // The worker never had the whole line, so the call has not started. Another worker may take it.
                let how = idle.worker.ended().await;
                lease.died(&how);
                continue;
            }
            return lease.answer(id, context).await;
        }
        Err(self.unavailable())
    }

    /// Waits for this call's turn, and takes a free worker.
    async fn lease(self: &Arc<Self>, context: &ToolContext, begin_by: Instant) -> Result<Lease, ToolError> {
        loop {
            match self.free.try_acquire() {
                Ok(permit) => permit.forget(),
                Err(_) => context.waiting(self.turn(begin_by)).await?,
            }
            // `idle` is empty if the worker died after its permit was taken. Then wait for the next permit.
            let Some(mut idle) = self.state().idle.pop() else { continue };
            let is_sound = idle.worker.is_sound();
            let lease = Lease { lane: self.clone(), idle: Some(idle) };
            if is_sound {
                return Ok(lease);
            }
            lease.died("its worker process ended while it had nothing to do");
        }
    }

    /// Waits for a free worker. Ends early if workers keep dying, or when it is too late to start.
    async fn turn(&self, begin_by: Instant) -> Result<(), ToolError> {
        let mut down = self.down.subscribe();
        let down = async {
            // `wait_for` returns a guard that holds a lock. Drop the guard here, not after the other branches.
            let _ = down.wait_for(|down| *down).await;
        };
        tokio::select! {
            biased;
            permit = self.free.acquire() => permit.map(|permit| permit.forget()).map_err(|_| self.unavailable()),
            () = down => Err(self.unavailable()),
            () = sleep_until(begin_by) => Err(self.busy()),
        }
    }

    fn busy(&self) -> ToolError {
        if self.workers() == 0 {
            return self.unavailable();
        }
        let message = format!("the worker processes of the Python module {} were all busy", self.launcher.name);
        ToolError::unavailable_before(message, Some(BUSY_WAIT))
    }

    fn unavailable(&self) -> ToolError {
        let health = &self.state().health;
        let why = health.fault.as_deref().unwrap_or("its worker processes are gone");
        let message = format!("the Python module {} is down: {why}", self.launcher.name);
        ToolError::unavailable_before(message, Some(health.retry_after()))
    }

    pub(super) fn is_down(&self) -> bool {
        *self.down.borrow()
    }

    pub(super) fn workers(&self) -> usize {
        self.state().alive
    }

    /// The number of workers replaced so far, and the last fault with its time.
    pub(super) fn record(&self) -> (u64, Option<(String, Instant)>) {
        let health = &self.state().health;
        (health.replaced, health.fault.clone().zip(health.fault_at))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the permit of a worker that died. If none is available, a caller already holds it; it will find the idle
    /// list empty and retry.
    fn take_back_permit(&self) {
        if let Ok(permit) = self.free.try_acquire() {
            permit.forget();
        }
    }

    /// Adds a worker that has loaded the module.
    fn welcome(self: &Arc<Self>, worker: Worker) {
        let mut state = self.state();
        state.alive += 1;
        state.health.started();
        state.numbers += 1;
        let number = state.numbers;
        let lane = Arc::downgrade(self);
        let watch = Watch::new(&self.runtime, worker.tree.id(), move || {
            lane.upgrade().into_iter().for_each(|lane| lane.died_idle(number));
        });
        drop(state);
        self.put_down(Idle { worker, number, next_id: 1, has_answered: false, _watch: watch });
        self.publish();
    }

    /// Makes a worker available to the next call. Adds the worker before its permit, so that a permit finds a worker.
    fn put_down(&self, idle: Idle) {
        self.state().idle.push(idle);
        self.free.add_permits(1);
    }

    fn died_idle(self: &Arc<Self>, number: u64) {
        // Two tasks may notice the end of an idle worker: its watch, which calls this, and a call that takes it in
        // `lease`. Only the task that removes the worker from `idle` under the lock counts the death and replaces it.
        // If a call was faster, there is nothing to do here. If the watch was faster, its permit must go too.
        let found = {
            let mut state = self.state();
            let at = state.idle.iter().position(|idle| idle.number == number);
            at.map(|at| state.idle.remove(at))
        };
        if let Some(idle) = found {
            self.take_back_permit();
            Lease { lane: self.clone(), idle: Some(idle) }.died("its worker process ended while it had nothing to do");
        }
    }

    fn publish(&self) {
        let state = self.state();
        let down = state.alive == 0 && state.health.is_bad();
        // Send under the lock. Otherwise an older value could overwrite a newer one of another thread.
        self.down.send_if_modified(|was| std::mem::replace(was, down) != down);
    }

    fn replace(self: &Arc<Self>) {
        self.state().health.replaced += 1;
        self.publish();
        self.start_one();
    }

    /// Starts a worker in the background. Pauses first, if other workers have died early.
    fn start_one(self: &Arc<Self>) {
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        while coming.try_join_next().is_some() {}
        coming.spawn_on(start(Arc::downgrade(self), self.launcher.clone()), &self.runtime);
    }

    fn pause(&self) -> Duration {
        self.state().health.pause(fastrand::f64())
    }

    fn failed(&self, began: Instant, fault: &str) {
        tracing::warn!(target: "toolcrib::python", module = &*self.launcher.name, "a worker could not be started: {fault}");
        self.state().health.failed(began, fault);
        self.publish();
    }
}

/// Starts workers until one is up. Holds only a weak reference while it waits, so that the pool can be dropped.
async fn start(lane: Weak<SyncLane>, launcher: Arc<Launcher>) {
    while let Some(pause) = lane.upgrade().map(|lane| lane.pause()) {
        sleep(pause).await;
        let began = Instant::now();
        let started: Result<(Worker, Listing), String> = launcher.start(Role::Sync).await;
        let Some(lane) = lane.upgrade() else { return };
        match started {
            Ok((worker, _)) => return lane.welcome(worker),
            Err(fault) => lane.failed(began, &fault),
        }
    }
}

/// A worker that a call owns. A lease ends in one of three ways. `give_back` makes the worker available again. `died`
/// counts a death and replaces the worker. A plain drop, as after a cancelled call, kills the worker and replaces it;
/// that does not count as an early death.
struct Lease {
    lane: Arc<SyncLane>,
    idle: Option<Idle>,
}

impl Lease {
    /// Reads the worker's messages until the end of the call.
    async fn answer(mut self, id: u64, context: &ToolContext) -> Result<ToolResult, ToolError> {
        let Some(idle) = &mut self.idle else { return Err(self.lane.unavailable()) };
        loop {
            let line = match idle.worker.next().await {
                Next::Line => protocol::read(idle.worker.from.line()),
                Next::TooLong => Err("it is longer than any result".into()),
                Next::Ended(how) => {
                    self.died(&how);
                    return Err(ToolError::unavailable(format!("the function did not end: {how}")));
                }
            };
            match line {
                Ok((of, WorkerMessage::Progress(data))) if of == id => context.progress(data),
                Ok((of, WorkerMessage::Warning(warning))) if of == id => context.warn(warning),
                // A thread of an earlier call still reports progress. The earlier call has ended, so ignore it.
                Ok((of, WorkerMessage::Progress(_))) if of < id => {}
                Ok((of, WorkerMessage::End(end))) if of == id => {
                    self.give_back();
                    return end;
                }
                Ok((of, _)) => return Err(self.senseless(&format!("it is about call {of}"))),
                Err(why) => return Err(self.senseless(&why)),
            }
        }
    }

    fn give_back(mut self) {
        if let Some(mut idle) = self.idle.take() {
            idle.has_answered = true;
            idle.worker.from.let_go();
            self.lane.put_down(idle);
        }
    }

    /// The error for a message that cannot be used. The caller returns it and drops the lease, which ends the worker.
    fn senseless(&self, why: &str) -> ToolError {
        ToolError::BadOutput(format!("the worker process wrote a line that cannot be used: {why}"))
    }

    /// Replaces a worker that has ended by itself.
    fn died(mut self, how: &str) {
        if let Some(idle) = self.idle.take() {
            tracing::warn!(target: "toolcrib::python", module = &*self.lane.launcher.name, "a worker is replaced: {how}");
            {
                let mut state = self.lane.state();
                state.alive -= 1;
                state.health.died(idle.worker.born, idle.has_answered, how);
            }
            drop(idle);
            self.lane.replace();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(idle) = self.idle.take() {
            {
                let mut state = self.lane.state();
                state.alive -= 1;
                state.health.lived();
            }
            drop(idle);
            self.lane.replace();
        }
    }
}
