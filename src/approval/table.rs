//! The calls of this process that wait for a person: the requests that wait for a decision, and the
//! calls that may be in memory only.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::call::{ApprovalStage, CallError, Invocation, InvocationId, JsonObject};
use crate::ledger::Ledger;

/// Maximum number of calls that wait in memory only.
const MAX_KEPT: u64 = 1000;
/// Maximum number of such calls of one caller.
const MAX_KEPT_OF_CALLER: u64 = 200;

/// Memory for held messages, in bytes. The oldest ones make room.
const MAX_HELD_BYTES: u64 = 16 << 20;

/// The table of waiting calls. Clones share it.
#[derive(Clone)]
pub struct WaitingCalls(Arc<Shared>);

struct Shared {
    process: Arc<str>,
    /// How often the catalog has changed.
    generation: AtomicU64,
    /// Messages whose results must not be stored. See [`WaitingCalls::hold`].
    held: Cache<InvocationId, Arc<str>>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    waiters: HashMap<InvocationId, WaitingRequest>,
    kept: HashMap<InvocationId, KeptCall>,
    /// Decided calls on which this process acts.
    active: HashSet<InvocationId>,
}

/// A request that waits for the decision about its call.
struct WaitingRequest {
    /// The catalog whose stack and caller the request holds.
    generation: u64,
    decided: oneshot::Sender<Decided>,
}

/// A call whose arguments must not be stored.
#[derive(Clone)]
pub struct KeptCall {
    /// The call as received.
    pub invocation: Box<Invocation>,
    /// The arguments for the person that decides.
    pub shown: JsonObject,
    /// The caller's context for that person.
    pub shown_context: JsonObject,
    /// Hash of what is approved.
    pub hash: [u8; 32],
}

/// A decided call, for the task that runs it or writes its row.
pub struct Decided {
    /// The decision.
    pub stage: ApprovalStage,
    /// Tells that this process acts on the decision.
    pub active: ActiveGuard,
}

/// Tells that this process acts on a decision, until it is dropped.
pub struct ActiveGuard {
    id: InvocationId,
    table: WaitingCalls,
}

/// Forgets a call that waited in memory, when it is dropped.
pub struct ForgetOnDrop {
    id: InvocationId,
    table: Option<WaitingCalls>,
}

/// A request that waits for the decision about its call, until it is dropped.
pub struct Waiter {
    id: InvocationId,
    table: WaitingCalls,
    /// Receives the decision, if this process is to act on it.
    pub decided: oneshot::Receiver<Decided>,
}

impl Default for WaitingCalls {
    fn default() -> Self {
        let process = format!("process-{}", InvocationId::new());
        Self(Arc::new(Shared {
            process: process.into(),
            generation: AtomicU64::default(),
            held: Cache::builder()
                .weigher(|_, message: &Arc<str>| u32::try_from(message.len()).unwrap_or(u32::MAX))
                .max_capacity(MAX_HELD_BYTES)
                .build(),
            tables: Mutex::default(),
        }))
    }
}

impl WaitingCalls {
    /// The name of this process among those that act on approvals.
    pub fn process(&self, ledger: &dyn Ledger) -> Arc<str> {
        ledger.process().unwrap_or_else(|| self.0.process.clone())
    }

    /// Enters a request that waits for a decision.
    pub fn wait_for(&self, id: InvocationId) -> Waiter {
        let (sender, decided) = oneshot::channel();
        let request = WaitingRequest {
            generation: self.0.generation.load(Ordering::Acquire),
            decided: sender,
        };
        self.0.tables.lock().waiters.insert(id, request);
        Waiter {
            id,
            table: self.clone(),
            decided,
        }
    }

    /// How many requests wait for a decision.
    pub fn count_requests(&self) -> u32 {
        u32::try_from(self.0.tables.lock().waiters.len()).unwrap_or(u32::MAX)
    }

    /// Keeps a call in memory until its decision.
    ///
    /// # Errors
    /// Too many calls are kept.
    pub fn keep(&self, id: InvocationId, call: KeptCall) -> Result<(), CallError> {
        let kept = &mut self.0.tables.lock().kept;
        let is_own =
            |other: &&KeptCall| other.invocation.caller.name == call.invocation.caller.name;
        let of_caller = kept.values().filter(is_own).count() as u64 >= MAX_KEPT_OF_CALLER;
        if of_caller || kept.len() as u64 >= MAX_KEPT {
            return Err(CallError::TooManyWaiting {
                most: if of_caller {
                    MAX_KEPT_OF_CALLER
                } else {
                    MAX_KEPT
                },
                of_caller,
            });
        }
        kept.insert(id, call);
        Ok(())
    }

    /// A call that waits in the memory of this process.
    pub fn kept(&self, id: InvocationId) -> Option<KeptCall> {
        self.0.tables.lock().kept.get(&id).cloned()
    }

    /// Forgets a call that waited in memory as soon as the guard is dropped.
    pub fn forget_on_drop(&self, id: InvocationId) -> ForgetOnDrop {
        let table = Some(self.clone());
        ForgetOnDrop { id, table }
    }

    /// Forgets a call that waited in memory.
    pub fn forget(&self, id: InvocationId) {
        self.0.tables.lock().kept.remove(&id);
    }

    /// Holds the model's message of a waiting call in memory, because the results of its other calls
    /// must not be stored.
    pub fn hold(&self, id: InvocationId, message: Arc<str>) {
        self.0.held.insert(id, message);
    }

    /// The held message of a call.
    pub fn held(&self, id: InvocationId) -> Option<Arc<str>> {
        self.0.held.get(&id)
    }

    /// Marks a call as one on which this process acts; `None` if it does already.
    pub fn activate(&self, id: InvocationId) -> Option<ActiveGuard> {
        let is_new = self.0.tables.lock().active.insert(id);
        is_new.then(|| ActiveGuard {
            id,
            table: self.clone(),
        })
    }

    /// Notes that tools or callers have changed. Requests that wait meanwhile hold old ones, so they
    /// do not run their calls.
    pub fn note_new_catalog(&self) {
        self.0.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Hands a decision to the request that waits for it.
    ///
    /// # Errors
    /// The decision, if no request of this process waits, or if tools or callers have changed since.
    pub fn hand_over(&self, decided: Decided) -> Result<(), Decided> {
        let waiter = self.0.tables.lock().waiters.remove(&decided.active.id);
        let generation = self.0.generation.load(Ordering::Acquire);
        match waiter {
            Some(waiter) if waiter.generation == generation => waiter.decided.send(decided),
            _ => Err(decided),
        }
    }
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.table.0.tables.lock().active.remove(&self.id);
    }
}

impl ForgetOnDrop {
    /// The call waits on.
    pub fn keep(mut self) {
        self.table = None;
    }
}

impl Drop for ForgetOnDrop {
    fn drop(&mut self) {
        if let Some(table) = &self.table {
            table.forget(self.id);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.table.0.tables.lock().waiters.remove(&self.id);
    }
}
