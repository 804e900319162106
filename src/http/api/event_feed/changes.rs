//! Notices changed tools and sources, by comparing them with those of before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::call::Caller;
use crate::catalog::Catalog;
use crate::sources::live::{LiveTools, SourceView};

/// What decides whether a tool has changed: the hash of its definition, and whether it is enabled.
type ToolState = (String, bool);

/// The tools that a subscriber knows.
pub(super) struct KnownTools(BTreeMap<String, ToolState>);

/// The data of `tools.changed`: names of tools of the caller.
#[derive(Debug, Default, Serialize)]
pub(super) struct ToolChanges {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
}

impl KnownTools {
    pub(super) fn new(catalog: &Catalog, caller: &Caller) -> Self {
        let tools = catalog.tools_for(caller).into_iter().map(|entry| {
            let state = (entry.definition_hash.clone(), entry.is_enabled());
            (entry.definition.name.to_string(), state)
        });
        Self(tools.collect())
    }

    /// How the tools of the caller differ from those of before; `None` if they do not.
    pub(super) fn update(&mut self, catalog: &Catalog, caller: &Caller) -> Option<ToolChanges> {
        let now = Self::new(catalog, caller);
        let before = std::mem::replace(&mut self.0, now.0);
        let mut changes = ToolChanges::default();
        for (name, state) in &self.0 {
            match before.get(name) {
                None => changes.added.push(name.clone()),
                Some(old) if old != state => changes.changed.push(name.clone()),
                Some(_) => {}
            }
        }
        let removed = before.into_keys().filter(|name| !self.0.contains_key(name));
        changes.removed.extend(removed);
        let is_same =
            changes.added.is_empty() && changes.removed.is_empty() && changes.changed.is_empty();
        (!is_same).then_some(changes)
    }
}

/// The sources that a subscriber knows.
pub(super) struct KnownSources {
    live: Arc<LiveTools>,
    known: Vec<SourceView>,
}

/// How a source has changed.
pub(super) enum SourceChange {
    /// The source is new, or has another state.
    Now(Box<SourceView>),
    /// There is no such source any more.
    Removed(Arc<str>),
}

impl KnownSources {
    pub(super) fn new(live: Arc<LiveTools>) -> Self {
        let known = live.sources();
        Self { live, known }
    }

    /// The sources that differ from those of before.
    pub(super) fn update(&mut self) -> Vec<SourceChange> {
        let now = self.live.sources();
        let before = std::mem::take(&mut self.known);
        let names: BTreeSet<&Arc<str>> = now.iter().map(|source| &source.name).collect();
        let gone = before.iter().filter(|old| !names.contains(&old.name));
        let gone = gone.map(|old| SourceChange::Removed(old.name.clone()));
        let changed = now.iter().filter(|source| !before.contains(source));
        let changed = changed.map(|source| SourceChange::Now(Box::new(source.clone())));
        let changes = gone.chain(changed).collect();
        self.known = now;
        changes
    }
}
