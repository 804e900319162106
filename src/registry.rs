//! Tool names to tools, each with its stack built. Readers never wait; a change swaps the whole table.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::call::json::{canonical, digest};
use crate::call::{
    Answer, CallError, Caller, Charged, Definition, Invocation, JsonObject, Kind, Limit, Policy, Services, ToolName,
};
use crate::callers::{Callers, Grants};
use crate::formats::{self, Format};
use crate::ledger::{Error, Switch};
use crate::middleware::usage_limit::Tariff;
use crate::middleware::validate::ArgumentRules;
use crate::schema::{Schema, SchemaFault};
use crate::similar;
use crate::stack::{self, Shared, ToolService};
use crate::tools::{BuildError, Tool};

/// The tools of one service.
pub struct Registry {
    shared: Shared,
    callers: Arc<Callers>,
    caller_limits: Arc<HashMap<Arc<str>, Vec<Limit>>>,
    services: Services,
    tools: ArcSwap<Tools>,
    /// Changes are made one at a time.
    changing: Mutex<()>,
    /// So that ledger and memory say the same of a switch.
    switching: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Tools {
    by_name: BTreeMap<ToolName, Arc<Entry>>,
    aliases: HashMap<ToolName, ToolName>,
}

/// A registered tool.
pub struct Entry {
    /// What callers see.
    pub definition: Definition,
    /// How it runs.
    pub kind: Kind,
    /// What the operator decided.
    pub policy: Policy,
    /// SHA-256, in hex, of all that makes it the tool it is.
    pub definition_hash: String,
    /// What arguments are held against.
    pub rules: Arc<ArgumentRules>,
    grants: Arc<Grants>,
    enabled: Arc<AtomicBool>,
    tariff: Arc<Tariff>,
    service: ToolService,
}

impl Entry {
    /// Whether it is on.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Whether this caller may use it.
    pub fn allows(&self, caller: &Caller) -> bool {
        self.grants.allow(caller)
    }
}

impl Registry {
    /// An empty registry; `services` reach every native tool.
    pub fn new(shared: Shared, callers: Arc<Callers>, services: Services) -> Self {
        let caller_limits = Arc::new(callers.limits());
        Self {
            shared,
            callers,
            caller_limits,
            services,
            tools: ArcSwap::default(),
            changing: Mutex::new(()),
            switching: tokio::sync::Mutex::default(),
        }
    }

    /// What all stacks share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Who may call.
    pub fn callers(&self) -> &Callers {
        &self.callers
    }

    /// Adds a tool: compiles its schemas, builds its stack.
    ///
    /// # Errors
    /// [`BuildError`]: a name that is taken, a schema that cannot be used.
    pub fn register(&self, tool: Tool) -> Result<(), BuildError> {
        let entry = Arc::new(self.build(tool)?);
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tools = Tools::clone(&self.tools.load());
        let name = entry.definition.name.clone();
        for taken in std::iter::once(&name).chain(&entry.definition.aliases) {
            if tools.by_name.contains_key(taken) || tools.aliases.contains_key(taken) {
                return Err(BuildError::Duplicate(taken.to_string()));
            }
        }
        for alias in &entry.definition.aliases {
            tools.aliases.insert(alias.clone(), name.clone());
        }
        tools.by_name.insert(name, entry);
        self.tools.store(Arc::new(tools));
        Ok(())
    }

    fn build(&self, tool: Tool) -> Result<Entry, BuildError> {
        if let Some(fault) = tool.fault {
            return Err(fault);
        }
        let definition_hash = definition_hash(&tool);
        let Tool { definition, kind, policy, settings, runner, .. } = tool;
        let policy = Policy { capture: policy.capture.or(Some(self.shared.capture)), ..policy.bounded() };
        let name = definition.name.clone();
        let fault = |schema: &'static str, fault: SchemaFault| BuildError::Schema {
            tool: name.to_string(),
            schema,
            message: fault.to_string(),
        };
        let input = Schema::compile_input(definition.input_schema.clone()).map_err(|f| fault("input_schema", f))?;
        let output = definition.output_schema.clone().map(Schema::compile).transpose();
        let output = output.map_err(|f| fault("output_schema", f))?;
        let rules = Arc::new(ArgumentRules { schema: Arc::new(input), runner, strict: policy.strict });
        let grants = Arc::new(self.callers.grants(definition.name.as_str()));
        let enabled = Arc::new(AtomicBool::new(policy.enabled));
        let tariff = Arc::new(Tariff::new(&definition.name, &policy.limits, self.caller_limits.clone()));
        let parts = stack::Parts {
            name: definition.name.clone(),
            generation: digest([definition_hash.as_bytes(), &settings.generation]),
            policy: policy.clone(),
            rules: rules.clone(),
            output_schema: output,
            settings: Arc::new(settings.finish(&self.services)),
            grants: grants.clone(),
            enabled: enabled.clone(),
            tariff: tariff.clone(),
        };
        let service = stack::build(parts, &self.shared);
        Ok(Entry { definition, kind, policy, definition_hash, rules, grants, enabled, tariff, service })
    }

    /// Takes over the switches that an admin set before the last stop.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn restore_switches(&self) -> Result<(), Error> {
        for Switch { tool, enabled } in self.shared.ledger.switches().await? {
            if let Some(entry) = self.get(&tool) {
                entry.enabled.store(enabled, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The tool of that name or alias.
    pub fn get(&self, name: &str) -> Option<Arc<Entry>> {
        let tools = self.tools.load();
        let found = tools.by_name.get(name);
        found.or_else(|| tools.aliases.get(name).and_then(|real| tools.by_name.get(real))).cloned()
    }

    /// Whether there is a tool of that name or alias.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.tools.load().by_name.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tools that this caller may use, by name.
    pub fn list(&self, caller: &Caller) -> Vec<Arc<Entry>> {
        let tools = self.tools.load();
        tools.by_name.values().filter(|entry| entry.allows(caller)).cloned().collect()
    }

    /// The schemas that this caller may use and that are on, ready to paste into a model API.
    pub fn schemas(&self, format: Format, caller: &Caller) -> Value {
        let entries = self.list(caller);
        let usable = entries.iter().filter(|entry| entry.is_enabled()).map(|entry| &entry.definition);
        formats::render(format, usable)
    }

    /// Names that were probably meant by one that does not exist; only such as this caller may use.
    pub fn did_you_mean(&self, name: &str, caller: &Caller) -> Vec<String> {
        let entries = self.list(caller);
        let names = entries.iter().flat_map(|entry| {
            let definition = &entry.definition;
            std::iter::once(&definition.name).chain(&definition.aliases).map(|asked| (asked, &definition.name))
        });
        let mut rated: Vec<(f32, &ToolName)> =
            names.map(|(asked, real)| (similar::ratio(name, asked.as_str()), real)).collect();
        rated.retain(|(ratio, _)| *ratio > similar::MEANT);
        rated.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        rated.dedup_by(|a, b| a.1 == b.1);
        rated.into_iter().take(3).map(|(_, real)| real.to_string()).collect()
    }

    /// Sends a call through the tool's stack.
    ///
    /// # Errors
    /// [`CallError`]: refused or failed. A tool that says no is an answer.
    pub async fn invoke(&self, entry: &Entry, invocation: Invocation) -> Result<Answer, CallError> {
        entry.service.clone().oneshot(invocation).await
    }

    /// Calls a tool by name, as the operator: for programs that embed the crate. `None` if there is no such tool.
    pub async fn execute(&self, name: &str, arguments: JsonObject) -> Option<Result<Answer, CallError>> {
        let entry = self.get(name)?;
        let caller = Arc::new(Caller::anonymous());
        let now = self.shared.clock.now();
        let invocation = Invocation::new(entry.definition.name.clone(), arguments, caller, now);
        Some(self.invoke(&entry, invocation).await)
    }

    /// Switches a tool on or off; kept over restarts.
    ///
    /// # Errors
    /// When the ledger cannot write; then nothing has changed.
    pub async fn switch(&self, entry: &Entry, enabled: bool) -> Result<(), Error> {
        let _one_at_a_time = self.switching.lock().await;
        let tool = entry.definition.name.to_string();
        self.shared.ledger.switch(Switch { tool, enabled }).await?;
        entry.enabled.store(enabled, Ordering::Relaxed);
        Ok(())
    }

    /// Where the limits stand that count this caller's calls of the tool.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn used(&self, entry: &Entry, caller: &Caller) -> Result<Vec<Charged>, Error> {
        let charges = entry.tariff.charges(&caller.name, None);
        self.shared.ledger.used(&charges, self.shared.clock.now()).await
    }
}

/// SHA-256, in hex, of what the tool is and how it runs: a change of either makes its stored results another tool's.
pub fn definition_hash(tool: &Tool) -> String {
    let Tool { definition, kind, settings, .. } = tool;
    let all = json!({
        "name": definition.name,
        "description": definition.description,
        "input_schema": definition.input_schema,
        "output_schema": definition.output_schema,
        "annotations": definition.annotations,
        "result_as_answer": definition.result_as_answer,
        "kind": kind,
        "implementation": settings.implementation,
    });
    hex::encode(digest([canonical(&all).as_slice()]))
}
