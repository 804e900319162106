//! The metrics of `GET /metrics`, counted where events happen.
//!
//! Each service has its own registry; nothing is global. Code that counts gets its handles once at the start
//! ([`ToolMetrics`], [`CommitMetrics`]). Label values come from closed sets: registered tools, the enums of `call`,
//! the routes. Callers, runs and unknown names never become a label.

mod commits;
mod families;
mod levels;
mod process;
mod tool;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

pub use commits::CommitMetrics;
use families::Families;
use levels::Levels;
pub use levels::{Now, SourceLevel};
use process::ProcessMetrics;
use tool::ToolFamilies;
pub use tool::{Counted, Outcome, ToolMetrics};

use crate::call::ToolName;

/// The media type of [`Metrics::text`]: the text format that every scraper reads.
pub use prometheus::TEXT_FORMAT;

/// The metrics cannot be set up, because two families have the same name. This is a bug of this module.
pub use prometheus::Error;

/// All families. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    tools: ToolFamilies,
    /// The tools with series. Each value is shared with the tool's stacks, so its count shows whether one exists.
    registered: Mutex<BTreeMap<ToolName, Arc<()>>>,
    requests: IntCounterVec,
    commits: Arc<CommitMetrics>,
    levels: Levels,
    process: ProcessMetrics,
}

impl Metrics {
    /// Makes the families, without series of tools.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new() -> Result<Self, Error> {
        let families = Families::default();
        let build = Opts::new("toolcrib_build_info", "Always 1; the label is what counts.");
        families.add(IntGauge::with_opts(build.const_label("version", env!("CARGO_PKG_VERSION")))?)?.set(1);
        Ok(Self(Arc::new(Inner {
            tools: ToolFamilies::new(&families)?,
            registered: Mutex::default(),
            requests: families.counters(
                "toolcrib_http_requests_total",
                "Requests answered, by route (`none`: there is no such route) and status.",
                &["route", "status"],
            )?,
            commits: Arc::new(CommitMetrics::new(&families)?),
            levels: Levels::new(&families)?,
            process: ProcessMetrics::new(&families)?,
            registry: families.registry,
        })))
    }

    /// The handles for a tool's stack. `cached`: the stack has a cache. The tool's series exist as long as one of its
    /// stacks. After that they are shown once more with their last numbers.
    pub fn tool(&self, name: &ToolName, cached: bool) -> ToolMetrics {
        let mut registered = self.0.registered.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = registered.entry(name.clone()).or_default().clone();
        self.0.tools.of(name, cached, alive)
    }

    /// Sets the state of a registered tool's circuit breaker: 0 closed, 1 half open, 2 open.
    pub fn breaker(&self, tool: &ToolName, level: i64) {
        self.0.tools.breaker(tool, level);
    }

    /// The metrics for the ledger's writer.
    pub fn commits(&self) -> Arc<CommitMetrics> {
        self.0.commits.clone()
    }

    /// Counts an answered request.
    pub fn answered(&self, route: &str, status: &str) {
        self.0.requests.with_label_values(&[route, status]).inc();
    }

    /// All metrics in the text format.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn text(&self, now: Now) -> Result<String, Error> {
        let Inner { registry, tools, registered, levels, process, .. } = &*self.0;
        // The lock is held to the end: no value is updated twice, and no tool returns while its series are removed.
        let mut registered = registered.lock().unwrap_or_else(PoisonError::into_inner);
        levels.set(now);
        process.look();
        let text = TextEncoder::new().encode_to_string(&registry.gather());
        registered.retain(|name, alive| {
            // Only this table holds it, so no stack of the tool exists.
            let gone = Arc::strong_count(alive) == 1;
            if gone {
                tools.forget(name);
            }
            !gone
        });
        text
    }
}

#[cfg(test)]
mod tests;
