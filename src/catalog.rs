//! The tools and callers at one moment: names lead to stacks, keys lead to callers.
//!
//! A catalog in use never changes; `registry.rs` replaces it as a whole. So a task that holds a
//! catalog sees one consistent state. An entry lives as long as a call runs in its stack.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::call::json::hash_parts;
use crate::call::{
    CallSettings, Caller, Definition, Effect, Kind, Limit, NameMatching, Origin, Policy, Services,
    ToolName,
};
use crate::callers::{Callers, Grants};
use crate::changes::Changes;
pub use crate::definition_hash::definition_hash;
use crate::definition_hash::{definition_fields, hash_fields};
use crate::formats::{self, Format, ListedTool, NameRules};
use crate::middleware::cache::ToolCache;
use crate::middleware::circuit_breaker::{Breaker, BreakerStatus};
use crate::middleware::concurrency::ToolPermits;
use crate::middleware::usage_limit::ChargeRules;
use crate::middleware::validate::ArgumentRules;
use crate::names::{Spellings, strip_known_prefix};
use crate::schema::{Schema, SchemaFault};
use crate::stack::{self, SharedParts, ToolService};
use crate::tools::{BuildError, DeclaredSettings, Runner, Tool, UnavailableReason};

/// Maximum number of suggested names.
const MAX_SUGGESTIONS: usize = 3;

/// A tool with its stack.
pub struct Entry {
    /// The part of the tool that callers see.
    pub definition: Definition,
    /// The way in which the tool runs.
    pub kind: Kind,
    /// Where the tool was declared.
    pub origin: Origin,
    /// The operator's decisions about the tool.
    pub policy: Policy,
    /// SHA-256, in hex, of everything that identifies the tool: its definition and the way it runs.
    pub definition_hash: String,
    /// SHA-256 of the definition as callers see it, with the author's order of keys. Another order
    /// gives another hash.
    pub(crate) shown_hash: [u8; 32],
    /// The rules that arguments must match.
    pub rules: Arc<ArgumentRules>,
    pub(crate) charge_rules: Arc<ChargeRules>,
    pub(crate) service: ToolService,
    /// The tool's stored results.
    pub(crate) tool_cache: Option<Arc<ToolCache>>,
    settings: DeclaredSettings,
    quarantined: bool,
    grants: Arc<Grants>,
    enabled: Arc<AtomicBool>,
    breaker: Option<Arc<Breaker>>,
    permits: ToolPermits,
}

impl Entry {
    /// Whether the tool is enabled.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Whether a call can run now: the tool is enabled and approved, and its runner is available.
    pub fn is_available(&self) -> bool {
        self.is_enabled() && !self.quarantined && self.rules.runner.is_available()
    }

    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether this caller may use the tool.
    pub fn allows(&self, caller: &Caller) -> bool {
        self.grants.allows(caller)
    }

    /// The tool name for a call that a caller made as `requested`. A caller that may not use the
    /// tool gets `requested` back, so it learns no other name of the tool.
    pub(crate) fn name_shown_to(&self, caller: &Caller, requested: &str) -> ToolName {
        let requested = (!self.allows(caller))
            .then(|| ToolName::parse(requested).ok())
            .flatten();
        requested.unwrap_or_else(|| self.definition.name.clone())
    }

    /// The state of the circuit breaker; `None` if the tool has none.
    pub fn breaker_status(&self) -> Option<BreakerStatus> {
        self.breaker.as_ref().map(|breaker| breaker.status())
    }

    /// What formats show of the tool.
    pub(crate) fn to_listed_tool(&self) -> ListedTool<'_> {
        ListedTool {
            definition: &self.definition,
            effect: self.policy.effect,
            available: self.is_available(),
        }
    }

    /// The tool's name and its aliases.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ToolName> {
        std::iter::once(&self.definition.name).chain(&self.definition.aliases)
    }

    /// Whether both entries were built from the same parts. Runners from the manifest are equal if
    /// their manifest text is equal.
    fn is_same_as(&self, other: &Entry) -> bool {
        let Entry {
            definition,
            policy,
            settings,
            rules,
            shown_hash,
            ..
        } = other;
        self.matches_parts(
            definition,
            shown_hash,
            (other.kind, other.origin, other.quarantined),
            policy,
            settings,
            &rules.runner,
        )
    }

    fn matches_parts(
        &self,
        definition: &Definition,
        shown_hash: &[u8; 32],
        state: (Kind, Origin, bool),
        policy: &Policy,
        settings: &DeclaredSettings,
        runner: &Arc<dyn Runner>,
    ) -> bool {
        let is_declared = settings.base_dir.is_some();
        (self.kind, self.origin, self.quarantined) == state
            && self.definition == *definition
            && self.shown_hash == *shown_hash
            && self.policy == *policy
            && self.settings == *settings
            && (is_declared || Arc::ptr_eq(&self.rules.runner, runner))
    }
}

/// The tools and callers at one moment. `registry.rs` holds the current one.
#[derive(Clone, Default)]
pub struct Catalog {
    by_name: BTreeMap<ToolName, Arc<Entry>>,
    aliases: HashMap<ToolName, ToolName>,
    spellings: Spellings,
    unlisted: Vec<UnlistedSource>,
    callers: Arc<Callers>,
    caller_limits: Arc<HashMap<Arc<str>, Vec<Limit>>>,
    call_settings: CallSettings,
    /// Tools that read pages of stored results.
    result_readers: BTreeSet<ToolName>,
    /// Names and aliases of all tools that this catalog will have, also of those that are not
    /// inserted yet.
    declared_names: Arc<HashSet<ToolName>>,
}

/// How a name matched its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameMatch {
    /// It is the tool's name or a declared alias.
    Exact,
    /// It is another spelling of the name or an alias.
    Spelling,
    /// It is similar to the name or an alias.
    Similar,
}

impl NameMatch {
    /// A warning for the answer if the name was not exact.
    pub fn warning(self, requested: &str, entry: &Entry) -> Option<String> {
        let name = &entry.definition.name;
        (self != Self::Exact)
            .then(|| format!("called as `{requested}`; the tool's name is `{name}`"))
    }
}

/// Why a name leads to no tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No tool matches, or more than one.
    #[error("there is no tool of this name")]
    Unknown {
        /// Names that were probably meant, the most probable first.
        did_you_mean: Vec<String>,
    },
    /// A source that is not listed yet may have a tool of this name.
    #[error("{reason}")]
    Unlisted {
        /// Why the source is not listed.
        reason: String,
        /// When a further call may succeed, if known.
        retry_after: Option<Duration>,
    },
}

/// A source that is unavailable, so that not all names of its tools are known.
#[derive(Clone)]
pub struct UnlistedSource {
    /// The prefix of all its tools' names.
    pub prefix: String,
    /// Why the source is unavailable.
    pub reason: Arc<UnavailableReason>,
}

/// The inputs for building entries.
pub(crate) struct BuildEnv<'a> {
    pub(crate) shared: &'a SharedParts,
    pub(crate) services: &'a Services,
    /// The switches that admins have set, by tool name.
    pub(crate) switches: &'a HashMap<String, bool>,
    /// The catalog that is replaced. An unchanged tool keeps its whole stack. A changed tool keeps
    /// its permits, because a change must not let twice as many calls run.
    pub(crate) before: &'a Catalog,
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
    fn grants_for(&self, names: &[&str]) -> Grants {
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

    /// Builds the entry of a tool for this catalog: compiles its schemas and builds its stack.
    pub(crate) fn build(&self, tool: Tool, env: &BuildEnv<'_>) -> Result<Arc<Entry>, BuildError> {
        let mut tool = tool
            .validate()?
            .without_large_output_schema()
            .separate_cached_results();
        let own_schema = tool.definition.input_schema.clone();
        let page_fields = tool.add_page_parameters()?;
        let (all, context) = (definition_fields(&tool), tool.context_fields());
        let definition_hash = hash_fields(&all);
        let shown_hash = hash_parts([all.to_string().as_bytes()]);
        let Tool {
            definition,
            kind,
            origin,
            policy,
            settings,
            quarantined,
            runner,
            ..
        } = tool;
        let policy = Policy {
            capture: policy.capture.or(Some(env.shared.capture)),
            ..policy.with_bounded_times()
        };
        let name = definition.name.clone();
        let grants = Arc::new(self.grants_for(&definition.names().collect::<Vec<_>>()));
        let is_on = env
            .switches
            .get(name.as_str())
            .copied()
            .unwrap_or(policy.enabled);
        // An unchanged tool keeps its entry, so its stack, counters and switches stay. With other
        // grants or caller limits it gets a new stack, but keeps its breaker: the runner is the
        // same.
        let before = env.before.by_name.get(&name);
        let same = before.filter(|before| {
            before.matches_parts(
                &definition,
                &shown_hash,
                (kind, origin, quarantined),
                &policy,
                &settings,
                &runner,
            )
        });
        if let Some(same) = same.filter(|same| {
            *same.grants == *grants && *same.charge_rules.caller_limits() == *self.caller_limits
        }) {
            same.set_enabled(is_on);
            return Ok(same.clone());
        }
        let breaker = match same {
            Some(same) => same.breaker.clone(),
            None => runner.has_one_target().then(Arc::default),
        };
        let fault = |schema: &'static str, fault: SchemaFault| BuildError::InvalidSchema {
            tool: name.to_string(),
            schema,
            message: fault.to_string(),
        };
        let input = Schema::compile_input(own_schema).map_err(|f| fault("input_schema", f))?;
        let output = definition
            .output_schema
            .clone()
            .map(Schema::compile)
            .transpose();
        let output = output.map_err(|f| fault("output_schema", f))?;
        let rules = Arc::new(ArgumentRules {
            schema: Arc::new(input),
            runner,
            context: context.clone(),
            cache_key_fields: policy
                .cache
                .as_ref()
                .and_then(|cache| cache.context.clone())
                .unwrap_or_default(),
            strict: policy.strict,
            page_fields,
            validation_pool: env.shared.validation_pool.clone(),
            timeout: policy.timeout,
        });
        let enabled = Arc::new(AtomicBool::new(is_on));
        let permits_before = before.map(|before| (before.policy.concurrency, &before.permits));
        let permits = ToolPermits::new(policy.concurrency, permits_before);
        let charge_rules = Arc::new(ChargeRules::new(
            &name,
            &policy.limits,
            self.caller_limits.clone(),
        ));
        let tool_layers = stack::ToolLayers {
            name,
            definition_hash: definition_hash.clone(),
            generation: hash_parts([definition_hash.as_bytes(), &settings.generation]),
            policy: policy.clone(),
            rules: rules.clone(),
            output_schema: output.map(Arc::new),
            paging: definition.paging,
            settings: Arc::new(settings.to_tool_settings(env.services, policy.effect, context)),
            grants: grants.clone(),
            enabled: enabled.clone(),
            quarantined,
            breaker: breaker.clone(),
            permits: permits.clone(),
            charge_rules: charge_rules.clone(),
        };
        let (service, tool_cache) = stack::build_stack(tool_layers, env.shared);
        Ok(Arc::new(Entry {
            definition,
            kind,
            origin,
            policy,
            definition_hash,
            shown_hash,
            rules,
            charge_rules,
            service,
            tool_cache,
            settings,
            quarantined,
            grants,
            enabled,
            breaker,
            permits,
        }))
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
        if entry.rules.runner.reads_results() {
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

    /// The tool that a caller's name means: by name, by alias, and as far as `calls.name_matching`
    /// permits by another spelling or by similarity. A tool that the caller may not use is found
    /// only by its exact names. So it neither hides another tool nor becomes known.
    ///
    /// # Errors
    /// When no tool matches, or more than one. A name that an unavailable source may have never
    /// matches a merely similar tool.
    pub fn resolve(
        &self,
        name: &str,
        caller: &Caller,
    ) -> Result<(&Arc<Entry>, NameMatch), ResolveError> {
        if let Some(entry) = self.get(name) {
            return Ok((entry, NameMatch::Exact));
        }
        let matching = self.call_settings.name_matching;
        if matching != NameMatching::Exact
            && let Some(found) = self.resolve_spelling(name, caller)
        {
            return Ok(found);
        }
        if let Some(source) = self.find_unlisted_source(name, caller) {
            let (reason, retry_after) = (source.reason)();
            return Err(ResolveError::Unlisted {
                reason,
                retry_after,
            });
        }
        let found = (matching == NameMatching::Similar)
            .then(|| self.resolve_similar(name, caller))
            .flatten();
        found.ok_or_else(|| ResolveError::Unknown {
            did_you_mean: self.did_you_mean(name, caller),
        })
    }

    /// The unavailable source that may have a tool of this name, if this caller may use that tool.
    fn find_unlisted_source(&self, name: &str, caller: &Caller) -> Option<&UnlistedSource> {
        let bare = strip_known_prefix(name)
            .filter(|_| self.call_settings.name_matching != NameMatching::Exact);
        let names = || {
            std::iter::once(name)
                .chain(bare)
                .filter(|name| ToolName::parse(name).is_ok())
        };
        self.unlisted.iter().find(|source| {
            let is_its =
                |name: &str| name.len() > source.prefix.len() && name.starts_with(&source.prefix);
            names().any(|name| is_its(name) && self.grants_for(&[name]).allows(caller))
        })
    }

    fn resolve_spelling(&self, name: &str, caller: &Caller) -> Option<(&Arc<Entry>, NameMatch)> {
        match self
            .spellings
            .matching_tools(name, |tool| self.is_allowed_tool(tool, caller))[..]
        {
            [only] => self
                .by_name
                .get(only)
                .map(|entry| (entry, NameMatch::Spelling)),
            _ => None,
        }
    }

    /// Never guesses a `write` tool, and never falls back to a weaker match when the best match is
    /// a write.
    fn resolve_similar(&self, name: &str, caller: &Caller) -> Option<(&Arc<Entry>, NameMatch)> {
        let best = match self
            .spellings
            .similar_tools(name, |tool| self.is_allowed_tool(tool, caller))[..]
        {
            [(_, only)] => only,
            [(best, tool), (next, _), ..] if best > next => tool,
            _ => return None,
        };
        let found = self
            .by_name
            .get(best)
            .filter(|entry| entry.policy.effect != Effect::Write);
        found.map(|entry| (entry, NameMatch::Similar))
    }

    fn is_allowed_tool(&self, tool: &ToolName, caller: &Caller) -> bool {
        self.by_name
            .get(tool)
            .is_some_and(|entry| entry.allows(caller))
    }

    /// Names that an unknown name probably means, the most probable first. Only tools that this
    /// caller may use.
    pub fn did_you_mean(&self, name: &str, caller: &Caller) -> Vec<String> {
        let like = self
            .spellings
            .similar_tools(name, |tool| self.is_allowed_tool(tool, caller));
        like.into_iter()
            .take(MAX_SUGGESTIONS)
            .map(|(_, real)| real.to_string())
            .collect()
    }

    /// A tool other than `own` that has another spelling of this name. With two such tools, a
    /// model's spelling would match neither.
    pub(crate) fn find_spelling_conflict(
        &self,
        name: &ToolName,
        own: &ToolName,
    ) -> Option<&Arc<Entry>> {
        let other = self
            .spellings
            .matching_tools(name.as_str(), |tool| tool != own)
            .first()
            .copied();
        other.and_then(|tool| self.by_name.get(tool))
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
            Arc::ptr_eq(one, other) || one.is_same_as(other)
        })
    }
}
