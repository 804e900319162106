//! Builds the stack of each tool. This file defines the order of the layers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Semaphore;
use tower::ServiceBuilder;
use tower::util::BoxCloneSyncService;

use super::attempt::Attempt;
use super::authorize::Authorize;
use super::circuit_breaker::{Breaker, CircuitBreaker};
use super::concurrency::{ConcurrencyLimit, ToolPermits};
use super::deadline::Deadline;
use super::ended_call::CaptureRules;
use super::interceptor::InterceptorLayer;
use super::observers::Observers;
use super::output_check::OutputCheck;
use super::paginate::Paginator;
use super::record::RecordLayer;
use super::repeat_guard::RepeatGuard;
use super::replay::{Replay, ReplayCache};
use super::retry;
use super::run::Run;
use super::usage_limit::{ChargeRules, UsageLimit};
use super::validate::{ArgumentRules, Validate};
use super::validation_pool::ValidationPool;
use crate::access::callers::Grants;
use crate::access::public_url::PublicUrl;
use crate::approval::receivers::ApprovalNotices;
use crate::approval::rule::{Approval, ApprovalParts};
use crate::approval::table::WaitingCalls;
use crate::approval::waiting::AwaitDecision;
use crate::cache::page_guard::PageGuard;
use crate::cache::{Cached, PageCache, ResultCache, ToolCache};
use crate::call::{
    Answer, CallError, Capture, Clock, DigestKey, Invocation, Kind, Paging, Policy, ToolName,
    ToolSettings,
};
use crate::ledger::Ledger;
use crate::log::CallLog;
use crate::metrics::Metrics;
use crate::schema::Schema;
use crate::secrets::Redactor;
use crate::telemetry::{Telemetry, ToolSpans};
use crate::tracking::in_flight::InFlightCalls;
use crate::tracking::questions::Questions;
use crate::tracking::runs::Runs;

/// The stack of one tool: takes an invocation, returns an answer or a failure. Cloned for each
/// call. The invocation is in a box, because each layer moves it into a future.
pub type ToolService = BoxCloneSyncService<Box<Invocation>, Answer, CallError>;

/// The parts that all stacks share.
#[derive(Clone)]
pub struct SharedParts {
    /// The record of all calls.
    pub ledger: Arc<dyn Ledger>,
    /// The stored results of all tools.
    pub cache: ResultCache,
    /// In-memory answers for idempotency keys of calls whose rows hold digests only.
    pub replay_cache: ReplayCache,
    /// The table of running calls.
    pub in_flight_calls: InFlightCalls,
    /// The calls that wait for a person.
    pub waiting_calls: WaitingCalls,
    /// The questions of tools that run.
    pub questions: Questions,
    /// The receivers of webhooks about such calls.
    pub approval_notices: Option<Arc<ApprovalNotices>>,
    /// The address at which people reach the service.
    pub public_url: Option<PublicUrl>,
    /// The recent history of runs.
    pub runs: Runs,
    /// The global permits, over all tools.
    pub global_permits: Arc<Semaphore>,
    /// The pool that validates large values.
    pub validation_pool: ValidationPool,
    /// Removes secrets from the output of tools.
    pub redactor: Arc<Redactor>,
    /// Wall-clock time.
    pub clock: Clock,
    /// What the ledger keeps of calls if the tool's policy does not say.
    pub capture: Capture,
    /// Results of more characters are shown by their shape and beginning only.
    pub reference_above: Option<usize>,
    /// Makes the digests that replace data in the ledger.
    pub digest_key: DigestKey,
    /// Writes the log line of each call.
    pub call_log: CallLog,
    /// The metrics of `GET /metrics`.
    pub metrics: Metrics,
    /// Spans, metrics and logs for a collector. `None` if no collector is configured.
    pub telemetry: Option<Arc<Telemetry>>,
}

/// The parts of one tool from which [`build_stack`] makes its stack.
pub struct ToolLayers {
    /// The registered name.
    pub name: ToolName,
    /// The way in which the tool runs.
    pub kind: Kind,
    /// Hash of the tool's definition as callers see it, and of the way it runs.
    pub definition_hash: String,
    /// Hash of the tool with its references resolved. Stored results of another generation are not
    /// served.
    pub generation: [u8; 32],
    /// The operator's decisions about the tool.
    pub policy: Policy,
    /// The compiled input schema, and the runner.
    pub rules: Arc<ArgumentRules>,
    /// The compiled output schema.
    pub output_schema: Option<Arc<Schema>>,
    /// Which side requests the pages of long results.
    pub paging: Paging,
    /// The settings that the tool sees while it runs.
    pub settings: Arc<ToolSettings>,
    /// The callers that may use the tool.
    pub grants: Arc<Grants>,
    /// Whether the tool is enabled.
    pub enabled: Arc<AtomicBool>,
    /// Whether the tool is quarantined, because it is not as approved.
    pub quarantined: bool,
    /// The circuit breaker. `None` if the arguments select the backend, so that one failure
    /// predicts nothing about the next call.
    pub breaker: Option<Arc<Breaker>>,
    /// The permits for calls that run. All stacks that the tool has had share them.
    pub permits: ToolPermits,
    /// The limits that count the tool's calls.
    pub charge_rules: Arc<ChargeRules>,
}

/// Builds a tool's stack, outermost layer first. It is built once, at registration: a layer gets
/// its settings here, and most layers are absent if their policy is absent. Each line states the
/// reason for its position; do not move a line unless the reason no longer holds.
///
/// Also returns the tool's stored results, for tools that read them without a call.
pub fn build_stack(
    tool: ToolLayers,
    shared: &SharedParts,
) -> (ToolService, Option<Arc<ToolCache>>) {
    let (name, policy, rules) = (&tool.name, &tool.policy, &tool.rules);
    let runner = rules.runner.clone();
    let records_digests = policy.capture.unwrap_or(shared.capture) == Capture::Digest;
    let has_write_only = rules.schema.has_write_only();
    // Data that must not be recorded must not reach the stored results in the ledger. Their keys
    // are plain hashes of the arguments, so the keys must not get there either.
    let is_memory_only = records_digests || has_write_only;
    let approval_parts = ApprovalParts {
        ledger: shared.ledger.clone(),
        waiting_calls: shared.waiting_calls.clone(),
        clock: shared.clock.clone(),
        redactor: shared.redactor.clone(),
        in_flight_calls: shared.in_flight_calls.clone(),
    };
    let cache = if is_memory_only {
        &shared.cache.memory_only()
    } else {
        &shared.cache
    };
    let sees_agent = runner.traits().sees_agent;
    let tool_cache = ToolCache::for_tool(cache, policy, &*runner, name, tool.generation);
    let metrics = shared.metrics.tool_metrics(name, policy.cache.is_some());
    let observers = Observers {
        log: shared.call_log.clone(),
        metrics: metrics.clone(),
        spans: shared.telemetry.as_ref().map(|telemetry| {
            ToolSpans::new(telemetry, tool.kind, !records_digests, has_write_only)
        }),
    };
    let capture_rules = CaptureRules {
        schema: rules.schema.clone(),
        digest_key: records_digests.then(|| shared.digest_key.clone()),
        redactor: shared.redactor.clone(),
    };
    let output = tool.output_schema.and_then(|schema| {
        OutputCheck::new(schema, policy.output_check, shared.validation_pool.clone())
    });

    let paginator = Paginator::new(
        tool.paging,
        rules,
        output.clone(),
        !records_digests,
        shared.reference_above,
    );
    let max_chars = paginator.max_chars;
    let page_cache = || PageCache::new(cache, name, tool.generation, max_chars, sees_agent);

    let stack = ServiceBuilder::new()
        // Cuts a long result to the requested page. The layers below see whole results only.
        .layer(InterceptorLayer::new(paginator))
        // Waits for a person's decision, and sends the decided call through the layers below again.
        .option_layer(AwaitDecision::layer(
            name.as_str(),
            policy.approval.as_ref(),
            approval_parts.clone(),
        ))
        // Writes the row of each call, also of a refused one.
        .layer(RecordLayer::new(
            &shared.ledger,
            &shared.in_flight_calls,
            policy,
            capture_rules,
            &shared.replay_cache,
            observers,
        ))
        // Checks that the caller may use the tool, and that the tool is enabled and approved.
        .layer(InterceptorLayer::new(Authorize {
            grants: tool.grants,
            enabled: tool.enabled,
            quarantined: tool.quarantined,
            credentials: runner.caller_credentials().to_vec(),
        }))
        // Repeats the answer of an earlier call with the same idempotency key. Above all layers
        // that could refuse the call now.
        .option_layer(Replay::layer(
            &shared.ledger,
            policy,
            name,
            &tool.definition_hash,
            &tool.settings.context,
            is_memory_only.then(|| shared.digest_key.clone()),
            &shared.replay_cache,
        ))
        // Validates the arguments. An invalid call uses nothing of what is below.
        .layer(InterceptorLayer::new(Validate(rules.clone())))
        // Refuses the call that its run made last. Above the cache, which would give the same
        // answer again.
        .layer(RepeatGuard::layer(
            &shared.runs,
            policy,
            &tool.definition_hash,
            &tool.settings.context,
        ))
        // Denies calls by rule, and stores calls that a person must approve. Above the cache: no stored
        // result answers a call without its approval.
        .option_layer(Approval::layer(
            name,
            policy,
            &tool.definition_hash,
            rules,
            is_memory_only,
            approval_parts,
        ))
        // Stored results, and a single flight for equal calls. Above the limits, so a stored result
        // is free.
        .option_layer(Cached::layer(tool_cache.as_ref(), policy))
        // Later pages come from a stored result; without one, the call is refused.
        .option_layer(PageGuard::layer(tool.paging, page_cache))
        // Refuses calls while the runner is unavailable. Stored results are still served.
        .option_layer(CircuitBreaker::layer(tool.breaker, name, policy, &metrics))
        // One permit covers all attempts. A full tool refuses before anything is reserved.
        .layer(ConcurrencyLimit::layer(
            policy.concurrency,
            tool.permits,
            shared.global_permits.clone(),
            &metrics,
        ))
        // Commits row, units and key together before the tool runs. `record` settles them.
        .layer(InterceptorLayer::new(UsageLimit {
            ledger: shared.ledger.clone(),
            charge_rules: tool.charge_rules,
            effect: policy.effect,
            clock: shared.clock.clone(),
            is_remote: shared.ledger.replica().is_some(),
        }))
        // The deadline of the whole call. Below the limits, so dropping the work never drops the
        // settlement.
        .layer(InterceptorLayer::new(Deadline))
        // tower's retry with our policy, only for tools whose effect permits it.
        .option_layer(retry::layer(policy))
        // One attempt: its timeout, its panic, and its row if it failed.
        .layer(InterceptorLayer::new(Attempt {
            ledger: shared.ledger.clone(),
            redactor: shared.redactor.clone(),
            timeout: policy.timeout,
            records_digests,
        }))
        // The tool itself; removes secrets from its output.
        .service(Run::new(
            runner,
            tool.settings,
            output,
            shared.redactor.clone(),
            policy.timeout,
        ));
    (BoxCloneSyncService::new(stack), tool_cache)
}
