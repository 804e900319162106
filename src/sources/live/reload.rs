//! Replaces the manifest with a new one, as a whole or not at all: on SIGHUP, and when one of its
//! files has changed. A source is restarted when one of its own files has changed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::signal::unix::Signal;
use tokio::sync::watch::Sender;

use super::file_snapshot::FileSnapshot;
use super::lifecycle::{Sources, snapshot_files};
use super::live_tools::{
    DeclaredState, LiveTools, ReloadStatus, StartupSettings, State, ToolLists,
};
use super::registration::log_skipped_tools;
use super::service_config::{ManifestReading, ServiceConfig};
use crate::access::callers::Callers;
use crate::audit::{Action, OPERATOR};
use crate::call::{Origin, shorten_text};
use crate::catalog::registry::{ChangeError, NameTaken, Registry};
use crate::kinds::{BuildError, HttpClients, ProcessEnv, TokenSources, Tool};
use crate::ledger;
use crate::manifest::{Finding, Location, Manifest, Severity, pins};
use crate::runtime::blocking;
use crate::text::changes::Changes;

impl LiveTools {
    /// Fills an empty registry with the tools of program and manifest, and with the stored
    /// registered tools.
    ///
    /// # Errors
    /// Why the service cannot be built.
    pub(crate) async fn start(
        registry: Arc<Registry>,
        config: ServiceConfig,
        manifest: Manifest,
        files: FileSnapshot,
    ) -> Result<Arc<Self>, Error> {
        let (declared_state, sources) = (DeclaredState::default(), Sources::default());
        let process_env = ProcessEnv::new(registry.shared().redactor.clone(), &config.environment);
        let process_env = process_env.for_service(
            config.own_ports.clone(),
            config.token_sources.clone(),
            config.sandboxes.clone(),
        );
        let live = Arc::new(Self {
            _orphan_reaper: process_env.orphan_reaper(),
            process_env,
            clients: ArcSwap::default(),
            registry,
            config: Arc::new(config),
            state: State {
                declared_state,
                sources,
                startup_settings: StartupSettings::from_manifest(&manifest),
                manifest_files: files,
            }
            .into(),
            reload_status: ArcSwap::default(),
            tool_lists: Mutex::default(),
            live_sources: ArcSwap::default(),
            status_changed: Sender::new(()),
            has_started: AtomicBool::new(false),
        });
        live.apply_manifest(&mut *live.state.lock().await, manifest)
            .await?;
        live.has_started.store(true, Ordering::Relaxed);
        Ok(live)
    }

    /// Reads the manifest again. A valid manifest replaces the old one in one step: callers, tools,
    /// aliases. A manifest with errors changes nothing, and the log has its errors. Without a
    /// manifest, this does nothing.
    ///
    /// Running calls finish in the stacks in which they started. Counts of limits, switches, stored
    /// results of unchanged tools and concurrency permits carry over.
    ///
    /// # Errors
    /// Why the old manifest was kept.
    pub async fn reload(self: &Arc<Self>) -> Result<(), Error> {
        if self.config.manifest.is_none() {
            tracing::warn!("there is no manifest to reload");
            return Ok(());
        }
        let mut state = self.state.lock().await;
        let config = self.config.clone();
        let read = blocking::run_blocking(move || config.reread_manifest()).await;
        let ManifestReading { outcome, files } = read.ok_or(ledger::Error::Closed)?;
        // Keep the snapshot even if the manifest has errors. Otherwise each poll would read the
        // same errors again.
        state.manifest_files = files;
        let outcome = outcome
            .and_then(|manifest| require_pins(manifest, &state.declared_state, &self.config));
        let result = match outcome {
            Ok(manifest) => self.replace_manifest(&mut state, manifest).await,
            Err(findings) => Err(Error::Manifest(findings)),
        };
        let mut status = ReloadStatus::clone(&self.reload_status.load());
        match &result {
            Ok(()) => {
                status.accepted += 1;
                status.refusal = None;
            }
            Err(error) => {
                status.refused += 1;
                status.refusal = Some(summarize_refusal(error));
                log_refusal(error);
            }
        }
        self.reload_status.store(Arc::new(status));
        result
    }

    async fn replace_manifest(
        self: &Arc<Self>,
        state: &mut State,
        manifest: Manifest,
    ) -> Result<(), Error> {
        let new_settings = StartupSettings::from_manifest(&manifest);
        let before = self.registry.catalog();
        self.apply_manifest(state, manifest).await?;
        let after = self.registry.catalog();
        let tools = after.changes_since(&before);
        let callers = after.callers().changes_since(before.callers());
        tracing::info!(count = after.len(), %tools, %callers, "a new manifest is served");
        let entry = self
            .registry
            .audit_entry(OPERATOR, Action::ManifestReloaded, None);
        let summary = |changes: Changes| {
            let mut text = changes.to_string();
            shorten_text(&mut text, MAX_SUMMARY);
            text
        };
        let entry = entry.with("tools", summary(tools));
        let entry = entry.with("callers", summary(callers));
        self.registry.shared().ledger.record_action(entry).await;
        let deferred = state
            .startup_settings
            .changed_keys(&new_settings, &self.config);
        if !deferred.is_empty() {
            tracing::warn!(
                keys = deferred.join(", "),
                "changed settings take effect at the next start"
            );
        }
        Ok(())
    }

    /// Makes the manifest the current one.
    async fn apply_manifest(
        self: &Arc<Self>,
        state: &mut State,
        manifest: Manifest,
    ) -> Result<(), Error> {
        // The order matters. First come the checks that can refuse the manifest. The redactor
        // learns the new secrets before a tool can use them. Then the catalog is replaced.
        // `state.declared_state` follows only after that has succeeded, so a refused manifest
        // leaves no trace in later changes.
        let Manifest {
            defaults,
            callers,
            toolsets,
            calls,
            tools,
            sources,
            replaced_natives,
            secrets,
            warnings,
            pins,
            tool_lists,
            ..
        } = manifest;
        // A truncated file, or one that is still being written, must not open the service to every
        // client.
        if callers.is_empty() && !self.registry.catalog().callers().is_empty() {
            return Err(Error::CallersRemoved);
        }
        let tools = self.config.collect_tools(tools, &replaced_natives)?;
        let sources = snapshot_files(self.config.collect_sources(sources)?)
            .await
            .ok_or(ledger::Error::Closed)?;
        self.registry.shared().redactor.add_secrets(
            secrets
                .iter()
                .map(String::as_str)
                .chain(tools.iter().flat_map(Tool::secret_values)),
        );
        let own_ports = self.config.own_ports.clone();
        self.clients.store(Arc::new(HttpClients::new(
            own_ports,
            TokenSources::default(),
        )));
        let declared_state = DeclaredState {
            callers: Arc::new(Callers::new(callers).with_toolsets(toolsets)),
            calls,
            tools,
            defaults,
            has_pins: pins.is_some(),
        };
        let pins = pins.unwrap_or_default().servers;
        let skipped = self
            .replace_sources(&mut state.sources, &declared_state, sources)
            .await?;
        state.declared_state = declared_state;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        log_skipped_tools(&skipped);
        self.place_rejected_tools(state).await;
        *self.tool_lists.lock() = ToolLists::new(tool_lists);
        self.check_tool_lists();
        for (server, pins) in &pins {
            let entry = self
                .registry
                .audit_entry(OPERATOR, Action::ServerPinned, Some(server));
            let hash = Sha256::digest(serde_json::to_vec(pins).unwrap_or_default());
            let entry = entry.with("tools", pins.tools.len());
            let entry = entry.with("sha256", hex::encode(hash));
            self.registry.shared().ledger.record_action(entry).await;
        }
        let registered = self.registry.catalog().count_by_origin(Origin::Registered);
        tracing::debug!(registered, "registered tools");
        Ok(())
    }
}

/// Refuses the manifest if its pins are gone while it has servers. Without this check, deleting the
/// file of pins would serve every tool of those servers unapproved. An unreadable file is refused
/// as well.
fn require_pins(
    manifest: Manifest,
    before: &DeclaredState,
    config: &ServiceConfig,
) -> Result<Manifest, Vec<Finding>> {
    let has_servers = manifest
        .sources
        .iter()
        .any(|source| source.settings.can_be_pinned());
    match &config.manifest {
        Some(path) if before.has_pins && has_servers && manifest.pins.is_none() => {
            let location = Location::start_of(pins::pins_path(path));
            let message = "is missing, so the pins that were read from it stay in effect; restore the file, or restart the \
                           service to serve without pins";
            Err(vec![Finding::error(location, "", message)])
        }
        _ => Ok(manifest),
    }
}

/// The reason in short, for `/readyz`. It has no details of the manifest.
fn summarize_refusal(error: &Error) -> String {
    let reason = match error {
        Error::Manifest(findings) => {
            let is_error = |found: &&Finding| found.severity == Severity::Error;
            match findings.iter().filter(is_error).count() {
                1 => "it has an error".to_owned(),
                many => format!("it has {many} errors"),
            }
        }
        Error::Tool(_) => "a tool in it cannot be built".into(),
        Error::Ledger(_) => "the ledger could not be read".into(),
        Error::CallersRemoved => "it has no callers".into(),
    };
    format!("the previous manifest stays in use: {reason}; the log has the details")
}

fn log_refusal(error: &Error) {
    match error {
        Error::Manifest(findings) => {
            for finding in findings {
                match finding.severity {
                    Severity::Error => tracing::error!("{finding}"),
                    Severity::Warning => tracing::warn!("{finding}"),
                    Severity::Hint => tracing::info!("{finding}"),
                }
            }
        }
        other => tracing::error!("{other}"),
    }
    tracing::error!("the manifest was refused; the previous one stays in use");
}

/// Why a manifest was refused. The one before stays in use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest has errors.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifest(Vec<Finding>),
    /// A tool cannot be built.
    #[error(transparent)]
    Tool(#[from] BuildError),
    /// The ledger failed. It stores the switches and the registered tools.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    /// The manifest has no callers, but the current one has. Taking it would let every client in
    /// without a key.
    #[error(
        "it has no callers, so every client would be trusted; restart the service if this is intended"
    )]
    CallersRemoved,
}

impl From<ChangeError> for Error {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Tool(error) => Self::Tool(error),
            ChangeError::Ledger(error) => Self::Ledger(error),
            ChangeError::Taken(NameTaken { name, .. })
            | ChangeError::Unknown(name)
            | ChangeError::TooMany(name) => Self::Tool(BuildError::DuplicateTool(name)),
        }
    }
}

/// Bytes of each list of changed names in the audit.
const MAX_SUMMARY: usize = 500;
/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Files must be unchanged for this time before a reload. An editor or a deployment writes several
/// files, and each of them in pieces.
const QUIET_PERIOD: Duration = Duration::from_millis(250);

impl LiveTools {
    /// Reloads on SIGHUP and when files have changed, for as long as the service runs.
    pub async fn watch_for_changes(self: Arc<Self>, mut hangups: Signal) {
        let mut unsettled: Option<WatchedFiles> = None;
        loop {
            let pause = if unsettled.is_some() {
                QUIET_PERIOD
            } else {
                POLL_INTERVAL
            };
            tokio::select! {
                Some(()) = hangups.recv() => {
                    tracing::info!("SIGHUP: reloading the manifest");
                    self.reload_catching_panics().await;
                    unsettled = None;
                }
                () = tokio::time::sleep(pause), if self.config.manifest.is_some() => {
                    unsettled = self.poll_files(unsettled).await;
                }
                else => return,
            }
        }
    }

    /// Polls the files once, and reloads if they have changed and are quiet. `unsettled` is the
    /// last snapshot, if it differed from the files in use. Returns the new snapshot while the
    /// files still change, else `None`.
    async fn poll_files(self: &Arc<Self>, unsettled: Option<WatchedFiles>) -> Option<WatchedFiles> {
        let before = {
            let state = self.state.lock().await;
            WatchedFiles {
                manifest: state.manifest_files.clone(),
                sources: state.sources.files(),
            }
        };
        let comparison = blocking::run_blocking(move || {
            let now = before.refreshed();
            (now.manifest == before.manifest, now == before, now)
        });
        let (same_manifest, same, now) = comparison.await?;
        if same {
            let mut state = self.state.lock().await;
            state.manifest_files = now.manifest;
            state.sources.keep_refreshed(now.sources);
            return None;
        }
        if unsettled.as_ref() != Some(&now) {
            return Some(now);
        }
        if same_manifest {
            self.restart_changed_sources(now.sources).await;
        } else {
            tracing::info!("files of the manifest have changed: reloading it");
            self.reload_catching_panics().await;
        }
        None
    }

    /// Reloads. Failures are reported in the log and in `/readyz`. A panic must not end the watch.
    async fn reload_catching_panics(self: &Arc<Self>) {
        if AssertUnwindSafe(self.reload())
            .catch_unwind()
            .await
            .is_err()
        {
            tracing::error!("reading the manifest panicked; the previous one stays in use");
        }
    }
}

/// Snapshots of all files that are watched.
#[derive(PartialEq)]
struct WatchedFiles {
    manifest: FileSnapshot,
    sources: Vec<(Arc<str>, FileSnapshot)>,
}

impl WatchedFiles {
    fn refreshed(&self) -> Self {
        let sources = self
            .sources
            .iter()
            .map(|(name, files)| (name.clone(), files.refreshed()))
            .collect();
        Self {
            manifest: self.manifest.refreshed(),
            sources,
        }
    }
}
