//! Sources of tools while the service runs.
//!
//! - `source_task.rs`: starts a source, and repeats that after a failure
//! - `change.rs`: replaces what was served by a new listing, in one step
//! - `source_watch.rs`: lists again when a source reports changed tools
//! - `listing.rs`: the usable part of a listing; `tools.rs` makes tools of it, `active_listing.rs`
//!   is what is served
//! - `hints.rs`: hints of foreign sources about effects
//! - `plan.rs`: a source as it would be in the next catalog
//! - `status_tracker.rs`: the status of one source
//! - `load.rs`: lists sources without serving them
//!
//! Each change holds the lock of the state in [`LiveTools`](super::LiveTools), and rebuilds the
//! catalog from that state.

mod active_listing;
mod change;
mod hints;
mod listing;
mod load;
mod plan;
mod source_task;
mod source_watch;
mod status_tracker;
mod tools;

use std::sync::Arc;

pub use change::Restart;
pub(super) use change::snapshot_files;
pub(crate) use load::{LoadOutcome, SourceFindings, list_once};
pub(super) use status_tracker::StatusTracker;
pub use status_tracker::{QuarantinedTool, SourceState, SourceView};

use self::active_listing::ActiveListing;
use self::plan::SourcePlan;
use self::source_task::SourceTask;
use self::source_watch::SourceWatch;
use super::file_snapshot::FileSnapshot;
use crate::call::ToolName;
use crate::manifest::DeclaredSource;
use crate::registry::RejectedTool;

/// All sources: the program's first, then those of the manifest, in its order. The first source
/// gets a name that two want. But operators' sources come before foreign ones, and a foreign source
/// never gets a name that is served.
#[derive(Default)]
pub(super) struct Sources(Vec<SourceEntry>);

/// A source with its state.
struct SourceEntry {
    /// The current declaration.
    declared: Arc<DeclaredSource>,
    /// Snapshot of its files at its last start.
    files: FileSnapshot,
    status: Arc<StatusTracker>,
    /// What is served now. It may still be of an older declaration.
    active: Option<ActiveListing>,
    /// Why the current declaration is not served, although the source was listed.
    refusal: Option<String>,
    /// Tools of `active` that did not get their names.
    rejected: Vec<RejectedTool>,
    /// Names in the last good listing, without the prefix.
    listed_names: Vec<String>,
    start: Option<SourceTask>,
    /// Waits until the served source reports changed tools.
    watch: Option<SourceWatch>,
}

impl SourceEntry {
    /// Names of its tools that can be called.
    fn callable_names(&self) -> Vec<ToolName> {
        let tools = self
            .active
            .iter()
            .flat_map(|active| &active.tools)
            .filter(|tool| !tool.quarantined);
        let served = tools.filter(|tool| {
            self.rejected
                .iter()
                .all(|rejected| rejected.tool != tool.definition.name)
        });
        let names = served.flat_map(|tool| {
            std::iter::once(&tool.definition.name).chain(&tool.definition.aliases)
        });
        names.cloned().collect()
    }

    /// Whether it is being started or listed again, or waits for the next attempt.
    fn is_starting(&self) -> bool {
        self.start.as_ref().is_some_and(SourceTask::is_running)
            || self.watch.as_ref().is_some_and(SourceWatch::is_listing)
    }
}
