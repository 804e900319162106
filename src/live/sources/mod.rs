//! Sources of tools while the service runs.
//!
//! `bring.rs` starts one beside what is there and tries again when that fails; `change.rs` puts what was listed in the
//! place of what was served, in one step, or keeps that; `tools.rs` makes tools of what is offered; `board.rs` is what
//! others see. Whatever changes holds the state of [`Live`](super::Live), and each change builds the catalog anew from
//! the world that is remembered there.

mod board;
mod bring;
mod change;
mod draft;
mod once;
mod tools;

use std::sync::Arc;

pub(super) use board::Board;
pub use board::{SourceState, SourceView};
pub use change::Restarting;
pub(super) use change::look;
pub(crate) use once::{Brought, once};

use self::bring::Start;
use self::draft::Draft;
use super::seen::Seen;
use crate::manifest::DeclaredSource;
use crate::tools::{Offer, Source, Tool};

/// All sources, the program's first, then as the manifest has them: of two that want one name the first gets it.
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
    /// Own names of the last good listing.
    listed: Vec<String>,
    start: Option<Start>,
}

impl Kept {
    /// It is being started, or waits to be.
    fn is_starting(&self) -> bool {
        self.start.as_ref().is_some_and(Start::is_under_way)
    }
}

/// A source that was listed, and the tools that were made of it.
#[derive(Clone)]
struct Serving {
    declared: Arc<DeclaredSource>,
    files: Seen,
    source: Arc<dyn Source>,
    offers: Arc<Vec<Offer>>,
    tools: Vec<Tool>,
}

impl Serving {
    /// What these offers come to, and what is odd about them.
    fn new(
        declared: &Arc<DeclaredSource>,
        files: &Seen,
        source: Arc<dyn Source>,
        offers: Arc<Vec<Offer>>,
    ) -> Result<(Self, Vec<String>), String> {
        let (tools, warnings) = tools::offered(declared, &offers, files)?;
        Ok((Self { declared: declared.clone(), files: files.clone(), source, offers, tools }, warnings))
    }

    /// Whether it was started with the same.
    fn is_of(&self, declared: &DeclaredSource, files: &Seen) -> bool {
        self.declared.settings == declared.settings && self.files.says_the_same(files)
    }
}
