//! Puts the parts together.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::declared::venvs;
use super::shared::shared;
use super::{App, Error};
use crate::call::{Clock, Services};
use crate::callers::Callers;
use crate::environment::Environment;
use crate::ledger;
use crate::live::{Live, Plan, Reading};
use crate::log::CallLog;
use crate::manifest::{self, DeclaredSource, Finding};
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::start::Person;
use crate::tool_pattern::ToolPattern;
use crate::tools::{Agent, Clients, OwnPorts, Source, SourceSettings, Tool, builtin};

/// Collects what a service is made of.
#[derive(Default)]
pub struct AppBuilder {
    tools: Vec<Tool>,
    agents: Vec<Tool<Agent>>,
    sources: Vec<DeclaredSource>,
    services: Services,
    manifest: Option<PathBuf>,
    environment: Option<Environment>,
    listen: Option<String>,
    ledger: Option<String>,
    accept_loss: bool,
    allow_open: bool,
    deny: Vec<String>,
    demo: bool,
    is_alone: bool,
    clock: Option<Clock>,
    call_log: Option<CallLog>,
    person: Option<Person>,
}

impl AppBuilder {
    /// Adds a tool of the embedding program.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds an agent of the embedding program as a tool. It finds the tools that it may use by name, wherever they are declared.
    #[must_use]
    pub fn agent(mut self, agent: Tool<Agent>) -> Self {
        self.agents.push(agent);
        self
    }

    /// Adds a source of tools of the embedding program: it is listed when the service is built, again after a failure,
    /// and when an admin asks for it. Names are unique among all sources.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>, source: Arc<dyn Source>) -> Self {
        let settings = SourceSettings::Program { name: name.into(), source };
        self.sources.push(DeclaredSource::of_program(settings));
        self
    }

    /// Shares a value with all native tools: `ToolContext::service::<T>()` hands it out.
    #[must_use]
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.services.insert(value);
        self
    }

    /// Reads settings, callers and more tools from a manifest.
    ///
    /// # Errors
    /// When there is no such file. What is in it is looked at by `build`, which knows all tools.
    pub fn manifest(mut self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        if let Err(error) = std::fs::metadata(path) {
            let place = manifest::Place { file: path.into(), line: 1, column: 1 };
            return Err(Error::Manifest(vec![Finding::error(place, "", format!("cannot be read: {error}"))]));
        }
        self.manifest = Some(path.to_owned());
        Ok(self)
    }

    /// The variables that `${env:NAME}` and tools name, and of which programs are told some; by default those of the
    /// process. For what [`conceal`](crate::environment::conceal) returns.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Where to listen; wins over the manifest.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = Some(address.into());
        self
    }

    /// Where the ledger is (`sqlite://FILE`, relative to the working folder); wins over the manifest.
    #[must_use]
    pub fn ledger(mut self, url: impl Into<String>) -> Self {
        self.ledger = Some(url.into());
        self
    }

    /// Goes on with a ledger that has lost acknowledged commits, which [`AppBuilder::build`] else refuses.
    #[must_use]
    pub fn accept_loss(mut self) -> Self {
        self.accept_loss = true;
        self
    }

    /// Lets the service listen beyond loopback although it has no callers.
    #[must_use]
    pub fn allow_open(mut self) -> Self {
        self.allow_open = true;
        self
    }

    /// Switches off every tool with this name or alias, in any spelling; `*` stands for any characters.
    #[must_use]
    pub fn deny(mut self, pattern: impl Into<String>) -> Self {
        self.deny.push(pattern.into());
        self
    }

    /// Adds the demo's built-in tools.
    #[must_use]
    pub fn demo(mut self) -> Self {
        self.demo = true;
        self
    }

    /// Nothing is added to the tools of the manifest by this program, so a name in it that means none of them is an error.
    #[must_use]
    pub(crate) fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }

    /// Another clock, for tests of windows and expiry.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Where the line of each call goes; by default, tracing events.
    #[must_use]
    pub fn call_log(mut self, log: CallLog) -> Self {
        self.call_log = Some(log);
        self
    }

    /// A person reads what is written there: the start is told as a block of text, not as an event.
    #[must_use]
    pub fn to_person(mut self, out: impl io::Write + Send + Sync + 'static) -> Self {
        self.person = Some(Box::new(out));
        self
    }

    /// Opens the ledger and builds every tool's stack. Sources are started and go on by themselves: see
    /// [`App::sources_listed`].
    ///
    /// # Errors
    /// [`Error`]: what keeps the service from being built, with all findings of the manifest at once.
    pub async fn build(self) -> Result<App, Error> {
        let Self {
            mut tools,
            agents,
            sources,
            services,
            manifest,
            environment,
            listen,
            ledger,
            accept_loss,
            allow_open,
            deny,
            demo,
            is_alone,
            clock,
            call_log,
            person,
        } = self;
        let own = OwnPorts::default();
        let clients = Clients::new(own.clone());
        for agent in agents {
            tools.push(agent.build_with(&clients)?);
        }
        let mut plan = Plan {
            manifest,
            is_alone: is_alone && sources.is_empty() && tools.is_empty(),
            sources,
            own: own.clone(),
            environment: environment.unwrap_or_else(Environment::of_this_process),
            venvs: PathBuf::new(),
            program: tools.into_iter().chain(demo.then(|| builtin::demo(&own)).into_iter().flatten()).collect(),
            deny: ToolPattern::list(&deny),
            allow_open,
            listen: listen.clone(),
            ledger_given: ledger.is_some(),
        };
        let Reading { outcome, seen } = plan.read();
        let manifest = outcome.map_err(Error::Manifest)?;
        let mut settings = manifest.server.clone();
        settings.allow_open |= allow_open;
        let mut place = match ledger {
            Some(url) => ledger::Settings { url, base: PathBuf::new(), ..manifest.ledger.clone() },
            None => manifest.ledger.clone(),
        };
        place.accept_loss = accept_loss;
        plan.venvs = venvs(&place);
        let listen = listen.unwrap_or_else(|| manifest.listen.clone());
        let clock = clock.unwrap_or_else(Clock::system);
        let metrics = Metrics::new()?;
        let ledger = ledger::open_watched(&place, clock.now(), metrics.commits()).await?;
        let shared = shared(&manifest, ledger, clock, call_log, metrics)?;
        let retention = place.retention;
        let registry = Arc::new(
            Registry::new(shared, Arc::new(Callers::default()), services).in_environment(plan.environment.clone()),
        );
        let live = Live::start(registry, plan, manifest, seen).await?;
        Ok(App { live, settings, listen, own, retention, demo, person, ending: CancellationToken::new() })
    }
}
