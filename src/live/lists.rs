//! Entries of the manifest's lists of tools that mean no tool: told in the log when all sources have settled, and looked at again
//! whenever the tools have changed.

use std::collections::HashSet;
use std::sync::PoisonError;

use super::Live;
use crate::manifest::{Knowledge, ListEntry, Severity};

/// See the module.
#[derive(Default)]
pub(super) struct Lists {
    entries: Vec<ListEntry>,
    /// The entries, by number, of which the log says that they mean no tool.
    idle: HashSet<usize>,
}

impl Live {
    /// Puts the lists of a new manifest in the place of the old ones.
    pub(super) fn take_lists(&self, entries: Vec<ListEntry>) {
        *self.lists.lock().unwrap_or_else(PoisonError::into_inner) = Lists { entries, idle: HashSet::new() };
        self.judge_lists();
    }

    /// Says which entries mean no tool, and which of those said before mean one now. Before all sources have settled nobody
    /// knows.
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
