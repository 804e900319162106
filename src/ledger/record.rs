//! What is written to a ledger and asked of it.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Error;
use crate::call::{CacheStatus, Charged, Effect, ErrorKind, Fingerprint, IdempotencyKey, Invocation, InvocationId};

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its row and its units are committed; the tool may be running.
    Reserved,
    /// Running.
    Running,
    /// The tool answered.
    Succeeded,
    /// It failed, or the tool said no.
    Failed,
    /// Its time was over.
    TimedOut,
    /// Its caller stopped it.
    Cancelled,
    /// Refused before the tool ran.
    Refused,
    /// A write was interrupted: it may or may not have happened.
    Unknown,
}

impl State {
    /// The word used in the ledger and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }

    /// The state of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [
            Self::Reserved,
            Self::Running,
            Self::Succeeded,
            Self::Failed,
            Self::TimedOut,
            Self::Cancelled,
            Self::Refused,
            Self::Unknown,
        ];
        all.into_iter().find(|state| state.as_str() == word)
    }
}

/// One invocation as the ledger keeps it.
#[derive(Debug, Clone)]
pub struct Row {
    /// Key.
    pub id: InvocationId,
    /// Tool.
    pub tool: Arc<str>,
    /// Caller.
    pub caller: Arc<str>,
    /// The caller's run.
    pub run_id: Option<Arc<str>>,
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// Where it stands.
    pub state: State,
    /// Why it failed; `None` when the tool answered.
    pub kind: Option<ErrorKind>,
    /// What the tool may do.
    pub effect: Effect,
    /// How the cache took part.
    pub cache: CacheStatus,
    /// Tries made.
    pub attempts: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// Microseconds from begin to end; `None` while it runs.
    pub duration_us: Option<i64>,
    /// The arguments as they came, as JSON; or a [`Digest`](crate::call::Digest) of them.
    pub arguments: Arc<str>,
    /// What the tool said or a digest of it, or the failure, as JSON.
    pub result: Option<Arc<str>>,
    /// The call whose stored result this one was answered from.
    pub origin: Option<InvocationId>,
    /// The answer's meta, as JSON.
    pub meta: Option<Arc<str>>,
    /// The caller's own name for the ask.
    pub idempotency_key: Option<Arc<str>>,
    /// Tells what was asked under that name from anything else.
    pub fingerprint: Option<Arc<str>>,
    /// The call whose tool made this one.
    pub parent: Option<InvocationId>,
    /// Until when the call holds its key, so that no other can have it; `None`: not, or not any more.
    pub key_until: Option<Timestamp>,
    /// How many calls it stands for: more than one for refused calls that share a row.
    pub count: u64,
}

impl Row {
    /// Until when a call holds its key while it runs: the last second that there is.
    pub const FOREVER: Timestamp = Timestamp::constant(253_402_207_200, 0);

    /// The row of a call that has not ended; of a refused one, with short arguments.
    pub fn begun(invocation: &Invocation, effect: Effect, state: State) -> Self {
        Self {
            id: invocation.id,
            tool: invocation.tool.shared(),
            caller: invocation.caller.name.clone(),
            run_id: invocation.run_id.clone(),
            tool_use_id: invocation.tool_use_id.clone(),
            state,
            kind: None,
            effect,
            cache: CacheStatus::Off,
            attempts: 0,
            started_at: invocation.started_at,
            duration_us: None,
            arguments: match state {
                State::Refused => invocation.received.to_short_column(),
                _ => invocation.received.to_column(),
            },
            result: None,
            origin: None,
            meta: None,
            idempotency_key: invocation.key.as_ref().map(IdempotencyKey::shared),
            fingerprint: None,
            parent: invocation.lineage.parent,
            key_until: None,
            count: 1,
        }
    }

    /// The row has claimed its key for what was asked under it, and holds it until then; `None`: not any more.
    #[must_use]
    pub fn claiming(mut self, asked: Option<&Fingerprint>, until: Option<Timestamp>) -> Self {
        self.fingerprint = asked.map(Fingerprint::shared);
        self.key_until = asked.and(until);
        self
    }

    /// About how much memory it takes, in bytes.
    pub fn weight(&self) -> usize {
        let texts = [self.result.as_ref(), self.meta.as_ref()];
        512 + self.arguments.len() + texts.into_iter().flatten().map(|text| text.len()).sum::<usize>()
    }
}

/// Longest arguments that a list of calls shows, in bytes of JSON.
pub const LISTED_ARGUMENTS: usize = 16 << 10;

/// One failed try.
#[derive(Debug, Clone)]
pub struct AttemptRow {
    /// Of which call.
    pub invocation: InvocationId,
    /// Which try, from 1.
    pub attempt: u32,
    /// Why.
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
    /// Microseconds.
    pub duration_us: i64,
}

/// A call read back, with its failed tries.
#[derive(Debug, Clone)]
pub struct Found {
    /// The call.
    pub row: Row,
    /// Its failed tries, in order.
    pub attempts: Vec<AttemptRow>,
    /// The result of the call it was answered from, as JSON.
    pub origin_result: Option<Arc<str>>,
}

/// A committed reservation.
#[derive(Debug, Clone, Default)]
pub struct Reservation {
    /// What was charged, and where each limit now stands.
    pub charged: Vec<Charged>,
}

/// Why nothing was reserved.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReserveError {
    /// This limit is used up.
    #[error("usage limit reached")]
    LimitReached(Charged),
    /// This call holds the idempotency key.
    #[error("the idempotency key is taken")]
    Claimed(InvocationId),
    /// The ledger could not write.
    #[error(transparent)]
    Ledger(#[from] Error),
}

/// A result that may be served again.
#[derive(Debug, Clone)]
pub struct StoredResult {
    /// Cache key.
    pub key: [u8; 32],
    /// Tool.
    pub tool: String,
    /// The call that produced it.
    pub origin: InvocationId,
    /// The result as JSON.
    pub result: String,
    /// When it was stored.
    pub stored_at: Timestamp,
    /// When it must not be served any more.
    pub expires_at: Timestamp,
}

/// What an admin set for a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Which tool.
    pub tool: String,
    /// On or off.
    pub enabled: bool,
}

/// A tool that an admin registered at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// The definition as it came, as JSON.
    pub definition: String,
    /// The caller who registered it.
    pub by: String,
    /// When, to the millisecond.
    pub at: Timestamp,
}

/// Which calls to list. Everything given must match.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Of this tool.
    pub tool: Option<String>,
    /// Of this caller.
    pub caller: Option<String>,
    /// Of this run.
    pub run_id: Option<String>,
    /// Asked for under this idempotency key.
    pub idempotency_key: Option<String>,
    /// Made by the tool of this call.
    pub parent: Option<InvocationId>,
    /// In this state.
    pub state: Option<State>,
    /// Begun at or after.
    pub since: Option<Timestamp>,
    /// Older than this call: the last of the page before.
    pub before: Option<InvocationId>,
    /// At most so many.
    pub limit: u32,
}

impl Query {
    /// Whether a call matches.
    pub fn matches(&self, row: &Row) -> bool {
        let same = |asked: &Option<String>, is: Option<&str>| asked.as_deref().is_none_or(|want| Some(want) == is);
        same(&self.tool, Some(&row.tool))
            && same(&self.caller, Some(&row.caller))
            && same(&self.run_id, row.run_id.as_deref())
            && same(&self.idempotency_key, row.idempotency_key.as_deref())
            && self.parent.is_none_or(|parent| Some(parent) == row.parent)
            && self.state.is_none_or(|state| state == row.state)
            && self.since.is_none_or(|since| row.started_at >= since)
            && self.before.is_none_or(|before| row.id < before)
    }
}

/// Totals of one tool and caller.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageRow {
    /// Tool.
    pub tool: String,
    /// Caller.
    pub caller: String,
    /// All calls since the ledger began, those that run too.
    pub calls: u64,
    /// The tool answered.
    pub succeeded: u64,
    /// Failed, timed out, cancelled or unknown.
    pub failed: u64,
    /// Refused before the tool ran.
    pub refused: u64,
    /// Answered from a stored or a joined result.
    pub cache_hits: u64,
    /// Median duration of calls that were not refused, in milliseconds, within 2 %.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the same.
    pub p99_ms: Option<f64>,
}
