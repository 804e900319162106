//! The tools while the service runs: where they come from, and how they change.
//!
//! - `plan.rs`: what stays the same for the whole run, and reading the manifest
//! - `seen.rs`: snapshots of the files that were read
//! - `reload.rs`: takes a new manifest, or keeps the old one
//! - `watch.rs`: decides when to reload
//! - `registration.rs`: tools that come over HTTP
//! - `fixed.rs`: settings that change only at the next start
//! - `error.rs`: why a change was not made
//! - `lists.rs`: lists of tools with entries that match no tool
//! - `sources/`: modules and servers that bring tools of their own
//!
//! One change is made at a time. Readers never wait.

mod error;
mod file_snapshot;
mod fixed;
mod lists;
mod plan;
mod registration;
mod reload;
mod sources;
mod watch;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tokio::sync::watch::Sender;

pub use error::Error;
pub(crate) use plan::ManifestReading;
pub use plan::Plan;
pub use registration::PutError;
pub(crate) use sources::{LoadOutcome, once};
pub use sources::{Restarting, SourceState, SourceView, Stopped};

use self::file_snapshot::FileSnapshot;
use self::fixed::Fixed;
use self::lists::Lists;
use self::sources::{SourceStatusBoard, Sources};
use crate::call::CallSettings;
use crate::callers::Callers;
use crate::manifest::Defaults;
use crate::registry::Registry;
use crate::tools::{Clients, ProcessEnv, ShutdownGuard, Tool};

/// The tools of a running service, with everything that can change them.
pub struct Live {
    registry: Arc<Registry>,
    plan: Arc<Plan>,
    surroundings: ProcessEnv,
    /// The HTTP clients of all registered tools. Each holds the system's certificates, about 100 KB. A new manifest
    /// replaces the clients, so that tools which change later trust the certificates of that time.
    clients: ArcSwap<Clients>,
    /// Locked during each change.
    state: tokio::sync::Mutex<State>,
    status: ArcSwap<Status>,
    /// The manifest's lists of tools.
    lists: Mutex<Lists>,
    /// The status of each source, for readers.
    shown: ArcSwap<Vec<Arc<SourceStatusBoard>>>,
    /// Signals a change of `shown`, or of a status in it.
    told: Sender<()>,
    has_started: AtomicBool,
    // Must stay behind the sources: its drop waits for the end of everything that they started.
    _ends: ShutdownGuard,
}

struct State {
    world: Remembered,
    sources: Sources,
    /// The settings of the start.
    fixed: Fixed,
    /// The files of the last reading, whether it succeeded or not.
    seen: FileSnapshot,
}

/// The state that program and manifest declare, without sources. A source that is listed later is added to it.
#[derive(Default)]
struct Remembered {
    callers: Arc<Callers>,
    calls: CallSettings,
    tools: Vec<Tool>,
    defaults: Defaults,
    /// The manifest had a file of pins.
    is_pinned: bool,
}

/// The outcome of the reloads so far.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Manifests that were taken after the first.
    pub taken: u64,
    /// Manifests that were refused.
    pub refused: u64,
    /// Why the current manifest file is not the one that is served. Short, and without contents of the file.
    pub kept: Option<String>,
}

impl Live {
    /// The registry, which holds the current catalog.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The outcome of the reloads so far; `None` without a manifest.
    pub fn status(&self) -> Option<Arc<Status>> {
        self.plan.manifest.is_some().then(|| self.status.load_full())
    }
}
