//! The tools of a running service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch::Sender;

use super::file_snapshot::FileSnapshot;
use super::lifecycle::entry::Sources;
use super::lifecycle::live_source::LiveSource;
use super::service_config::ServiceConfig;
use super::startup_settings::StartupSettings;
use super::tool_lists::ToolLists;
use crate::access::callers::Callers;
use crate::call::CallSettings;
use crate::catalog::registry::Registry;
use crate::kinds::process::OrphanReaper;
use crate::kinds::{HttpClients, ProcessEnv, Tool};
use crate::manifest::Defaults;

/// The tools of a running service, with everything that can change them.
pub struct LiveTools {
    pub(super) registry: Arc<Registry>,
    pub(super) config: Arc<ServiceConfig>,
    pub(super) process_env: ProcessEnv,
    /// The HTTP clients of all registered tools. Each holds the system's certificates, about 100
    /// KB. A new manifest replaces the clients, so that tools which change later trust the
    /// certificates of that time.
    pub(super) clients: ArcSwap<HttpClients>,
    /// Locked during each change.
    pub(super) state: tokio::sync::Mutex<State>,
    pub(super) reload_status: ArcSwap<ReloadStatus>,
    /// The manifest's lists of tools.
    pub(super) tool_lists: Mutex<ToolLists>,
    /// The sources, for readers.
    pub(super) live_sources: ArcSwap<Vec<Arc<LiveSource>>>,
    /// Signals a change of `live_sources`, or of the state of one of them.
    pub(super) status_changed: Sender<()>,
    pub(super) has_started: AtomicBool,
    // Must stay behind the sources: its drop waits for the end of everything that they started.
    pub(super) _orphan_reaper: Arc<OrphanReaper>,
}

pub(super) struct State {
    pub(super) declared_state: DeclaredState,
    pub(super) sources: Sources,
    /// The settings of the start.
    pub(super) startup_settings: StartupSettings,
    /// The files of the last reading, whether it succeeded or not.
    pub(super) manifest_files: FileSnapshot,
}

/// The state that program and manifest declare, without sources. A source that is listed later is
/// added to it.
#[derive(Default)]
pub(super) struct DeclaredState {
    pub(super) callers: Arc<Callers>,
    pub(super) calls: CallSettings,
    pub(super) tools: Vec<Tool>,
    pub(super) defaults: Defaults,
    /// The manifest had a file of pins.
    pub(super) has_pins: bool,
}

/// The outcome of the reloads so far.
#[derive(Debug, Clone, Default)]
pub struct ReloadStatus {
    /// Manifests that were accepted after the first.
    pub accepted: u64,
    /// Manifests that were refused.
    pub refused: u64,
    /// Why the current manifest file is not the one that is served. Short, and without contents of
    /// the file.
    pub refusal: Option<String>,
}

impl LiveTools {
    /// The registry, which holds the current catalog.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The outcome of the reloads so far; `None` without a manifest.
    pub fn reload_status(&self) -> Option<Arc<ReloadStatus>> {
        self.config
            .manifest
            .is_some()
            .then(|| self.reload_status.load_full())
    }

    /// Whether the start has ended. A source that is added later is not awaited by the readiness
    /// probe.
    pub(super) fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Relaxed)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.registry.shared().clock.now()
    }

    /// Removes control characters and secrets from a text of a source.
    pub(super) fn sanitize_text(&self, text: &str) -> String {
        self.registry.shared().redactor.clean_and_redact(text)
    }

    /// Logs the entries of the lists that match no tool, and those reported before that match a
    /// tool now. Does nothing until all sources have settled, because their tools are not known
    /// before.
    pub(super) fn check_tool_lists(&self) {
        if self
            .live_sources
            .load()
            .iter()
            .all(|source| source.is_settled())
        {
            self.tool_lists.lock().check(&self.registry.catalog());
        }
    }
}
