//! A source as it would be in the next catalog.

use std::sync::Arc;

use super::status_board::SourceStatusBoard;
use super::{ActiveListing, SourceEntry, tools};
use crate::call::ToolName;
use crate::live::file_snapshot::FileSnapshot;
use crate::manifest::DeclaredSource;
use crate::registry::SourceTools;

/// The plan for one source. The registry decides which candidate is served.
pub(super) struct SourcePlan {
    pub(super) declared: Arc<DeclaredSource>,
    pub(super) files: FileSnapshot,
    pub(super) board: Arc<SourceStatusBoard>,
    /// What could be served, the most wanted first.
    pub(super) candidates: Vec<ActiveListing>,
    /// Why the most wanted state is not among the candidates.
    pub(super) fault: Option<String>,
    /// Whether the status must be updated: there is a new candidate or fault, or an old fault has ended.
    pub(super) is_new: bool,
    pub(super) listed: Vec<String>,
    /// Names of the tools that it serves now.
    has: Vec<ToolName>,
}

impl SourcePlan {
    /// The plan for a source under this declaration. `before` is its entry, if it exists already.
    pub(super) fn new(
        before: Option<&SourceEntry>,
        declared: Arc<DeclaredSource>,
        files: FileSnapshot,
        late: bool,
    ) -> Self {
        let board = before.map(|kept| kept.board.clone());
        let board = board.unwrap_or_else(|| SourceStatusBoard::new(declared.name(), declared.settings.kind(), late));
        let listed = before.map(|kept| kept.listed.clone()).unwrap_or_default();
        let (mut candidates, mut fault) = (Vec::new(), None);
        // A refusal without a further attempt is forgotten here. If the reason still holds, it is found again.
        let was_refused = before.is_some_and(|kept| kept.refused.is_some() && !kept.is_starting());
        if let Some(serving) = before.and_then(|kept| kept.serving.as_ref()) {
            // Only the rules for the tools have changed. So the source continues, and its listing is read under the new
            // rules.
            let says = |of: &DeclaredSource| (of.rules.clone(), of.written.clone());
            if serving.is_of(&declared, &files) && says(&serving.declared) != says(&declared) {
                match ActiveListing::new(&declared, &files, serving.source.clone(), serving.listing.clone(), &listed) {
                    Ok(serving) => candidates.push(serving),
                    Err(refused) => fault = Some(refused.why),
                }
            }
            candidates.push(serving.clone());
        }
        let is_new = was_refused || fault.is_some() || candidates.len() > 1;
        let has = before.map(SourceEntry::has).unwrap_or_default();
        Self { declared, files, board, candidates, fault, is_new, listed, has }
    }

    /// The plan for a source whose declaration has not changed.
    pub(super) fn of(kept: &SourceEntry) -> Self {
        Self::new(Some(kept), kept.declared.clone(), kept.files.clone(), false)
    }

    pub(super) fn group(&self) -> SourceTools {
        SourceTools {
            source: self.board.name.clone(),
            prefix: self.declared.rules.prefix.clone(),
            choices: self.candidates.iter().map(|serving| serving.tools.clone()).collect(),
            otherwise: tools::stand_ins(&self.declared, &self.listed, &self.board),
            whole: !self.declared.settings.is_foreign(),
            has: self.has.clone(),
            known: tools::known(&self.declared),
            unlisted: tools::unlisted(&self.declared, &self.board),
        }
    }
}
