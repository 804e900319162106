//! Makes the part that the stacks of all tools share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::Error;
use crate::call::{Clock, DigestKey};
use crate::in_flight::InFlightCalls;
use crate::ledger::Ledger;
use crate::log::CallLog;
use crate::manifest::Manifest;
use crate::metrics::Metrics;
use crate::middleware::cache::ResultCache;
use crate::middleware::replay::Replays;
use crate::middleware::validation::ValidationPool;
use crate::runs::Runs;
use crate::secrets::Redactor;
use crate::stack::Shared;

/// The shared part of all stacks, with the settings of this manifest.
pub(super) fn shared(
    manifest: &Manifest,
    ledger: Arc<dyn Ledger>,
    clock: Clock,
    call_log: Option<CallLog>,
    metrics: Metrics,
) -> Result<Shared, Error> {
    Ok(Shared {
        cache: ResultCache::new(manifest.cache_bytes, ledger.clone(), clock.clone()),
        replays: Replays::default(),
        ledger,
        running: InFlightCalls::default(),
        runs: Runs::new(clock.clone()),
        in_flight: Arc::new(Semaphore::new(manifest.server.max_in_flight.min(Semaphore::MAX_PERMITS))),
        validations: ValidationPool::default(),
        redactor: Arc::new(Redactor::new([])),
        clock,
        capture: manifest.capture,
        digest_key: manifest.digest_key.clone().map_or_else(DigestKey::random, Ok)?,
        call_log: call_log.unwrap_or_else(CallLog::events),
        metrics,
    })
}
