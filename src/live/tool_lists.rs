//! Finds entries of the manifest's lists of tools that match no tool, and logs them.
//!
//! The check runs when all sources have settled, and again whenever the tools have changed.

use std::collections::HashSet;
use std::sync::PoisonError;

use super::LiveTools;
use crate::manifest::{Knowledge, ListEntry, Severity};

/// The entries of all lists, and which of them match no tool.
#[derive(Default)]
pub(super) struct ToolLists {
    entries: Vec<ListEntry>,
    /// Indices of the entries that the log has reported as matching no tool.
    unmatched: HashSet<usize>,
}

impl LiveTools {
    /// Replaces the lists with those of a new manifest.
    pub(super) fn replace_tool_lists(&self, entries: Vec<ListEntry>) {
        *self
            .tool_lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = ToolLists {
            entries,
            unmatched: HashSet::new(),
        };
        self.check_tool_lists();
    }

    /// Logs the entries that match no tool, and those reported before that match a tool now. Does
    /// nothing until all sources have settled, because their tools are not known before.
    pub(super) fn check_tool_lists(&self) {
        if !self
            .source_statuses
            .load()
            .iter()
            .all(|status| status.is_settled())
        {
            return;
        }
        let catalog = self.registry.catalog();
        let names: Vec<&str> = catalog
            .entries()
            .flat_map(|entry| entry.definition.names())
            .collect();
        let mut lists = self
            .tool_lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let ToolLists { entries, unmatched } = &mut *lists;
        for (at, entry) in entries.iter().enumerate() {
            match entry.finding_for(&names, Knowledge::Some) {
                Some(finding) if finding.severity == Severity::Warning && unmatched.insert(at) => {
                    tracing::warn!("{finding}");
                }
                Some(_) => {}
                None if unmatched.remove(&at) => tracing::info!("{entry} matches a tool now"),
                None => {}
            }
        }
    }
}
