//! The service as a whole: the only folder that wires.
//!
//! `builder` puts the parts together, of which `shared` is common to all tools; `serving` runs what came of it until `signals` end it.
//! `registry_builder` is for programs that call tools without a service, `declared` for commands that only look at a manifest.

mod builder;
mod declared;
mod error;
mod registry_builder;
mod serving;
mod shared;
mod signals;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio_util::sync::CancellationToken;

pub use self::builder::AppBuilder;
pub(crate) use self::declared::{Declared, declared};
pub use self::error::Error;
pub use self::registry_builder::RegistryBuilder;
pub use self::signals::stopped;
use crate::http::{self, ServerSettings};
use crate::live::{Live, SourceView};
use crate::registry::Registry;
use crate::start::Person;
use crate::tools::OwnPorts;

/// A service, built and not yet listening.
pub struct App {
    live: Arc<Live>,
    settings: ServerSettings,
    listen: String,
    /// What its tools may not call.
    own: OwnPorts,
    retention: Option<Duration>,
    demo: bool,
    person: Option<Person>,
    /// Tripped when streams that clients hold open are to end.
    ending: CancellationToken,
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

    /// Says where a program that serves [`App::router`] itself listens: no tool calls an address of this machine at that port,
    /// whatever the manifest allows. [`App::serve`] says so by itself; nobody else knows the port.
    pub fn listens_at(&self, address: SocketAddr) {
        self.own.add(address.port());
    }

    /// The HTTP face without a socket, to be driven in process or mounted elsewhere. See [`App::listens_at`].
    pub fn router(&self) -> Router {
        http::router(self.live.clone(), &self.settings, &self.ending)
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
        self.ending.cancel();
        self.live.stop_sources().await;
        shared.ledger.close().await;
        shared.call_log.flush().await;
    }
}
