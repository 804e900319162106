//! What `GET /metrics` says, counted where it happens.
//!
//! A registry of its own for each service, nothing global. Who counts holds its handles from the start
//! ([`ToolMetrics`], [`CommitMetrics`]); label values come from closed sets: registered tools, the words of `call`, the
//! routes. Callers, runs and names that nobody registered never become a label.

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

/// Why there are no metrics: two families of one name. Never, unless this module is wrong.
pub use prometheus::Error;

/// All families. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    tools: ToolFamilies,
    /// Tools that have series, each with what keeps them: the tool's stacks hold the same.
    registered: Mutex<BTreeMap<ToolName, Arc<()>>>,
    requests: IntCounterVec,
    commits: Arc<CommitMetrics>,
    levels: Levels,
    process: ProcessMetrics,
}

impl Metrics {
    /// No tools yet.
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

    /// The handles of a tool's stack; `cached`: it has a cache. The tool's series stay for as long as one of its stacks
    /// is there, and are then shown once more with their last numbers.
    pub fn tool(&self, name: &ToolName, cached: bool) -> ToolMetrics {
        let mut registered = self.0.registered.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = registered.entry(name.clone()).or_default().clone();
        self.0.tools.of(name, cached, alive)
    }

    /// How the breaker of a tool that is there stands: 0 closed, 1 half open, 2 open.
    pub fn breaker(&self, tool: &ToolName, level: i64) {
        self.0.tools.breaker(tool, level);
    }

    /// For the ledger's writer.
    pub fn commits(&self) -> Arc<CommitMetrics> {
        self.0.commits.clone()
    }

    /// A request was answered.
    pub fn answered(&self, route: &str, status: &str) {
        self.0.requests.with_label_values(&[route, status]).inc();
    }

    /// Everything, in the text format.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn text(&self, now: Now) -> Result<String, Error> {
        let Inner { registry, tools, registered, levels, process, .. } = &*self.0;
        // One at a time: nothing is brought up to date twice, and no tool comes back while its series go.
        let mut registered = registered.lock().unwrap_or_else(PoisonError::into_inner);
        levels.set(now);
        process.look();
        let text = TextEncoder::new().encode_to_string(&registry.gather());
        registered.retain(|name, alive| {
            // Held by this table alone: the tool is gone.
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
