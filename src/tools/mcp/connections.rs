//! Keeps the one connection of a persistent server, and replaces it when it breaks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::connection::Connection;
use super::connector::Connector;
use super::fault::Failed;
use super::listing::Listing;
use super::pin_check::{PinError, says};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::health::Health;
use crate::tools::{DefinitionFingerprint, SourceStatus};

/// Connections that one call may use in turn, as long as the call has not reached the server.
const TRIES: usize = 3;

/// The connection, and the task that replaces it.
pub(super) struct Connections {
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    connector: Arc<Connector>,
    health: Mutex<Health>,
    stage: watch::Sender<Stage>,
    /// The listing that was offered.
    listed: Mutex<Listing>,
    /// Signals that the server's tools may have changed.
    changed: Notify,
}

#[derive(Clone)]
enum Stage {
    /// A connection is being made.
    Starting,
    Up(Arc<Connection>),
    /// Connections keep failing, so no call should wait for the next one.
    Down,
}

impl Connections {
    /// Keeps this connection, and its replacements later. Call it within the runtime.
    pub(super) fn new(connector: &Arc<Connector>, first: Arc<Connection>, listing: &Listing) -> Self {
        let shared = Arc::new(Shared {
            connector: connector.clone(),
            health: Mutex::default(),
            stage: watch::Sender::new(Stage::Up(first.clone())),
            listed: Mutex::new(listing.clone()),
            changed: Notify::new(),
        });
        let task = tokio::spawn(shared.clone().keep(first));
        Self { shared, _task: AbortOnDropHandle::new(task) }
    }

    /// Calls a tool, if there is a connection before `begin_by`. Dropping the future cancels the call at the server.
    pub(super) async fn call(
        &self,
        tool: &str,
        prints: Option<&DefinitionFingerprint>,
        arguments: &JsonObject,
        context: &ToolContext,
        begin_by: Instant,
    ) -> Result<ToolResult, ToolError> {
        let mut before = None;
        for _ in 0..TRIES {
            let connection = match context.waiting(timeout_at(begin_by, self.connection(before))).await {
                Ok(Some(connection)) => connection,
                Ok(None) | Err(_) => break,
            };
            if let Some(prints) = prints {
                let connector = &self.shared.connector;
                let says = context.waiting(timeout_at(begin_by, says(connector, &connection, tool, prints)));
                match says.await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) if connection.is_of_no_use() => {
                        before = Some(connection);
                        continue;
                    }
                    Ok(Err(doubt)) => return Err(connector.refuses(doubt, &self.shared.changed)),
                    Err(_) => {
                        let late = "it has not listed them in half of the call's time".to_owned();
                        return Err(connector.refuses(PinError::Unlisted(late), &self.shared.changed));
                    }
                }
            }
            // Only `NotBegun` is repeated on another connection. After `Lost` the call may have run, so the layers
            // above decide.
            match connection.call(tool, arguments, context).await {
                Ok(result) => return Ok(result),
                Err(Failed::Said(error)) => return Err(error),
                Err(Failed::Lost) => {
                    let (name, why) = (&self.shared.connector.name, connection.why().await);
                    return Err(ToolError::unavailable(format!("the MCP server {name} did not answer: {why}")));
                }
                Err(Failed::NotBegun(_)) => before = Some(connection),
            }
        }
        Err(self.shared.unavailable())
    }

    /// The current connection. Skips `before`, which takes no more calls. `None`: connections keep failing.
    async fn connection(&self, before: Option<Arc<Connection>>) -> Option<Arc<Connection>> {
        let mut stage = self.shared.stage.subscribe();
        let is_another = |stage: &Stage| match stage {
            Stage::Starting => false,
            Stage::Up(connection) => before.as_ref().is_none_or(|before| !Arc::ptr_eq(before, connection)),
            Stage::Down => true,
        };
        let stage = stage.wait_for(is_another).await;
        match stage.as_deref() {
            Ok(Stage::Up(connection)) => Some(connection.clone()),
            Ok(Stage::Down | Stage::Starting) | Err(_) => None,
        }
    }

    /// Lists the tools again, over the current connection or the next one.
    ///
    /// # Errors
    /// A sentence: connections keep failing, or the server does not answer.
    pub(super) async fn relist(&self) -> Result<Listing, String> {
        let Some(connection) = self.connection(None).await else {
            return Err(self.shared.health().fault.clone().unwrap_or_else(|| "it is not there".into()));
        };
        let listing = self.shared.connector.relisted(&connection).await?;
        listing.clone_into(&mut self.shared.listed());
        Ok(listing)
    }

    /// Waits until the server reports changed tools, or has other tools after a reconnect.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(*self.shared.stage.borrow(), Stage::Down)
    }

    pub(super) fn status(&self) -> SourceStatus {
        let health = self.shared.health();
        let workers = match &*self.shared.stage.borrow() {
            Stage::Up(connection) => usize::from(connection.has_process()),
            Stage::Starting | Stage::Down => 0,
        };
        let (fault, fault_at) = (health.fault.clone(), health.fault_at);
        SourceStatus { up: !self.is_down(), workers, replaced: health.replaced, fault, fault_at }
    }
}

impl Shared {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listed(&self) -> MutexGuard<'_, Listing> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unavailable(&self) -> ToolError {
        let health = self.health();
        let why = health.fault.as_deref().unwrap_or("it is not there");
        let message = format!("the MCP server {} is down: {why}", self.connector.name);
        ToolError::unavailable_before(message, Some(health.retry_after()))
    }

    /// Keeps a connection, forever.
    async fn keep(self: Arc<Self>, first: Arc<Connection>) {
        let mut connection = first;
        loop {
            self.until_over(&connection).await;
            let server = &*self.connector.name;
            self.stage.send_replace(Stage::Starting);
            let why = connection.why().await;
            tracing::warn!(target: "toolcrib::mcp", server, "the connection is replaced: {why}");
            {
                let mut health = self.health();
                health.died(connection.born, connection.has_answered(), &why);
                health.replaced += 1;
            }
            if self.health().is_bad() {
                self.stage.send_replace(Stage::Down);
            }
            connection.end().await;
            connection = self.start().await;
            self.health().started();
            self.stage.send_replace(Stage::Up(connection.clone()));
        }
    }

    async fn until_over(&self, connection: &Connection) {
        loop {
            tokio::select! {
                () = connection.until_of_no_use() => return,
                () = connection.line.changed.notified() => self.changed.notify_one(),
            }
        }
    }

    /// Attempts to connect until a connection is up.
    async fn start(&self) -> Arc<Connection> {
        loop {
            let pause = self.health().pause(fastrand::f64());
            sleep(pause).await;
            let began = Instant::now();
            match self.connector.listed(&|_| {}).await {
                Ok((connection, listing)) => {
                    if *self.listed() != listing {
                        self.changed.notify_one();
                    }
                    return connection;
                }
                Err(fault) => {
                    let server = &*self.connector.name;
                    tracing::warn!(target: "toolcrib::mcp", server, "no connection: {fault}");
                    let is_bad = {
                        let mut health = self.health();
                        health.failed(began, &fault);
                        health.is_bad()
                    };
                    if is_bad {
                        self.stage.send_replace(Stage::Down);
                    }
                }
            }
        }
    }
}
