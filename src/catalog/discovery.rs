//! Lists that have only the tools that find the others (`discovery:`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Catalog, Entry};
use crate::call::{Caller, ListBound, ToolName};
use crate::formats::Format;

impl Catalog {
    /// The part of a caller's tools that a list in this format shows. `found`: tools that the run has
    /// found already. All tools are shown if the list is short enough, or if the caller has no tool
    /// that finds others.
    pub fn shown_tools(
        &self,
        format: Format,
        caller: &Caller,
        entries: Vec<Arc<Entry>>,
        found: &BTreeSet<ToolName>,
    ) -> Vec<Arc<Entry>> {
        if !self.shortens(format, caller, &entries) {
            return entries;
        }
        let mut entries = self.with_finders(caller, entries);
        entries.retain(|entry| self.stays_listed(entry, found));
        entries
    }

    /// Whether Anthropic's list of these tools has all of them, and defers most.
    pub(crate) fn defers_tools(&self, caller: &Caller, entries: &[Arc<Entry>]) -> bool {
        let discovery = self.call_settings.discovery.as_ref();
        discovery.is_some_and(|discovery| discovery.defer_loading)
            && self.shortens(Format::Anthropic, caller, entries)
            && !entries
                .iter()
                .all(|entry| self.stays_listed(entry, &BTreeSet::new()))
    }

    /// The list for a model: the shown tools, and for Anthropic also the deferred ones with the
    /// mark `true`.
    pub(crate) fn list_for_model(
        &self,
        format: Format,
        caller: &Caller,
        entries: Vec<Arc<Entry>>,
        found: &BTreeSet<ToolName>,
    ) -> Vec<(Arc<Entry>, bool)> {
        if format != Format::Anthropic || !self.defers_tools(caller, &entries) {
            let shown = self.shown_tools(format, caller, entries, found);
            return shown.into_iter().map(|entry| (entry, false)).collect();
        }
        self.with_finders(caller, entries)
            .into_iter()
            // The model calls a tool that is loaded by its own name.
            .filter(|entry| !(entry.finds_tools() && entry.rules.runner.traits().calls_tools))
            .map(|entry| {
                let is_deferred = !self.stays_listed(&entry, found);
                (entry, is_deferred)
            })
            .collect()
    }

    /// Whether a list is too long, so that it is shortened.
    fn shortens(&self, format: Format, caller: &Caller, entries: &[Arc<Entry>]) -> bool {
        let discovery = self.call_settings.discovery.as_ref();
        let listed = || {
            let listed = entries.iter().filter(|entry| entry.is_available());
            listed.filter(|entry| !entry.finds_tools())
        };
        discovery.is_some_and(|discovery| {
            // One finds, the other calls.
            self.finders_for(caller).count() >= 2
                && match discovery.above {
                    ListBound::Tools(most) => listed().count() > most,
                    ListBound::Tokens(most) => {
                        listed().map(|entry| entry.tokens(format)).sum::<usize>() > most
                    }
                }
        })
    }

    /// Whether a shortened list has a tool.
    fn stays_listed(&self, entry: &Entry, found: &BTreeSet<ToolName>) -> bool {
        let name = &entry.definition.name;
        entry.finds_tools()
            || entry.runs_scripts()
            || self.kept.contains(name)
            || found.contains(name)
    }

    /// The tools that find others, and that this caller may use now.
    fn finders_for(&self, caller: &Caller) -> impl Iterator<Item = &Arc<Entry>> {
        let finders = self.finders.iter();
        let finders = finders.filter_map(|name| self.by_name.get(name));
        finders.filter(|entry| entry.is_available() && entry.allows(caller))
    }

    /// The same tools with those that find others, by name. A list of the tools with one tag has not
    /// got them.
    fn with_finders(&self, caller: &Caller, mut entries: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
        entries.retain(|entry| !entry.finds_tools());
        entries.extend(self.finders_for(caller).cloned());
        entries.sort_by(|one, other| one.definition.name.cmp(&other.definition.name));
        entries
    }
}
