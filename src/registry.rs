//! Which catalog is current, and how it changes. Readers never wait; a change puts a whole new catalog in its place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::blocking;
use crate::call::json::{parse_strict, type_name};
use crate::call::{
    Answer, CallError, CallSettings, Caller, Charged, Invocation, JsonObject, Origin, OwnResults, Services,
    StoredResults, SubCalls, Unreadable,
};
use crate::callers::Callers;
use crate::catalog::Bench;
pub use crate::catalog::{Catalog, Entry, How, NotFound, Unlisted};
use crate::environment::Environment;
use crate::formats::Format;
use crate::ledger::{Error, Registered, Switch};
use crate::recorded::Recorded;
use crate::seats::Seats;
pub(crate) use crate::seats::way_out;
pub use crate::seats::{Group, LeftOut, Seated};
use crate::stack::Shared;
use crate::stored::Shelves;
use crate::subcalls::Others;
use crate::tools::introductions::Introductions;
use crate::tools::{BuildError, Tool};

/// The tools of one service.
pub struct Registry {
    shared: Shared,
    services: Services,
    /// The variables that tools which are added later may name.
    environment: Environment,
    current: Arc<ArcSwap<Catalog>>,
    /// What the program added after the start; held while the current catalog is replaced.
    added: Mutex<Added>,
    /// So that ledger and memory say the same of switches and registered tools.
    deciding: tokio::sync::Mutex<()>,
    /// Told whenever what can be called may have changed.
    changes: watch::Sender<()>,
}

/// See [`Registry::register`].
#[derive(Default)]
struct Added {
    /// Tools that the program added after the start.
    tools: Vec<Tool>,
    /// Who can be named in descriptions of tools that hand work on.
    introductions: Introductions,
}

/// Tools that may be registered at run time. Each is built anew at every start and reload.
pub const MOST_REGISTERED: usize = 1000;

/// Why a change was not made; nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A tool cannot be built.
    #[error(transparent)]
    Tool(#[from] BuildError),
    /// A name or alias is another tool's.
    #[error("`{name}` {whose}")]
    Taken {
        /// The name.
        name: String,
        /// Whose it is, as the rest of the sentence.
        whose: String,
    },
    /// [`MOST_REGISTERED`] others are registered.
    #[error(
        "`{0}` has no room: {MOST_REGISTERED} tools are registered, which is the most there may be; DELETE one first"
    )]
    TooMany(String),
    /// There is no such tool.
    #[error("there is no registered tool `{0}`")]
    Unknown(String),
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] Error),
}

/// A registered tool that is not served, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

/// What is to be served.
pub struct World {
    /// Who may call.
    pub callers: Arc<Callers>,
    /// How messages of models are treated.
    pub calls: CallSettings,
    /// Tools of program and manifest.
    pub tools: Vec<Tool>,
    /// Tools of sources.
    pub groups: Vec<Group>,
    /// Tools that came over HTTP.
    pub registered: Vec<Tool>,
}

/// What became of a new world besides its own tools.
pub struct Replaced {
    /// Of each group.
    pub seated: Vec<Seated>,
    /// Registered tools that are not served.
    pub aside: Vec<Aside>,
}

impl Registry {
    /// An empty registry; `services` reach every native tool.
    pub fn new(shared: Shared, callers: Arc<Callers>, mut services: Services) -> Self {
        let current = Arc::new(ArcSwap::from_pointee(Catalog::new(callers, CallSettings::default())));
        services.insert::<Arc<dyn StoredResults>>(Arc::new(Shelves(Arc::downgrade(&current))));
        let others = Others { catalog: Arc::downgrade(&current), clock: shared.clock.clone() };
        services.insert::<Arc<dyn SubCalls>>(Arc::new(others));
        let recorded = Recorded { shared: shared.clone(), catalog: Arc::downgrade(&current) };
        services.insert::<Arc<dyn OwnResults>>(Arc::new(recorded));
        let (added, deciding) = (Mutex::default(), tokio::sync::Mutex::default());
        let (environment, changes) = (Environment::default(), watch::Sender::new(()));
        Self { shared, services, environment, current, added, deciding, changes }
    }

    /// The same, for tools that [`Registry::register`] adds and that name these variables.
    #[must_use]
    pub fn in_environment(self, environment: Environment) -> Self {
        Self { environment, ..self }
    }

    /// What all stacks share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The tools and callers as they are now: one world, whatever changes afterwards.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Hears of every change of the current catalog and every switch, though several at once may be heard of as one.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn serve(&self, next: Catalog) {
        self.current.store(Arc::new(next));
        self.changes.send_replace(());
    }

    fn added(&self) -> MutexGuard<'_, Added> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bench<'a>(&'a self, before: &'a Catalog, switches: &'a HashMap<String, bool>) -> Bench<'a> {
        Bench { shared: &self.shared, services: &self.services, switches, before }
    }

    async fn switches(&self) -> Result<HashMap<String, bool>, Error> {
        let switches = self.shared.ledger.switches().await?;
        Ok(switches.into_iter().map(|Switch { tool, enabled }| (tool, enabled)).collect())
    }

    /// Adds a tool of the program: compiles its schemas, builds its stack. If it is an agent, the tools that hand work to agents name
    /// it in their descriptions from then on.
    ///
    /// # Errors
    /// [`BuildError`]: a name that is taken, a schema that cannot be used, a variable that is missing.
    pub fn register(&self, tool: Tool) -> Result<(), BuildError> {
        let tool = tool.with_variables(&self.environment)?;
        self.shared.redactor.learn(tool.secrets());
        let mut added = self.added();
        let current = self.catalog();
        let mut next = Catalog::clone(&current);
        let mut introductions = added.introductions.clone();
        let (described, others) = introductions.add(&tool, |agent, to| current.covers(agent, to));
        let entry = next.build(described, &self.bench(&current, &HashMap::new()))?;
        next.insert(entry)?;
        for tool in others {
            // What an admin switched stays switched.
            let switches = current.get(tool.name()).map(|entry| (tool.name().to_owned(), entry.is_enabled()));
            next.remove(tool.name());
            let entry = next.build(tool, &self.bench(&current, &switches.into_iter().collect()))?;
            next.insert(entry)?;
        }
        added.tools.push(tool);
        added.introductions = introductions;
        self.serve(next);
        Ok(())
    }

    /// Puts a new world in place of the current one, in one step: these callers and settings, these tools of program and manifest
    /// (and what [`Registry::register`] added), of the `groups` and the `registered` ones all that are in nobody's way.
    /// Admins' switches are applied before. Calls under way go on in their stacks.
    ///
    /// # Errors
    /// What is wrong with the new world, or with the ledger; then the current one stays.
    pub async fn replace(self: &Arc<Self>, world: World) -> Result<Replaced, ChangeError> {
        let _one_at_a_time = self.deciding.lock().await;
        let switches = self.switches().await?;
        let registry = self.clone();
        let work = move || -> Result<Replaced, ChangeError> {
            let World { callers, calls, tools, groups, registered } = world;
            let mut added = registry.added();
            let before = registry.catalog();
            let bench = registry.bench(&before, &switches);
            let mut next = Catalog::new(callers, calls);
            let brought = groups.iter().flat_map(|group| group.choices.iter().flatten().chain(&group.otherwise));
            next.announce(tools.iter().chain(&added.tools).chain(brought).chain(&registered));
            let mut tools: Vec<Tool> = tools.into_iter().chain(added.tools.iter().cloned()).collect();
            let introductions = Introductions::of(&tools);
            introductions.introduce(&mut tools, |agent, to| next.covers(agent, to));
            for tool in tools {
                let entry = next.build(tool, &bench)?;
                next.insert(entry)?;
            }
            let mut seats = Seats::new(&groups, &registered, &before);
            let mut seated = seats.seat(groups, &mut next, &bench);
            let mut aside = Vec::new();
            for tool in registered {
                let name = tool.name().to_owned();
                let kept = next.build(tool, &bench).map_err(ChangeError::from).and_then(|entry| {
                    next = with(&next, &entry)?;
                    Ok(())
                });
                aside.extend(kept.err().map(|error| Aside { name, why: error.to_string() }));
            }
            seats.seat_last(&mut seated, &mut next, &bench);
            registry.serve(next);
            added.introductions = introductions;
            Ok(Replaced { seated, aside })
        };
        // Compiling the schemas of many tools takes a while; calls go on meanwhile.
        blocking::on_a_thread(work).await.ok_or(Error::Closed)?
    }

    /// Lets go of every tool, so that what runs them ends with the last call that is under way.
    pub fn clear(&self) {
        let _one_at_a_time = self.added();
        let current = self.catalog();
        self.serve(current.without_tools());
    }

    /// Adds a registered tool, or replaces the one of that name. `kept` is what the ledger keeps of it. Says whether
    /// the name is new.
    ///
    /// # Errors
    /// When a name is taken, [`MOST_REGISTERED`] others are there, the tool cannot be built, or the ledger cannot write.
    pub async fn put(&self, tool: Tool, kept: Registered) -> Result<(Arc<Entry>, bool), ChangeError> {
        let _one_at_a_time = self.deciding.lock().await;
        let switches = self.switches().await?;
        let before = self.catalog();
        let entry = before.build(tool, &self.bench(&before, &switches))?;
        // Tried before it is kept, and again since the program may have added a tool meanwhile.
        with(&before, &entry)?;
        // Those that are set aside count too: the ledger keeps them.
        let there = self.shared.ledger.registered().await?;
        if there.len() >= MOST_REGISTERED && !there.iter().any(|other| other.name == kept.name) {
            return Err(ChangeError::TooMany(kept.name));
        }
        self.shared.ledger.register(kept).await?;
        let _one_at_a_time = self.added();
        let current = self.catalog();
        let is_new = current.get(entry.definition.name.as_str()).is_none();
        self.serve(with(&current, &entry)?);
        Ok((entry, is_new))
    }

    /// Forgets a registered tool, also one that is set aside; calls under way go on.
    ///
    /// # Errors
    /// When there is none of that name, it is not a registered one, or the ledger cannot write.
    pub async fn delete(&self, name: &str) -> Result<(), ChangeError> {
        let _one_at_a_time = self.deciding.lock().await;
        let was_kept = self.shared.ledger.unregister(name).await?;
        match self.catalog().get(name) {
            // It was set aside for this one, which stays.
            Some(entry) if entry.origin != Origin::Registered && was_kept => return Ok(()),
            Some(entry) if entry.origin != Origin::Registered => {
                return Err(ChangeError::Taken { name: name.to_owned(), whose: whose(name, entry) });
            }
            _ if !was_kept => return Err(ChangeError::Unknown(name.to_owned())),
            _ => {}
        }
        let _one_at_a_time = self.added();
        let mut next = Catalog::clone(&self.current.load());
        next.remove(name);
        self.serve(next);
        Ok(())
    }

    /// The tool of that name or alias.
    pub fn get(&self, name: &str) -> Option<Arc<Entry>> {
        self.current.load().get(name).cloned()
    }

    /// Whether there is a tool of that name or alias.
    pub fn has(&self, name: &str) -> bool {
        self.current.load().get(name).is_some()
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.current.load().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The schemas that this caller may use and that are on, ready to paste into a model API.
    pub fn schemas(&self, format: Format, caller: &Caller) -> Value {
        self.current.load().schemas(format, caller)
    }

    /// Sends a call through the tool's stack.
    ///
    /// # Errors
    /// [`CallError`]: refused or failed. A tool that says no is an answer.
    pub async fn invoke(&self, entry: &Entry, invocation: Invocation) -> Result<Answer, CallError> {
        entry.service.clone().oneshot(invocation).await
    }

    /// Calls a tool by name, as the operator: for programs that embed the crate. `None` if there is no such tool. The arguments
    /// are an object, or the JSON text of one as models write it. What is long is cut, and `meta.overflow` says so: an
    /// [`Invocation`] with a `page` asks for other parts.
    pub async fn execute(&self, name: &str, arguments: impl Into<Value>) -> Option<Result<Answer, CallError>> {
        let entry = self.get(name)?;
        let (arguments, unreadable) = match read_arguments(arguments.into()) {
            Ok(arguments) => (arguments, None),
            Err(unreadable) => (JsonObject::new(), Some(unreadable)),
        };
        let caller = Arc::new(Caller::anonymous());
        let now = self.shared.clock.now();
        let mut invocation = Invocation::new(entry.definition.name.clone(), arguments, caller, now);
        invocation.unreadable = unreadable.map(Into::into);
        Some(self.invoke(&entry, invocation).await)
    }

    /// Switches a tool on or off; kept over restarts.
    ///
    /// # Errors
    /// When the ledger cannot write; then nothing has changed.
    pub async fn switch(&self, entry: &Entry, enabled: bool) -> Result<(), Error> {
        let _one_at_a_time = self.deciding.lock().await;
        let name = &entry.definition.name;
        self.shared.ledger.switch(Switch { tool: name.to_string(), enabled }).await?;
        entry.enable(enabled);
        // Its place may have been taken by another since it was found.
        if let Some(current) = self.get(name.as_str()).filter(|current| current.definition.name == *name) {
            current.enable(enabled);
        }
        self.changes.send_replace(());
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

    /// Forgets what was counted against the tool's limits; of one caller only, if named, and then also what that caller's own
    /// limits over all tools have counted.
    ///
    /// # Errors
    /// When the ledger cannot write; then nothing has changed.
    pub async fn reset_usage(&self, entry: &Entry, caller: Option<&str>) -> Result<(), Error> {
        self.shared.ledger.reset(entry.definition.name.as_str(), caller).await
    }

    /// Ends a registry that belongs to no service: lets no call begin any more, waits for those under way, writes what is not
    /// written yet and closes the ledger.
    pub async fn close(&self) {
        self.shared.running.close();
        self.shared.running.drained().await;
        self.shared.ledger.close().await;
        self.shared.call_log.flush().await;
    }
}

/// Arguments as a program has them: an object, or the text that a model wrote.
fn read_arguments(arguments: Value) -> Result<JsonObject, Unreadable> {
    let unreadable = |what: String| {
        let correction =
            format!("The tool did not run: {what}. Send the whole call again, its arguments as one JSON object.");
        Unreadable { what, correction }
    };
    let value = match arguments {
        // An empty text is how some models say "none".
        Value::String(text) if text.trim().is_empty() => return Ok(JsonObject::new()),
        Value::String(text) => {
            parse_strict(text.as_bytes()).map_err(|error| unreadable(format!("they are no JSON: {error}")))?
        }
        other => other,
    };
    match value {
        Value::Object(arguments) => Ok(arguments),
        other => Err(unreadable(format!("they are a JSON {}, not an object", type_name(&other)))),
    }
}

/// The catalog with a registered tool in it, in place of one of its name, unless another tool has one of its names or another
/// spelling of one.
fn with(catalog: &Catalog, entry: &Arc<Entry>) -> Result<Catalog, ChangeError> {
    let own = &entry.definition.name;
    for name in entry.names() {
        if let Some(holder) = catalog.get(name.as_str())
            && !(holder.origin == Origin::Registered && holder.definition.name == *own)
        {
            return Err(ChangeError::Taken { name: name.to_string(), whose: whose(name.as_str(), holder) });
        }
        if let Some(holder) = catalog.spelled_like(name, own) {
            return Err(ChangeError::Taken { name: name.to_string(), whose: whose(name.as_str(), holder) });
        }
    }
    let mut next = catalog.clone();
    next.remove(own.as_str());
    next.insert(entry.clone())?;
    Ok(next)
}

/// Who has a name, as the rest of a sentence.
fn whose(name: &str, holder: &Entry) -> String {
    let real = holder.definition.name.as_str();
    let what = match real == name {
        true => "is a tool".to_owned(),
        false if holder.names().any(|own| own.as_str() == name) => format!("is an alias of `{real}`, a tool"),
        false => format!("is another spelling of `{real}`, a tool"),
    };
    match holder.origin {
        Origin::Manifest => format!("{what} of the manifest, which the API does not change"),
        Origin::Program => format!("{what} of the program, which the API does not change"),
        Origin::Registered => format!("{what} that is registered already"),
    }
}
