//! Connects to a server: its process or its URL, the handshake, its list of tools.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt;
use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
use tokio::process::Command;
use tokio::sync::{Notify, OnceCell};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::child::Child;
use super::client::Client;
use super::config::{Mode, ServerSettings, Transport};
use super::connection::Connection;
use super::fault::{self, ListToolsError};
use super::listing::{self, Listing};
use super::pin_check::PinError;
use super::pipes::Pipes;
use super::remote::Remote;
use super::transport_adapter::{ConnectionState, TransportAdapter};
use crate::call::ToolError;
use crate::sanitize;
use crate::tools::http::client::host;
use crate::tools::process::{Sweeps, along, is_program};
use crate::tools::{ProcessEnv, StatusFn};

/// Makes the connections to one server.
pub(super) struct Connector {
    pub settings: ServerSettings,
    pub name: Arc<str>,
    pub surroundings: ProcessEnv,
    /// Signals that a call with a connection of its own has found other tools than were offered. That includes a new
    /// tool, and a definition that was approved again.
    pub changed: Notify,
    /// The listing that was offered, if each call has a connection of its own.
    offered: Mutex<Option<Listing>>,
    /// Whether the last handshake used the version without sessions; `None`: not known.
    was_modern: Mutex<Option<bool>>,
    /// Both attempts at a first handshake have failed. From now on each connection is attempted once, without a
    /// repetition.
    ends_anyway: AtomicBool,
    /// The HTTP side, if the server has a URL.
    remote: OnceCell<Remote>,
    /// Weak, because only the source and its runners may own it. A background task that owned it would keep the sweeps
    /// alive, and no owner would wait for the end of the processes.
    sweeps: Weak<Sweeps>,
}

/// Why no connection was made.
struct Refusal {
    /// A part of a sentence with the server as subject.
    why: String,
    /// Whether its process ended by itself.
    is_gone: bool,
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self { why, is_gone: false }
    }
}

impl Connector {
    pub(super) fn new(settings: ServerSettings, surroundings: ProcessEnv, sweeps: &Arc<Sweeps>) -> Self {
        Self {
            name: settings.name.as_str().into(),
            settings,
            surroundings,
            changed: Notify::new(),
            offered: Mutex::default(),
            was_modern: Mutex::default(),
            ends_anyway: AtomicBool::new(false),
            remote: OnceCell::new(),
            sweeps: Arc::downgrade(sweeps),
        }
    }

    /// Makes a connection and lists the tools.
    ///
    /// # Errors
    /// A part of a sentence with the server as subject. Dropping the future ends what was started.
    pub(super) async fn listed(&self, told: &StatusFn) -> Result<(Arc<Connection>, Listing), String> {
        let both = async {
            let connection = self.connect(told).await?;
            let begun = connection.line.said.moment();
            let listing = self.list(&connection).await;
            connection.line.said.heard(begun, &listing);
            Ok((connection, listing?))
        };
        self.in_time(both).await
    }

    /// Makes a connection for one call, without a list of tools.
    ///
    /// # Errors
    /// As [`listed`](Self::listed).
    pub(super) async fn connected(&self) -> Result<Arc<Connection>, String> {
        self.in_time(self.connect(&|_| {})).await
    }

    /// Lists the tools again, over this connection.
    ///
    /// # Errors
    /// As [`listed`](Self::listed).
    pub(super) async fn relisted(&self, connection: &Connection) -> Result<Listing, String> {
        let begun = connection.line.said.moment();
        let listing = self.in_time(self.list(connection)).await;
        connection.line.said.heard(begun, &listing);
        listing
    }

    /// Remembers the listing that is offered from now on, and returns itself for the runners.
    pub(super) fn offering(self: &Arc<Self>, listing: &Listing) -> Arc<Self> {
        *self.offered() = Some(listing.clone());
        self.clone()
    }

    /// Compares the listing that a call found with the one that was offered. Signals a change if they differ.
    pub(super) fn heard(&self, listing: &Listing) {
        if self.offered().as_ref() != Some(listing) {
            self.changed.notify_one();
        }
    }

    fn offered(&self) -> MutexGuard<'_, Option<Listing>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error for a call of a pinned tool that cannot be called. Another definition also triggers `changed`.
    pub(super) fn refuses(&self, doubt: PinError, changed: &Notify) -> ToolError {
        match doubt {
            PinError::Changed => {
                changed.notify_one();
                ToolError::Changed
            }
            PinError::Unlisted(why) => {
                let name = &self.name;
                let message = format!(
                    "the MCP server {name} says that its tools have changed, and what they are now is not known: {why}"
                );
                ToolError::unavailable_before(message, None)
            }
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let most = self.settings.start_timeout;
        // Catch a panic here: the task that keeps a connection must survive every failure to make one.
        let result = match timeout(most, Box::pin(AssertUnwindSafe(work).catch_unwind())).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("it could not be connected to by a fault of this service; its log says more".to_owned()),
            Err(_) => Err(format!("it was not ready after {} (start_timeout)", humantime::format_duration(most))),
        };
        result.map_err(|fault| self.surroundings.redactor.text(&sanitize::text(&fault)).into_owned())
    }

    async fn list(&self, connection: &Connection) -> Result<Listing, String> {
        match listing::ask(&connection.peer, &self.settings, &self.surroundings.redactor).await {
            Err(_) if connection.line.over.is_cancelled() => Err(connection.why().await),
            Err(ListToolsError { why, is_gone }) => {
                if is_gone {
                    connection.retire(&why);
                }
                Err(why)
            }
            Ok(listing) => Ok(listing),
        }
    }

    /// Makes a connection. Repeats a failed first handshake once, in two cases:
    ///
    /// - Servers of older SDKs exit at a request before `initialize`. If an unknown server's process exits during the
    ///   handshake, it is started again and gets `initialize` first.
    /// - A server without sessions may answer the first request too late. Then it got both kinds of handshake, and may
    ///   refuse the second. It is started again and gets its own kind only.
    async fn connect(&self, told: &StatusFn) -> Result<Arc<Connection>, String> {
        let is_known = self.was_modern().is_some();
        let mut result = self.attempt(told).await;
        if !is_known && let Err(refusal) = &result {
            if refusal.is_gone {
                *self.was_modern() = Some(false);
            }
            let is_known = self.was_modern().is_some();
            if is_known && !self.ends_anyway.load(Ordering::Relaxed) {
                result = self.attempt(told).await;
                self.ends_anyway.store(result.is_err(), Ordering::Relaxed);
            }
        }
        if result.is_ok() {
            self.ends_anyway.store(false, Ordering::Relaxed);
        }
        result.map_err(|refusal| refusal.why)
    }

    fn was_modern(&self) -> MutexGuard<'_, Option<bool>> {
        self.was_modern.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, told: &StatusFn) -> Result<Arc<Connection>, Refusal> {
        match &self.settings.reach {
            Transport::Command { argv, .. } => {
                told("starting".into());
                let gone = CancellationToken::new();
                let (redactor, name) = (self.surroundings.redactor.clone(), self.name.clone());
                let spawned = match self.sweeps.upgrade() {
                    Some(sweeps) => Child::spawn(self.command(argv)?, &sweeps, name.clone(), redactor, &gone),
                    None => return Err(String::from("nobody wants it any more").into()),
                };
                let (child, pipes) = spawned.map_err(|error| self.start_fault(argv, &error))?;
                let line = Arc::new(ConnectionState::default());
                let pipes = Pipes::new(pipes, gone, name, line.clone());
                self.shake_hands(pipes, line, Some(child)).await
            }
            Transport::Url { url, headers } => {
                told(format!("connecting to {}", host(url)));
                let remote = self
                    .remote
                    .get_or_try_init(async || Remote::new(self.name.clone(), url, &self.surroundings.own))
                    .await?;
                let line = Arc::default();
                self.shake_hands(remote.transport(headers, &line)?, line, None).await
            }
        }
    }

    async fn shake_hands<T>(
        &self,
        transport: T,
        line: Arc<ConnectionState>,
        child: Option<Child>,
    ) -> Result<Arc<Connection>, Refusal>
    where
        T: rmcp::transport::Transport<rmcp::RoleClient> + 'static,
    {
        let was_modern = *self.was_modern();
        let (modern, initialize) = (ProtocolVersion::LATEST, ProtocolVersion::LATEST_WITH_INITIALIZE);
        let lifecycle = match was_modern {
            // A server that ignores unknown requests costs ten seconds here, once.
            Some(false) => ClientLifecycleMode::Initialize,
            Some(true) => ClientLifecycleMode::Discover { preferred_versions: vec![modern] },
            None => ClientLifecycleMode::Auto { preferred_versions: vec![modern], legacy_version: Some(initialize) },
        };
        let service = Client.serve_with_lifecycle(TransportAdapter::new(transport, &line), lifecycle).await;
        let is_modern = match &service {
            Ok(service) => service.peer_info().map(|info| !info.protocol_version.has_initialize()),
            // After a failure forget the kind, because the server may have been replaced. Exception: an unknown server
            // that answered `server/discover` too late. Its next handshake is of that kind.
            Err(_) => line.is_modern.load(Ordering::Relaxed).then_some(true).filter(|_| was_modern.is_none()),
        };
        *self.was_modern() = is_modern;
        match service {
            Ok(service) => {
                fault::of_version(
                    service.peer_info().map(|info| info.protocol_version.clone()),
                    &self.surroundings.redactor,
                )?;
                let is_shared = self.settings.mode == Mode::Persistent;
                Ok(Arc::new(Connection::new(self.name.clone(), service, line, child, is_shared)))
            }
            Err(error) => {
                // If the server sent something wrong, that is the reason: its process may have ended only because we
                // disconnected.
                let ended = match &child {
                    _ if line.fault.get().is_some() => None,
                    Some(child) if fault::is_loss(&error) => child.ended().await,
                    _ => None,
                };
                let is_gone = ended.is_some();
                let ended = ended.or_else(|| line.fault.get().map(ToString::to_string));
                Err(Refusal {
                    why: ended.unwrap_or_else(|| fault::of_handshake(error, &self.surroundings.redactor)),
                    is_gone,
                })
            }
        }
    }

    fn command(&self, argv: &[String]) -> Result<Command, String> {
        let Transport::Command { environment, workdir, .. } = &self.settings.reach else {
            return Err("it has no command".into());
        };
        let (program, arguments) = argv.split_first().ok_or("its command is empty")?;
        let mut command = Command::new(self.find(program)?);
        command.args(arguments).current_dir(workdir).env_clear().envs(&self.surroundings.variables).envs(environment);
        Ok(command)
    }

    /// Path of the program. A bare name is searched in the declared `PATH`, else in the service's. A relative path
    /// starts at the working folder.
    fn find(&self, program: &str) -> Result<PathBuf, String> {
        let Transport::Command { environment, workdir, .. } = &self.settings.reach else {
            return Err("it has no command".into());
        };
        if program.contains('/') {
            let file = workdir.join(Path::new(program));
            return if is_program(&file) { Ok(file) } else { Err(format!("there is no program {}", file.display())) };
        }
        let path = environment.get("PATH").map(std::ffi::OsString::from);
        let path = path.or_else(|| self.surroundings.variables.get(std::ffi::OsStr::new("PATH")).cloned());
        let found = along(&path.unwrap_or_default(), Path::new(program));
        found.ok_or_else(|| format!("there is no program `{program}` along the PATH"))
    }

    fn start_fault(&self, argv: &[String], error: &std::io::Error) -> String {
        match &self.settings.reach {
            Transport::Command { workdir, .. } if !workdir.is_dir() => {
                format!("its working folder {} is not there", workdir.display())
            }
            _ => format!("{} cannot be started: {error}", argv.first().map_or("", String::as_str)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::environment::Environment;
    use crate::secrets::Redactor;

    #[tokio::test]
    async fn a_panic_on_the_way_to_a_connection_is_a_fault_like_any_other() {
        let settings = ServerSettings {
            name: "s".into(),
            reach: Transport::Url { url: url::Url::parse("http://localhost/").unwrap(), headers: Default::default() },
            mode: Mode::Persistent,
            include: Vec::new(),
            exclude: Vec::new(),
            start_timeout: Duration::from_secs(9),
        };
        let surroundings = ProcessEnv::new(Arc::new(Redactor::default()), &Environment::default());
        let connector = Connector::new(settings, surroundings, &Arc::new(Sweeps::new()));
        let work = async { connector.name.parse::<u8>().map(drop).map_err(|_| -> String { panic!("at it") }) };
        assert!(connector.in_time(work).await.unwrap_err().contains("a fault of this service"));
    }
}
