//! Answers a call whose idempotency key was used before: with the answer of the earlier call, or with the reason why
//! there is none.
//!
//! This layer is above validation and limits, so a repeated call gets the same answer, whatever units were used or
//! settings changed since. It only reads. `usage_limit.rs` claims the key later, in the transaction that reserves the
//! call.

use std::sync::Arc;

use moka::future::Cache;
use moka::policy::EvictionPolicy;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{
    Answer, CallError, ContextFields, Digest, DigestKey, Failure, Fingerprint, Idempotency, Invocation, InvocationId,
    KEY_KEPT, Meta, Policy, ReplayedFrom, ToolName, ToolResult,
};
use crate::ledger::{self, End, Ledger, Row, State, Unreadable};

/// The layer for tools that accept idempotency keys.
pub struct Replay {
    ledger: Arc<dyn Ledger>,
    tool: ToolName,
    definition_hash: String,
    /// Key of the fingerprints, so that arguments cannot be guessed from them.
    secret: Option<DigestKey>,
    /// Declared fields of the context are part of the request that the key names.
    context: ContextFields,
    required: bool,
    replays: Replays,
}

impl Replay {
    /// Makes the layer for one tool; `None` if the tool ignores idempotency keys.
    pub fn layer(
        ledger: &Arc<dyn Ledger>,
        policy: &Policy,
        tool: &ToolName,
        definition_hash: &str,
        context: &ContextFields,
        secret: Option<DigestKey>,
        replays: &Replays,
    ) -> Option<AroundLayer<Self>> {
        let required = policy.idempotency == Idempotency::Required;
        let (ledger, tool, replays, context) = (ledger.clone(), tool.clone(), replays.clone(), context.clone());
        let definition_hash = definition_hash.to_owned();
        let looks = policy.idempotency != Idempotency::Off;
        looks.then(|| AroundLayer::new(Self { ledger, tool, definition_hash, secret, context, required, replays }))
    }
}

impl Around for Replay {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        let Some(key) = &invocation.key else {
            if self.required {
                return Err(CallError::KeyMissing { tool: self.tool.to_string() });
            }
            return inner.call(invocation).await;
        };
        let context = self.context.declared(&invocation.context);
        let secret = self.secret.as_ref();
        let asked = Fingerprint::new(&self.definition_hash, &invocation.arguments, context.as_ref(), secret);
        let (caller, tool, key) = (&invocation.caller.name, self.tool.as_str(), key.shared());
        let holder = self.ledger.claimed(caller, tool, &key, invocation.started_at).await;
        let holder = holder.map_err(|error| match error {
            // The row of the earlier call is damaged, so its answer is lost. The tool must not run again all the same.
            ledger::Error::Damaged(_) => CallError::Internal,
            error => CallError::LedgerUnavailable { reason: error.to_string(), started: false },
        })?;
        match holder {
            None => {
                invocation.notes.lock().fingerprint = Some(asked);
                inner.call(invocation).await
            }
            Some(row) => self.again(row, &asked, &invocation).await,
        }
    }
}

impl Replay {
    async fn again(&self, row: Row, asked: &Fingerprint, invocation: &Invocation) -> Outcome {
        let id = row.id;
        if row.fingerprint.as_ref().is_some_and(|stored| !asked.may_be(stored)) {
            return Err(CallError::IdempotencyMismatch { invocation: id });
        }
        if row.state == State::Reserved {
            return Err(CallError::IdempotencyInProgress { invocation: id });
        }
        let (outcome, meta) = match row.end(None).map_err(|Unreadable| CallError::Internal)? {
            End::Open => return Err(CallError::OutcomeUnknown { invocation: id }),
            End::Answered { result, meta } => (Ok(Arc::new(result)), meta),
            End::Failed(failure) if failure.digest.is_none() => (Err(failure), Meta::default()),
            End::Failed(failure) => match self.replays.0.get(&id).await {
                Some(StoredAnswer { outcome, meta }) => (outcome, meta),
                None => (Err(failure), Meta::default()),
            },
            End::Withheld(digest) => match self.replays.0.get(&id).await {
                Some(StoredAnswer { outcome, meta }) => (outcome, meta),
                None => not_kept(&row, digest),
            },
        };
        let earlier = ReplayedFrom { invocation: id, tool_use_id: row.tool_use_id, meta };
        invocation.notes.lock().earlier = Some(earlier);
        outcome.map_err(|failure| CallError::Kept { failure: Box::new(failure), invocation: id, again: true })
    }
}

/// The result in place of an answer of which the ledger keeps only a digest. `is_error` is as in the lost answer, and
/// the tool does not run again.
fn not_kept(row: &Row, digest: Digest) -> (Result<Arc<ToolResult>, Failure>, Meta) {
    let said = "The tool was called with this key before and answered. What it said is not kept (capture: digest), nor, without \
        ledger.digest_key, whether it was asked the same.";
    let result = ToolResult { is_error: row.said_no(), ..ToolResult::text(said) };
    (Ok(Arc::new(result)), Meta { attempts: row.attempts, result_digest: Some(digest), ..Meta::default() })
}

/// Keeps in memory how calls ended whose rows hold only digests. An end is kept as long as its idempotency key, or
/// until the memory is full. Clones share the memory.
#[derive(Clone)]
pub struct Replays(Cache<InvocationId, StoredAnswer>);

#[derive(Clone)]
struct StoredAnswer {
    outcome: Result<Arc<ToolResult>, Failure>,
    meta: Meta,
}

/// Memory for these ends, in bytes of their JSON.
const ROOM: u64 = 16 << 20;

impl Default for Replays {
    fn default() -> Self {
        let weight = |_: &InvocationId, kept: &StoredAnswer| {
            let said = match &kept.outcome {
                Ok(result) => serde_json::to_vec(&**result).map_or(0, |json| json.len()),
                Err(failure) => failure.detail.len() + failure.for_model.len(),
            };
            u32::try_from(said + 512).unwrap_or(u32::MAX)
        };
        // Repetitions come soon after the first call. A policy by frequency of use, moka's default, would not admit new
        // entries.
        let cache = Cache::builder().eviction_policy(EvictionPolicy::lru()).time_to_live(KEY_KEPT);
        Self(cache.max_capacity(ROOM).weigher(weight).build())
    }
}

impl Replays {
    /// Stores the end of a call: its answer or its failure.
    pub async fn keep(&self, invocation: InvocationId, end: Result<&Answer, &Failure>) {
        let kept = match end {
            Ok(answer) => StoredAnswer { outcome: Ok(answer.result.clone()), meta: answer.meta.clone() },
            Err(failure) => StoredAnswer { outcome: Err(failure.clone()), meta: Meta::default() },
        };
        self.0.insert(invocation, kept).await;
    }
}
