//! The way of every call, in one file.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Semaphore;
use tower::ServiceBuilder;
use tower::util::BoxCloneSyncService;

use crate::call::{Answer, CallError, Capture, Clock, DigestKey, Invocation, Paging, Policy, ToolName, ToolSettings};
use crate::callers::Grants;
use crate::ledger::Ledger;
use crate::log::CallLog;
use crate::metrics::Metrics;
use crate::middleware::attempt::Attempt;
use crate::middleware::authorize::Authorize;
use crate::middleware::cache::{Cached, PageShelf, ResultCache, Shelf};
use crate::middleware::circuit_breaker::{Breaker, CircuitBreaker};
use crate::middleware::concurrency::{ConcurrencyLimit, ToolPermits};
use crate::middleware::deadline::Deadline;
use crate::middleware::further_page::FurtherPage;
use crate::middleware::output::OutputCheck;
use crate::middleware::record::{RecordLayer, Told};
use crate::middleware::repeat_guard::RepeatGuard;
use crate::middleware::replay::{Replay, Replays};
use crate::middleware::retry;
use crate::middleware::run::Run;
use crate::middleware::usage_limit::{Tariff, UsageLimit};
use crate::middleware::validate::{ArgumentRules, Validate};
use crate::middleware::validation::ValidationPool;
use crate::middleware::view::ViewLayer;
use crate::running::Running;
use crate::runs::Runs;
use crate::schema::Schema;
use crate::secrets::Redactor;

/// A tool's whole stack: an invocation in, an answer or a failure out. Cloned for each call.
pub type ToolService = BoxCloneSyncService<Invocation, Answer, CallError>;

/// What all stacks share.
#[derive(Clone)]
pub struct Shared {
    /// The record.
    pub ledger: Arc<dyn Ledger>,
    /// Stored results.
    pub cache: ResultCache,
    /// Ends of calls that the ledger keeps digests of.
    pub replays: Replays,
    /// Calls under way.
    pub running: Running,
    /// What is remembered of runs.
    pub runs: Runs,
    /// The bound over all tools.
    pub in_flight: Arc<Semaphore>,
    /// Where large values are validated.
    pub validations: ValidationPool,
    /// Takes secrets out of what tools say.
    pub redactor: Arc<Redactor>,
    /// Wall-clock time.
    pub clock: Clock,
    /// What the ledger keeps of the calls of a tool that does not say.
    pub capture: Capture,
    /// Makes the digests that stand for what is not kept.
    pub digest_key: DigestKey,
    /// The line of each call.
    pub call_log: CallLog,
    /// What `GET /metrics` says.
    pub metrics: Metrics,
}

/// One tool, ready to be put under its layers.
pub struct Parts {
    /// Its name.
    pub name: ToolName,
    /// A hash of what callers see of it and how it runs.
    pub definition_hash: String,
    /// The same with references replaced: results stored under another are another tool's.
    pub generation: [u8; 32],
    /// What the operator decided.
    pub policy: Policy,
    /// Compiled input schema and the runner.
    pub rules: Arc<ArgumentRules>,
    /// Compiled output schema.
    pub output_schema: Option<Arc<Schema>>,
    /// Who asks for the parts of long results.
    pub paging: Paging,
    /// What the running tool may know of itself.
    pub settings: Arc<ToolSettings>,
    /// Who may use it.
    pub grants: Arc<Grants>,
    /// Whether it is on.
    pub enabled: Arc<AtomicBool>,
    /// It is not what was approved.
    pub stopped: bool,
    /// Rests it while its runner is down; absent where arguments say whom to ask.
    pub breaker: Option<Arc<Breaker>>,
    /// How many of its calls may run: one count for all stacks that the tool has had.
    pub places: ToolPermits,
    /// What its calls are charged to.
    pub tariff: Arc<Tariff>,
}

/// Builds a tool's stack, outermost layer first. Built once, when the tool is registered: a layer gets its numbers
/// here, and a policy that is absent is mostly a layer that is absent. Move a line only with its reason. Beside it the tool's
/// stored results, for whoever reads them without a call.
pub fn build(tool: Parts, shared: &Shared) -> (ToolService, Option<Arc<Shelf>>) {
    let Shared { ledger, cache, replays, running, runs, in_flight, redactor, clock, capture, .. } = shared;
    let Shared { digest_key, call_log, metrics, validations, .. } = shared;
    let Parts { name, definition_hash, generation, policy, rules, output_schema, settings, grants, enabled, .. } = tool;
    let Parts { stopped, breaker, places, tariff, paging, .. } = tool;
    let runner = rules.runner.clone();
    let withholds = policy.capture.unwrap_or(*capture) == Capture::Digest;
    let digests = withholds.then(|| digest_key.clone());
    let secret = (withholds || rules.schema.has_write_only()).then(|| digest_key.clone());
    // What must not be on record must not be in the ledger's stored results either, nor as a plain hash in their keys.
    let cache = if withholds || rules.schema.has_write_only() { &cache.in_memory() } else { cache };
    let sees_agent = runner.sees_agent();
    let shelf = Shelf::of(cache, &policy, &*runner, &name, generation);
    let metrics = metrics.tool(&name, policy.cache.is_some());
    let told = Told { log: call_log.clone(), metrics: metrics.clone() };
    let output = output_schema.map(|schema| OutputCheck::new(schema, validations.clone()));

    let view = ViewLayer::new(paging, &rules, output.clone(), !withholds);
    let pages = || PageShelf::new(cache, &name, generation, view.longest(), sees_agent);

    let stack = ServiceBuilder::new()
        // The part of a long result that was asked for; everything below knows only whole ones.
        .layer(view.clone())
        // The call's one row, written whatever happens; sees refusals too.
        .layer(RecordLayer::new(ledger, running, &policy, &rules.schema, digests, replays, told))
        // May this caller use this tool, is it on, and is it what was approved?
        .layer(Authorize::layer(grants, enabled, stopped))
        // An idempotency key seen before: the same answer again; above all that could refuse it now.
        .option_layer(Replay::layer(ledger, &policy, &name, &definition_hash, &settings.context, secret, replays))
        // Arguments against the schema; a call that cannot run spends nothing below.
        .layer(Validate::layer(rules))
        // The call that was answered last in its run, once more; above the cache, whose answer would be the same.
        .layer(RepeatGuard::layer(runs, &policy, &definition_hash, &settings.context))
        // Stored results and one flight for equal calls; above the limit, so a cached answer is free.
        .option_layer(Cached::layer(shelf.as_ref(), &policy))
        // A page after the first is one of a stored result; without one nothing runs for it.
        .option_layer(FurtherPage::layer(paging, pages))
        // No try while the runner is down; a stored answer is still served.
        .option_layer(CircuitBreaker::layer(breaker, &name, &policy, &metrics))
        // One permit across all tries; full refuses before anything is reserved.
        .layer(ConcurrencyLimit::layer(policy.concurrency, places, in_flight.clone(), &metrics))
        // Row, units and key in one commit before the tool runs; settled by `record`.
        .layer(UsageLimit::layer(ledger, &tariff, policy.effect, clock))
        // What is left of the whole call; below the limit, so that dropping the work never drops the settling.
        .layer(Deadline::layer())
        // tower's retry with our policy; only for what may be repeated.
        .option_layer(retry::layer(&policy))
        // One try: its timeout, its panic, its row if it failed.
        .layer(Attempt::layer(ledger, redactor, policy.timeout, withholds))
        // The tool; secrets leave its words here.
        .service(Run::new(runner, settings, output, redactor.clone(), policy.timeout));
    (BoxCloneSyncService::new(stack), shelf)
}
