//! The tools while the service runs: where they come from, and how they change.
//!
//! - `service_config.rs`: what stays the same for the whole run, and reading the manifest
//! - `file_snapshot.rs`: snapshots of the files that were read
//! - `reload.rs`: takes a new manifest, or keeps the old one
//! - `file_watch.rs`: decides when to reload
//! - `registration.rs`: tools that come over HTTP
//! - `startup_settings.rs`: settings that change only at the next start
//! - `error.rs`: why a change was not made
//! - `tool_lists.rs`: lists of tools with entries that match no tool
//! - `sources/`: modules and servers that provide tools
//!
//! One change is made at a time. Readers never wait.

mod error;
mod file_snapshot;
mod file_watch;
mod registration;
mod reload;
mod service_config;
mod sources;
mod startup_settings;
mod tool_lists;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tokio::sync::watch::Sender;

pub use error::Error;
pub use registration::RegisterError;
pub(crate) use service_config::ManifestReading;
pub use service_config::ServiceConfig;
pub(crate) use sources::{LoadOutcome, SourceFindings, list_once};
pub use sources::{QuarantinedTool, Restart, SourceState, SourceView};

use self::file_snapshot::FileSnapshot;
use self::sources::{Sources, StatusTracker};
use self::startup_settings::StartupSettings;
use self::tool_lists::ToolLists;
use crate::access::callers::Callers;
use crate::call::CallSettings;
use crate::manifest::Defaults;
use crate::registry::Registry;
use crate::tools::{HttpClients, ProcessEnv, ShutdownGuard, Tool};

/// The tools of a running service, with everything that can change them.
pub struct LiveTools {
    registry: Arc<Registry>,
    config: Arc<ServiceConfig>,
    process_env: ProcessEnv,
    /// The HTTP clients of all registered tools. Each holds the system's certificates, about 100
    /// KB. A new manifest replaces the clients, so that tools which change later trust the
    /// certificates of that time.
    clients: ArcSwap<HttpClients>,
    /// Locked during each change.
    state: tokio::sync::Mutex<State>,
    reload_status: ArcSwap<ReloadStatus>,
    /// The manifest's lists of tools.
    tool_lists: Mutex<ToolLists>,
    /// The status of each source, for readers.
    source_statuses: ArcSwap<Vec<Arc<StatusTracker>>>,
    /// Signals a change of `source_statuses`, or of a status in it.
    status_changed: Sender<()>,
    has_started: AtomicBool,
    // Must stay behind the sources: its drop waits for the end of everything that they started.
    _shutdown_guard: ShutdownGuard,
}

struct State {
    declared_state: DeclaredState,
    sources: Sources,
    /// The settings of the start.
    startup_settings: StartupSettings,
    /// The files of the last reading, whether it succeeded or not.
    manifest_files: FileSnapshot,
}

/// The state that program and manifest declare, without sources. A source that is listed later is
/// added to it.
#[derive(Default)]
struct DeclaredState {
    callers: Arc<Callers>,
    calls: CallSettings,
    tools: Vec<Tool>,
    defaults: Defaults,
    /// The manifest had a file of pins.
    has_pins: bool,
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
}
