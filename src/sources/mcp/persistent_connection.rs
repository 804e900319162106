//! Keeps the one connection of a persistent server, and replaces it when it breaks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::connection::Connection;
use super::connector::Connector;
use super::direct::CalledTool;
use super::fault::CallFailure;
use super::listing::ServerListing;
use super::verified_listing::PinError;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::sources::kept::Kept;
use crate::sources::{DefinitionFingerprint, SourceStatus};

/// Connections that one call may use in turn, as long as the call has not reached the server.
const MAX_CONNECTIONS_PER_CALL: usize = 3;

/// The connection, and the task that replaces it.
pub(super) struct PersistentConnection {
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    connector: Arc<Connector>,
    connection: Kept<Connection>,
    /// The listing that was offered.
    listing: Mutex<ServerListing>,
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
            connection: Kept::new(Some(first.clone())),
            listing: Mutex::new(listing.clone()),
        });
        let task = tokio::spawn(shared.clone().keep_connected(first).boxed());
        Self {
            shared,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Calls a tool, if there is a connection before `begin_by`. Dropping the future cancels the
    /// call at the server.
    pub(super) async fn call(
        &self,
        tool: &CalledTool,
        approved: Option<&DefinitionFingerprint>,
        arguments: &JsonObject,
        context: &ToolContext,
        begin_by: Instant,
    ) -> Result<ToolResult, ToolError> {
        let mut previous = None;
        for _ in 0..MAX_CONNECTIONS_PER_CALL {
            let connection = match context
                .wait_for(timeout_at(
                    begin_by,
                    self.shared.connection.next(previous.as_ref()),
                ))
                .await
            {
                Ok(Some(connection)) => connection,
                Ok(None) | Err(_) => break,
            };
            if let Some(approved) = approved {
                let connector = &self.shared.connector;
                let pin_check = context.wait_for(timeout_at(
                    begin_by,
                    Box::pin(verify_pin(connector, &connection, &tool.name, approved)),
                ));
                match pin_check.await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) if connection.is_unusable() => {
                        previous = Some(connection);
                        continue;
                    }
                    Ok(Err(error)) => {
                        return Err(connector.pin_failure(error));
                    }
                    Err(_) => {
                        let reason =
                            "it did not list them within half of the call's time".to_owned();
                        return Err(connector.pin_failure(PinError::ListingFailed(reason)));
                    }
                }
            }
            // Only `NotDelivered` is repeated on another connection. After `ConnectionLost` the
            // call may have run, so the layers above decide.
            let began = Instant::now();
            match connection.call(tool, arguments, context).await {
                Ok(result) => return Ok(result),
                Err(CallFailure::Reported(error)) => return Err(error),
                Err(CallFailure::ConnectionLost) => {
                    return Err(Box::pin(connection.lost_error(Some(began))).await);
                }
                Err(CallFailure::NotDelivered(_)) => previous = Some(connection),
            }
        }
        Err(self.shared.unavailable_error())
    }

    /// Lists the tools again, over the current connection or the next one.
    ///
    /// # Errors
    /// A sentence: connections keep failing, or the server does not answer.
    pub(super) async fn relist(&self) -> Result<ServerListing, String> {
        let Some(connection) = self.shared.connection.next(None).await else {
            return Err(self
                .shared
                .connection
                .history
                .lock()
                .fault
                .clone()
                .unwrap_or_else(|| "it is not connected".into()));
        };
        let listing = self.shared.connector.relist(&connection).await?;
        listing.clone_into(&mut self.shared.listing.lock());
        Ok(listing)
    }

    pub(super) fn is_unavailable(&self) -> bool {
        self.shared.connection.is_unavailable()
    }

    pub(super) fn status(&self) -> SourceStatus {
        let connection = self.shared.connection.current();
        let processes = connection.map_or(0, |connection| usize::from(connection.child.is_some()));
        self.shared.connection.status(processes)
    }
}

impl Shared {
    fn unavailable_error(&self) -> ToolError {
        let server = format!("the MCP server {}", self.connector.name);
        let history = self.connection.history.lock();
        history.unavailable_error(&server, "it is not connected")
    }

    /// Keeps a connection, forever.
    async fn keep_connected(self: Arc<Self>, first: Arc<Connection>) {
        let mut connection = first;
        loop {
            self.watch_until_unusable(&connection).await;
            let server = &*self.connector.name;
            self.connection.set_starting();
            let reason = connection.end_reason(None).await;
            tracing::warn!(target: "toolcrib::mcp", server, "the connection is replaced: {reason}");
            let has_answered = connection.has_answered.load(Ordering::Relaxed);
            self.connection
                .record_death(connection.created_at, has_answered, &reason);
            connection.terminate().await;
            connection = self.connect_until_up().await;
            self.connection.set_ready(connection.clone());
        }
    }

    async fn watch_until_unusable(&self, connection: &Connection) {
        loop {
            tokio::select! {
                () = connection.draining.cancelled() => return,
                () = connection.state.tools_changed.notified() => {}
                () = connection.state.wait_until_stale() => {}
            }
            self.connector.changed.notify_one();
        }
    }

    /// Attempts to connect until a connection is up.
    async fn connect_until_up(&self) -> Arc<Connection> {
        let start = || self.connector.connect_and_list(&|_| {}, None);
        let log = |fault: &str| {
            let server = &*self.connector.name;
            tracing::warn!(target: "toolcrib::mcp", server, "no connection: {fault}");
        };
        let (connection, listing) = self.connection.start_until_up(start, log).await;
        if *self.listing.lock() != listing {
            self.connector.changed.notify_one();
        }
        connection
    }
}

/// Most listings for one call of a server that reports changes all the time.
const MAX_LISTINGS: usize = 3;

/// Checks that the server on this connection lists exactly this definition. Lists the tools, if
/// they have changed.
pub(super) async fn verify_pin(
    connector: &Connector,
    connection: &Connection,
    tool: &str,
    approved: &DefinitionFingerprint,
) -> Result<(), PinError> {
    let verified = &connection.state.verified;
    // `listing_lock` lets one call list the tools, and the others use its result. So check again
    // after waiting for it. A change during the listing discards its result, and the loop repeats.
    let mut last = None;
    for _ in 0..MAX_LISTINGS {
        if let Some(verdict) = verified.check_definition(tool, approved) {
            return verdict;
        }
        let _guard = verified.listing_lock.lock().await;
        if let Some(verdict) = verified.check_definition(tool, approved) {
            return verdict;
        }
        last = Some(connector.relist(connection).await);
    }
    // The server reports changes all the time, so its last listing counts.
    match last {
        Some(Ok(listing))
            if listing.tools.iter().any(|listed| {
                listed.tool.name == tool && listed.fingerprint.full_hash == approved.full_hash
            }) =>
        {
            Ok(())
        }
        Some(Ok(_)) | None => Err(PinError::Changed),
        Some(Err(reason)) => Err(PinError::ListingFailed(reason)),
    }
}
