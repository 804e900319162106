//! Puts the parts together: the only file that wires. `app/serving.rs` runs what came of it.

mod serving;
mod signals;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::Semaphore;
use wildmatch::WildMatch;

pub use self::signals::stopped;
use crate::call::{CallSettings, Clock, DigestKey, Services};
use crate::callers::Callers;
use crate::http::{self, ServerSettings};
use crate::ledger;
use crate::live::{self, Brought, Live, Plan, Reading, SourceView};
use crate::log::CallLog;
use crate::manifest::{self, DeclaredSource, Finding, Manifest};
use crate::metrics::{self, Metrics};
use crate::middleware::cache::ResultCache;
use crate::middleware::replay::Replays;
use crate::printable;
use crate::registry::Registry;
use crate::running::Running;
use crate::runs::Runs;
use crate::secrets::Redactor;
use crate::stack::Shared;
use crate::start::Person;
use crate::tools::{BuildError, Source, SourceSettings, Surroundings, Tool, builtin};

/// Virtual environments are kept in this folder, beside the ledger.
const VENVS: &str = "toolcrib-venvs";

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
    /// A reload would have left a service without callers that had some.
    #[error("the manifest has no callers any more; start the service anew if that is meant")]
    Unguarded,
    /// The process cannot watch for signals.
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
    /// The system gives no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

impl From<live::Error> for Error {
    fn from(error: live::Error) -> Self {
        match error {
            live::Error::Manifest(findings) => Self::Manifest(findings),
            live::Error::Tool(error) => Self::Tool(error),
            live::Error::Ledger(error) => Self::Ledger(error),
            live::Error::Unguarded => Self::Unguarded,
        }
    }
}

/// A service, built and not yet listening.
pub struct App {
    live: Arc<Live>,
    settings: ServerSettings,
    listen: String,
    retention: Option<Duration>,
    demo: bool,
    person: Option<Person>,
}

/// Collects what a service is made of.
#[derive(Default)]
pub struct AppBuilder {
    tools: Vec<Tool>,
    sources: Vec<DeclaredSource>,
    services: Services,
    manifest: Option<PathBuf>,
    listen: Option<String>,
    ledger: Option<String>,
    accept_loss: bool,
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

    /// Opens the ledger and builds every tool's stack. Sources are started and go on by themselves: see
    /// [`App::sources_listed`].
    ///
    /// # Errors
    /// [`Error`]: what keeps the service from being built, with all findings of the manifest at once.
    pub async fn build(self) -> Result<App, Error> {
        let Self {
            tools,
            sources,
            services,
            manifest,
            listen,
            ledger,
            accept_loss,
            allow_open,
            deny,
            demo,
            clock,
            call_log,
            person,
        } = self;
        let mut plan = Plan {
            manifest,
            sources,
            venvs: PathBuf::new(),
            program: tools.into_iter().chain(demo.then(builtin::demo).into_iter().flatten()).collect(),
            deny: deny.iter().map(|pattern| WildMatch::new(pattern)).collect(),
            allow_open,
            listen_given: listen.is_some(),
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
        let digest_key = manifest.digest_key.clone().map_or_else(DigestKey::random, Ok)?;
        let clock = clock.unwrap_or_else(Clock::system);
        let metrics = Metrics::new()?;
        let ledger = ledger::open_watched(&place, clock.now(), metrics.commits()).await?;
        let shared = Shared {
            cache: ResultCache::new(manifest.cache_bytes, ledger.clone(), clock.clone()),
            replays: Replays::default(),
            ledger,
            running: Running::default(),
            runs: Runs::new(clock.clone()),
            in_flight: Arc::new(Semaphore::new(settings.max_in_flight.min(Semaphore::MAX_PERMITS))),
            redactor: Arc::new(Redactor::new([])),
            clock,
            capture: manifest.capture,
            digest_key,
            call_log: call_log.unwrap_or_else(CallLog::events),
            metrics,
        };
        let retention = place.retention;
        let registry = Arc::new(Registry::new(shared, Arc::new(Callers::default()), services));
        let live = Live::start(registry, plan, manifest, seen).await?;
        Ok(App { live, settings, listen, retention, demo, person })
    }
}

impl App {
    /// Starts a builder.
    pub fn builder() -> AppBuilder {
        AppBuilder::default()
    }

    /// The tools.
    pub fn registry(&self) -> &Arc<Registry> {
        self.live.registry()
    }

    /// Reads the manifest again, as on SIGHUP: a good one takes the place of the old one in one step, a bad one changes
    /// nothing. While [`App::serve`] runs this happens by itself when a file of the manifest changes.
    ///
    /// # Errors
    /// Why the old one was kept.
    pub async fn reload(&self) -> Result<(), Error> {
        Ok(self.live.reload().await?)
    }

    /// Returns when every source was listed once or failed once; before that, tools may be missing.
    pub async fn sources_listed(&self) {
        self.live.sources_listed().await;
    }

    /// How every source is.
    pub fn sources(&self) -> Vec<SourceView> {
        self.live.sources()
    }

    /// The HTTP face without a socket, to be driven in process or mounted elsewhere.
    pub fn router(&self) -> Router {
        http::router(self.live.clone(), &self.settings)
    }

    /// Returns when the process is told to stop (SIGTERM, SIGINT).
    ///
    /// # Errors
    /// When signals cannot be watched.
    pub async fn stopped(&self) -> Result<(), Error> {
        stopped().await
    }

    /// Ends an app that does not serve: waits for its calls and closes the ledger.
    pub async fn close(self) {
        let shared = self.registry().shared();
        shared.running.close();
        shared.running.drained().await;
        self.live.stop_sources().await;
        shared.ledger.close().await;
        shared.call_log.flush().await;
    }
}

/// Where virtual environments are kept: beside the ledger, since there the service may write.
fn venvs(ledger: &ledger::Settings) -> PathBuf {
    ledger::folder(ledger).unwrap_or_default().join(VENVS)
}

/// The tools of a manifest, for a command that shows them and serves none.
pub(crate) struct Declared {
    /// Its own, then those of its sources.
    pub(crate) tools: Vec<Tool>,
    /// `calls:`
    pub(crate) calls: CallSettings,
    /// Sources of which nothing could be used, each with the reason.
    pub(crate) faults: Vec<String>,
}

/// Reads a manifest and lists its sources once; `told` hears what takes long.
pub(crate) async fn declared(path: &Path, told: fn(&str, &str)) -> Result<Declared, Error> {
    let manifest = manifest::load(path, &manifest::Process, &HashMap::new()).map_err(Error::Manifest)?;
    let Manifest { mut tools, mut sources, calls, ledger, secrets, .. } = manifest;
    for source in &mut sources {
        source.settings.keep_venvs_in(&venvs(&ledger));
    }
    let redactor = Arc::new(Redactor::new(secrets.iter().map(String::as_str)));
    let surroundings = Surroundings::of_this_process(redactor.clone());
    let Brought { tools: brought, faults } = live::once(sources, &tools, &surroundings, told).await;
    tools.extend(brought);
    let faults = faults.iter().map(|fault| redactor.text(&printable::text(fault)).into_owned()).collect();
    Ok(Declared { tools, calls, faults })
}
