//! A source as it would be in the next catalog.

use std::sync::Arc;

use super::status_tracker::StatusTracker;
use super::{ActiveListing, SourceEntry, tools};
use crate::call::ToolName;
use crate::live::file_snapshot::FileSnapshot;
use crate::manifest::DeclaredSource;
use crate::registry::SourceTools;

/// The plan for one source. The registry decides which candidate is served.
pub(super) struct SourcePlan {
    pub(super) declared: Arc<DeclaredSource>,
    pub(super) files: FileSnapshot,
    pub(super) status: Arc<StatusTracker>,
    /// What could be served, the most wanted first.
    pub(super) candidates: Vec<ActiveListing>,
    /// Why the most wanted state is not among the candidates.
    pub(super) fault: Option<String>,
    /// Whether the status must be updated: there is a new candidate or fault, or an old fault has
    /// ended.
    pub(super) needs_status_update: bool,
    pub(super) listed_names: Vec<String>,
    /// Names of the tools that it serves now.
    current_names: Vec<ToolName>,
}

impl SourcePlan {
    /// The plan for a source under this declaration. `before` is its entry, if it exists already.
    pub(super) fn new(
        before: Option<&SourceEntry>,
        declared: Arc<DeclaredSource>,
        files: FileSnapshot,
        added_late: bool,
    ) -> Self {
        let status = before.map(|entry| entry.status.clone());
        let status = status.unwrap_or_else(|| {
            StatusTracker::new(declared.name(), declared.settings.source_kind(), added_late)
        });
        let listed_names = before
            .map(|entry| entry.listed_names.clone())
            .unwrap_or_default();
        let (mut candidates, mut fault) = (Vec::new(), None);
        // A refusal without a further attempt is forgotten here. If the reason still holds, it is
        // found again.
        let was_refused =
            before.is_some_and(|entry| entry.refusal.is_some() && !entry.is_starting());
        if let Some(active) = before.and_then(|entry| entry.active.as_ref()) {
            // Only the rules for the tools have changed. So the source continues, and its listing
            // is read under the new rules.
            let rules_of =
                |source: &DeclaredSource| (source.rules.clone(), source.written_settings.clone());
            if active.was_started_with(&declared, &files)
                && rules_of(&active.declared) != rules_of(&declared)
            {
                match ActiveListing::new(
                    &declared,
                    &files,
                    active.source.clone(),
                    active.listing.clone(),
                    &listed_names,
                ) {
                    Ok(active) => candidates.push(active),
                    Err(unusable) => fault = Some(unusable.why),
                }
            }
            candidates.push(active.clone());
        }
        let needs_status_update = was_refused || fault.is_some() || candidates.len() > 1;
        let current_names = before.map(SourceEntry::callable_names).unwrap_or_default();
        Self {
            declared,
            files,
            status,
            candidates,
            fault,
            needs_status_update,
            listed_names,
            current_names,
        }
    }

    /// The plan for a source whose declaration has not changed.
    pub(super) fn for_unchanged(entry: &SourceEntry) -> Self {
        Self::new(
            Some(entry),
            entry.declared.clone(),
            entry.files.clone(),
            false,
        )
    }

    pub(super) fn to_source_tools(&self) -> SourceTools {
        SourceTools {
            source: self.status.name.clone(),
            prefix: self.declared.rules.prefix.clone(),
            choices: self
                .candidates
                .iter()
                .map(|active| active.tools.clone())
                .collect(),
            fallback: tools::unavailable_tools(&self.declared, &self.listed_names, &self.status),
            all_or_nothing: !self.declared.settings.may_lose_tools(),
            current_names: self.current_names.clone(),
            assigned_names: tools::declared_names(&self.declared),
            unlisted: tools::unlisted_answer(&self.declared, &self.status),
        }
    }
}
