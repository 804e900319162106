//! An MCP server as a source of tools.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::config::{Mode, ServerSettings};
use super::connector::Connector;
use super::listing::ServerListing;
use super::persistent_connection::PersistentConnection;
use super::runner::{CallPath, Process, to_discovered};
use crate::kinds::ProcessEnv;
use crate::kinds::process::OrphanReaper;
use crate::sources::{Source, SourceFault, SourceListing, SourceStatus, StatusFn};

/// An MCP server with its connections. They end when the server and all runners that it gave are
/// dropped.
pub struct Server {
    // The order of these fields matters: first the processes are ended, then `orphan_reaper` waits
    // for their end.
    state: Mutex<State>,
    connector: Arc<Connector>,
    orphan_reaper: Arc<OrphanReaper>,
}

/// The outcome of the last listing.
#[derive(Default)]
struct State {
    persistent_connection: Option<Arc<PersistentConnection>>,
    /// The state without a persistent connection.
    status: SourceStatus,
}

impl Server {
    /// A server without a connection yet.
    pub fn new(settings: ServerSettings, process_env: &ProcessEnv) -> Self {
        let orphan_reaper = process_env.orphan_reaper();
        let connector = Arc::new(Connector::new(
            settings,
            process_env.clone(),
            &orphan_reaper,
        ));
        Self {
            state: Mutex::default(),
            connector,
            orphan_reaper,
        }
    }

    /// Lists the tools. A persistent server lists over its existing connection only, because
    /// runners of earlier listings use that connection.
    async fn connect_or_relist(
        &self,
        report_status: &StatusFn,
        persistent_connection: Option<Arc<PersistentConnection>>,
    ) -> Result<(ServerListing, CallPath), String> {
        if let Some(persistent_connection) = persistent_connection {
            return persistent_connection
                .relist()
                .await
                .map(|listing| (listing, CallPath::Persistent(persistent_connection)));
        }
        let (connection, listing) = self.connector.connect_and_list(report_status, None).await?;
        let path = match self.connector.settings.mode {
            Mode::Persistent => CallPath::Persistent(Arc::new(PersistentConnection::new(
                &self.connector,
                connection,
                &listing,
            ))),
            Mode::OnDemand => CallPath::OnDemand(self.connector.with_offered_listing(&listing)),
        };
        Ok((listing, path))
    }
}

#[async_trait]
impl Source for Server {
    async fn list(&self, report_status: &StatusFn) -> Result<SourceListing, SourceFault> {
        let before = self.state.lock().persistent_connection.clone();
        let listed = self.connect_or_relist(report_status, before).await;
        let (mut listing, path) = listed.map_err(|fault| {
            self.state.lock().status = SourceStatus::failed(&fault);
            SourceFault(fault)
        })?;
        let redactor = &self.connector.process_env.redactor;
        listing.reject_secret_names(redactor);
        let process = Process {
            _orphan_reaper: self.orphan_reaper.clone(),
            sandbox: self.connector.sandbox(),
        };
        let to_discovered = |tool| to_discovered(tool, &path, &process, redactor);
        let listing = SourceListing {
            tools: listing.tools.iter().map(to_discovered).collect(),
            warnings: listing.warnings,
            skipped_names: listing.skipped_names,
        };
        let state = State {
            persistent_connection: path.persistent_connection(),
            status: SourceStatus {
                is_up: true,
                ..SourceStatus::default()
            },
        };
        // Drop the old state after the lock is released.
        let _previous = std::mem::replace(&mut *self.state.lock(), state);
        Ok(listing)
    }

    fn status(&self) -> SourceStatus {
        let state = self.state.lock();
        let status = match &state.persistent_connection {
            Some(persistent_connection) => persistent_connection.status(),
            None => state.status.clone(),
        };
        SourceStatus {
            sandbox: self.connector.sandbox().map(|sandbox| sandbox.report()),
            ..status
        }
    }

    async fn changed(&self) {
        self.connector.changed.notified().await;
    }
}
