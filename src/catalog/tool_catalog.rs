//! The catalog: tools by name, callers by key.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::entry::Entry;
use crate::access::callers::{Callers, Grants};
use crate::call::{CallSettings, Caller, Definition, Limit, Origin, ToolName};
use crate::formats::{self, Format, NameRules};
use crate::kinds::{BuildError, Tool, UnavailableReason};
use crate::text::changes::Changes;
use crate::text::names::Spellings;

/// The tools and callers at one moment. `registry/` holds the current one.
#[derive(Clone, Default)]
pub struct Catalog {
    pub(super) by_name: BTreeMap<ToolName, Arc<Entry>>,
    pub(super) aliases: HashMap<ToolName, ToolName>,
    pub(super) spellings: Spellings,
    pub(super) unlisted: Vec<UnlistedSource>,
    pub(super) callers: Arc<Callers>,
    pub(super) caller_limits: Arc<HashMap<Arc<str>, Vec<Limit>>>,
    pub(super) call_settings: CallSettings,
    /// Tools that read pages of stored results.
    result_readers: BTreeSet<ToolName>,
    /// Names and aliases of all tools that this catalog will have, also of those that are not
    /// inserted yet.
    declared_names: Arc<HashSet<ToolName>>,
}

/// A source that is unavailable, so that not all names of its tools are known.
#[derive(Clone)]
pub struct UnlistedSource {
    /// The prefix of all its tools' names.
    pub prefix: String,
    /// Why the source is unavailable.
    pub reason: Arc<UnavailableReason>,
}

impl Catalog {
    /// Makes a catalog without tools.
    pub fn new(callers: Arc<Callers>, calls: CallSettings) -> Self {
        let caller_limits = Arc::new(callers.limits());
        Self {
            callers,
            caller_limits,
            call_settings: calls,
            ..Self::default()
        }
    }

    /// The limits that callers have over all tools.
    pub(crate) fn caller_limits(&self) -> &HashMap<Arc<str>, Vec<Limit>> {
        &self.caller_limits
    }

    /// A catalog with the same callers and settings, and without tools.
    pub(crate) fn without_tools(&self) -> Self {
        Self::new(self.callers.clone(), self.call_settings.clone())
    }

    /// Sets the names of all tools before the first one is built. An entry of a caller's `allow`
    /// that is the name of one tool must grant no other tool.
    pub(crate) fn set_declared_names<'t>(&mut self, tools: impl Iterator<Item = &'t Tool>) {
        let names = tools.flat_map(|tool| {
            std::iter::once(&tool.definition.name).chain(&tool.definition.aliases)
        });
        self.declared_names = Arc::new(names.cloned().collect());
    }

    /// The callers that may use the tool with these names.
    pub(super) fn grants_for(&self, names: &[&str]) -> Grants {
        self.callers
            .grants_for(names, |name| self.declared_names.contains(name))
    }

    /// Whether every caller that may use `one` may also use `other`.
    pub(crate) fn covers(&self, other: &Definition, one: &Definition) -> bool {
        let grants = |tool: &Definition| self.grants_for(&tool.names().collect::<Vec<_>>());
        grants(other).covers(&grants(one))
    }

    /// How messages of models are treated.
    pub fn call_settings(&self) -> &CallSettings {
        &self.call_settings
    }

    /// The callers with their grants and limits.
    pub fn callers(&self) -> &Callers {
        &self.callers
    }

    /// Adds an entry. An error if another tool has one of its names.
    pub(crate) fn insert(&mut self, entry: Arc<Entry>) -> Result<(), BuildError> {
        let mut own = HashSet::new();
        if let Some(taken) = entry
            .names()
            .find(|name| self.get(name.as_str()).is_some() || !own.insert(*name))
        {
            return Err(BuildError::DuplicateTool(taken.to_string()));
        }
        let name = entry.definition.name.clone();
        for spelt in entry.names() {
            self.spellings.insert(spelt, &name);
        }
        self.aliases.extend(
            entry
                .definition
                .aliases
                .iter()
                .map(|alias| (alias.clone(), name.clone())),
        );
        if entry.rules.runner.traits().reads_results {
            self.result_readers.insert(name.clone());
        }
        self.by_name.insert(name, entry);
        Ok(())
    }

    /// Adds a source that is unavailable. Names with its prefix are then not unknown, but not
    /// listed yet.
    pub(crate) fn add_unlisted_source(&mut self, source: UnlistedSource) {
        self.unlisted.push(source);
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
        self.result_readers.remove(name);
        self.aliases.retain(|_, real| real.as_str() != name);
        self.spellings.remove(name);
    }

    /// The tool with this name or alias.
    pub fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        let found = self.by_name.get(name);
        found.or_else(|| {
            self.aliases
                .get(name)
                .and_then(|real| self.by_name.get(real))
        })
    }

    /// A tool by which this caller may read pages of stored results, among those that `may` admits.
    pub(crate) fn find_result_reader(
        &self,
        caller: &Caller,
        may: impl Fn(&Entry) -> bool,
    ) -> Option<ToolName> {
        let usable =
            |entry: &&Arc<Entry>| entry.is_available() && entry.allows(caller) && may(entry);
        let mut readers = self
            .result_readers
            .iter()
            .filter_map(|name| self.by_name.get(name));
        readers
            .find(usable)
            .map(|entry| entry.definition.name.clone())
    }

    /// Number of tools.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are no tools.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Number of tools with this origin.
    pub fn count_by_origin(&self, origin: Origin) -> usize {
        self.by_name
            .values()
            .filter(|entry| entry.origin == origin)
            .count()
    }

    /// All tools, by name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.by_name.values().map(|entry| &**entry)
    }

    /// The tools that this caller may use, by name.
    pub fn tools_for(&self, caller: &Caller) -> Vec<Arc<Entry>> {
        self.by_name
            .values()
            .filter(|entry| entry.allows(caller))
            .cloned()
            .collect()
    }

    /// The definitions of all enabled tools that this caller may use, ready for a model API.
    pub fn schemas(&self, format: Format, caller: &Caller) -> Value {
        self.render(format, &self.tools_for(caller))
    }

    /// These tools in the given format. Disabled tools are left out.
    pub fn render(&self, format: Format, entries: &[Arc<Entry>]) -> Value {
        let names = NameRules {
            spellings: &self.spellings,
            matching: self.call_settings.name_matching,
        };
        formats::render(
            format,
            entries.iter().map(|entry| entry.to_listed_tool()),
            names,
        )
    }

    /// The differences between this catalog's tools and those of the catalog before.
    pub fn changes_since<'a>(&'a self, before: &'a Catalog) -> Changes {
        let named = |catalog: &'a Catalog| {
            catalog
                .by_name
                .iter()
                .map(|(name, entry)| (name.as_str(), entry))
        };
        Changes::between(named(before), named(self), |one, other| {
            Arc::ptr_eq(one, other) || one.parts() == other.parts()
        })
    }
}
