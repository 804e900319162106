//! Finds entries of the manifest's lists of tools that match no tool, and logs them.
//!
//! The check runs when all sources have settled, and again whenever the tools have changed.

use std::collections::HashSet;

use crate::catalog::registry::Catalog;
use crate::manifest::{Knowledge, ListEntry, Severity};

/// The entries of all lists, and which of them match no tool.
#[derive(Default)]
pub(super) struct ToolLists {
    entries: Vec<ListEntry>,
    /// Indices of the entries that the log has reported as matching no tool.
    unmatched: HashSet<usize>,
}

impl ToolLists {
    pub(super) fn new(entries: Vec<ListEntry>) -> Self {
        Self {
            entries,
            unmatched: HashSet::new(),
        }
    }

    /// Logs the entries that match no tool, and those reported before that match a tool now.
    pub(super) fn check(&mut self, catalog: &Catalog) {
        let names: Vec<&str> = catalog
            .entries()
            .flat_map(|entry| entry.definition.names())
            .collect();
        let Self { entries, unmatched } = self;
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
