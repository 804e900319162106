//! Builds a service from its parts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::declared::venv_folder;
use super::shared::build_shared;
use super::{App, Error};
use crate::access::callers::Callers;
use crate::access::tool_pattern::ToolPattern;
use crate::app::startup_banner::HumanOutput;
use crate::call::{Clock, Services};
use crate::catalog::registry::Registry;
use crate::environment::Environment;
use crate::http;
use crate::kinds::{Agent, HttpClients, OwnPorts, Sandboxes, TokenSources, Tool, builtin};
use crate::ledger;
use crate::log::CallLog;
use crate::manifest::{self, DeclaredSource, Finding};
use crate::metrics::Metrics;
use crate::sources::live::{LiveTools, ManifestReading, ServiceConfig};
use crate::sources::{ProgramSource, Source, SourceSettings};
use crate::telemetry::{self, Telemetry};

/// Collects the parts of a service.
#[derive(Default)]
pub struct AppBuilder {
    pub(super) tools: Vec<Tool>,
    pub(super) agents: Vec<Tool<Agent>>,
    sources: Vec<DeclaredSource>,
    pub(super) services: Services,
    manifest: Option<PathBuf>,
    pub(super) environment: Option<Environment>,
    listen: Option<String>,
    pub(super) ledger: Option<String>,
    accept_loss: bool,
    allow_open: bool,
    deny: Vec<String>,
    demo: bool,
    manifest_only: bool,
    only_tool: Option<String>,
    pub(super) clock: Option<Clock>,
    pub(super) call_log: Option<CallLog>,
    banner_output: Option<HumanOutput>,
}

impl AppBuilder {
    /// Adds a tool of the embedding program.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds an agent of the embedding program as a tool. It finds the tools that it may use by
    /// name, wherever they are declared.
    #[must_use]
    pub fn agent(mut self, agent: Tool<Agent>) -> Self {
        self.agents.push(agent);
        self
    }

    /// Adds a source of tools of the embedding program. It is listed when the service is built,
    /// again after a failure, and when an admin requests it. Names are unique among all sources.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>, source: Arc<dyn Source>) -> Self {
        let settings = SourceSettings::Program {
            name: name.into(),
            source: ProgramSource(source),
        };
        self.sources.push(DeclaredSource::from_program(settings));
        self
    }

    /// Shares a value with all native tools. They get it with `ToolContext::service::<T>()`.
    #[must_use]
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.services.insert(value);
        self
    }

    /// Reads settings, callers and more tools from a manifest.
    ///
    /// # Errors
    /// The file does not exist. [`AppBuilder::build`] checks its content, because only then all
    /// tools are known.
    pub fn manifest(mut self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        if let Err(error) = std::fs::metadata(path) {
            let location = manifest::Location::start_of(path);
            let message = format!("cannot be read: {error}");
            return Err(Error::Manifest(vec![Finding::error(location, "", message)]));
        }
        self.manifest = Some(path.to_owned());
        Ok(self)
    }

    /// Sets the variables for `${env:NAME}` and for tools. Programs get some of them. The default
    /// is the environment of the process. Use it for the result of
    /// [`conceal`](crate::environment::conceal).
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Sets the address to listen on. It takes precedence over the manifest.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = Some(address.into());
        self
    }

    /// Sets the ledger (`sqlite://FILE`, relative to the working folder). It takes precedence over
    /// the manifest.
    #[must_use]
    pub fn ledger(mut self, url: impl Into<String>) -> Self {
        self.ledger = Some(url.into());
        self
    }

    /// Accepts a ledger that has lost acknowledged commits. Without this, [`AppBuilder::build`]
    /// refuses it.
    #[must_use]
    pub fn accept_loss(mut self) -> Self {
        self.accept_loss = true;
        self
    }

    /// Allows the service to listen beyond loopback although it has no callers.
    #[must_use]
    pub fn allow_open(mut self) -> Self {
        self.allow_open = true;
        self
    }

    /// Disables every tool with this name or alias, in any spelling. `*` stands for any characters.
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

    /// Declares that the program adds no tools to those of the manifest. A name in the manifest
    /// that matches no tool is then an error.
    #[must_use]
    pub(crate) fn manifest_only(mut self) -> Self {
        self.manifest_only = true;
        self
    }

    /// Starts only the sources that the tool of this name needs.
    #[must_use]
    pub(crate) fn only_tool(mut self, name: &str) -> Self {
        self.only_tool = Some(name.to_owned());
        self
    }

    /// Replaces the clock, for tests of windows and expiry.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the destination of the log line of each call. The default is tracing events.
    #[must_use]
    pub fn call_log(mut self, log: CallLog) -> Self {
        self.call_log = Some(log);
        self
    }

    /// Writes the startup banner to `out` as a block of text for a person, instead of an event.
    #[must_use]
    pub fn print_banner_to(mut self, out: impl io::Write + Send + Sync + 'static) -> Self {
        self.banner_output = Some(Box::new(out));
        self
    }

    /// Opens the ledger and builds every tool's stack. Sources are started and continue in the
    /// background: see [`App::wait_for_sources`].
    ///
    /// # Errors
    /// [`Error`]: the reason why the service cannot be built. It contains all findings of the
    /// manifest.
    pub async fn build(self) -> Result<App, Error> {
        let mut tools = self.tools;
        let own_ports = OwnPorts::default();
        let clients = HttpClients::new(own_ports.clone(), TokenSources::default());
        for agent in self.agents {
            tools.push(agent.build_with(&clients)?);
        }
        let manifest_only = self.manifest_only && self.sources.is_empty() && tools.is_empty();
        if self.demo {
            tools.extend(builtin::demo_tools(&own_ports));
        }
        let mut config = ServiceConfig {
            manifest: self.manifest,
            manifest_only,
            program_sources: self.sources,
            own_ports: own_ports.clone(),
            token_sources: TokenSources::default(),
            sandboxes: Sandboxes::new(own_ports.clone()),
            environment: self.environment.unwrap_or_else(Environment::from_process),
            venv_folder: PathBuf::new(),
            program_tools: tools,
            deny_patterns: ToolPattern::parse_list(&self.deny),
            allow_open: self.allow_open,
            listen: self.listen.clone(),
            has_ledger_override: self.ledger.is_some(),
        };
        let ManifestReading { outcome, files } = config.read_manifest();
        let mut manifest = outcome.map_err(Error::Manifest)?;
        if let Some(name) = self.only_tool {
            manifest.keep_sources_for(&name);
        }
        let mut settings = manifest.server.clone();
        settings.allow_open |= self.allow_open;
        let mut ledger_settings = match self.ledger {
            Some(url) => ledger::Settings {
                url,
                base: PathBuf::new(),
                ..manifest.ledger.clone()
            },
            None => manifest.ledger.clone(),
        };
        ledger_settings.accept_loss = self.accept_loss;
        config.venv_folder = venv_folder(&ledger_settings);
        if let Some(file) = ledger::ledger_file(&ledger_settings) {
            config.sandboxes.set_ledger(file, &config.venv_folder);
        }
        if manifest.server.requires_sandbox {
            refuse_unenforced(&manifest.tools)?;
        }
        let listen = self.listen.unwrap_or_else(|| manifest.listen.clone());
        let clock = self.clock.unwrap_or_else(Clock::system);
        let metrics = Metrics::new()?;
        let ledger =
            ledger::open_with_observer(&ledger_settings, clock.now(), metrics.commit_metrics())
                .await?;
        let call_log = self.call_log.unwrap_or_else(CallLog::events);
        let shared = {
            let collector =
                telemetry::Config::resolve(manifest.telemetry.as_ref(), &config.environment);
            let keys = collector
                .as_ref()
                .map(telemetry::Config::header_secrets)
                .unwrap_or_default();
            let telemetry = collector
                .map(|config| Telemetry::start(config, &metrics, &call_log))
                .transpose()
                .map_err(Error::Telemetry)?;
            let shared = build_shared(&manifest, ledger, clock, call_log, metrics, telemetry)?;
            shared.redactor.add_secrets(keys.iter().map(String::as_str));
            shared.cache.follow_redis().await;
            shared
        };
        let retention = ledger_settings.retention;
        let mut services = self.services;
        services.insert(config.sandboxes.clone());
        let registry = Arc::new(
            Registry::new(shared, Arc::new(Callers::default()), services)
                .with_environment(config.environment.clone()),
        );
        let live = LiveTools::start(registry, config, manifest, files).await?;
        start_metrics(&live);
        Ok(App {
            live,
            settings,
            listen,
            own_ports,
            retention,
            demo: self.demo,
            banner_output: self.banner_output,
            close_streams: CancellationToken::new(),
        })
    }
}

/// Refuses tools whose sandbox cannot be enforced completely. Sources are refused when they start.
fn refuse_unenforced(tools: &[Tool]) -> Result<(), Error> {
    let fault = |tool: &Tool| Some((tool.name().to_owned(), tool.runner.sandbox()?.fault()?));
    match tools.iter().find_map(fault) {
        Some((tool, reason)) => Err(Error::Sandbox { tool, reason }),
        None => Ok(()),
    }
}

/// Starts sending the metrics, if a collector is configured.
fn start_metrics(live: &Arc<LiveTools>) {
    let Some(telemetry) = &live.registry().shared().telemetry else {
        return;
    };
    // The tasks of telemetry end before the tools do, but must not keep them alive.
    let live = Arc::downgrade(live);
    telemetry.start_metrics(Box::new(move || {
        let live = live.clone();
        Box::pin(async move {
            match live.upgrade() {
                Some(live) => http::gather_metrics(&live).await,
                None => Vec::new(),
            }
        })
    }));
}
