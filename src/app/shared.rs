//! Makes the part that the stacks of all tools share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::Error;
use crate::approval::table::WaitingCalls;
use crate::cache::ResultCache;
use crate::call::{Clock, DigestKey};
use crate::ledger::Ledger;
use crate::log::CallLog;
use crate::manifest::Manifest;
use crate::metrics::Metrics;
use crate::secrets::Redactor;
use crate::stack::order::SharedParts;
use crate::stack::replay::ReplayCache;
use crate::stack::validation_pool::ValidationPool;
use crate::telemetry::Telemetry;
use crate::tracking::in_flight::InFlightCalls;
use crate::tracking::questions::Questions;
use crate::tracking::runs::Runs;

/// The shared part of all stacks, with the settings of this manifest.
pub(super) fn build_shared(
    manifest: &Manifest,
    ledger: Arc<dyn Ledger>,
    clock: Clock,
    call_log: CallLog,
    metrics: Metrics,
    telemetry: Option<Arc<Telemetry>>,
) -> Result<SharedParts, Error> {
    let in_flight_calls = InFlightCalls::new(clock.clone());
    let counted = in_flight_calls.clone();
    metrics
        .commit_metrics()
        .count_running_with(move || counted.len());
    let runs = Runs::new(clock.clone());
    let runs = match ledger.replica() {
        Some(_) => runs.shared(),
        None => runs,
    };
    Ok(SharedParts {
        cache: ResultCache::new(
            manifest.cache_bytes,
            ledger.clone(),
            manifest
                .redis
                .as_ref()
                .map(|redis| (redis, metrics.clone())),
            clock.clone(),
        ),
        replay_cache: ReplayCache::default(),
        ledger,
        in_flight_calls,
        waiting_calls: WaitingCalls::default(),
        questions: Questions::default(),
        approval_notices: manifest.approvals.clone().map(Arc::new),
        public_url: manifest.server.public_url.clone(),
        runs,
        global_permits: Arc::new(Semaphore::new(
            manifest.server.max_in_flight.min(Semaphore::MAX_PERMITS),
        )),
        validation_pool: ValidationPool::default(),
        redactor: Arc::new(Redactor::new([])),
        clock,
        capture: manifest.capture,
        reference_above: manifest.reference_above,
        digest_key: manifest
            .digest_key
            .clone()
            .map_or_else(DigestKey::random, Ok)?,
        call_log,
        metrics,
        telemetry,
    })
}
