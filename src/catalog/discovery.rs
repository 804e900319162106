//! Lists that have only the tools that find the others (`discovery:`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Catalog, Entry};
use crate::access::tool_pattern::{ToolPattern, any_grants};
use crate::call::{Discovery, ListBound, ToolName};
use crate::formats::Format;

impl Catalog {
    /// The part of a caller's tools that a list in this format shows. `found`: tools that the run has
    /// found already. All tools are shown if the list is short enough, or if the caller has no tool
    /// that finds others.
    pub fn shown_tools(
        &self,
        format: Format,
        mut entries: Vec<Arc<Entry>>,
        found: &BTreeSet<ToolName>,
    ) -> Vec<Arc<Entry>> {
        if let Some(discovery) = self.shortens(format, &entries) {
            entries.retain(stays_listed(discovery, found));
        }
        entries
    }

    /// Whether Anthropic's list of these tools has all of them, and defers most.
    pub(crate) fn defers_tools(&self, entries: &[Arc<Entry>]) -> bool {
        let discovery = self.shortens(Format::Anthropic, entries);
        discovery.is_some_and(|discovery| {
            let found = BTreeSet::new();
            discovery.defer_loading && !entries.iter().all(stays_listed(discovery, &found))
        })
    }

    /// The list for a model: the shown tools, and for Anthropic also the deferred ones with the
    /// mark `true`.
    pub(crate) fn list_for_model(
        &self,
        format: Format,
        entries: Vec<Arc<Entry>>,
        found: &BTreeSet<ToolName>,
    ) -> Vec<(Arc<Entry>, bool)> {
        let deferring = self.call_settings.discovery.as_ref();
        let deferring = deferring
            .filter(|_| format == Format::Anthropic)
            .filter(|_| self.defers_tools(&entries));
        let Some(discovery) = deferring else {
            let shown = self.shown_tools(format, entries, found);
            return shown.into_iter().map(|entry| (entry, false)).collect();
        };
        let mut is_loaded = stays_listed(discovery, found);
        entries
            .into_iter()
            // The model calls a tool that is loaded by its own name.
            .filter(|entry| !(entry.finds_tools() && entry.rules.runner.traits().calls_tools))
            .map(|entry| {
                let is_deferred = !is_loaded(&entry);
                (entry, is_deferred)
            })
            .collect()
    }

    /// The rules that shorten this list, if it is too long.
    fn shortens(&self, format: Format, entries: &[Arc<Entry>]) -> Option<&Discovery> {
        let discovery = self.call_settings.discovery.as_ref();
        discovery.filter(|discovery| is_too_long(discovery, format, entries))
    }
}

/// Whether a shortened list has a tool.
fn stays_listed(
    discovery: &Discovery,
    found: &BTreeSet<ToolName>,
) -> impl FnMut(&Arc<Entry>) -> bool {
    let keep = ToolPattern::parse_list(&discovery.keep);
    move |entry| {
        entry.finds_tools()
            || found.contains(&entry.definition.name)
            || any_grants(&keep, entry.definition.names(), |_| false)
    }
}

fn is_too_long(discovery: &Discovery, format: Format, entries: &[Arc<Entry>]) -> bool {
    let listed = || entries.iter().filter(|entry| entry.is_available());
    let finders = listed().filter(|entry| entry.finds_tools()).count();
    let others = || listed().filter(|entry| !entry.finds_tools());
    // One finds, the other calls.
    finders >= 2
        && match discovery.above {
            ListBound::Tools(most) => others().count() > most,
            ListBound::Tokens(most) => {
                others().map(|entry| entry.tokens(format)).sum::<usize>() > most
            }
        }
}
