//! Sources of tools while the service runs.
//!
//! `bring.rs` starts one beside what is there and tries again when that fails; `change.rs` puts what was listed in the
//! place of what was served, in one step, or keeps that; `watching.rs` lists again when a source says that its tools have
//! changed; `listing.rs` is what of that can be used, `tools.rs` makes tools of it, with `hints.rs` for what foreign ones say
//! of effects; `board.rs` is what others see. Whatever changes holds the state of [`Live`](super::Live), and each change builds the catalog anew from
//! the world that is remembered there.

mod board;
mod bring;
mod change;
mod draft;
mod hints;
mod listing;
mod once;
mod tools;
mod watching;

use std::sync::Arc;

pub(super) use board::Board;
pub use board::{SourceState, SourceView, Stopped};
pub use change::Restarting;
pub(super) use change::look;
pub(crate) use once::{Brought, once};

use self::bring::Start;
use self::draft::Draft;
use self::listing::Listing;
use self::tools::{NotOffered, Offered};
use self::watching::Watching;
use super::seen::Seen;
use crate::call::ToolName;
use crate::manifest::DeclaredSource;
use crate::registry::LeftOut;
use crate::tools::{Source, Tool};

/// All sources, the program's first, then as the manifest has them: of two that want one name the first gets it, but none from
/// one that is the operator's own, and no foreign one a name that is served.
#[derive(Default)]
pub(super) struct Sources(Vec<Kept>);

/// One source.
struct Kept {
    /// What is wanted of it.
    declared: Arc<DeclaredSource>,
    /// Its files when it was last started.
    files: Seen,
    board: Arc<Board>,
    /// What is served; not always what is wanted.
    serving: Option<Serving>,
    /// Why what is wanted is not served, though it could be listed.
    refused: Option<String>,
    /// Tools of what is served whose names are others'.
    left_out: Vec<LeftOut>,
    /// Own names of the last good listing.
    listed: Vec<String>,
    start: Option<Start>,
    /// Waits for what is served to say that its tools have changed.
    watching: Option<Watching>,
}

impl Kept {
    /// Names of its tools that can be called.
    fn has(&self) -> Vec<ToolName> {
        let tools = self.serving.iter().flat_map(|serving| &serving.tools).filter(|tool| !tool.stopped);
        let served = tools.filter(|tool| self.left_out.iter().all(|out| out.tool != tool.definition.name));
        let names = served.flat_map(|tool| std::iter::once(&tool.definition.name).chain(&tool.definition.aliases));
        names.cloned().collect()
    }

    /// It is being started or listed again, or waits to be.
    fn is_starting(&self) -> bool {
        self.start.as_ref().is_some_and(Start::is_under_way) || self.watching.as_ref().is_some_and(Watching::is_listing)
    }
}

/// A source that was listed, and the tools that were made of it.
#[derive(Clone)]
struct Serving {
    declared: Arc<DeclaredSource>,
    files: Seen,
    source: Arc<dyn Source>,
    listing: Arc<Listing>,
    tools: Vec<Tool>,
    /// What is odd about the listing and the tools.
    warnings: Vec<String>,
    stopped: Vec<Stopped>,
}

impl Serving {
    /// What this listing comes to. `before` are tools that the source once had.
    fn new(
        declared: &Arc<DeclaredSource>,
        files: &Seen,
        source: Arc<dyn Source>,
        listing: Arc<Listing>,
        before: &[String],
    ) -> Result<Self, NotOffered> {
        let Offered { tools, warnings: odd, stopped } = tools::offered(declared, &listing, files, before)?;
        let warnings = listing.warnings.iter().cloned().chain(odd).collect();
        Ok(Self { declared: declared.clone(), files: files.clone(), source, listing, tools, warnings, stopped })
    }

    /// Whether it was started with the same.
    fn is_of(&self, declared: &DeclaredSource, files: &Seen) -> bool {
        self.declared.settings == declared.settings && self.files.says_the_same(files)
    }
}
