//! Puts the parts together: the only file that wires.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use wildmatch::WildMatch;

use crate::call::{Clock, EnvVar, Services};
use crate::callers::Callers;
use crate::http::{self, ServerSettings};
use crate::ledger;
use crate::log::CallLog;
use crate::manifest::{self, Finding, Manifest, Process, Source};
use crate::metrics::{self, Metrics};
use crate::middleware::cache::ResultCache;
use crate::registry::Registry;
use crate::running::Running;
use crate::secrets::Redactor;
use crate::stack::Shared;
use crate::start::{Person, Start};
use crate::tools::{BuildError, Tool, builtin};

/// Why a service could not be built or started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest has errors; the findings say where and what.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifest(Vec<Finding>),
    /// A tool cannot be registered.
    #[error(transparent)]
    Tool(#[from] BuildError),
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address as it was given.
        listen: String,
        /// Why.
        source: std::io::Error,
    },
    /// Reachable by others, and nobody would be asked for a key.
    #[error(
        "{0} can be reached from other machines and there are no callers, so anybody could run these tools: declare \
         callers with keys in the manifest, listen on 127.0.0.1, or say --allow-open (server.allow_open: true)"
    )]
    Open(SocketAddr),
    /// The metrics cannot be set up.
    #[error("the metrics cannot be set up: {0}")]
    Metrics(#[from] metrics::Error),
    /// The process cannot watch for signals.
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
}

/// A service, built and not yet listening.
pub struct App {
    registry: Arc<Registry>,
    settings: ServerSettings,
    listen: String,
    demo: bool,
    person: Option<Person>,
}

/// Collects what a service is made of.
#[derive(Default)]
pub struct AppBuilder {
    tools: Vec<Tool>,
    services: Services,
    manifest: Option<PathBuf>,
    listen: Option<String>,
    ledger: Option<String>,
    allow_open: bool,
    deny: Vec<String>,
    demo: bool,
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

    /// Lets the service listen beyond loopback although it has no callers.
    #[must_use]
    pub fn allow_open(mut self) -> Self {
        self.allow_open = true;
        self
    }

    /// Switches off every tool whose name fits the pattern (`*` stands for anything).
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

    /// Opens the ledger and builds every tool's stack.
    ///
    /// # Errors
    /// [`Error`]: what keeps the service from being built, with all findings of the manifest at once.
    pub async fn build(self) -> Result<App, Error> {
        let natives: HashMap<String, Tool> =
            self.tools.iter().map(|tool| (tool.name().to_owned(), tool.clone())).collect();
        let manifest = match &self.manifest {
            Some(path) => manifest::load(path, &Process, &natives).map_err(Error::Manifest)?,
            None => Manifest::default(),
        };
        for warning in &manifest.warnings {
            tracing::warn!("{warning}");
        }
        let Manifest { mut server, listen, ledger: mut place, cache_bytes, callers, tools, taken, secrets, .. } =
            manifest;
        server.allow_open |= self.allow_open;
        if let Some(url) = self.ledger {
            place = ledger::Settings { url, base: PathBuf::new(), ..place };
        }
        let own = self.tools.into_iter().filter(|tool| !taken.iter().any(|name| name == tool.name()));
        let tools = own.chain(tools).map(|tool| with_env(tool, &Process)).collect::<Result<Vec<_>, _>>()?;
        // A default stands in the program or the manifest for all to see; anything else may be a secret.
        let declared = tools.iter().flat_map(|tool| {
            let is_default = |name: &str, value: &str| {
                let vars = &tool.definition.env;
                vars.iter().any(|var| var.name == name && var.default.as_deref() == Some(value))
            };
            let values = tool.settings.env.iter().filter(move |(name, value)| !is_default(name, value));
            values.map(|(_, value)| value.as_str())
        });
        let clock = self.clock.unwrap_or_else(Clock::system);
        let metrics = Metrics::new()?;
        let ledger = ledger::open_watched(&place, clock.now(), metrics.commits()).await?;
        let shared = Shared {
            cache: ResultCache::new(cache_bytes, ledger.clone(), clock.clone()),
            ledger,
            running: Running::default(),
            in_flight: Arc::new(Semaphore::new(server.max_in_flight.min(Semaphore::MAX_PERMITS))),
            redactor: Arc::new(Redactor::new(secrets.iter().map(String::as_str).chain(declared))),
            clock,
            call_log: self.call_log.unwrap_or_else(CallLog::events),
            metrics,
        };
        let registry = Registry::new(shared, Arc::new(Callers::new(callers)), self.services);
        let demo = if self.demo { builtin::demo() } else { Vec::new() };
        let deny: Vec<WildMatch> = self.deny.iter().map(|pattern| WildMatch::new(pattern)).collect();
        for mut tool in tools.into_iter().chain(demo) {
            tool.policy.enabled &= !deny.iter().any(|pattern| pattern.matches(tool.name()));
            registry.register(tool)?;
        }
        registry.restore_switches().await?;
        let listen = self.listen.unwrap_or(listen);
        let (demo, person) = (self.demo, self.person);
        Ok(App { registry: Arc::new(registry), settings: server, listen, demo, person })
    }
}

/// The tool with the values of the variables it declares.
fn with_env(mut tool: Tool, source: &dyn Source) -> Result<Tool, BuildError> {
    let missing = |var: &&EnvVar| !tool.settings.env.contains_key(&var.name);
    let declared: Vec<EnvVar> = tool.definition.env.iter().filter(missing).cloned().collect();
    for var in declared {
        match source.env(&var.name).or_else(|| var.default.clone()) {
            Some(value) => {
                tool.settings.env.insert(var.name, value);
            }
            None if var.required => {
                return Err(BuildError::MissingEnv { tool: tool.name().to_owned(), name: var.name });
            }
            None => {}
        }
    }
    Ok(tool)
}

impl App {
    /// Starts a builder.
    pub fn builder() -> AppBuilder {
        AppBuilder::default()
    }

    /// The tools.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The HTTP face without a socket, to be driven in process or mounted elsewhere.
    pub fn router(&self) -> Router {
        http::router(self.registry.clone(), &self.settings)
    }

    /// Listens, prints `listening on http://ADDR` to standard output, and serves until SIGTERM or SIGINT; then drains
    /// and closes the ledger. A second signal hurries.
    ///
    /// # Errors
    /// When the address cannot be listened on, or would be open to others without callers.
    pub async fn serve(mut self) -> Result<(), Error> {
        let listen = &self.listen;
        let failed = |source| Error::Listen { listen: listen.clone(), source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let open = self.registry.callers().is_empty() && !manifest::is_loopback(&address);
        if open && !self.settings.allow_open {
            return Err(Error::Open(address));
        }
        let (mut stop, mut hurry) = (Signals::new()?, Signals::new()?);
        Start::new(address, &self.registry, &self.settings, self.demo).say(self.person.take());
        if open {
            tracing::warn!(%address, "open to other machines without any key");
        }
        let shared = self.registry.shared().clone();
        let hurried = async {
            // The first signal is the one that stops; this waits for the next.
            hurry.next().await;
            hurry.next().await;
        };
        http::serve(listener, self.router(), shared.running, self.settings.drain, stop.next(), hurried).await;
        shared.ledger.close().await;
        shared.call_log.flush().await;
        tracing::info!("stopped");
        Ok(())
    }

    /// Returns when the process is told to stop (SIGTERM, SIGINT).
    ///
    /// # Errors
    /// When signals cannot be watched.
    pub async fn stopped(&self) -> Result<(), Error> {
        Signals::new()?.next().await;
        Ok(())
    }

    /// Ends an app that does not serve: waits for its calls and closes the ledger.
    pub async fn close(self) {
        let shared = self.registry.shared();
        shared.running.close();
        shared.running.drained().await;
        shared.ledger.close().await;
        shared.call_log.flush().await;
    }
}

/// SIGTERM and SIGINT, which mean the same.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let term = signal(SignalKind::terminate()).map_err(Error::Signals)?;
        let int = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
        Ok(Self { term, int })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
