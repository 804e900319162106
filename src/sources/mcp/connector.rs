//! Connects to a server: its process or its URL, the handshake, its list of tools.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use parking_lot::Mutex;
use rmcp::model::{ClientCapabilities, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, Service};
use tokio::process::Command;
use tokio::sync::{Notify, OnceCell};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::child::Child;
use super::config::{Mode, Protocol, ServerSettings, Transport};
use super::connection::{Client, Connection};
use super::early_initialize::EarlyInitialize;
use super::fault::{self, ListToolsError};
use super::listing::{self, ServerListing};
use super::pipes::Pipes;
use super::remote::Remote;
use super::transport_adapter::{SharedConnectionState, TransportAdapter};
use super::verified_listing::PinError;
use crate::call::{ToolContext, ToolError};
use crate::kinds::http::client::host_and_port;
use crate::kinds::process::{Launch, OrphanReaper, is_executable_file, which};
use crate::kinds::sandbox::{EntrySandbox, OwnPaths, program_paths};
use crate::kinds::{ProcessEnv, SandboxSetting};
use crate::sources::StatusFn;

/// Makes the connections to one server.
pub(super) struct Connector {
    pub settings: ServerSettings,
    pub name: Arc<str>,
    pub process_env: ProcessEnv,
    /// Signals that a call with a connection of its own has found other tools than were offered.
    /// That includes a new tool, and a definition that was approved again.
    pub changed: Notify,
    /// The listing that was offered, if each call has a connection of its own.
    offered_listing: Mutex<Option<ServerListing>>,
    /// The version of MCP for the next handshake; `None`: the server is asked. It is the one that
    /// `protocol` sets, or that the last handshake used.
    version: Mutex<Option<ProtocolVersion>>,
    /// Both attempts at a first handshake have failed. From now on each connection is attempted
    /// once, without a repetition.
    skips_second_handshake: AtomicBool,
    /// The HTTP side, if the server has a URL.
    remote: OnceCell<Remote>,
    /// Weak, because only the source and its runners may own it. A background task that owned it
    /// would keep it alive, and no owner would wait for the end of the processes.
    orphan_reaper: Weak<OrphanReaper>,
    /// The sandbox of the process, after its program was found.
    sandbox: Mutex<Option<Arc<EntrySandbox>>>,
}

/// Why no connection was made.
struct ConnectError {
    /// A part of a sentence with the server as subject.
    reason: String,
    /// The version of MCP with which an unknown server may be connected nevertheless.
    other_version: Option<ProtocolVersion>,
}

impl From<String> for ConnectError {
    fn from(reason: String) -> Self {
        Self {
            reason,
            other_version: None,
        }
    }
}

impl Connector {
    pub(super) fn new(
        settings: ServerSettings,
        process_env: ProcessEnv,
        orphan_reaper: &Arc<OrphanReaper>,
    ) -> Self {
        Self {
            name: settings.name.as_str().into(),
            version: Mutex::new(settings.protocol.map(Protocol::version)),
            settings,
            process_env,
            changed: Notify::new(),
            offered_listing: Mutex::default(),
            skips_second_handshake: AtomicBool::new(false),
            remote: OnceCell::new(),
            orphan_reaper: Arc::downgrade(orphan_reaper),
            sandbox: Mutex::default(),
        }
    }

    /// The sandbox of the server's process, after the first start.
    pub(super) fn sandbox(&self) -> Option<Arc<EntrySandbox>> {
        self.sandbox.lock().clone()
    }

    /// Makes a connection and lists the tools. `call` is the call that the connection is for, if it
    /// is for one.
    ///
    /// # Errors
    /// A part of a sentence with the server as subject. Dropping the future ends what was started.
    pub(super) async fn connect_and_list(
        &self,
        report_status: &StatusFn,
        call: Option<&ToolContext>,
    ) -> Result<(Arc<Connection>, ServerListing), String> {
        let work = async {
            let connection = self.connect_with_retry(report_status, call).await?;
            let listing = self.list_tools(&connection);
            let listing = connection.state.verified.remember(listing).await?;
            Ok((connection, listing))
        };
        self.within_start_timeout(work).await
    }

    /// Makes a connection for one call, without a list of tools.
    ///
    /// # Errors
    /// As [`connect_and_list`](Self::connect_and_list).
    pub(super) async fn connect(&self, call: &ToolContext) -> Result<Arc<Connection>, String> {
        self.within_start_timeout(self.connect_with_retry(&|_| {}, Some(call)))
            .await
    }

    /// Lists the tools again, over this connection.
    ///
    /// # Errors
    /// As [`connect_and_list`](Self::connect_and_list).
    pub(super) async fn relist(&self, connection: &Connection) -> Result<ServerListing, String> {
        let listing = self.within_start_timeout(self.list_tools(connection));
        connection.state.verified.remember(listing).await
    }

    /// Remembers the listing that is offered from now on, and returns itself for the runners.
    pub(super) fn with_offered_listing(self: &Arc<Self>, listing: &ServerListing) -> Arc<Self> {
        *self.offered_listing.lock() = Some(listing.clone());
        self.clone()
    }

    /// Compares the listing that a call found with the one that was offered. Signals a change if
    /// they differ.
    pub(super) fn compare_with_offered(&self, listing: &ServerListing) {
        // Each caller may see other tools.
        if self.settings.per_caller().is_none()
            && self.offered_listing.lock().as_ref() != Some(listing)
        {
            self.changed.notify_one();
        }
    }

    /// The error for a call of a pinned tool that cannot be called. Another definition also
    /// triggers `changed`.
    pub(super) fn pin_failure(&self, error: PinError) -> ToolError {
        match error {
            PinError::Changed => {
                self.changed.notify_one();
                ToolError::DefinitionChanged
            }
            PinError::ListingFailed(reason) => {
                let name = &self.name;
                let message = format!(
                    "the MCP server {name} reported changed tools, but could not list them: {reason}"
                );
                ToolError::unavailable_before_start(message, None)
            }
        }
    }

    async fn within_start_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let max_time = self.settings.start_timeout;
        // Catch a panic here: the task that keeps a connection must survive every failure to make
        // one.
        let result = match timeout(max_time, Box::pin(AssertUnwindSafe(work).catch_unwind())).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => {
                Err("it could not be connected because of an internal error of this service; see its log".to_owned())
            }
            Err(_) => Err(format!("it was not ready after {} (start_timeout)", humantime::format_duration(max_time))),
        };
        result.map_err(|fault| self.process_env.redactor.clean_and_redact(&fault))
    }

    async fn list_tools(&self, connection: &Connection) -> Result<ServerListing, String> {
        match listing::fetch_listing(&connection.peer, &self.settings, &self.process_env.redactor)
            .await
        {
            Err(_) if connection.state.closed.is_cancelled() => {
                Err(connection.end_reason(None).await)
            }
            Err(ListToolsError {
                reason,
                is_disconnected,
            }) => {
                if is_disconnected {
                    connection.drain(&reason);
                }
                Err(reason)
            }
            Ok((listing, fresh_for)) => {
                connection.state.set_fresh_for(fresh_for);
                Ok(listing)
            }
        }
    }

    /// Makes a connection. Repeats a failed first handshake once, in three cases:
    ///
    /// - Servers of older SDKs exit at a request before `initialize`. If an unknown server's
    ///   process exits during the handshake, it is started again and gets `initialize` first.
    /// - A server without sessions may answer the first request too late. Then it got both kinds of
    ///   handshake, and may refuse the second. It is started again and gets its own kind only.
    /// - A server may refuse the version and name others.
    async fn connect_with_retry(
        &self,
        report_status: &StatusFn,
        call: Option<&ToolContext>,
    ) -> Result<Arc<Connection>, String> {
        let is_known = self.version.lock().is_some();
        let mut result = self.connect_once(report_status, call).await;
        if !is_known && let Err(error) = &mut result {
            *self.version.lock() = error.other_version.take();
            let is_known = self.version.lock().is_some();
            if is_known && !self.skips_second_handshake.load(Ordering::Relaxed) {
                result = self.connect_once(report_status, call).await;
                self.skips_second_handshake
                    .store(result.is_err(), Ordering::Relaxed);
            }
        }
        if result.is_ok() {
            self.skips_second_handshake.store(false, Ordering::Relaxed);
        }
        result.map_err(|error| error.reason)
    }

    async fn connect_once(
        &self,
        report_status: &StatusFn,
        call: Option<&ToolContext>,
    ) -> Result<Arc<Connection>, ConnectError> {
        // A persistent connection is for any call, so its questions are answered or cancelled later.
        let offers_forms =
            self.settings.mode == Mode::Persistent || call.is_some_and(ToolContext::can_ask);
        let state = Arc::new(SharedConnectionState::new(offers_forms));
        match &self.settings.transport {
            Transport::Command {
                argv,
                environment,
                workdir,
                sandbox,
            } => {
                report_status("starting".into());
                let exited = CancellationToken::new();
                let (redactor, name) = (self.process_env.redactor.clone(), self.name.clone());
                let orphan_reaper = self.orphan_reaper.upgrade();
                let orphan_reaper =
                    orphan_reaper.ok_or_else(|| "the service no longer uses it".to_owned())?;
                let command = self.server_command(argv, environment, workdir, sandbox)?;
                let spawned =
                    Child::spawn(command, &orphan_reaper, name.clone(), redactor, &exited);
                let (child, pipes) = spawned.map_err(|error| match workdir.is_dir() {
                    true => format!("{} cannot be started: {error}", argv[0]),
                    false => format!("its working folder {} does not exist", workdir.display()),
                })?;
                let pipes = Pipes::new(pipes, exited, name, state.clone());
                self.perform_handshake(pipes, state, Some(child), None)
                    .await
            }
            Transport::Url {
                url,
                headers,
                auth,
                per_caller,
            } => {
                report_status(format!("connecting to {}", host_and_port(url)));
                let remote = self
                    .remote
                    .get_or_try_init(async || {
                        Remote::new(self.name.clone(), url, auth.as_ref(), &self.process_env)
                    })
                    .await?;
                let (url, own_headers) = match per_caller {
                    Some(parts) => {
                        let own = call.map(|call| &call.caller.credentials);
                        parts.render(url, own.or(parts.list_as.as_ref()))?
                    }
                    None => (url.clone(), Vec::new()),
                };
                let own_headers = own_headers.iter().map(|(name, value)| (name, value));
                let (transport, remote) =
                    remote.open_transport(url, headers.iter().chain(own_headers), &state)?;
                self.perform_handshake(transport, state, None, Some(remote))
                    .await
            }
        }
    }

    async fn perform_handshake<T>(
        &self,
        transport: T,
        state: Arc<SharedConnectionState>,
        child: Option<Child>,
        remote: Option<Remote>,
    ) -> Result<Arc<Connection>, ConnectError>
    where
        T: rmcp::transport::Transport<rmcp::RoleClient> + 'static,
    {
        let version = self.version.lock().clone();
        let legacy = version
            .clone()
            .filter(ProtocolVersion::has_initialize)
            .unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let lifecycle = match &version {
            Some(version) if version.has_initialize() => ClientLifecycleMode::Initialize,
            Some(version) => ClientLifecycleMode::Discover {
                preferred_versions: vec![version.clone()],
            },
            None => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::LATEST],
                legacy_version: Some(legacy.clone()),
            },
        };
        let client = Client {
            version: legacy.clone(),
        };
        // A URL answers each request.
        let early = match child.is_some() && version.is_none() {
            true => early_initialize(&client, state.offers_forms),
            false => Box::default(),
        };
        let transport = TransportAdapter::new(transport, &state, early);
        let service = Box::pin(client.serve_with_lifecycle(transport, lifecycle)).await;
        if self.settings.protocol.is_none() {
            // After a failure forget the version, because the server may have been replaced.
            let service = service.as_ref().ok();
            let info = service.and_then(|service| service.peer_info());
            *self.version.lock() = info.map(|info| match info.protocol_version.has_initialize() {
                true => legacy,
                false => ProtocolVersion::LATEST,
            });
        }
        match service {
            Ok(service) => {
                fault::check_protocol_version(
                    service
                        .peer_info()
                        .map(|info| info.protocol_version.clone()),
                    &self.process_env.redactor,
                )?;
                let is_shared = self.settings.mode == Mode::Persistent;
                Ok(Arc::new(Connection::new(
                    self.name.clone(),
                    service,
                    state,
                    child,
                    remote,
                    is_shared,
                )))
            }
            Err(error) => {
                // If the server sent something wrong, that is the reason: its process may have
                // ended only because we disconnected.
                let ended = match &child {
                    _ if state.fault.get().is_some() => None,
                    Some(child) if fault::is_connection_loss(&error) => {
                        child.exit_reason(None).await
                    }
                    _ => None,
                };
                let other_version = if ended.is_some() {
                    Some(ProtocolVersion::LATEST_WITH_INITIALIZE)
                } else if state.is_sessionless.load(Ordering::Relaxed) {
                    Some(ProtocolVersion::LATEST)
                } else {
                    fault::offered_version(&error)
                };
                let ended = ended.or_else(|| state.fault.get().map(ToString::to_string));
                Err(ConnectError {
                    reason: ended.unwrap_or_else(|| {
                        fault::describe_handshake_error(error, &self.process_env.redactor)
                    }),
                    other_version,
                })
            }
        }
    }

    fn server_command(
        &self,
        argv: &[String],
        environment: &BTreeMap<String, String>,
        workdir: &Path,
        setting: &SandboxSetting,
    ) -> Result<(Command, Launch), String> {
        let (program, arguments) = argv.split_first().ok_or("its command is empty")?;
        let program = self.find_program(program, environment, workdir)?;
        let sandbox = self
            .sandbox
            .lock()
            .get_or_insert_with(|| {
                let named = arguments.iter().map(|text| workdir.join(text));
                let named = named.filter(|path| path.exists());
                let own = OwnPaths {
                    entry: format!("mcp_servers.{}", self.name),
                    workdir: workdir.to_owned(),
                    needed: program_paths(&program).into_iter().chain(named).collect(),
                    written: Vec::new(),
                };
                let shared = self.process_env.sandboxes.clone();
                Arc::new(EntrySandbox::new(setting.clone(), own, shared))
            })
            .clone();
        let mut launch = sandbox.launch()?;
        let mut command = launch.command(&program);
        command
            .args(arguments)
            .current_dir(workdir)
            .env_clear()
            .envs(&self.process_env.variables)
            .envs(environment);
        Ok((command, launch))
    }

    /// Path of the program. A bare name is searched in the declared `PATH`, else in the service's.
    /// A relative path starts at the working folder.
    fn find_program(
        &self,
        program: &str,
        environment: &BTreeMap<String, String>,
        workdir: &Path,
    ) -> Result<PathBuf, String> {
        if program.contains('/') {
            let file = workdir.join(program);
            return match is_executable_file(&file) {
                true => Ok(file),
                false => Err(format!("there is no program {}", file.display())),
            };
        }
        let own = environment.get("PATH").map(OsString::from);
        let path = own.or_else(|| self.process_env.variables.get(OsStr::new("PATH")).cloned());
        which(&path.unwrap_or_default(), Path::new(program))
            .ok_or_else(|| format!("there is no program `{program}` in the PATH"))
    }
}

fn early_initialize(client: &Client, offers_forms: bool) -> Box<EarlyInitialize> {
    let mut params = client.get_info();
    if !offers_forms {
        params.capabilities = ClientCapabilities::default();
    }
    Box::new(EarlyInitialize::new(params))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::environment::Environment;
    use crate::secrets::Redactor;

    #[tokio::test]
    async fn panic_while_connecting_is_an_ordinary_failure() {
        let settings = ServerSettings {
            name: "s".into(),
            transport: Transport::Url {
                url: url::Url::parse("http://localhost/").unwrap(),
                headers: Default::default(),
                auth: None,
                per_caller: None,
            },
            mode: Mode::Persistent,
            include: Vec::new(),
            exclude: Vec::new(),
            protocol: None,
            start_timeout: Duration::from_secs(9),
        };
        let process_env = ProcessEnv::new(Arc::new(Redactor::default()), &Environment::default());
        let connector = Connector::new(settings, process_env, &Arc::new(OrphanReaper::default()));
        let work = async {
            connector
                .name
                .parse::<u8>()
                .map(drop)
                .map_err(|_| -> String { panic!("at it") })
        };
        assert!(
            connector
                .within_start_timeout(work)
                .await
                .unwrap_err()
                .contains("an internal error of this service")
        );
    }
}
