//! One call as data.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::caller_credentials::CallerCredentials;
use super::capture::RecordedArguments;
use super::definition::ToolName;
use super::idempotency::IdempotencyKey;
use super::json::JsonObject;
use super::nested_calls::CallChain;
use super::page::{Page, PageArguments};
use super::progress::ProgressSink;
use super::report::CallReport;
use super::trace::TraceContext;
use super::unreadable_arguments::UnreadableArguments;

/// The id of a call and the key of its row: a UUIDv7 (RFC 9562), so ids sort by the start of the
/// calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InvocationId(Uuid);

impl InvocationId {
    /// A new id. The ids of one process never go backward.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// The smallest possible id of a call that started at `at`: a lower bound for time filters.
    pub fn lower_bound(at: Timestamp) -> Self {
        let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
        Self(Uuid::from_u128(u128::from(millis) << 80))
    }

    /// When the id was made, to the millisecond; `None` if it is not a UUIDv7.
    pub fn created_at(&self) -> Option<Timestamp> {
        let (seconds, nanos) = self
            .0
            .get_timestamp()
            .filter(|_| self.0.get_version_num() == 7)?
            .to_unix();
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

/// A client of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The caller's name; `anonymous` on loopback without keys.
    pub name: Arc<str>,
    /// Whether the caller may use the operator's routes and see all callers' calls.
    pub admin: bool,
    /// The caller's credentials for other services. Only its own calls carry them.
    pub credentials: CallerCredentials,
}

impl Caller {
    /// The name of callers without a key. No caller of a manifest can have it.
    pub const ANONYMOUS: &str = "anonymous";

    /// A caller without credentials for other services.
    pub fn new(name: impl Into<Arc<str>>, admin: bool) -> Self {
        Self {
            name: name.into(),
            admin,
            credentials: CallerCredentials::default(),
        }
    }

    /// The caller of a service without keys. It has the operator's rights, because only this
    /// machine can reach such a service.
    pub fn anonymous() -> Self {
        Self::new(Self::ANONYMOUS, true)
    }
}

/// How a call uses the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// A stored result may be the answer.
    #[default]
    Use,
    /// Run, and replace what is stored.
    Refresh,
    /// Run, and do not store the result.
    Bypass,
}

/// One call on its way through a tool's stack: plain data without HTTP, cheap to clone.
#[derive(Clone)]
pub struct Invocation {
    /// The key of the call's row, which the caller also gets.
    pub id: InvocationId,
    /// The tool's name, with aliases resolved.
    pub tool: ToolName,
    /// The arguments as received, in the form in which they are recorded.
    pub recorded_arguments: RecordedArguments,
    /// The arguments that the tool gets: coerced, with defaults filled in. They are shared, because
    /// every retry needs them. No layer above `validate` keeps a reference; otherwise large
    /// arguments would be in memory twice.
    pub arguments: Arc<JsonObject>,
    /// Why there are no arguments: the model's text could not be parsed.
    pub unreadable_arguments: Option<Arc<UnreadableArguments>>,
    /// The caller of the tool.
    pub caller: Arc<Caller>,
    /// The run that the caller has named.
    pub run_id: Option<Arc<str>>,
    /// Whether the transport named the run, because the caller did not. Such a run groups and
    /// counts calls, but a call may repeat the one before it.
    pub run_is_implied: bool,
    /// The model's id for this call, returned with the answer.
    pub tool_use_id: Option<Arc<str>>,
    /// The client's id of the HTTP request, for the log only.
    pub request_id: Option<Arc<str>>,
    /// The trace of the request, for requests of the tool and for the log.
    pub trace: Option<Arc<TraceContext>>,
    /// The caller's context, for tools that take one. It is never part of the arguments.
    pub context: Arc<JsonObject>,
    /// How the call uses the cache.
    pub cache: CacheMode,
    /// The requested part of a long result.
    pub page: Option<Page>,
    /// The arguments by which a model requested that part.
    pub page_arguments: Option<Arc<PageArguments>>,
    /// The calls of tools that led to this one.
    pub call_chain: CallChain,
    /// Whether the request denies this tool to the model.
    pub denied: bool,
    /// The idempotency key of the request.
    pub idempotency_key: Option<IdempotencyKey>,
    /// When the whole call must have ended. It only ever moves nearer.
    pub deadline: Option<Instant>,
    /// Number of the attempt, from 1. Only the retry policy changes it.
    pub attempt: u32,
    /// When the call was accepted, on the wall clock.
    pub started_at: Timestamp,
    /// The same moment on the monotonic clock.
    pub started: Instant,
    /// Cancelled when the call is cancelled. The nested calls hold child tokens of it.
    pub call_cancelled: CancellationToken,
    /// Cancelled when the tool must stop: the call was cancelled, or its caller disconnected and
    /// `on_disconnect` is `cancel`. The nested calls are then dropped, and for each of them its own
    /// tool's `on_disconnect` applies.
    pub cancelled: CancellationToken,
    /// Cancelled when the caller has disconnected. A tool that has not started then never starts.
    pub disconnected: CancellationToken,
    /// Cancelled when the first attempt starts, for a task that waits for that.
    pub attempt_started: Option<CancellationToken>,
    /// Whether the caller fetches the answer later. The row is then committed before the tool runs,
    /// whatever the tool's effect.
    pub responds_async: bool,
    /// The sink for the tool's progress. `None` if no client listens.
    pub progress: Option<ProgressSink>,
    /// The report of the layers about this call.
    pub report: Arc<CallReport>,
}

impl Invocation {
    /// A call of `tool` by `caller` that starts now, with defaults for everything else.
    pub fn new(
        tool: ToolName,
        arguments: JsonObject,
        caller: Arc<Caller>,
        started_at: Timestamp,
    ) -> Self {
        let cancel = CancellationToken::new();
        // The ledger stores milliseconds, so the time in memory has the same precision.
        let started_at =
            Timestamp::from_millisecond(started_at.as_millisecond()).unwrap_or(started_at);
        Self {
            id: InvocationId::new(),
            tool,
            recorded_arguments: RecordedArguments::Pending,
            arguments: Arc::new(arguments),
            unreadable_arguments: None,
            caller,
            run_id: None,
            run_is_implied: false,
            tool_use_id: None,
            request_id: None,
            trace: None,
            context: Arc::default(),
            cache: CacheMode::default(),
            page: None,
            page_arguments: None,
            call_chain: CallChain::default(),
            denied: false,
            idempotency_key: None,
            deadline: None,
            attempt: 1,
            started_at,
            started: Instant::now(),
            cancelled: cancel.child_token(),
            call_cancelled: cancel,
            disconnected: CancellationToken::new(),
            attempt_started: None,
            responds_async: false,
            progress: None,
            report: Arc::default(),
        }
    }

    /// The total time of the call, from its acceptance to its deadline.
    pub fn time_budget(&self) -> std::time::Duration {
        self.deadline
            .map_or(std::time::Duration::MAX, |deadline| deadline - self.started)
    }

    /// Moves the deadline nearer. A later deadline has no effect.
    pub fn shorten_deadline(&mut self, to: Instant) {
        self.deadline = Some(self.deadline.map_or(to, |now| now.min(to)));
    }
}

/// Arguments and context may hold secrets, so they are not shown.
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
