//! The service as a whole. This is the only folder that connects all parts.
//!
//! - `builder` builds a service; `shared` makes the part that all tools share.
//! - `serving` runs it until `signals` end it.
//! - `registry_builder` is for programs that call tools without a service.
//! - `declared` is for commands that only read a manifest.

mod builder;
mod declared;
mod error;
mod registry_builder;
mod replica_news;
mod running_calls;
mod serving;
mod shared;
mod signals;
mod startup_banner;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio_util::sync::CancellationToken;

pub use self::builder::AppBuilder;
pub(crate) use self::declared::{DeclaredTools, SourceFindings, load_declared, venv_folder};
pub use self::error::Error;
pub use self::registry_builder::RegistryBuilder;
pub use self::signals::wait_for_stop;
use crate::app::startup_banner::HumanOutput;
use crate::catalog::registry::Registry;
use crate::http;
use crate::kinds::OwnPorts;
use crate::manifest::ServerSettings;
use crate::sources::live::{LiveTools, SourceView};

/// A service that is built but does not listen yet.
pub struct App {
    live: Arc<LiveTools>,
    settings: ServerSettings,
    listen: String,
    /// The service's own ports, which its tools may not call.
    own_ports: OwnPorts,
    retention: Option<Duration>,
    demo: bool,
    banner_output: Option<HumanOutput>,
    /// Cancelled when long-lived streams of clients must end.
    close_streams: CancellationToken,
}

impl App {
    /// Starts a builder.
    pub fn builder() -> AppBuilder {
        AppBuilder::default()
    }

    /// The registry of tools.
    pub fn registry(&self) -> &Arc<Registry> {
        self.live.registry()
    }

    /// Reads the manifest again, as on SIGHUP. A valid manifest replaces the old one in one step;
    /// an invalid one changes nothing. While [`App::serve`] runs, a change of a manifest file
    /// triggers this automatically.
    ///
    /// # Errors
    /// The reason why the old manifest was kept.
    pub async fn reload(&self) -> Result<(), Error> {
        Ok(self.live.reload().await?)
    }

    /// Returns when every source was listed once or failed once. Before that, tools may be missing.
    pub async fn wait_for_sources(&self) {
        self.live.wait_for_sources().await;
    }

    /// The settings of the HTTP server.
    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// The state of every source.
    pub fn sources(&self) -> Vec<SourceView> {
        self.live.sources()
    }

    /// Declares the address at which a program that serves [`App::router`] itself listens. No tool
    /// may then call an address of this machine at that port, whatever the manifest allows.
    /// [`App::serve`] does this itself. In other programs only the program knows the port.
    pub fn listens_at(&self, address: SocketAddr) {
        self.own_ports.add(address.port());
    }

    /// The HTTP service without a socket, for calls in process or for mounting elsewhere. See
    /// [`App::listens_at`].
    pub fn router(&self) -> Router {
        http::router(self.live.clone(), &self.settings, &self.close_streams)
    }

    /// Returns when the process gets a signal to stop (SIGTERM, SIGINT).
    ///
    /// # Errors
    /// Signals cannot be watched.
    pub async fn wait_for_stop(&self) -> Result<(), Error> {
        wait_for_stop().await
    }

    /// Ends an app that does not serve: waits for its calls, and closes the ledger.
    pub async fn close(self) {
        let shared = self.registry().shared();
        shared.in_flight_calls.close();
        shared.in_flight_calls.wait_until_empty().await;
        self.close_streams.cancel();
        self.close_parts().await;
    }

    /// Ends the sources, and closes the ledger, the log and the telemetry.
    async fn close_parts(&self) {
        let shared = self.registry().shared();
        self.live.stop_sources().await;
        shared.ledger.close().await;
        shared.call_log.flush().await;
        if let Some(telemetry) = &shared.telemetry {
            telemetry.shut_down().await;
        }
    }
}
