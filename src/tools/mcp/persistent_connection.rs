//! Keeps the one connection of a persistent server, and replaces it when it breaks.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::connection::Connection;
use super::connector::Connector;
use super::fault::CallFailure;
use super::listing::ServerListing;
use super::pin_check::verify_pin;
use super::verified_listing::PinError;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::restart_history::RestartHistory;
use crate::tools::{DefinitionFingerprint, SourceStatus};

/// Connections that one call may use in turn, as long as the call has not reached the server.
const MAX_CONNECTIONS_PER_CALL: usize = 3;

/// The connection, and the task that replaces it.
pub(super) struct PersistentConnection {
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    connector: Arc<Connector>,
    restart_history: Mutex<RestartHistory>,
    stage: watch::Sender<ConnectionStage>,
    /// The listing that was offered.
    listing: Mutex<ServerListing>,
    /// Signals that the server's tools may have changed.
    changed: Notify,
}

#[derive(Clone)]
enum ConnectionStage {
    /// A connection is being made.
    Starting,
    Ready(Arc<Connection>),
    /// Connections keep failing, so no call should wait for the next one.
    Unavailable,
}

impl PersistentConnection {
    /// Keeps this connection, and its replacements later. Call it within the runtime.
    pub(super) fn new(
        connector: &Arc<Connector>,
        first: Arc<Connection>,
        listing: &ServerListing,
    ) -> Self {
        let shared = Arc::new(Shared {
            connector: connector.clone(),
            restart_history: Mutex::default(),
            stage: watch::Sender::new(ConnectionStage::Ready(first.clone())),
            listing: Mutex::new(listing.clone()),
            changed: Notify::new(),
        });
        let task = tokio::spawn(shared.clone().keep_connected(first));
        Self {
            shared,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Calls a tool, if there is a connection before `begin_by`. Dropping the future cancels the
    /// call at the server.
    pub(super) async fn call(
        &self,
        tool: &str,
        approved: Option<&DefinitionFingerprint>,
        arguments: &JsonObject,
        context: &ToolContext,
        begin_by: Instant,
    ) -> Result<ToolResult, ToolError> {
        let mut previous = None;
        for _ in 0..MAX_CONNECTIONS_PER_CALL {
            let connection = match context
                .wait_for(timeout_at(begin_by, self.next_connection(previous)))
                .await
            {
                Ok(Some(connection)) => connection,
                Ok(None) | Err(_) => break,
            };
            if let Some(approved) = approved {
                let connector = &self.shared.connector;
                let pin_check = context.wait_for(timeout_at(
                    begin_by,
                    verify_pin(connector, &connection, tool, approved),
                ));
                match pin_check.await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) if connection.is_unusable() => {
                        previous = Some(connection);
                        continue;
                    }
                    Ok(Err(error)) => {
                        return Err(connector.pin_failure(error, &self.shared.changed));
                    }
                    Err(_) => {
                        let reason =
                            "it did not list them within half of the call's time".to_owned();
                        return Err(connector
                            .pin_failure(PinError::ListingFailed(reason), &self.shared.changed));
                    }
                }
            }
            // Only `NotDelivered` is repeated on another connection. After `ConnectionLost` the
            // call may have run, so the layers above decide.
            match connection.call(tool, arguments, context).await {
                Ok(result) => return Ok(result),
                Err(CallFailure::Reported(error)) => return Err(error),
                Err(CallFailure::ConnectionLost) => {
                    let (name, reason) =
                        (&self.shared.connector.name, connection.end_reason().await);
                    return Err(ToolError::unavailable(format!(
                        "the MCP server {name} did not answer: {reason}"
                    )));
                }
                Err(CallFailure::NotDelivered(_)) => previous = Some(connection),
            }
        }
        Err(self.shared.unavailable_error())
    }

    /// The current connection. Skips `previous`, which takes no more calls. `None`: connections
    /// keep failing.
    async fn next_connection(&self, previous: Option<Arc<Connection>>) -> Option<Arc<Connection>> {
        let mut stage = self.shared.stage.subscribe();
        let is_another = |stage: &ConnectionStage| match stage {
            ConnectionStage::Starting => false,
            ConnectionStage::Ready(connection) => previous
                .as_ref()
                .is_none_or(|previous| !Arc::ptr_eq(previous, connection)),
            ConnectionStage::Unavailable => true,
        };
        let stage = stage.wait_for(is_another).await;
        match stage.as_deref() {
            Ok(ConnectionStage::Ready(connection)) => Some(connection.clone()),
            Ok(ConnectionStage::Unavailable | ConnectionStage::Starting) | Err(_) => None,
        }
    }

    /// Lists the tools again, over the current connection or the next one.
    ///
    /// # Errors
    /// A sentence: connections keep failing, or the server does not answer.
    pub(super) async fn relist(&self) -> Result<ServerListing, String> {
        let Some(connection) = self.next_connection(None).await else {
            return Err(self
                .shared
                .restart_history()
                .fault
                .clone()
                .unwrap_or_else(|| "it is not connected".into()));
        };
        let listing = self.shared.connector.relist(&connection).await?;
        listing.clone_into(&mut self.shared.listing());
        Ok(listing)
    }

    /// Waits until the server reports changed tools, or has other tools after a reconnect.
    pub(super) async fn wait_for_change(&self) {
        self.shared.changed.notified().await;
    }

    pub(super) fn is_unavailable(&self) -> bool {
        matches!(*self.shared.stage.borrow(), ConnectionStage::Unavailable)
    }

    pub(super) fn status(&self) -> SourceStatus {
        let restart_history = self.shared.restart_history();
        let workers = match &*self.shared.stage.borrow() {
            ConnectionStage::Ready(connection) => usize::from(connection.has_process()),
            ConnectionStage::Starting | ConnectionStage::Unavailable => 0,
        };
        let (fault, fault_at) = (restart_history.fault.clone(), restart_history.fault_at);
        SourceStatus {
            is_up: !self.is_unavailable(),
            workers,
            replaced: restart_history.replaced,
            fault,
            fault_at,
            operations: None,
        }
    }
}

impl Shared {
    fn restart_history(&self) -> MutexGuard<'_, RestartHistory> {
        self.restart_history.lock()
    }

    fn listing(&self) -> MutexGuard<'_, ServerListing> {
        self.listing.lock()
    }

    fn unavailable_error(&self) -> ToolError {
        let restart_history = self.restart_history();
        let reason = restart_history
            .fault
            .as_deref()
            .unwrap_or("it is not connected");
        let message = format!(
            "the MCP server {} is unavailable: {reason}",
            self.connector.name
        );
        ToolError::unavailable_before_start(message, Some(restart_history.retry_after()))
    }

    /// Keeps a connection, forever.
    async fn keep_connected(self: Arc<Self>, first: Arc<Connection>) {
        let mut connection = first;
        loop {
            self.watch_until_unusable(&connection).await;
            let server = &*self.connector.name;
            self.stage.send_replace(ConnectionStage::Starting);
            let reason = connection.end_reason().await;
            tracing::warn!(target: "toolcrib::mcp", server, "the connection is replaced: {reason}");
            {
                let mut restart_history = self.restart_history();
                restart_history.record_death(
                    connection.created_at,
                    connection.has_answered(),
                    &reason,
                );
                restart_history.replaced += 1;
            }
            if self.restart_history().is_failing() {
                self.stage.send_replace(ConnectionStage::Unavailable);
            }
            connection.terminate().await;
            connection = self.connect_with_backoff().await;
            self.restart_history().record_start();
            self.stage
                .send_replace(ConnectionStage::Ready(connection.clone()));
        }
    }

    async fn watch_until_unusable(&self, connection: &Connection) {
        loop {
            tokio::select! {
                () = connection.wait_until_unusable() => return,
                () = connection.state.tools_changed.notified() => self.changed.notify_one(),
                () = connection.state.wait_until_stale() => self.changed.notify_one(),
            }
        }
    }

    /// Attempts to connect until a connection is up.
    async fn connect_with_backoff(&self) -> Arc<Connection> {
        loop {
            let pause = self.restart_history().next_pause(fastrand::f64());
            sleep(pause).await;
            let began = Instant::now();
            match self.connector.connect_and_list(&|_| {}, None).await {
                Ok((connection, listing)) => {
                    if *self.listing() != listing {
                        self.changed.notify_one();
                    }
                    return connection;
                }
                Err(fault) => {
                    let server = &*self.connector.name;
                    tracing::warn!(target: "toolcrib::mcp", server, "no connection: {fault}");
                    let is_failing = {
                        let mut restart_history = self.restart_history();
                        restart_history.record_failed_start(began, &fault);
                        restart_history.is_failing()
                    };
                    if is_failing {
                        self.stage.send_replace(ConnectionStage::Unavailable);
                    }
                }
            }
        }
    }
}
