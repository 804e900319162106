//! What the layers note about a call, for the answer's `meta` and the row in the ledger.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::capture::Digest;
use super::charge::Charged;
use super::idempotency::Fingerprint;
use super::invocation::InvocationId;
use super::page::Overflow;
use super::policy::{LimitScope, Per};

/// How the cache took part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheStatus {
    /// Answered from a stored result.
    Hit,
    /// Nothing stored: the tool ran, and its result may be stored.
    Miss,
    /// An equal call was running: its result is the answer.
    Joined,
    /// The caller asked to leave the cache alone.
    Bypass,
    /// The caller asked for a fresh result; it replaces the stored one.
    Refresh,
    /// The tool has no cache.
    #[default]
    Off,
}

impl CacheStatus {
    /// Every status.
    pub const ALL: [Self; 6] = [Self::Hit, Self::Miss, Self::Joined, Self::Bypass, Self::Refresh, Self::Off];

    /// The name used in answers, ledger and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Joined => "joined",
            Self::Bypass => "bypass",
            Self::Refresh => "refresh",
            Self::Off => "off",
        }
    }

    /// The status with this name. An unknown name is [`CacheStatus::Off`].
    pub fn from_word(word: &str) -> Self {
        Self::ALL.into_iter().find(|status| status.as_str() == word).unwrap_or_default()
    }
}

/// One argument that was changed to fit the schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Coercion {
    /// JSON Pointer into the arguments.
    pub pointer: String,
    /// JSON type it had.
    pub from: String,
    /// JSON type it has now.
    pub to: String,
}

/// Where one usage limit stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LimitUsage {
    /// Calls allowed in the window.
    pub limit: u64,
    /// The same number under the manifest's name.
    pub calls: u64,
    /// The window.
    pub per: Per,
    /// Counted for whom.
    pub scope: LimitScope,
    /// Calls counted so far, this one included.
    pub used: u64,
    /// Calls left.
    pub remaining: u64,
    /// When the window ends (RFC 3339); null for `run` and `lifetime`.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub resets_at: Option<Timestamp>,
}

/// What a model was asked for one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ModelUsage {
    /// Requests that it answered.
    pub requests: u32,
    /// Tokens that it read.
    pub input_tokens: u64,
    /// Tokens that it wrote.
    pub output_tokens: u64,
    /// All of these, and those of the calls that were made for this one.
    pub total_tokens: u64,
    /// Its server did not always count: some are estimated, four bytes to a token.
    pub estimated: bool,
}

/// How an answer came about.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Meta {
    /// How the cache took part.
    pub cache: CacheStatus,
    /// Tries made; 0 when the tool did not run.
    pub attempts: u32,
    /// Milliseconds from the call's acceptance to its end.
    pub duration_ms: f64,
    /// Where the limits that this call was counted against stand.
    pub usage: Vec<LimitUsage>,
    /// Arguments that were changed to fit the schema.
    pub coercions: Vec<Coercion>,
    /// Stands for a result that is asked for again and was not kept (`capture: digest`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub result_digest: Option<Digest>,
    /// What an agent's model was asked; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub model: Option<ModelUsage>,
    /// Set when the result was cut; null when it is whole.
    #[schema(required)]
    pub overflow: Option<Overflow>,
    /// Anything else worth knowing.
    pub warnings: Vec<String>,
}

/// The notes of one call. All its layers and attempts share them.
#[derive(Debug, Default)]
pub struct CallReport {
    inner: Mutex<NotesInner>,
    /// Held while a reservation commits. A cancellation waits for it, so the charged units are known and can be
    /// refunded.
    pub reserving: tokio::sync::Mutex<()>,
}

/// The data of [`Notes`].
#[derive(Debug, Default, Clone)]
pub struct NotesInner {
    /// Becomes the answer's `meta`.
    pub meta: Meta,
    /// Whether the ledger holds a committed row for this call, which must be settled.
    pub reserved: bool,
    /// The units that were charged for the call.
    pub charged: Vec<Charged>,
    /// When the current attempt started; `None` between attempts and after the last one.
    pub trying: Option<Instant>,
    /// Whether the current attempt still waits for something to run on. Then no code of the tool has run.
    pub waits: bool,
    /// Whether the attempt failed because another call ended their shared runner. That other call's end already counts
    /// for the circuit breaker.
    pub fell_with_another: bool,
    /// The call whose stored result answered this one.
    pub origin: Option<InvocationId>,
    /// The fingerprint of the request, once its idempotency key is to be claimed.
    pub fingerprint: Option<Fingerprint>,
    /// The call that this call repeats with its idempotency key.
    pub earlier: Option<ReplayedFrom>,
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
    /// The notes, to read or to write. Locked only briefly, never across an await.
    pub fn lock(&self) -> MutexGuard<'_, NotesInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
