//! The operator's decisions about a tool.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::approval::{ApprovalPolicy, DenyRule};
use super::capture::Capture;
use super::idempotency::Idempotency;
use super::json::JsonObject;
use super::limit::Limit;
use super::result::ToolResult;
use super::units::MAX_DURATION;

/// What a call changes. It decides what may be repeated, cached or replayed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Effect {
    /// Changes nothing: may be cached, retried, cancelled.
    Read,
    /// Changes something, and a second run changes nothing more: may be retried.
    Idempotent,
    /// Changes something each time: never repeated by the service.
    #[default]
    Write,
}

impl Effect {
    /// The name used in manifests and answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether a failed attempt may be followed by another one.
    pub fn may_repeat(self) -> bool {
        !matches!(self, Self::Write)
    }
}

/// Which callers share a cached result.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Each caller has its own entries.
    #[default]
    Caller,
    /// All callers share.
    Shared,
}

/// Whether and how results are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePolicy {
    /// How long a stored result may be served.
    pub ttl: Duration,
    /// Which callers share a stored result.
    pub scope: CacheScope,
    /// The fields of the caller's `context` that are part of the cache key. `None`: not declared,
    /// so the results of a tool that gets the context are not stored.
    pub context: Option<Vec<String>>,
}

type Predicate = dyn Fn(&JsonObject, &ToolResult) -> Result<bool, String> + Send + Sync;

/// Decides which results are stored. It is evaluated once for each result, with the arguments as
/// the tool got them.
#[derive(Clone, derive_more::Debug)]
#[debug("{}", self.text().unwrap_or("a function"))]
pub struct CacheWhen {
    text: Option<Arc<str>>,
    predicate: Arc<Predicate>,
}

impl CacheWhen {
    /// A predicate of the embedding program.
    pub fn from_function(
        keep: impl Fn(&JsonObject, &ToolResult) -> bool + Send + Sync + 'static,
    ) -> Self {
        let holds = move |arguments: &JsonObject, result: &ToolResult| Ok(keep(arguments, result));
        Self {
            text: None,
            predicate: Arc::new(holds),
        }
    }

    /// A predicate from an expression, and the function that evaluates it. Its errors are
    /// sentences.
    pub fn from_expression(
        text: &str,
        holds: impl Fn(&JsonObject, &ToolResult) -> Result<bool, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            text: Some(text.into()),
            predicate: Arc::new(holds),
        }
    }

    /// The text of the expression; `None` for a function.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Whether to store this result.
    ///
    /// # Errors
    /// Why there is no decision: the expression failed, or the function panicked.
    pub fn evaluate(&self, arguments: &JsonObject, result: &ToolResult) -> Result<bool, String> {
        catch_unwind(AssertUnwindSafe(|| (self.predicate)(arguments, result)))
            .unwrap_or_else(|_| Err("it panicked".into()))
    }
}

/// Two predicates are equal if their texts are equal, or if they are the same function.
impl PartialEq for CacheWhen {
    fn eq(&self, other: &Self) -> bool {
        match (&self.text, &other.text) {
            (Some(one), Some(other)) => one == other,
            _ => Arc::ptr_eq(&self.predicate, &other.predicate),
        }
    }
}

impl Eq for CacheWhen {}

/// The bounds on the simultaneous calls of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// Maximum number of running calls.
    pub max: usize,
    /// Maximum number of waiting calls. Further calls are refused on arrival.
    pub queue: usize,
    /// Maximum time that a call waits.
    pub wait: Duration,
    /// Maximum number of running calls of one caller; `None`: one caller may take all permits.
    pub per_caller: Option<usize>,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self {
            max: 16,
            queue: 64,
            wait: Duration::from_secs(1),
            per_caller: None,
        }
    }
}

impl Concurrency {
    /// Maximum number of waiting calls of one caller: the same fraction of `queue` as `per_caller`
    /// is of `max`, rounded up.
    pub fn queue_per_caller(&self) -> usize {
        let part = self.per_caller.filter(|part| *part < self.max);
        part.map_or(self.queue, |part| {
            let share = (self.queue as u128 * part as u128).div_ceil(self.max as u128);
            usize::try_from(share).unwrap_or(self.queue)
        })
    }
}

/// How often a failed attempt is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of attempts: 3 means two retries.
    pub attempts: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 1 }
    }
}

/// What happens to a running call when its caller disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// The call is cancelled.
    Cancel,
    /// The call finishes, and the ledger records the result.
    Finish,
}

/// What happens to a result that does not fit the output schema of its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputCheckMode {
    /// The result is passed on with a warning.
    Warn,
    /// The call fails with `bad_output`.
    Fail,
    /// Results are not checked.
    Off,
}

/// All decisions of the operator about one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The tool's effect, which decides what may be repeated and cached.
    pub effect: Effect,
    /// Maximum time of one attempt.
    pub timeout: Duration,
    /// Maximum time of the whole call, including queueing and retries.
    pub deadline: Option<Duration>,
    /// How often a failed attempt is repeated.
    pub retry: RetryPolicy,
    /// Usage limits. All of them apply.
    pub limits: Vec<Limit>,
    /// How results are stored; `None`: not at all.
    pub cache: Option<CachePolicy>,
    /// Which results are stored; `None`: all. It is separate from `cache`: the tool knows which of
    /// its results are useful, the operator for how long.
    pub cache_when: Option<CacheWhen>,
    /// Which calls wait for a person; `None`: no call.
    pub approval: Option<ApprovalPolicy>,
    /// Rules that deny calls. They precede `approval`.
    pub deny_when: Vec<DenyRule>,
    /// The bulkhead of this tool.
    pub concurrency: Concurrency,
    /// What happens when the caller disconnects; `None`: the effect decides.
    pub on_disconnect: Option<OnDisconnect>,
    /// Whether calls may or must carry an idempotency key.
    pub idempotency: Idempotency,
    /// What the ledger keeps of the tool's calls; `None`: as the service's setting says.
    pub capture: Option<Capture>,
    /// Whether the same call may come twice in a row within a run.
    pub repeatable: bool,
    /// Whether arguments are never coerced.
    pub strict: bool,
    /// What happens to results that do not fit the output schema; `None`: the party that wrote the
    /// schema decides.
    pub output_check: Option<OutputCheckMode>,
    /// Whether the tool is enabled. Otherwise its calls fail with `tool_disabled`. An admin's
    /// switch takes precedence.
    pub enabled: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            effect: Effect::default(),
            timeout: Duration::from_secs(30),
            deadline: None,
            retry: RetryPolicy::default(),
            limits: Vec::new(),
            cache: None,
            cache_when: None,
            approval: None,
            deny_when: Vec::new(),
            concurrency: Concurrency::default(),
            on_disconnect: None,
            idempotency: Idempotency::default(),
            capture: None,
            repeatable: false,
            strict: false,
            output_check: None,
            enabled: true,
        }
    }
}

impl Policy {
    /// The policy with all times bounded, so that no clock overflows.
    #[must_use]
    pub fn with_bounded_times(mut self) -> Self {
        self.timeout = self.timeout.min(MAX_DURATION);
        self.deadline = self.deadline.map(|deadline| deadline.min(MAX_DURATION));
        self.concurrency.wait = self.concurrency.wait.min(MAX_DURATION);
        if let Some(approval) = &mut self.approval {
            approval.wait = approval.wait.min(MAX_DURATION);
            approval.expires = approval.expires.min(MAX_DURATION);
        }
        if let Some(cache) = &mut self.cache {
            cache.ttl = cache.ttl.min(MAX_DURATION);
        }
        self
    }

    /// What happens when the caller disconnects. By default, a started write finishes, and any
    /// other call is cancelled.
    pub fn disconnect_action(&self) -> OnDisconnect {
        self.on_disconnect.unwrap_or(match self.effect {
            Effect::Write => OnDisconnect::Finish,
            Effect::Read | Effect::Idempotent => OnDisconnect::Cancel,
        })
    }

    /// Maximum number of attempts that the effect permits.
    pub fn max_attempts(&self) -> u32 {
        if self.effect.may_repeat() {
            self.retry.attempts.max(1)
        } else {
            1
        }
    }
}
