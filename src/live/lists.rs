//! Finds entries of the manifest's lists of tools that match no tool, and logs them.
//!
//! The check runs when all sources have settled, and again whenever the tools have changed.

use std::collections::HashSet;
use std::sync::PoisonError;

use super::Live;
use crate::manifest::{Knowledge, ListEntry, Severity};

/// The entries of all lists, and which of them match no tool.
#[derive(Default)]
pub(super) struct Lists {
    entries: Vec<ListEntry>,
    /// Indices of the entries that the log has reported as matching no tool.
    idle: HashSet<usize>,
}

impl Live {
    /// Replaces the lists with those of a new manifest.
    pub(super) fn take_lists(&self, entries: Vec<ListEntry>) {
        *self.lists.lock().unwrap_or_else(PoisonError::into_inner) = Lists { entries, idle: HashSet::new() };
        self.judge_lists();
    }

    /// Logs the entries that match no tool, and those reported before that match a tool now. Does nothing until all
    /// sources have settled, because their tools are not known before.
    pub(super) fn judge_lists(&self) {
        if !self.shown.load().iter().all(|board| board.is_settled()) {
            return;
        }
        let catalog = self.registry.catalog();
        let names: Vec<&str> = catalog.entries().flat_map(|entry| entry.definition.names()).collect();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let Lists { entries, idle } = &mut *lists;
        for (at, entry) in entries.iter().enumerate() {
            match entry.finding(&names, Knowledge::Some) {
                Some(finding) if finding.severity == Severity::Warning && idle.insert(at) => {
                    tracing::warn!("{finding}");
                }
                Some(_) => {}
                None if idle.remove(&at) => tracing::info!("{entry} means a tool now"),
                None => {}
            }
        }
    }
}
