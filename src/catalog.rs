//! The tools and callers of one moment: names to stacks, keys to callers.
//!
//! A catalog that is in use is never changed: `registry.rs` puts another in its place. Who holds one sees one world,
//! and an entry lives for as long as a call goes through its stack.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::call::json::digest;
use crate::call::{
    CallSettings, Caller, Definition, Effect, Kind, Limit, NameMatching, Origin, Policy, Services, ToolName,
};
use crate::callers::{Callers, Grants};
use crate::changes::Changes;
pub use crate::definition_hash::definition_hash;
use crate::definition_hash::{definition_fields, hash_of};
use crate::formats::{self, Format, Names, Offer};
use crate::middleware::cache::Shelf;
use crate::middleware::circuit_breaker::{Breaker, BreakerStatus};
use crate::middleware::concurrency::ToolPermits;
use crate::middleware::usage_limit::Tariff;
use crate::middleware::validate::ArgumentRules;
use crate::names::{Spellings, unprefixed};
use crate::schema::{Schema, SchemaFault};
use crate::stack::{self, Shared, ToolService};
use crate::tools::{BuildError, Runner, Settings, Tool, Why};

/// So many names are suggested at most.
const MOST_MEANT: usize = 3;

/// A tool with its stack.
pub struct Entry {
    /// What callers see.
    pub definition: Definition,
    /// How it runs.
    pub kind: Kind,
    /// Where it was declared.
    pub origin: Origin,
    /// What the operator decided.
    pub policy: Policy,
    /// SHA-256, in hex, of all that makes it the tool it is.
    pub definition_hash: String,
    /// SHA-256 of what callers are shown, in the author's order: another order is another document.
    pub(crate) shown: [u8; 32],
    /// What arguments are held against.
    pub rules: Arc<ArgumentRules>,
    pub(crate) tariff: Arc<Tariff>,
    pub(crate) service: ToolService,
    /// Its stored results.
    pub(crate) shelf: Option<Arc<Shelf>>,
    settings: Settings,
    stopped: bool,
    grants: Arc<Grants>,
    enabled: Arc<AtomicBool>,
    breaker: Option<Arc<Breaker>>,
    places: ToolPermits,
}

impl Entry {
    /// Whether it is on.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Whether a call can be tried now: it is on, it is what was approved, and what runs it is there.
    pub fn is_available(&self) -> bool {
        self.is_enabled() && !self.stopped && self.rules.runner.is_available()
    }

    pub(crate) fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether this caller may use it.
    pub fn allows(&self, caller: &Caller) -> bool {
        self.grants.allow(caller)
    }

    /// The name under which a call of it is made and answered, if this caller asked for it as `asked`. Of a tool that it may not
    /// use a caller is told no name but its own word.
    pub(crate) fn name_for(&self, caller: &Caller, asked: &str) -> ToolName {
        let asked = (!self.allows(caller)).then(|| ToolName::parse(asked).ok()).flatten();
        asked.unwrap_or_else(|| self.definition.name.clone())
    }

    /// How its circuit breaker stands; `None` if it has none.
    pub fn breaker(&self) -> Option<BreakerStatus> {
        self.breaker.as_ref().map(|breaker| breaker.status())
    }

    /// What formats show of it.
    pub(crate) fn offer(&self) -> Offer<'_> {
        Offer { definition: &self.definition, effect: self.policy.effect, available: self.is_available() }
    }

    /// Its name and its aliases.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ToolName> {
        std::iter::once(&self.definition.name).chain(&self.definition.aliases)
    }

    /// Whether it was made of the same. A runner that was built from the manifest is the same when what is written is.
    fn is_the_same(&self, other: &Entry) -> bool {
        let Entry { definition, policy, settings, rules, shown, .. } = other;
        self.is(definition, shown, (other.kind, other.origin, other.stopped), policy, settings, &rules.runner)
    }

    fn is(
        &self,
        definition: &Definition,
        shown: &[u8; 32],
        state: (Kind, Origin, bool),
        policy: &Policy,
        settings: &Settings,
        runner: &Arc<dyn Runner>,
    ) -> bool {
        let written = settings.base.is_some();
        (self.kind, self.origin, self.stopped) == state
            && self.definition == *definition
            && self.shown == *shown
            && self.policy == *policy
            && self.settings == *settings
            && (written || Arc::ptr_eq(&self.rules.runner, runner))
    }
}

/// See the module.
#[derive(Clone, Default)]
pub struct Catalog {
    by_name: BTreeMap<ToolName, Arc<Entry>>,
    aliases: HashMap<ToolName, ToolName>,
    spellings: Spellings,
    unlisted: Vec<Unlisted>,
    callers: Arc<Callers>,
    caller_limits: Arc<HashMap<Arc<str>, Vec<Limit>>>,
    calls: CallSettings,
    /// Tools that read on in stored results.
    readers: BTreeSet<ToolName>,
    /// Names and aliases of all tools that are to be in it, whether they have their place yet or not.
    announced: Arc<HashSet<ToolName>>,
}

/// How a name led to its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It is the tool's name, or a declared alias.
    Exact,
    /// It is another spelling of one of these.
    Spelling,
    /// It is like one of these.
    Similar,
}

impl How {
    /// What whoever asked should know, for the answer's warnings.
    pub fn warning(self, asked: &str, entry: &Entry) -> Option<String> {
        let name = &entry.definition.name;
        (self != Self::Exact).then(|| format!("called as `{asked}`; the tool's name is `{name}`"))
    }
}

/// Why a name leads to no tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No tool is meant, or more than one may be.
    #[error("there is no tool of this name")]
    Unknown {
        /// Names that were probably meant, the likeliest first.
        did_you_mean: Vec<String>,
    },
    /// There may be one when its source is listed.
    #[error("{why}")]
    Unlisted {
        /// Why it is not.
        why: String,
        /// Worth waiting this long, when that is known.
        retry_after: Option<Duration>,
    },
}

/// A source of whose tools not all names are known, since it is not up.
#[derive(Clone)]
pub struct Unlisted {
    /// All of them begin with it.
    pub prefix: String,
    /// Why it is not up.
    pub why: Arc<Why>,
}

/// What entries are built with.
pub(crate) struct Bench<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) services: &'a Services,
    /// What admins switched on or off.
    pub(crate) switches: &'a HashMap<String, bool>,
    /// The catalog that is replaced. A tool that is the same in it keeps its whole stack, and any tool its places: a
    /// change must not let twice as many calls run.
    pub(crate) before: &'a Catalog,
}

impl Catalog {
    /// No tools yet.
    pub fn new(callers: Arc<Callers>, calls: CallSettings) -> Self {
        let caller_limits = Arc::new(callers.limits());
        Self { callers, caller_limits, calls, ..Self::default() }
    }

    /// The same callers and settings, and nothing that they could call.
    pub(crate) fn without_tools(&self) -> Self {
        Self::new(self.callers.clone(), self.calls.clone())
    }

    /// Says which names its tools will have, before the first is built: an entry of a caller's `allow` that is the name of one
    /// tool grants no other.
    pub(crate) fn announce<'t>(&mut self, tools: impl Iterator<Item = &'t Tool>) {
        let names = tools.flat_map(|tool| std::iter::once(&tool.definition.name).chain(&tool.definition.aliases));
        self.announced = Arc::new(names.cloned().collect());
    }

    /// Who may use the tool with these names.
    fn grants(&self, names: &[&str]) -> Grants {
        self.callers.grants(names, |name| self.announced.contains(name))
    }

    /// Whether each caller that may use the one tool may use the other one.
    pub(crate) fn covers(&self, other: &Definition, one: &Definition) -> bool {
        let grants = |tool: &Definition| self.grants(&tool.names().collect::<Vec<_>>());
        grants(other).cover(&grants(one))
    }

    /// How messages of models are treated.
    pub fn calls(&self) -> &CallSettings {
        &self.calls
    }

    /// Who may call.
    pub fn callers(&self) -> &Callers {
        &self.callers
    }

    /// Builds the entry of a tool for this catalog: compiles its schemas, builds its stack.
    pub(crate) fn build(&self, tool: Tool, bench: &Bench<'_>) -> Result<Arc<Entry>, BuildError> {
        let mut tool = without_large_output_schema(tool.checked()?).apart_by_context();
        let own_schema = tool.definition.input_schema.clone();
        let pages = tool.show_page_fields()?;
        let (all, context) = (definition_fields(&tool), tool.context_fields());
        let definition_hash = hash_of(&all);
        let shown = digest([all.to_string().as_bytes()]);
        let Tool { definition, kind, origin, policy, settings, stopped, runner, .. } = tool;
        let policy = Policy { capture: policy.capture.or(Some(bench.shared.capture)), ..policy.bounded() };
        let name = definition.name.clone();
        let grants = Arc::new(self.grants(&definition.names().collect::<Vec<_>>()));
        let is_on = bench.switches.get(name.as_str()).copied().unwrap_or(policy.enabled);
        let before = bench.before.by_name.get(&name);
        let same = before
            .filter(|before| before.is(&definition, &shown, (kind, origin, stopped), &policy, &settings, &runner));
        if let Some(same) =
            same.filter(|same| *same.grants == *grants && *same.tariff.caller_limits() == *self.caller_limits)
        {
            same.enable(is_on);
            return Ok(same.clone());
        }
        let breaker = match same {
            Some(same) => same.breaker.clone(),
            None => runner.has_one_target().then(Arc::default),
        };
        let fault = |schema: &'static str, fault: SchemaFault| BuildError::Schema {
            tool: name.to_string(),
            schema,
            message: fault.to_string(),
        };
        let input = Schema::compile_input(own_schema).map_err(|f| fault("input_schema", f))?;
        let output = definition.output_schema.clone().map(Schema::compile).transpose();
        let output = output.map_err(|f| fault("output_schema", f))?;
        let rules = Arc::new(ArgumentRules {
            schema: Arc::new(input),
            runner,
            context: context.clone(),
            keyed: policy.cache.as_ref().and_then(|cache| cache.context.clone()).unwrap_or_default(),
            strict: policy.strict,
            pages,
            validations: bench.shared.validations.clone(),
            timeout: policy.timeout,
        });
        let enabled = Arc::new(AtomicBool::new(is_on));
        let places_before = before.map(|before| (before.policy.concurrency, &before.places));
        let places = ToolPermits::new(policy.concurrency, places_before);
        let tariff = Arc::new(Tariff::new(&name, &policy.limits, self.caller_limits.clone()));
        let parts = stack::Parts {
            name,
            definition_hash: definition_hash.clone(),
            generation: digest([definition_hash.as_bytes(), &settings.generation]),
            policy: policy.clone(),
            rules: rules.clone(),
            output_schema: output.map(Arc::new),
            paging: definition.paging,
            settings: Arc::new(settings.finish(bench.services, policy.effect, context)),
            grants: grants.clone(),
            enabled: enabled.clone(),
            stopped,
            breaker: breaker.clone(),
            places: places.clone(),
            tariff: tariff.clone(),
        };
        let (service, shelf) = stack::build(parts, bench.shared);
        Ok(Arc::new(Entry {
            definition,
            kind,
            origin,
            policy,
            definition_hash,
            shown,
            rules,
            tariff,
            service,
            shelf,
            settings,
            stopped,
            grants,
            enabled,
            breaker,
            places,
        }))
    }

    /// Adds an entry.
    pub(crate) fn insert(&mut self, entry: Arc<Entry>) -> Result<(), BuildError> {
        let mut own = HashSet::new();
        if let Some(taken) = entry.names().find(|name| self.get(name.as_str()).is_some() || !own.insert(*name)) {
            return Err(BuildError::Duplicate(taken.to_string()));
        }
        let name = entry.definition.name.clone();
        for spelt in entry.names() {
            self.spellings.insert(spelt, &name);
        }
        self.aliases.extend(entry.definition.aliases.iter().map(|alias| (alias.clone(), name.clone())));
        if entry.rules.runner.reads_results() {
            self.readers.insert(name.clone());
        }
        self.by_name.insert(name, entry);
        Ok(())
    }

    /// Names of this source are not unknown: they are not known yet.
    pub(crate) fn expect(&mut self, source: Unlisted) {
        self.unlisted.push(source);
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
        self.readers.remove(name);
        self.aliases.retain(|_, real| real.as_str() != name);
        self.spellings.remove(name);
    }

    /// The tool of that name or alias.
    pub fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        let found = self.by_name.get(name);
        found.or_else(|| self.aliases.get(name).and_then(|real| self.by_name.get(real)))
    }

    /// The tool by which this caller may read on in stored results, if `may` holds of it.
    pub(crate) fn reader(&self, caller: &Caller, may: impl Fn(&Entry) -> bool) -> Option<ToolName> {
        let usable = |entry: &&Arc<Entry>| entry.is_available() && entry.allows(caller) && may(entry);
        let mut readers = self.readers.iter().filter_map(|name| self.by_name.get(name));
        readers.find(usable).map(|entry| entry.definition.name.clone())
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// How many tools were declared there.
    pub fn count(&self, origin: Origin) -> usize {
        self.by_name.values().filter(|entry| entry.origin == origin).count()
    }

    /// All tools, by name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.by_name.values().map(|entry| &**entry)
    }

    /// The tools that this caller may use, by name.
    pub fn list(&self, caller: &Caller) -> Vec<Arc<Entry>> {
        self.by_name.values().filter(|entry| entry.allows(caller)).cloned().collect()
    }

    /// The schemas that this caller may use and that are on, ready to paste into a model API.
    pub fn schemas(&self, format: Format, caller: &Caller) -> Value {
        self.render(format, &self.list(caller))
    }

    /// Some of its tools in that format, as far as they are on.
    pub fn render(&self, format: Format, entries: &[Arc<Entry>]) -> Value {
        let names = Names { spellings: &self.spellings, matching: self.calls.name_matching };
        formats::render(format, entries.iter().map(|entry| entry.offer()), names)
    }

    /// The tool that this caller means: by name, by alias, and as far as `calls.name_matching` goes by another spelling
    /// or by likeness. A tool that the caller may not use is found by its own name only, so that it stands in no
    /// other's way and is not given away.
    ///
    /// # Errors
    /// When there is none, or more than one could be meant. A name that a source which is not up may bring means no tool
    /// that is merely like it.
    pub fn resolve(&self, name: &str, caller: &Caller) -> Result<(&Arc<Entry>, How), NotFound> {
        if let Some(entry) = self.get(name) {
            return Ok((entry, How::Exact));
        }
        let matching = self.calls.name_matching;
        if matching != NameMatching::Exact
            && let Some(found) = self.spelled(name, caller)
        {
            return Ok(found);
        }
        if let Some(source) = self.unlisted(name, caller) {
            let (why, retry_after) = (source.why)();
            return Err(NotFound::Unlisted { why, retry_after });
        }
        let found = (matching == NameMatching::Similar).then(|| self.similar(name, caller)).flatten();
        found.ok_or_else(|| NotFound::Unknown { did_you_mean: self.did_you_mean(name, caller) })
    }

    /// The source that may bring a tool of this name when it is listed, if this caller might use that.
    fn unlisted(&self, name: &str, caller: &Caller) -> Option<&Unlisted> {
        let bare = unprefixed(name).filter(|_| self.calls.name_matching != NameMatching::Exact);
        let names = || std::iter::once(name).chain(bare).filter(|name| ToolName::parse(name).is_ok());
        self.unlisted.iter().find(|source| {
            let is_its = |name: &str| name.len() > source.prefix.len() && name.starts_with(&source.prefix);
            names().any(|name| is_its(name) && self.grants(&[name]).allow(caller))
        })
    }

    fn spelled(&self, name: &str, caller: &Caller) -> Option<(&Arc<Entry>, How)> {
        match self.spellings.of(name, |tool| self.may_mean(tool, caller))[..] {
            [only] => self.by_name.get(only).map(|entry| (entry, How::Spelling)),
            _ => None,
        }
    }

    /// A write may have been meant, and is not run on a guess; nor is what is less like the name run in its place.
    fn similar(&self, name: &str, caller: &Caller) -> Option<(&Arc<Entry>, How)> {
        let best = match self.spellings.like(name, |tool| self.may_mean(tool, caller))[..] {
            [(_, only)] => only,
            [(best, tool), (next, _), ..] if best > next => tool,
            _ => return None,
        };
        let found = self.by_name.get(best).filter(|entry| entry.policy.effect != Effect::Write);
        found.map(|entry| (entry, How::Similar))
    }

    fn may_mean(&self, tool: &ToolName, caller: &Caller) -> bool {
        self.by_name.get(tool).is_some_and(|entry| entry.allows(caller))
    }

    /// Names that were probably meant by one that does not exist; only such as this caller may use.
    pub fn did_you_mean(&self, name: &str, caller: &Caller) -> Vec<String> {
        let like = self.spellings.like(name, |tool| self.may_mean(tool, caller));
        like.into_iter().take(MOST_MEANT).map(|(_, real)| real.to_string()).collect()
    }

    /// A tool other than `own` that has another spelling of this name. Of two such tools a model's spelling would mean neither.
    pub(crate) fn spelled_like(&self, name: &ToolName, own: &ToolName) -> Option<&Arc<Entry>> {
        let other = self.spellings.of(name.as_str(), |tool| tool != own).first().copied();
        other.and_then(|tool| self.by_name.get(tool))
    }

    /// How its tools differ from those of the catalog before.
    pub fn changes_since<'a>(&'a self, before: &'a Catalog) -> Changes {
        let named = |catalog: &'a Catalog| catalog.by_name.iter().map(|(name, entry)| (name.as_str(), entry));
        Changes::between(named(before), named(self), |one, other| Arc::ptr_eq(one, other) || one.is_the_same(other))
    }
}

/// A tool works without its output schema, so one that is too large is no reason to have no tool.
fn without_large_output_schema(mut tool: Tool) -> Tool {
    if let Some(fault) = tool.definition.output_schema.as_deref().and_then(Schema::too_large) {
        tracing::warn!(tool = tool.name(), "served without its output schema, which is too large: {fault}");
        tool.definition.output_schema = None;
    }
    tool
}
