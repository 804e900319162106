//! The registry. Readers never wait: a change swaps in a whole new catalog.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt;

use super::cached_results::CachedResults;
use super::name_allocation::{
    Allocation, NameTaken, SourceTools, allocate_names, check_registered_names,
};
use super::recorded_calls::RecordedResults;
use super::tool_invoker::CatalogInvoker;
use crate::access::callers::Callers;
use crate::audit::{Action, NewEntry, OPERATOR};
use crate::call::json::{parse_strict, type_name};
use crate::call::{
    Answer, CallError, CallSettings, Caller, Charged, Invocation, JsonObject, Origin, OwnResults,
    Per, Services, StoredResults, ToolInvoker, UnreadableArguments,
};
use crate::catalog::{BuildEnv, Catalog, Entry, NameMatch, NewCall};
use crate::environment::Environment;
use crate::formats::Format;
use crate::kinds::agent_directory::AgentDirectory;
use crate::kinds::builtin::run_script::append_functions;
use crate::kinds::{BuildError, Tool};
use crate::ledger::{Error, RegisteredTool, Switch};
use crate::runtime::blocking;
use crate::stack::order::SharedParts;
use crate::stack::usage_limit::ChargeRules;

/// The tools of one service.
pub struct Registry {
    shared: SharedParts,
    services: Services,
    /// The environment variables that tools of [`Registry::register`] may name.
    environment: Environment,
    current: Arc<ArcSwap<Catalog>>,
    /// What the program added after the start. The lock is held while the current catalog is
    /// replaced, so no change is lost.
    added: Mutex<Added>,
    /// Makes changes of switches and registered tools one by one, so that ledger and memory agree
    /// on them.
    change_lock: tokio::sync::Mutex<()>,
    /// Notified whenever the set of callable tools may have changed.
    changes: watch::Sender<()>,
}

/// What [`Registry::register`] has added.
#[derive(Default)]
struct Added {
    /// Tools that the program added after the start.
    tools: Vec<Tool>,
    /// Agents and coworker tools, whose descriptions name each other.
    agent_directory: AgentDirectory,
}

/// Maximum number of registered tools. Each of them is rebuilt at every start and reload.
pub const MAX_REGISTERED: usize = 1000;

/// Why a change was refused. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A tool cannot be built.
    #[error(transparent)]
    Tool(#[from] BuildError),
    /// A name or alias belongs to another tool.
    #[error(transparent)]
    Taken(#[from] NameTaken),
    /// [`MAX_REGISTERED`] other tools are registered.
    #[error(
        "`{0}` cannot be registered: {MAX_REGISTERED} tools are registered, which is the maximum; DELETE one first"
    )]
    TooMany(String),
    /// There is no registered tool with this name.
    #[error("there is no registered tool `{0}`")]
    Unknown(String),
    /// The ledger could not be read or written.
    #[error(transparent)]
    Ledger(#[from] Error),
}

/// The state that [`Registry::replace_catalog`] brings about.
pub struct DesiredState {
    /// The callers with their grants and limits.
    pub callers: Arc<Callers>,
    /// How messages of models are treated.
    pub calls: CallSettings,
    /// Tools of program and manifest.
    pub tools: Vec<Tool>,
    /// Tools of sources, one group for each source.
    pub sources: Vec<SourceTools>,
    /// Tools that were registered over HTTP.
    pub registered: Vec<Tool>,
}

impl Registry {
    /// Makes an empty registry. Every native tool gets `services`.
    pub fn new(shared: SharedParts, callers: Arc<Callers>, mut services: Services) -> Self {
        let current = Arc::new(ArcSwap::from_pointee(Catalog::new(
            callers,
            CallSettings::default(),
        )));
        let changes = watch::Sender::new(());
        services
            .insert::<Arc<dyn StoredResults>>(Arc::new(CachedResults(Arc::downgrade(&current))));
        let invoker = CatalogInvoker {
            catalog: Arc::downgrade(&current),
            clock: shared.clock.clone(),
            runs: shared.runs.clone(),
            changes: changes.clone(),
        };
        services.insert::<Arc<dyn ToolInvoker>>(Arc::new(invoker));
        let own_results = RecordedResults {
            shared: shared.clone(),
            catalog: Arc::downgrade(&current),
        };
        services.insert::<Arc<dyn OwnResults>>(Arc::new(own_results));
        let (added, change_lock) = (Mutex::default(), tokio::sync::Mutex::default());
        let environment = Environment::default();
        Self {
            shared,
            services,
            environment,
            current,
            added,
            change_lock,
            changes,
        }
    }

    /// The same registry with these variables, for tools that [`Registry::register`] adds.
    #[must_use]
    pub fn with_environment(self, environment: Environment) -> Self {
        Self {
            environment,
            ..self
        }
    }

    /// The parts that all stacks share.
    pub fn shared(&self) -> &SharedParts {
        &self.shared
    }

    /// The current tools and callers. Later changes do not affect the returned catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Receives a notification after each change of the current catalog or of a switch. Several
    /// changes may give one notification.
    pub fn watch_changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn swap_catalog(&self, next: Catalog) {
        self.current.store(Arc::new(next));
        self.shared.waiting_calls.note_new_catalog();
        self.changes.send_replace(());
    }

    fn build_env<'a>(
        &'a self,
        before: &'a Catalog,
        switches: &'a HashMap<String, bool>,
    ) -> BuildEnv<'a> {
        BuildEnv {
            shared: &self.shared,
            services: &self.services,
            switches,
            before,
        }
    }

    async fn load_switches(&self) -> Result<HashMap<String, bool>, Error> {
        let switches = self.shared.ledger.list_switches().await?;
        Ok(switches
            .into_iter()
            .map(|Switch { tool, enabled }| (tool, enabled))
            .collect())
    }

    /// Adds a tool of the program: compiles its schemas and builds its stack. If the tool is an
    /// agent, the tools that hand work to agents name it in their descriptions from now on.
    ///
    /// # Errors
    /// [`BuildError`]: the name is taken, a schema is invalid, or a variable is missing.
    pub fn register(&self, tool: Tool) -> Result<(), BuildError> {
        let tool = tool.with_env_values(&self.environment)?;
        self.shared.redactor.add_secrets(tool.secret_values());
        let mut added = self.added.lock();
        let current = self.catalog();
        let mut next = Catalog::clone(&current);
        let mut agent_directory = added.agent_directory.clone();
        let (described, rebuilt) =
            agent_directory.add_tool(&tool, |agent, to| current.covers(agent, to));
        let entry = next.build(described, &self.build_env(&current, &HashMap::new()))?;
        next.insert(entry)?;
        for tool in rebuilt {
            // The rebuilt tool keeps the switch that an admin has set.
            let switches = current
                .get(tool.name())
                .map(|entry| (tool.name().to_owned(), entry.is_enabled()));
            next.remove(tool.name());
            let entry = next.build(
                tool,
                &self.build_env(&current, &switches.into_iter().collect()),
            )?;
            next.insert(entry)?;
        }
        added.tools.push(tool);
        added.agent_directory = agent_directory;
        self.swap_catalog(next);
        Ok(())
    }

    /// Atomically replaces the catalog. Program and manifest tools (and those that
    /// [`Registry::register`] added) always get their names. Source groups and registered tools are
    /// included only if their names do not conflict.
    ///
    /// Admins' switches are applied before the swap. Calls in flight continue in their old stacks.
    ///
    /// # Errors
    /// What is invalid in the new state, or why the ledger failed. The current catalog then stays.
    pub async fn replace_catalog(
        self: &Arc<Self>,
        desired: DesiredState,
    ) -> Result<Allocation, ChangeError> {
        // This lock keeps switches and registered tools unchanged between the read of the ledger
        // and the swap. Otherwise the new entries could bring back a state that an admin has just
        // changed.
        let _one_at_a_time = self.change_lock.lock().await;
        let switches = self.load_switches().await?;
        let registry = self.clone();
        let work = move || -> Result<Allocation, ChangeError> {
            // Held until the swap: otherwise a tool that `register` adds meanwhile would be missing
            // in the new catalog.
            let mut added = registry.added.lock();
            let before = registry.catalog();
            let env = registry.build_env(&before, &switches);
            let mut next = Catalog::new(desired.callers, desired.calls);
            let source_tools = desired
                .sources
                .iter()
                .flat_map(|group| group.choices.iter().flatten().chain(&group.fallback));
            next.set_declared_names(
                (desired.tools.iter())
                    .chain(&added.tools)
                    .chain(source_tools)
                    .chain(&desired.registered),
            );
            let mut tools = desired.tools;
            tools.extend(added.tools.iter().cloned());
            let agent_directory = AgentDirectory::from_tools(&tools);
            agent_directory.append_agent_lists(&mut tools, |agent, to| next.covers(agent, to));
            let lists = desired
                .sources
                .iter()
                .filter_map(|group| group.choices.first());
            let further = lists.flatten().chain(&desired.registered);
            append_functions(&mut tools, further, |other, to| next.covers(other, to));
            for tool in tools {
                let entry = next.build(tool, &env)?;
                next.insert(entry)?;
            }
            let (sources, registered) = (desired.sources, desired.registered);
            let allocation = allocate_names(sources, registered, &mut next, &env);
            if next.entries().any(Entry::finds_tools) {
                next.tool_index();
            }
            registry.swap_catalog(next);
            added.agent_directory = agent_directory;
            Ok(allocation)
        };
        // Compiling the schemas of many tools takes a while. On this thread it does not delay
        // calls.
        blocking::run_blocking(work).await.ok_or(Error::Closed)?
    }

    /// Removes every tool. The processes and connections of the runners then end with the last call
    /// in flight.
    pub fn clear(&self) {
        let _one_at_a_time = self.added.lock();
        let current = self.catalog();
        self.swap_catalog(current.without_tools());
    }

    /// Adds a registered tool, or replaces the one of the same name. `record` is its row in the
    /// ledger. Returns the entry, and whether the name is new.
    ///
    /// # Errors
    /// When a name is taken, [`MAX_REGISTERED`] other tools are registered, the tool cannot be
    /// built, or the ledger cannot write.
    pub async fn put_registered(
        &self,
        tool: Tool,
        record: RegisteredTool,
    ) -> Result<(Arc<Entry>, bool), ChangeError> {
        let _one_at_a_time = self.change_lock.lock().await;
        let switches = self.load_switches().await?;
        let before = self.catalog();
        let entry = before.build(tool, &self.build_env(&before, &switches))?;
        // Checked before the ledger stores the tool, and again below, because the program may add a
        // tool meanwhile.
        with_registered(&before, &entry)?;
        // Registered tools that are not served count too, because the ledger keeps them.
        let registered_tools = self.shared.ledger.registered_tools().await?;
        if registered_tools.len() >= MAX_REGISTERED
            && !registered_tools
                .iter()
                .any(|other| other.name == record.name)
        {
            return Err(ChangeError::TooMany(record.name));
        }
        self.shared.ledger.register_tool(record).await?;
        let _one_at_a_time = self.added.lock();
        let current = self.catalog();
        let is_new = current.get(entry.definition.name.as_str()).is_none();
        self.swap_catalog(with_registered(&current, &entry)?);
        Ok((entry, is_new))
    }

    /// Removes a registered tool, whether it is served or not. Its calls in flight continue. `by` is the
    /// admin.
    ///
    /// # Errors
    /// When there is no tool of this name, the tool is not a registered one, or the ledger cannot
    /// write.
    pub async fn delete_registered(&self, name: &str, by: &str) -> Result<(), ChangeError> {
        let _one_at_a_time = self.change_lock.lock().await;
        let entry = self.audit_entry(by, Action::ToolUnregistered, Some(name));
        let was_kept = self
            .shared
            .ledger
            .unregister_tool(name, Some(entry))
            .await?;
        match self.catalog().get(name) {
            // The registered tool was not served, because this tool of program or manifest has the
            // name. This tool stays.
            Some(entry) if entry.origin != Origin::Registered && was_kept => return Ok(()),
            Some(entry) if entry.origin != Origin::Registered => {
                return Err(NameTaken::new(name, entry).into());
            }
            _ if !was_kept => return Err(ChangeError::Unknown(name.to_owned())),
            _ => {}
        }
        let _one_at_a_time = self.added.lock();
        let mut next = Catalog::clone(&self.current.load());
        next.remove(name);
        self.swap_catalog(next);
        Ok(())
    }

    /// The tool with this name or alias.
    pub fn get(&self, name: &str) -> Option<Arc<Entry>> {
        self.current.load().get(name).cloned()
    }

    /// Whether there is a tool with this name or alias.
    pub fn has_tool(&self, name: &str) -> bool {
        self.current.load().get(name).is_some()
    }

    /// Number of tools.
    pub fn len(&self) -> usize {
        self.current.load().len()
    }

    /// Whether there are no tools.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The definitions of all enabled tools that this caller may use, ready for a model API.
    pub fn schemas(&self, format: Format, caller: &Caller) -> Value {
        self.current.load().schemas(format, caller)
    }

    /// Sends a call through the tool's stack.
    ///
    /// # Errors
    /// [`CallError`]: the call was refused or failed. An error result of the tool (`is_error`) is
    /// an `Ok`.
    pub async fn invoke(
        &self,
        entry: &Entry,
        invocation: impl Into<Box<Invocation>>,
    ) -> Result<Answer, CallError> {
        entry.service.clone().oneshot(invocation.into()).await
    }

    /// Calls a tool by name, with the operator's rights, for programs that embed the crate. `None`
    /// if there is no such tool. The arguments are an object, or its JSON text as models write it.
    /// A long result is cut, and `meta.overflow` tells how; an [`Invocation`] with a `page` gets
    /// other parts.
    pub async fn execute(
        &self,
        name: &str,
        arguments: impl Into<Value>,
    ) -> Option<Result<Answer, CallError>> {
        let entry = self.get(name)?;
        let caller = Arc::new(Caller::anonymous());
        let (arguments, now) = (parse_arguments(arguments.into()), self.shared.clock.now());
        let found = (entry.definition.name.as_str(), NameMatch::Exact);
        let invocation = entry.new_invocation(NewCall::new(found, caller, arguments, now));
        Some(self.invoke(&entry, invocation).await)
    }

    /// Enables or disables a tool. The ledger stores the switch, so it survives restarts.
    ///
    /// # Errors
    /// When the ledger cannot write. Nothing has changed then.
    pub async fn set_enabled(&self, entry: &Entry, enabled: bool) -> Result<(), Error> {
        self.set_enabled_by(OPERATOR, entry, enabled).await
    }

    /// [`Registry::set_enabled`] for an admin.
    pub(crate) async fn set_enabled_by(
        &self,
        by: &str,
        entry: &Entry,
        enabled: bool,
    ) -> Result<(), Error> {
        let _one_at_a_time = self.change_lock.lock().await;
        let name = &entry.definition.name;
        let action = match enabled {
            true => Action::ToolEnabled,
            false => Action::ToolDisabled,
        };
        let switch = Switch {
            tool: name.to_string(),
            enabled,
        };
        let recorded = self.audit_entry(by, action, Some(name.as_str()));
        self.shared
            .ledger
            .set_switch(switch, Some(recorded))
            .await?;
        entry.set_enabled(enabled);
        // The catalog may have been replaced since the caller found `entry`. Then the current entry
        // needs the switch as well.
        if let Some(current) = self
            .get(name.as_str())
            .filter(|current| current.definition.name == *name)
        {
            current.set_enabled(enabled);
        }
        self.changes.send_replace(());
        Ok(())
    }

    /// The state of all limits that count this caller's calls of the tool. A limit per run shows the
    /// count of the unnamed run.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn limit_usage(&self, entry: &Entry, caller: &Caller) -> Result<Vec<Charged>, Error> {
        let charges = entry.charge_rules.charges_for(&caller.name, None);
        let now = self.shared.clock.now();
        self.shared.ledger.units_used(&charges, now).await
    }

    /// The state of the limits that callers have over all tools, by the caller's name. With
    /// `only`, of that caller alone. Limits per run are left out.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn caller_limit_usage(
        &self,
        only: Option<&str>,
    ) -> Result<BTreeMap<Arc<str>, Vec<Charged>>, Error> {
        let mut usage = BTreeMap::new();
        for (caller, limits) in self.catalog().caller_limits() {
            if only.is_none_or(|only| only == &**caller) {
                let mut charges = ChargeRules::charges_of_caller(caller, limits);
                charges.retain(|charge| charge.per != Per::Run);
                let now = self.shared.clock.now();
                let units = self.shared.ledger.units_used(&charges, now).await?;
                usage.insert(caller.clone(), units);
            }
        }
        Ok(usage)
    }

    /// Resets the counters of the tool's limits. With a caller, it resets only that caller's
    /// counters, including those of the caller's own limits over all tools.
    ///
    /// # Errors
    /// When the ledger cannot write. Nothing has changed then.
    pub async fn reset_usage(&self, entry: &Entry, caller: Option<&str>) -> Result<(), Error> {
        self.reset_usage_by(OPERATOR, entry, caller).await
    }

    /// [`Registry::reset_usage`] for an admin.
    pub(crate) async fn reset_usage_by(
        &self,
        by: &str,
        entry: &Entry,
        caller: Option<&str>,
    ) -> Result<(), Error> {
        let tool = entry.definition.name.as_str();
        let recorded = self.audit_entry(by, Action::LimitsReset, Some(tool));
        let recorded = recorded.with("caller", caller);
        let ledger = &self.shared.ledger;
        ledger.reset_counters(tool, caller, Some(recorded)).await
    }

    /// An entry of the audit, made now.
    pub(crate) fn audit_entry(&self, by: &str, action: Action, subject: Option<&str>) -> NewEntry {
        NewEntry::new(self.shared.clock.now(), by, action, subject)
    }

    /// Notes the first use of a caller's key in the audit.
    pub(crate) fn note_first_use(&self, caller: &str, fingerprint: String) {
        let entry = self.audit_entry(caller, Action::KeyFirstUsed, Some(caller));
        let entry = entry.with("key", fingerprint);
        let ledger = self.shared.ledger.clone();
        // The request does not wait for the ledger.
        tokio::spawn(async move { ledger.record_action(entry).await }.boxed());
    }

    /// Closes a registry that belongs to no service: refuses new calls, waits for the calls in
    /// flight, writes all pending rows, and closes the ledger.
    pub async fn close(&self) {
        self.shared.in_flight_calls.close();
        self.shared.in_flight_calls.wait_until_empty().await;
        self.shared.ledger.close().await;
        self.shared.call_log.flush().await;
    }
}

/// Reads arguments that are an object or the text that a model wrote.
fn parse_arguments(arguments: Value) -> Result<JsonObject, UnreadableArguments> {
    let invalid = |detail: String| {
        let correction = format!(
            "The tool did not run: {detail}. Send the whole call again, its arguments as one JSON object."
        );
        UnreadableArguments { detail, correction }
    };
    let value = match arguments {
        // Some models write an empty text for "no arguments".
        Value::String(text) if text.trim().is_empty() => return Ok(JsonObject::new()),
        Value::String(text) => parse_strict(text.as_bytes())
            .map_err(|error| invalid(format!("they are not JSON: {error}")))?,
        other => other,
    };
    match value {
        Value::Object(arguments) => Ok(arguments),
        other => Err(invalid(format!(
            "they are a JSON {}, not an object",
            type_name(&other)
        ))),
    }
}

/// The catalog with this registered tool, which replaces a registered tool of the same name.
fn with_registered(catalog: &Catalog, entry: &Arc<Entry>) -> Result<Catalog, ChangeError> {
    check_registered_names(catalog, entry)?;
    let mut next = catalog.clone();
    next.remove(entry.definition.name.as_str());
    next.insert(entry.clone())?;
    Ok(next)
}
