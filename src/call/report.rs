//! What the layers report about a call while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::charge::Charged;
use super::error::Coercion;
use super::idempotency::Fingerprint;
use super::invocation_id::InvocationId;
use super::meta::{CacheStatus, Meta, ModelUsage};

/// The report of one call. All its layers and attempts share it, because a call that is cancelled
/// returns nothing from its layers.
///
/// Each part names its writers. The layer `record` reads the parts at the end of the call, and makes
/// the answer's `meta` and the row in the ledger of them.
#[derive(Debug, Default)]
pub struct CallReport {
    /// The writer is `catalog/new_call.rs`, which makes the call. `await_decision` moves the part to
    /// the second pass of an approved call.
    pub entry: Mutex<EntryReport>,
    /// The writer is `replay`.
    pub replay: Mutex<ReplayReport>,
    /// The writer is `validate`.
    pub fitting: Mutex<FittingReport>,
    /// The writers are `cache` and, for pages of stored results, `page_guard`.
    pub cache: Mutex<CacheReport>,
    /// The writer is `usage_limit`.
    pub charge: Mutex<ChargeReport>,
    /// The writer is `attempt`. While an attempt runs, the tool's context sets its flags.
    pub attempt: Mutex<AttemptReport>,
    /// The writers are the tool, by its context, and `run`: it cleans what the tool wrote, and adds
    /// warnings of its own.
    pub tool: Mutex<ToolReport>,
    /// Held while a reservation commits. A cancellation waits for it, so the charged units are
    /// known and can be refunded.
    pub reservation_lock: tokio::sync::Mutex<()>,
    /// The writers are `authorize` and the nested calls.
    uses_caller_credentials: AtomicBool,
    /// The writer is `approval`: the call is stored, and its result only says that it waits.
    waits_for_approval: AtomicBool,
}

/// Warnings about the request.
#[derive(Debug, Default)]
pub struct EntryReport {
    /// Warnings for the answer.
    pub warnings: Vec<String>,
}

/// What the idempotency key of the call means.
#[derive(Debug, Default)]
pub struct ReplayReport {
    /// The fingerprint of the request, once its idempotency key is to be claimed.
    pub fingerprint: Option<Fingerprint>,
    /// The call that this call repeats with its idempotency key.
    pub replayed_from: Option<ReplayedFrom>,
}

/// How the arguments were made to fit the schema.
#[derive(Debug, Default)]
pub struct FittingReport {
    /// Arguments that were changed.
    pub coercions: Vec<Coercion>,
    /// Warnings for the answer.
    pub warnings: Vec<String>,
}

/// How the cache was used.
#[derive(Debug, Default)]
pub struct CacheReport {
    /// The status for the answer.
    pub status: CacheStatus,
    /// The call whose stored result answered this one.
    pub origin: Option<InvocationId>,
}

impl CacheReport {
    /// The report of a call that a stored result answered.
    pub fn hit(origin: InvocationId) -> Self {
        Self {
            status: CacheStatus::Hit,
            origin: Some(origin),
        }
    }
}

/// What the call was charged.
#[derive(Debug, Default)]
pub struct ChargeReport {
    /// Whether the ledger holds a committed row for this call, which must be settled.
    pub reserved: bool,
    /// The units that were charged.
    pub charged: Vec<Charged>,
}

/// The attempts so far.
#[derive(Debug, Default)]
pub struct AttemptReport {
    /// The number of the last attempt, from 1.
    number: u32,
    /// When the current attempt started; `None` between attempts and after the last one.
    started_at: Option<Instant>,
    /// Whether the current attempt still waits for something to run on. Then no code of the tool
    /// has run.
    pub queued: bool,
    /// Whether code of the tool has run in an attempt that is over.
    has_run: bool,
    /// Whether the attempt failed because another call ended their shared runner. That other call's
    /// end already counts for the circuit breaker.
    pub shared_failure: bool,
}

impl AttemptReport {
    /// Notes that an attempt starts now.
    pub fn start(&mut self, number: u32, started_at: Instant) {
        *self = Self {
            number,
            started_at: Some(started_at),
            queued: false,
            has_run: self.has_run,
            shared_failure: false,
        };
    }

    /// Notes that the current attempt has ended, and whether code of the tool has run in it. Returns
    /// whether it has run in any.
    pub fn end(&mut self, has_run: bool) -> bool {
        self.started_at = None;
        self.has_run |= has_run;
        self.has_run
    }

    /// Whether code of the tool has run in an attempt that is over.
    pub fn has_run(&self) -> bool {
        self.has_run
    }

    /// The number of attempts, and when the last one started if it is not over.
    pub fn all(&self) -> (u32, Option<Instant>) {
        (self.number, self.started_at)
    }

    /// As [`AttemptReport::all`], without an attempt whose tool has not started.
    pub fn started(&self) -> (u32, Option<Instant>) {
        match self.queued {
            true => (self.number.saturating_sub(1), None),
            false => self.all(),
        }
    }
}

/// What the tool reports beside its result.
#[derive(Debug, Default)]
pub struct ToolReport {
    /// Warnings for the answer.
    pub warnings: Vec<String>,
    /// The use of an agent's model, over all attempts.
    pub model: Option<ModelUsage>,
    /// The call whose recorded result is the tool's result.
    pub origin: Option<InvocationId>,
}

/// An ended call that was repeated with its idempotency key.
#[derive(Debug, Clone)]
pub struct ReplayedFrom {
    /// The id of the earlier call.
    pub invocation: InvocationId,
    /// The model's id for the earlier call.
    pub tool_use_id: Option<Arc<str>>,
    /// The `meta` of the earlier answer.
    pub meta: Meta,
}

impl CallReport {
    /// Notes that the call is stored and waits for a person.
    pub fn set_waits_for_approval(&self) {
        self.waits_for_approval.store(true, Ordering::Release);
    }

    /// Whether the call is stored and waits for a person.
    pub fn waits_for_approval(&self) -> bool {
        self.waits_for_approval.load(Ordering::Acquire)
    }

    /// Notes that the call, or a call below it, sends credentials of its caller.
    pub fn note_caller_credentials(&self) {
        self.uses_caller_credentials.store(true, Ordering::Relaxed);
    }

    /// Whether the call, or a call below it, sends credentials of its caller. Then its result is
    /// for this caller only.
    pub fn uses_caller_credentials(&self) -> bool {
        self.uses_caller_credentials.load(Ordering::Relaxed)
    }
}
