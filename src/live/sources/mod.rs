//! Sources of tools while the service runs.
//!
//! - `bring.rs`: starts a source, and repeats that after a failure
//! - `change.rs`: replaces what was served by a new listing, in one step
//! - `watching.rs`: lists again when a source reports changed tools
//! - `listing.rs`: the usable part of a listing; `tools.rs` makes tools of it
//! - `hints.rs`: hints of foreign sources about effects
//! - `draft.rs`: a source as it would be in the next catalog
//! - `board.rs`: the status that others read
//! - `once.rs`: lists sources without serving them
//!
//! Each change holds the lock of the state in [`Live`](super::Live), and builds the catalog anew from the state there.

mod change;
mod hints;
mod listing;
mod load;
mod plan;
mod source_task;
mod status_board;
mod tools;
mod watching;

use std::sync::Arc;

pub use change::Restarting;
pub(super) use change::look;
pub(crate) use load::{LoadOutcome, once};
pub(super) use status_board::SourceStatusBoard;
pub use status_board::{SourceState, SourceView, Stopped};

use self::listing::Listing;
use self::plan::SourcePlan;
use self::source_task::Start;
use self::tools::{NotOffered, SelectedTools};
use self::watching::Watching;
use super::file_snapshot::FileSnapshot;
use crate::call::ToolName;
use crate::manifest::DeclaredSource;
use crate::registry::RejectedTool;
use crate::tools::{Source, Tool};

/// All sources: the program's first, then those of the manifest, in its order. The first source gets a name that two
/// want. But operators' sources come before foreign ones, and a foreign source never gets a name that is served.
#[derive(Default)]
pub(super) struct Sources(Vec<SourceEntry>);

/// A source with its state.
struct SourceEntry {
    /// The current declaration.
    declared: Arc<DeclaredSource>,
    /// Snapshot of its files at its last start.
    files: FileSnapshot,
    board: Arc<SourceStatusBoard>,
    /// What is served now. It may still be of an older declaration.
    serving: Option<ActiveListing>,
    /// Why the current declaration is not served, although the source was listed.
    refused: Option<String>,
    /// Tools of `serving` that did not get their names.
    left_out: Vec<RejectedTool>,
    /// Names in the last good listing, without the prefix.
    listed: Vec<String>,
    start: Option<Start>,
    /// Waits until the served source reports changed tools.
    watching: Option<Watching>,
}

impl SourceEntry {
    /// Names of its tools that can be called.
    fn has(&self) -> Vec<ToolName> {
        let tools = self.serving.iter().flat_map(|serving| &serving.tools).filter(|tool| !tool.stopped);
        let served = tools.filter(|tool| self.left_out.iter().all(|out| out.tool != tool.definition.name));
        let names = served.flat_map(|tool| std::iter::once(&tool.definition.name).chain(&tool.definition.aliases));
        names.cloned().collect()
    }

    /// Whether it is being started or listed again, or waits for the next attempt.
    fn is_starting(&self) -> bool {
        self.start.as_ref().is_some_and(Start::is_under_way) || self.watching.as_ref().is_some_and(Watching::is_listing)
    }
}

/// A listed source with the tools that were made of the listing.
#[derive(Clone)]
struct ActiveListing {
    declared: Arc<DeclaredSource>,
    files: FileSnapshot,
    source: Arc<dyn Source>,
    listing: Arc<Listing>,
    tools: Vec<Tool>,
    /// Oddities of the listing and of the tools, for the operator.
    warnings: Vec<String>,
    stopped: Vec<Stopped>,
}

impl ActiveListing {
    /// Makes tools of a listing. `before` names tools that the source had earlier.
    fn new(
        declared: &Arc<DeclaredSource>,
        files: &FileSnapshot,
        source: Arc<dyn Source>,
        listing: Arc<Listing>,
        before: &[String],
    ) -> Result<Self, NotOffered> {
        let SelectedTools { tools, warnings: odd, stopped } = tools::offered(declared, &listing, files, before)?;
        let warnings = listing.warnings.iter().cloned().chain(odd).collect();
        Ok(Self { declared: declared.clone(), files: files.clone(), source, listing, tools, warnings, stopped })
    }

    /// Whether it was started with the same settings and the same files.
    fn is_of(&self, declared: &DeclaredSource, files: &FileSnapshot) -> bool {
        self.declared.settings == declared.settings && self.files.says_the_same(files)
    }
}
