//! The rows of the ledger and the queries for them.

use std::sync::Arc;
use std::time::Duration;

use jiff::fmt::serde::timestamp;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::Error;
use crate::call::{
    CacheStatus, Charged, Effect, ErrorKind, Fingerprint, IdempotencyKey, Invocation, InvocationId,
};

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// The call waits for a person. No row in the ledger has this state.
    Waiting,
    /// The row and the units are committed; the tool may be running.
    Reserved,
    /// The call is running.
    Running,
    /// The tool returned a result.
    Succeeded,
    /// The call failed, or the tool returned an error result.
    Failed,
    /// The call exceeded its deadline, or its last attempt timed out.
    TimedOut,
    /// The caller, an admin or a shutdown cancelled the call, or the caller disconnected.
    Cancelled,
    /// The call was refused before the tool ran.
    Refused,
    /// The call was interrupted, or a started write has no known outcome.
    Unknown,
}

impl State {
    /// The name used in the ledger and in answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The states of calls that have ended.
    pub(super) const ENDS: [Self; 6] = [
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::Refused,
        Self::Unknown,
    ];

    /// The states that may follow. `docs/dev/states.md` has the same table.
    pub const fn next(self) -> &'static [Self] {
        match self {
            Self::Waiting => &[
                Self::Running,
                Self::Reserved,
                Self::Refused,
                Self::Cancelled,
            ],
            Self::Running => &[
                Self::Reserved,
                Self::Succeeded,
                Self::Failed,
                Self::TimedOut,
                Self::Cancelled,
                Self::Refused,
                Self::Unknown,
            ],
            Self::Reserved => &Self::ENDS,
            Self::Succeeded
            | Self::Failed
            | Self::TimedOut
            | Self::Cancelled
            | Self::Refused
            | Self::Unknown => &[],
        }
    }

    /// The state with this name.
    pub fn from_name(word: &str) -> Option<Self> {
        word.parse().ok()
    }
}

/// The row of one call in the ledger.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The call's id and the row's key.
    pub id: InvocationId,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// Name of the caller.
    pub caller: Arc<str>,
    /// The run that the caller has named.
    pub run_id: Option<Arc<str>>,
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// The state of the call.
    pub state: State,
    /// Why the call failed; `None` when the tool returned a result.
    pub kind: Option<ErrorKind>,
    /// The effect of the tool.
    pub effect: Effect,
    /// How the cache took part.
    pub cache: CacheStatus,
    /// Number of attempts; 0 if the tool did not run.
    pub attempts: u32,
    /// When the call was accepted.
    #[serde(with = "timestamp::millisecond::required")]
    pub started_at: Timestamp,
    /// Microseconds from acceptance to end; `None` while the call runs.
    pub duration_us: Option<i64>,
    /// The arguments as received, as JSON; or a [`Digest`](crate::call::Digest) of them.
    pub arguments: Arc<str>,
    /// The tool's result as JSON or a digest of it, or the failure as JSON.
    pub result: Option<Arc<str>>,
    /// The call whose stored result answered this one.
    pub origin: Option<InvocationId>,
    /// The answer's `meta`, as JSON.
    pub meta: Option<Arc<str>>,
    /// The idempotency key of the request.
    pub idempotency_key: Option<Arc<str>>,
    /// Fingerprint of the request, to detect another request under the same key.
    pub fingerprint: Option<Arc<str>>,
    /// The call whose tool made this nested call.
    pub parent: Option<InvocationId>,
    /// Until when the call holds its key, so that no other call can claim it. `None`: it holds no
    /// key.
    #[serde(with = "timestamp::millisecond::optional")]
    pub key_until: Option<Timestamp>,
    /// One sentence of the service on why the call failed; `None` if it did not, and for rows of
    /// older versions.
    pub detail: Option<Arc<str>>,
    /// The replica that ran the call; `None` if the engine has no replicas.
    #[serde(skip)]
    pub replica: Option<Arc<str>>,
    /// Number of calls that the row counts. It is above one for refused calls that share a row.
    pub count: u64,
}

impl Row {
    /// Until when a running call holds its key: the last second that a timestamp can have.
    pub const FOREVER: Timestamp = Timestamp::constant(253_402_207_200, 0);

    /// The row of a call that has not ended. For `Refused`, with short arguments.
    pub fn from_invocation(invocation: &Invocation, effect: Effect, state: State) -> Self {
        Self {
            id: invocation.id,
            tool: invocation.tool.to_arc(),
            caller: invocation.caller.name.clone(),
            run_id: invocation.run.id.clone(),
            tool_use_id: invocation.correlation.tool_use_id.clone(),
            state,
            kind: None,
            effect,
            cache: CacheStatus::Off,
            attempts: 0,
            started_at: invocation.timing.started_at,
            duration_us: None,
            arguments: match state {
                State::Refused => invocation.input.recorded.to_truncated_column(),
                _ => invocation.input.recorded.to_column(),
            },
            result: None,
            origin: None,
            meta: None,
            idempotency_key: invocation
                .idempotency_key
                .as_ref()
                .map(IdempotencyKey::to_arc),
            fingerprint: None,
            parent: invocation.call_chain.parent,
            key_until: None,
            detail: None,
            replica: None,
            count: 1,
        }
    }

    /// The row with a claim on its key for this request, held until `until`. `None`: the key is
    /// released.
    #[must_use]
    pub fn with_claim(mut self, request: Option<&Fingerprint>, until: Option<Timestamp>) -> Self {
        self.fingerprint = request.map(Fingerprint::shared);
        self.key_until = request.and(until);
        self
    }

    /// Approximate memory of the row, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let texts = [self.result.as_ref(), self.meta.as_ref()];
        512 + self.arguments.len()
            + texts
                .into_iter()
                .flatten()
                .map(|text| text.len())
                .sum::<usize>()
    }
}

/// Maximum length of arguments in a list of calls, in bytes of JSON.
pub const LISTED_ARGUMENTS: usize = 16 << 10;

/// The row of a failed attempt.
#[derive(Debug, Clone, Serialize)]
pub struct AttemptRow {
    /// The call of the attempt.
    pub invocation: InvocationId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Why the attempt failed.
    pub kind: ErrorKind,
    /// The message of the failure.
    pub message: String,
    /// Duration of the attempt, in microseconds.
    pub duration_us: i64,
}

/// A call read back from the ledger.
#[derive(Debug, Clone)]
pub struct RecordedCall {
    /// The call.
    pub row: Row,
    /// The failed attempts of the call, in order.
    pub attempts: Vec<AttemptRow>,
    /// The result of the call that answered this one, as JSON.
    pub origin_result: Option<Arc<str>>,
}

/// Selects calls that have ended, in the order of their ids.
#[derive(Debug, Clone, Default)]
pub struct ExportQuery {
    /// Calls of this tool.
    pub tool: Option<String>,
    /// Calls that started at this time or later.
    pub since: Option<Timestamp>,
    /// Calls that started before this time.
    pub until: Option<Timestamp>,
    /// Calls newer than this one, which is the last of the page before.
    pub after: Option<InvocationId>,
    /// Maximum number of calls.
    pub limit: u32,
}

impl ExportQuery {
    /// The smallest id, and the first id that is too large. Ids start with the time.
    pub(super) fn id_range(&self) -> (InvocationId, Option<InvocationId>) {
        let since = self.since.unwrap_or(Timestamp::UNIX_EPOCH);
        (
            InvocationId::lower_bound(since),
            self.until.map(InvocationId::lower_bound),
        )
    }
}

/// A committed reservation.
#[derive(Debug, Clone, Default)]
pub struct Reservation {
    /// The charged units, with the state of each limit after them.
    pub charged: Vec<Charged>,
}

/// Why nothing was reserved.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReserveError {
    /// This limit is reached.
    #[error("usage limit reached")]
    LimitReached(Charged),
    /// This call holds the idempotency key.
    #[error("the idempotency key is taken")]
    KeyClaimed(InvocationId),
    /// The ledger could not write.
    #[error(transparent)]
    Ledger(#[from] Error),
}

/// A result in the cache of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredResult {
    /// Cache key.
    #[serde(serialize_with = "serialize_hex")]
    pub key: [u8; 32],
    /// Name of the tool.
    pub tool: String,
    /// The call that produced the result.
    pub origin: InvocationId,
    /// The result as JSON.
    pub result: String,
    /// When the result was stored.
    #[serde(with = "timestamp::millisecond::required")]
    pub stored_at: Timestamp,
    /// From when on the result must not be served.
    #[serde(with = "timestamp::millisecond::required")]
    pub expires_at: Timestamp,
}

fn serialize_hex<S: Serializer>(key: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex::encode(key))
}

/// An admin's switch of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Name of the tool.
    pub tool: String,
    /// Whether the tool is enabled.
    pub enabled: bool,
}

/// A tool that an admin registered at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredTool {
    /// Name of the tool.
    pub name: String,
    /// The definition as received, as JSON.
    pub definition: String,
    /// Name of the caller that registered the tool.
    pub registered_by: String,
    /// Time of the registration.
    pub registered_at: Timestamp,
}

/// Selects calls for a list. Each given filter must match.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Calls of this tool.
    pub tool: Option<String>,
    /// Calls of this caller.
    pub caller: Option<String>,
    /// Calls of this run.
    pub run_id: Option<String>,
    /// Calls with this idempotency key.
    pub idempotency_key: Option<String>,
    /// Nested calls that the tool of this call made.
    pub parent: Option<InvocationId>,
    /// Calls in one of these states. Empty: in any.
    pub states: Vec<State>,
    /// Calls that failed with this kind.
    pub kind: Option<ErrorKind>,
    /// Calls with this text in the name of the tool, in the detail, or in the text of the error.
    /// ASCII letters match in either case.
    pub text: Option<String>,
    /// Calls that started at this time or later.
    pub since: Option<Timestamp>,
    /// Calls that started before this time.
    pub until: Option<Timestamp>,
    /// Calls older than this one, which is the last of the page before.
    pub before: Option<InvocationId>,
    /// Maximum number of calls.
    pub limit: u32,
}

impl Query {
    /// Whether calls in this state may match.
    pub fn may_have(&self, state: State) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }

    /// Whether a call matches.
    pub fn matches(&self, row: &Row) -> bool {
        let same = |filter: &Option<String>, value: Option<&str>| {
            filter.as_deref().is_none_or(|wanted| Some(wanted) == value)
        };
        same(&self.tool, Some(&row.tool))
            && same(&self.caller, Some(&row.caller))
            && same(&self.run_id, row.run_id.as_deref())
            && same(&self.idempotency_key, row.idempotency_key.as_deref())
            && self.parent.is_none_or(|parent| Some(parent) == row.parent)
            && self.may_have(row.state)
            && self.kind.is_none_or(|kind| Some(kind) == row.kind)
            && self.text.as_deref().is_none_or(|text| {
                let text = text.to_ascii_lowercase();
                let has_text = |part: &str| part.to_ascii_lowercase().contains(&text);
                has_text(&row.tool)
                    || row.detail.as_deref().is_some_and(has_text)
                    || row.error_text().as_deref().is_some_and(has_text)
            })
            && self.since.is_none_or(|since| row.started_at >= since)
            && self.until.is_none_or(|until| row.started_at < until)
            && self.before.is_none_or(|before| row.id < before)
    }
}

/// The tokens that calls of agents took, of one bucket, tool, caller or run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenRow {
    /// Start of the bucket, in Unix milliseconds.
    pub start_ms: i64,
    /// The tool; empty if the row is over all tools.
    pub tool: String,
    /// The caller; empty if the row is over all callers.
    pub caller: String,
    /// The run; `None` for calls without a run, and unless it is asked for.
    pub run_id: Option<String>,
    /// The sums.
    pub tokens: TokenSums,
}

/// Sums over calls of agents, without those of nested calls, which have rows of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct TokenSums {
    /// Requests that models answered.
    pub requests: u64,
    /// Tokens that models read.
    pub input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
}

/// Selects calls that ended lately.
#[derive(Debug, Clone)]
pub struct EndedQuery {
    /// Calls of this caller.
    pub caller: Option<String>,
    /// Calls with this id or a larger one.
    pub from: InvocationId,
    /// Also calls with a smaller id that waited for a person: they start long after they got their id.
    pub late_starts: bool,
    /// Calls that ended at this time or later. Calls without a known end match.
    pub ended_since: Timestamp,
    /// No calls of this replica.
    pub not_of_replica: Option<Arc<str>>,
    /// Longest arguments, in bytes of JSON. Longer ones are null.
    pub max_arguments: u32,
    /// Maximum number of calls: those that started last.
    pub limit: u32,
}

impl Row {
    /// When the call ended, if that is known.
    pub fn ended_at(&self) -> Option<Timestamp> {
        let took = SignedDuration::from_micros(self.duration_us?);
        self.started_at.checked_add(took).ok()
    }
}

/// By what calls are counted, beside the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// Each tool, over all callers.
    Tool,
    /// Each caller, over all tools.
    Caller,
    /// Each caller and run, over all tools.
    Run,
}

/// Selects the calls of [`Ledger::usage_buckets`](super::Ledger::usage_buckets).
#[derive(Debug, Clone)]
pub struct BucketQuery {
    /// Calls that started at this time or later.
    pub since: Timestamp,
    /// Calls that started before this time.
    pub until: Timestamp,
    /// Length of a bucket in milliseconds. Each bucket starts at a multiple of it.
    pub width_ms: i64,
    /// `None`: each tool and caller.
    pub by: Option<UsageBy>,
    /// Calls of this caller.
    pub caller: Option<String>,
    /// Maximum number of rows.
    pub limit: u32,
}

/// The calls of one bucket, of one tool, caller or run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BucketRow {
    /// Start of the bucket, in Unix milliseconds.
    pub start_ms: i64,
    /// The run; `None` for calls without a run, and unless it is asked for.
    pub run_id: Option<String>,
    /// The counts. The tool or the caller is empty if the row is over all of them.
    pub counts: UsageRow,
}

/// Totals of one tool and caller.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageRow {
    /// Name of the tool.
    pub tool: String,
    /// Name of the caller.
    pub caller: String,
    /// All calls since the ledger was created, including running ones.
    pub calls: u64,
    /// Calls with a result that is not an error.
    pub succeeded: u64,
    /// Calls that failed, timed out, were cancelled, or are unknown.
    pub failed: u64,
    /// Calls that were refused before the tool ran.
    pub refused: u64,
    /// Calls that a stored or a joined result answered.
    pub cache_hits: u64,
    /// Median duration of calls that were not refused, in milliseconds, within 2 %.
    pub p50_ms: Option<f64>,
    /// 99th percentile of these durations, in milliseconds, within 2 %.
    pub p99_ms: Option<f64>,
}

/// A process that has opened the ledger and has not ended.
#[derive(Debug, Clone)]
pub struct ReplicaRow {
    /// The id of the process, new at each start.
    pub replica: Arc<str>,
    /// The version of the program.
    pub version: String,
    /// When the process opened the ledger.
    pub started_at: Timestamp,
    /// When the ledger last heard of the process.
    pub seen_at: Timestamp,
    /// Number of calls under way at that time.
    pub running: u32,
}

/// A change that concerns all replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedChange {
    /// Switches or registered tools have changed.
    Tools,
    /// The stored results of this tool were deleted; without a name, those of all tools.
    Purged(Option<String>),
    /// The replica that runs this call should cancel it.
    Cancel {
        /// The call.
        call: InvocationId,
        /// The caller that asks; `None`: an admin.
        caller: Option<String>,
    },
}

/// The last answered call of a run, as a replica tells it to the others. The ledger keeps no such
/// entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredCall {
    /// Identifies the caller and its run.
    pub run: [u8; 32],
    /// Identifies equal calls.
    pub call: [u8; 32],
    /// The call.
    pub invocation: InvocationId,
    /// Time since its answer. The clocks of replicas differ, so it is not a moment.
    pub age: Duration,
}
