//! One ask.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::capture::Received;
use super::definition::ToolName;
use super::idempotency::IdempotencyKey;
use super::json::JsonObject;
use super::notes::Notes;
use super::page::{Page, PageArguments};
use super::progress::ProgressSink;
use super::subcalls::Lineage;
use super::trace::TraceContext;
use super::unreadable::Unreadable;

/// The ledger's key: a UUIDv7 (RFC 9562), so ids sort by the time the calls began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InvocationId(Uuid);

impl InvocationId {
    /// A new id. Ids of one process never go backwards.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// The smallest id that a call begun at `at` can have: a lower bound for time filters.
    pub fn floor(at: Timestamp) -> Self {
        let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
        Self(Uuid::from_u128(u128::from(millis) << 80))
    }

    /// When it was made, to the millisecond; `None` if the id is no UUIDv7.
    pub fn made_at(&self) -> Option<Timestamp> {
        let (seconds, nanos) = self.0.get_timestamp().filter(|_| self.0.get_version_num() == 7)?.to_unix();
        Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
    }

    /// The sixteen bytes, in sort order.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

impl Default for InvocationId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for InvocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for InvocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for InvocationId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::from_str(text).map(Self)
    }
}

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The principal's name; `anonymous` on loopback without keys.
    pub name: Arc<str>,
    /// May use the operator's routes and sees everybody's calls.
    pub admin: bool,
}

impl Caller {
    /// The name of callers without a key; no caller of a manifest can have it.
    pub const ANONYMOUS: &str = "anonymous";

    /// The caller of a service without keys: trusted as the operator, since only this machine can reach it.
    pub fn anonymous() -> Self {
        Self { name: Self::ANONYMOUS.into(), admin: true }
    }
}

/// How a call wants the cache to take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// A stored result will do.
    #[default]
    Use,
    /// Run, and replace what is stored.
    Refresh,
    /// Run, and leave the store alone.
    Bypass,
}

/// One ask on its way through a tool's stack: plain data, cheap to clone, no HTTP in it.
#[derive(Clone)]
pub struct Invocation {
    /// The ledger's key, returned to the caller.
    pub id: InvocationId,
    /// The tool, by its one name (aliases are resolved).
    pub tool: ToolName,
    /// What goes on record of the arguments as they came.
    pub received: Received,
    /// The arguments the tool gets: coerced, defaults filled in. Shared, since every retry needs them. Above the layer that
    /// validates them nothing keeps them, or large ones would be there twice.
    pub arguments: Arc<JsonObject>,
    /// Why there are none: what the model wrote could not be read.
    pub unreadable: Option<Arc<Unreadable>>,
    /// Who asks.
    pub caller: Arc<Caller>,
    /// The caller's own grouping of calls.
    pub run_id: Option<Arc<str>>,
    /// The model's id for this call, handed back with the answer.
    pub tool_use_id: Option<Arc<str>>,
    /// The id of the request that asked, as whoever sent it knows it; only for the log.
    pub request_id: Option<Arc<str>>,
    /// The trace that it belongs to, for those that its tool asks and for the log.
    pub trace: Option<Arc<TraceContext>>,
    /// The caller's context, for tools that take one; never part of the arguments.
    pub context: Arc<JsonObject>,
    /// How the cache takes part.
    pub cache: CacheMode,
    /// Which part of a long result it wants to see.
    pub page: Option<Page>,
    /// The arguments by which its model asked for that part, if it did.
    pub page_arguments: Option<Arc<PageArguments>>,
    /// Where it stands among calls that tools make.
    pub lineage: Lineage,
    /// Whoever asks wants this tool denied to the model for now.
    pub denied: bool,
    /// The caller's own name for this ask.
    pub key: Option<IdempotencyKey>,
    /// When the whole call must be over. Only ever moved nearer.
    pub deadline: Option<Instant>,
    /// Which try this is, from 1. Written by the retry policy only.
    pub attempt: u32,
    /// When the call was accepted, on the wall clock.
    pub started_at: Timestamp,
    /// The same moment on the monotonic clock.
    pub started: Instant,
    /// Tripped when the call is cancelled, and with it those that its tool makes.
    pub cancel: CancellationToken,
    /// Tripped when the tool is to stop: the call is cancelled, or its caller has left and it is not let finish. The calls that
    /// its tool makes are then dropped, and each goes by its own tool's `on_disconnect`.
    pub stop: CancellationToken,
    /// Tripped when the caller has left: what has not started then never does.
    pub left: CancellationToken,
    /// Tripped when the tool is tried for the first time, for who waits for that.
    pub begun: Option<CancellationToken>,
    /// Nobody waits for the answer: it is looked up. The call is on record before it runs, whatever its tool.
    pub detached: bool,
    /// Where the tool tells how far it is; absent when nobody listens.
    pub progress: Option<ProgressSink>,
    /// What the layers note on the way.
    pub notes: Arc<Notes>,
}

impl Invocation {
    /// A call of `tool` by `caller` that begins now, everything else at its default.
    pub fn new(tool: ToolName, arguments: JsonObject, caller: Arc<Caller>, started_at: Timestamp) -> Self {
        let cancel = CancellationToken::new();
        // As fine as the ledger keeps it.
        let started_at = Timestamp::from_millisecond(started_at.as_millisecond()).unwrap_or(started_at);
        Self {
            id: InvocationId::new(),
            tool,
            received: Received::Nothing,
            arguments: Arc::new(arguments),
            unreadable: None,
            caller,
            run_id: None,
            tool_use_id: None,
            request_id: None,
            trace: None,
            context: Arc::default(),
            cache: CacheMode::default(),
            page: None,
            page_arguments: None,
            lineage: Lineage::default(),
            denied: false,
            key: None,
            deadline: None,
            attempt: 1,
            started_at,
            started: Instant::now(),
            stop: cancel.child_token(),
            cancel,
            left: CancellationToken::new(),
            begun: None,
            detached: false,
            progress: None,
            notes: Arc::default(),
        }
    }

    /// The call's whole time, from its acceptance to its deadline.
    pub fn allowed(&self) -> std::time::Duration {
        self.deadline.map_or(std::time::Duration::MAX, |deadline| deadline - self.started)
    }

    /// Moves the deadline nearer; a later one changes nothing.
    pub fn shorten_deadline(&mut self, to: Instant) {
        self.deadline = Some(self.deadline.map_or(to, |now| now.min(to)));
    }
}

/// Arguments and context may hold anything, so they are not shown.
impl fmt::Debug for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("id", &self.id)
            .field("tool", &self.tool)
            .field("caller", &self.caller.name)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
