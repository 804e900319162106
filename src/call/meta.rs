//! How a call was answered: the answer's `meta`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::capture::Digest;
use super::error::Coercion;
use super::limit::{LimitOwner, LimitScope, Per};
use super::paging::Overflow;

/// How the cache was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum CacheStatus {
    /// Answered from a stored result.
    Hit,
    /// No result was stored: the tool ran, and its result may be stored.
    Miss,
    /// An equal call was running: its result is the answer.
    Joined,
    /// The cache was not used, because the call requested that.
    Bypass,
    /// The call requested a new result; it replaces the stored one.
    Refresh,
    /// The tool has no cache.
    #[default]
    Off,
}

impl CacheStatus {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Hit,
        Self::Miss,
        Self::Joined,
        Self::Bypass,
        Self::Refresh,
        Self::Off,
    ];

    /// The name used in answers, ledger and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The status with this name. An unknown name is [`CacheStatus::Off`].
    pub fn from_name(word: &str) -> Self {
        word.parse().unwrap_or_default()
    }
}

/// The state of one usage limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitUsage {
    /// Calls allowed in the window: the limit, not a count.
    pub limit: u64,
    /// The same number as `limit`, under the name that the manifest uses.
    pub calls: u64,
    /// The window.
    pub per: Per,
    /// Whose calls are counted together.
    pub scope: LimitScope,
    /// Whose limit it is: the tool's, or the caller's own over all tools.
    pub of: LimitOwner,
    /// Calls counted so far, this one included.
    pub used: u64,
    /// Calls left.
    pub remaining: u64,
    /// When the window ends (RFC 3339); null for `run` and `lifetime`.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub resets_at: Option<Timestamp>,
}

/// The use of a model for one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelUsage {
    /// Requests that the model answered.
    pub requests: u32,
    /// Tokens that the model read.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// All these tokens, and the tokens of nested calls.
    pub total_tokens: u64,
    /// Whether some numbers are estimated at four bytes per token, because the model's server did
    /// not report them.
    pub estimated: bool,
}

/// How a call was answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Meta {
    /// How the cache was used.
    pub cache: CacheStatus,
    /// Number of attempts; 0 when the tool did not run.
    pub attempts: u32,
    /// Milliseconds from the call's acceptance to its end.
    pub duration_ms: f64,
    /// The state of the limits that counted this call.
    pub usage: Vec<LimitUsage>,
    /// Arguments that were changed to fit the schema.
    pub coercions: Vec<Coercion>,
    /// Replaces the result of a replay, if the result was not recorded (`capture: digest`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub result_digest: Option<Digest>,
    /// The use of an agent's model; absent for other tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub model: Option<ModelUsage>,
    /// Set when the result was cut; null when it is whole.
    #[schema(required)]
    pub overflow: Option<Overflow>,
    /// Warnings about the call or its result.
    pub warnings: Vec<String>,
}
