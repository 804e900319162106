//! The catalog: tools by name, callers by key.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::OnceCell;

use super::entry::Entry;
use super::tool_index::ToolIndex;
use crate::access::callers::{Callers, GrantedTool, Grants};
use crate::access::tool_pattern::{ToolPattern, any_grants};
use crate::call::Selection;
use crate::call::{CallSettings, Caller, Definition, Limit, Origin, ToolName};
use crate::formats::providers::Provider;
use crate::formats::{self, Format, ListedTool, NameRules};
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
    /// Tools that find or call the tools that a list leaves out.
    pub(super) finders: BTreeSet<ToolName>,
    /// `discovery.keep:`, and the tools that it matches.
    keep: Arc<[ToolPattern]>,
    pub(super) kept: BTreeSet<ToolName>,
    /// Names and aliases of all tools that this catalog will have, also of those that are not
    /// inserted yet.
    declared_names: Arc<HashSet<ToolName>>,
    /// Finds tools by words. Built when it is needed first, and again after a change.
    index: OnceCell<Arc<ToolIndex>>,
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
        let keep = calls.discovery.iter().flat_map(|one| &one.keep);
        Self {
            keep: keep.map(|text| ToolPattern::new(text)).collect(),
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

    /// The callers that may use a tool.
    pub(super) fn grants_for(&self, tool: GrantedTool<'_>) -> Grants {
        self.callers
            .grants_for(tool, |name| self.declared_names.contains(name))
    }

    /// Whether every caller that may use `one` may also use `other`.
    pub(crate) fn covers(&self, other: &Definition, one: &Definition) -> bool {
        let grants = |tool: &Definition| {
            self.grants_for(GrantedTool {
                names: &tool.names().collect::<Vec<_>>(),
                tags: &tool.tags,
                finds_tools: false,
            })
        };
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
        self.index = OnceCell::new();
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
        if entry.finds_tools() {
            self.finders.insert(name.clone());
        }
        let exists = |name: &str| self.declared_names.contains(name);
        if any_grants(&self.keep, entry.definition.names(), exists) {
            self.kept.insert(name.clone());
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
        self.index = OnceCell::new();
        self.by_name.remove(name);
        for names in [&mut self.result_readers, &mut self.finders, &mut self.kept] {
            names.remove(name);
        }
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

    /// The tools that this caller may use and that the selection has, by name.
    pub fn selected_tools(&self, caller: &Caller, selection: &Selection) -> Vec<Arc<Entry>> {
        let mut entries = self.tools_for(caller);
        entries.retain(|entry| entry.is_in(selection));
        entries
    }

    /// The tools that match a query and that `admits` accepts, the best first.
    pub fn find_tools(
        &self,
        query: &str,
        admits: impl Fn(&Entry) -> bool,
        limit: usize,
    ) -> Vec<Arc<Entry>> {
        self.tool_index().find(query, admits, limit)
    }

    /// The index, which is built once for a catalog.
    pub(super) fn tool_index(&self) -> Arc<ToolIndex> {
        if let Some(index) = self.index.get() {
            return index.clone();
        }
        let index = Arc::new(ToolIndex::new(self.by_name.values().cloned().collect()));
        // Another request may have built the same index meanwhile.
        let _ = self.index.set(index.clone());
        index
    }

    /// Each toolset with the tools of it that this caller may use. Sets without such tools are left
    /// out, unless the caller is an admin.
    pub fn toolsets_for(&self, caller: &Caller) -> Vec<(Arc<str>, Vec<Arc<Entry>>)> {
        let of_set = |name: &Arc<str>| {
            let toolset = Some(name.clone());
            let mut tools = self.selected_tools(caller, &Selection { tag: None, toolset });
            // They are in each set, so they would hide that a set is empty.
            tools.retain(|entry| !entry.finds_tools());
            (caller.admin || !tools.is_empty()).then(|| (name.clone(), tools))
        };
        self.callers.toolset_names().filter_map(of_set).collect()
    }

    /// Checks that a selection names a toolset that exists.
    ///
    /// # Errors
    /// A sentence that names the toolsets that this caller may use.
    pub fn check_selection(&self, caller: &Caller, selection: &Selection) -> Result<(), String> {
        let Some(name) = &selection.toolset else {
            return Ok(());
        };
        if self.callers.toolset_names().any(|known| known == name) {
            return Ok(());
        }
        let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
        let known = self.toolsets_for(caller).into_iter();
        let known: Vec<String> = known.map(|(name, _)| name.to_string()).collect();
        Err(match known.is_empty() {
            true => {
                format!("there is no toolset `{shown}`; the manifest declares none for this caller")
            }
            false => format!(
                "there is no toolset `{shown}`; there are {}",
                known.join(", ")
            ),
        })
    }

    /// The definitions of all enabled tools that this caller may use, ready for a model API.
    pub fn schemas(&self, format: Format, caller: &Caller) -> Value {
        self.render(format, &self.tools_for(caller))
    }

    /// These tools in the given format. Disabled tools are left out.
    pub fn render(&self, format: Format, entries: &[Arc<Entry>]) -> Value {
        self.render_tools(format, entries.iter().map(|entry| entry.to_listed_tool()))
    }

    /// The same, for tools of this catalog that a list shows differently.
    pub(crate) fn render_tools<'t>(
        &self,
        format: Format,
        tools: impl Iterator<Item = ListedTool<'t>>,
    ) -> Value {
        formats::render(format, tools, self.name_rules())
    }

    fn name_rules(&self) -> NameRules<'_> {
        NameRules {
            spellings: &self.spellings,
            matching: self.call_settings.name_matching,
        }
    }

    /// The name of a tool in the lists of a provider.
    pub(crate) fn name_for<'n>(&self, provider: Provider, tool: &'n Definition) -> Cow<'n, str> {
        self.name_rules()
            .name_for(provider, &tool.name, &tool.aliases)
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
