//! Answers a call whose idempotency key was used before: with the answer of the earlier call, or
//! with the reason why that call has no answer.
//!
//! This layer is above validation and limits, so a repeated call gets the same answer, whatever
//! units were used or settings changed since. It only reads. `usage_limit.rs` claims the key later,
//! in the transaction that reserves the call.

use std::sync::Arc;

use moka::future::Cache;
use moka::policy::EvictionPolicy;

use super::Outcome;
use super::interceptor::{Inner, Interceptor, InterceptorLayer};
use super::usage_limit::wait_until;
use crate::call::{
    Answer, ApprovalStage, CallError, ContextFields, Digest, DigestKey, Failure, Fingerprint,
    Idempotency, Invocation, InvocationId, JsonObject, KEY_RETENTION, Meta, Policy, ReplayedFrom,
    ToolName, ToolResult,
};
use crate::ledger::{self, End, Ledger, Row, State, UnreadableRow};

/// The layer for tools that accept idempotency keys.
pub struct Replay {
    ledger: Arc<dyn Ledger>,
    tool: ToolName,
    definition_hash: String,
    /// Key of the fingerprints, so that arguments cannot be guessed from them.
    fingerprint_key: Option<DigestKey>,
    /// Declared fields of the context are part of the request that the key names.
    context: ContextFields,
    required: bool,
    replay_cache: ReplayCache,
}

impl Replay {
    /// Makes the layer for one tool; `None` if the tool ignores idempotency keys.
    pub fn layer(
        ledger: &Arc<dyn Ledger>,
        policy: &Policy,
        tool: &ToolName,
        definition_hash: &str,
        context: &ContextFields,
        fingerprint_key: Option<DigestKey>,
        replay_cache: &ReplayCache,
    ) -> Option<InterceptorLayer<Self>> {
        (policy.idempotency != Idempotency::Off).then(|| {
            InterceptorLayer::new(Self {
                ledger: ledger.clone(),
                tool: tool.clone(),
                definition_hash: definition_hash.to_owned(),
                fingerprint_key,
                context: context.clone(),
                required: policy.idempotency == Idempotency::Required,
                replay_cache: replay_cache.clone(),
            })
        })
    }
}

impl Interceptor for Replay {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        let Some(key) = &invocation.idempotency_key else {
            if self.required {
                return Err(CallError::IdempotencyKeyMissing {
                    tool: self.tool.to_string(),
                });
            }
            return inner.call(invocation).await;
        };
        let context = self.context.declared_in(&invocation.input.context);
        let fingerprint_key = self.fingerprint_key.as_ref();
        let fingerprint = Fingerprint::new(
            &self.definition_hash,
            requested_arguments(&invocation),
            context.as_ref(),
            fingerprint_key,
        );
        let (caller, tool, key) = (&invocation.caller.name, self.tool.as_str(), key.to_arc());
        let looking = self
            .ledger
            .find_key_holder(caller, tool, &key, invocation.timing.started_at);
        let first_call = wait_until(invocation.timing.deadline, looking).await;
        let first_call = first_call.map_err(|error| match error {
            // The row of the earlier call is damaged, so its answer is lost. The tool must not run
            // again all the same.
            ledger::Error::DamagedRow(_) => CallError::Internal,
            error => CallError::ledger_unavailable(&error),
        })?;
        match first_call {
            None => {
                invocation.report.replay.lock().fingerprint = Some(fingerprint);
                inner.call(invocation).await
            }
            Some(row) => self.replay_answer(row, &fingerprint, &invocation).await,
        }
    }
}

impl Replay {
    async fn replay_answer(
        &self,
        row: Row,
        fingerprint: &Fingerprint,
        invocation: &Invocation,
    ) -> Outcome {
        let id = row.id;
        if row
            .fingerprint
            .as_ref()
            .is_some_and(|stored| !fingerprint.may_match(stored))
        {
            return Err(CallError::IdempotencyMismatch { invocation: id });
        }
        if row.state == State::Reserved {
            return Err(CallError::IdempotencyInProgress { invocation: id });
        }
        let (outcome, meta) = match row
            .decode_end(None)
            .map_err(|UnreadableRow| CallError::Internal)?
        {
            End::Open => return Err(CallError::OutcomeUnknown { invocation: id }),
            End::Answered { result, meta } => (Ok(result), meta),
            End::Failed(failure) if failure.digest.is_none() => (Err(failure), Meta::default()),
            End::Failed(failure) => match self.replay_cache.0.get(&id).await {
                Some(StoredAnswer { outcome, meta }) => (outcome, meta),
                None => (Err(failure), Meta::default()),
            },
            End::DigestOnly(digest) => match self.replay_cache.0.get(&id).await {
                Some(StoredAnswer { outcome, meta }) => (outcome, meta),
                None => digest_only_answer(&row, digest),
            },
        };
        let replayed_from = ReplayedFrom {
            invocation: id,
            tool_use_id: row.tool_use_id,
            meta,
        };
        invocation.report.replay.lock().replayed_from = Some(replayed_from);
        outcome.map_err(|failure| CallError::StoredFailure {
            failure: Box::new(failure),
            invocation: id,
            replayed: true,
        })
    }
}

/// The arguments of the request, also if a person has changed them.
fn requested_arguments(invocation: &Invocation) -> &JsonObject {
    match invocation.approval.as_deref() {
        Some(ApprovalStage::Approved(approved)) => &approved.requested_arguments,
        _ => &invocation.input.arguments,
    }
}

/// The result in place of an answer of which the ledger keeps only a digest. `is_error` is as in
/// the lost answer, and the tool does not run again.
fn digest_only_answer(row: &Row, digest: Digest) -> (Result<Arc<ToolResult>, Failure>, Meta) {
    let text = "The tool was called with this key before and answered. Its output is not recorded (capture: digest). Without \
        ledger.digest_key, the service cannot check that the arguments are the same.";
    let result = ToolResult {
        is_error: row.is_error_result(),
        ..ToolResult::text(text)
    };
    (
        Ok(Arc::new(result)),
        Meta {
            attempts: row.attempts,
            result_digest: Some(digest),
            ..Meta::default()
        },
    )
}

/// Keeps in memory how calls ended whose rows hold only digests. An end is kept as long as its
/// idempotency key, or until the memory is full. Clones share the memory.
#[derive(Clone)]
pub struct ReplayCache(Cache<InvocationId, StoredAnswer>);

#[derive(Clone)]
struct StoredAnswer {
    outcome: Result<Arc<ToolResult>, Failure>,
    meta: Meta,
}

/// Memory for these ends, in bytes of their JSON.
const MAX_CACHE_BYTES: u64 = 16 << 20;

impl Default for ReplayCache {
    fn default() -> Self {
        let weight = |_: &InvocationId, stored: &StoredAnswer| {
            let bytes = match &stored.outcome {
                Ok(result) => serde_json::to_vec(&**result).map_or(0, |json| json.len()),
                Err(failure) => failure.detail.len() + failure.for_model.len(),
            };
            u32::try_from(bytes + 512).unwrap_or(u32::MAX)
        };
        // Repetitions come soon after the first call. A policy by frequency of use, moka's default,
        // would not admit new entries.
        let cache = Cache::builder()
            .eviction_policy(EvictionPolicy::lru())
            .time_to_live(KEY_RETENTION);
        Self(cache.max_capacity(MAX_CACHE_BYTES).weigher(weight).build())
    }
}

impl ReplayCache {
    /// Stores the end of a call: its answer or its failure.
    pub async fn store_outcome(&self, invocation: InvocationId, end: Result<&Answer, &Failure>) {
        let stored = match end {
            Ok(answer) => StoredAnswer {
                outcome: Ok(answer.result.clone()),
                meta: answer.meta.clone(),
            },
            Err(failure) => StoredAnswer {
                outcome: Err(failure.clone()),
                meta: Meta::default(),
            },
        };
        self.0.insert(invocation, stored).await;
    }
}
