//! The tools while the service runs: where they come from, and how they change.
//!
//! `plan.rs` says what a service is made of, `seen.rs` what was read for it, `reload.rs` puts a new world in place of
//! the old one or keeps the old one, `watch.rs` says when, `registration.rs` is for tools that come over HTTP and
//! `fixed.rs` for what waits for the next start, `lists.rs` for names that mean no tool, `error.rs` for why nothing came of it; `sources/` has what brings tools of its own. One change is made at a time; readers never wait.

mod error;
mod fixed;
mod lists;
mod plan;
mod registration;
mod reload;
mod seen;
mod sources;
mod watch;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tokio::sync::watch::Sender;

pub use error::Error;
pub use plan::Plan;
pub(crate) use plan::Reading;
pub use registration::PutError;
pub(crate) use sources::{Brought, once};
pub use sources::{Restarting, SourceState, SourceView, Stopped};

use self::fixed::Fixed;
use self::lists::Lists;
use self::seen::Seen;
use self::sources::{Board, Sources};
use crate::call::CallSettings;
use crate::callers::Callers;
use crate::manifest::Defaults;
use crate::registry::Registry;
use crate::tools::{Clients, Ends, Surroundings, Tool};

/// See the module.
pub struct Live {
    registry: Arc<Registry>,
    plan: Arc<Plan>,
    surroundings: Surroundings,
    /// The HTTP clients of all registered tools. Each holds the system's certificates, about 100 KB. A manifest that is taken
    /// replaces them, so that tools which change then trust the certificates of that time.
    clients: ArcSwap<Clients>,
    /// Held while something changes.
    state: tokio::sync::Mutex<State>,
    status: ArcSwap<Status>,
    /// Lists of tools' names in the manifest.
    lists: Mutex<Lists>,
    /// What can be seen of the sources.
    shown: ArcSwap<Vec<Arc<Board>>>,
    /// Told when something of that changes.
    told: Sender<()>,
    has_started: AtomicBool,
    // Behind the sources: it waits for the ends of all.
    _ends: Ends,
}

struct State {
    world: Remembered,
    sources: Sources,
    /// What the service was started with.
    fixed: Fixed,
    /// The files of the last reading, good or bad.
    seen: Seen,
}

/// What program and manifest say besides their sources: a source that is listed later joins it.
#[derive(Default)]
struct Remembered {
    callers: Arc<Callers>,
    calls: CallSettings,
    tools: Vec<Tool>,
    defaults: Defaults,
    /// There was a file of pins.
    is_pinned: bool,
}

/// How reloading has gone so far.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Manifests that were taken after the first.
    pub taken: u64,
    /// Manifests that were refused.
    pub refused: u64,
    /// Why the manifest that is there now is not the one that is served, in a few words that tell nothing of it.
    pub kept: Option<String>,
}

impl Live {
    /// The tools.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// How reloading has gone so far; `None` when there is no manifest.
    pub fn status(&self) -> Option<Arc<Status>> {
        self.plan.manifest.is_some().then(|| self.status.load_full())
    }
}
