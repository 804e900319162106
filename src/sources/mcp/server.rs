//! An MCP server as a source of tools.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::config::{Mode, ServerSettings};
use super::connector::Connector;
use super::listing::{self, ServerListing};
use super::persistent_connection::PersistentConnection;
use super::runner::{self, CallPath};
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
    is_up: bool,
    fault: Option<(String, Instant)>,
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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
        let persistent_connection = self.state().persistent_connection.clone();
        let (state, result) = match self
            .connect_or_relist(report_status, persistent_connection.clone())
            .await
        {
            Ok((
                ServerListing {
                    tools,
                    mut warnings,
                    mut skipped_names,
                },
                path,
            )) => {
                let redactor = &self.connector.process_env.redactor;
                let tools = listing::reject_secret_names(
                    tools,
                    redactor,
                    &mut warnings,
                    &mut skipped_names,
                );
                let tools = tools
                    .iter()
                    .map(|tool| runner::to_discovered(tool, &path, &self.orphan_reaper, redactor))
                    .collect();
                (
                    State {
                        persistent_connection: path.persistent_connection(),
                        is_up: true,
                        fault: None,
                    },
                    Ok(SourceListing {
                        tools,
                        warnings,
                        skipped_names,
                    }),
                )
            }
            Err(fault) => (
                State {
                    persistent_connection,
                    is_up: false,
                    fault: Some((fault.clone(), Instant::now())),
                },
                Err(SourceFault(fault)),
            ),
        };
        // Drop the old state after the lock is released.
        let _previous = std::mem::replace(&mut *self.state(), state);
        result
    }

    fn status(&self) -> SourceStatus {
        let State {
            persistent_connection,
            is_up,
            fault,
        } = &*self.state();
        let (fault, fault_at) = fault.clone().unzip();
        match persistent_connection {
            Some(persistent_connection) => persistent_connection.status(),
            None => SourceStatus {
                is_up: *is_up,
                fault,
                fault_at,
                ..SourceStatus::default()
            },
        }
    }

    async fn changed(&self) {
        let persistent_connection = self.state().persistent_connection.clone();
        match persistent_connection {
            Some(persistent_connection) => persistent_connection.wait_for_change().await,
            None => self.connector.changed.notified().await,
        }
    }
}
