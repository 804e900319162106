//! An MCP server as a source of tools.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;

use super::config::{Mode, ServerSettings};
use super::connections::Connections;
use super::connector::Connector;
use super::listing::{self, Listing};
use super::runner::CallPath;
use crate::tools::process::Sweeps;
use crate::tools::{Listed, ProcessEnv, Source, SourceFault, SourceStatus, StatusFn};

/// An MCP server with its connections. They end when the server and all runners that it gave are dropped.
pub struct Server {
    // The order of these fields matters: first the processes are ended, then `sweeps` waits for their end.
    state: Mutex<State>,
    connector: Arc<Connector>,
    sweeps: Arc<Sweeps>,
}

/// The outcome of the last listing.
#[derive(Default)]
struct State {
    keeper: Option<Arc<Connections>>,
    up: bool,
    fault: Option<(String, Instant)>,
}

impl Server {
    /// A server without a connection yet.
    pub fn new(settings: ServerSettings, surroundings: &ProcessEnv) -> Self {
        let sweeps = surroundings.sweeps();
        let connector = Arc::new(Connector::new(settings, surroundings.clone(), &sweeps));
        Self { state: Mutex::default(), connector, sweeps }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists the tools. A persistent server lists over its existing connection only, because runners of earlier
    /// listings use that connection.
    async fn start(&self, told: &StatusFn, keeper: Option<Arc<Connections>>) -> Result<(Listing, CallPath), String> {
        if let Some(keeper) = keeper {
            return keeper.relist().await.map(|listing| (listing, CallPath::Persistent(keeper)));
        }
        let (connection, listing) = self.connector.listed(told).await?;
        let way = match self.connector.settings.mode {
            Mode::Persistent => CallPath::Persistent(Arc::new(Connections::new(&self.connector, connection, &listing))),
            Mode::OnDemand => CallPath::OnDemand(self.connector.offering(&listing)),
        };
        Ok((listing, way))
    }
}

#[async_trait]
impl Source for Server {
    async fn list(&self, told: &StatusFn) -> Result<Listed, SourceFault> {
        let keeper = self.state().keeper.clone();
        let (state, result) = match self.start(told, keeper.clone()).await {
            Ok((Listing { tools, mut warnings, mut left_out }, way)) => {
                let redactor = &self.connector.surroundings.redactor;
                let tools = listing::without_secret_names(tools, redactor, &mut warnings, &mut left_out);
                let tools = tools.iter().map(|one| listing::offer(one, &way, &self.sweeps, redactor)).collect();
                (State { keeper: way.keeper(), up: true, fault: None }, Ok(Listed { tools, warnings, left_out }))
            }
            Err(fault) => {
                (State { keeper, up: false, fault: Some((fault.clone(), Instant::now())) }, Err(SourceFault(fault)))
            }
        };
        // Drop the old state after the lock is released.
        let _before = std::mem::replace(&mut *self.state(), state);
        result
    }

    fn status(&self) -> SourceStatus {
        let State { keeper, up, fault } = &*self.state();
        let (fault, fault_at) = fault.clone().unzip();
        match keeper {
            Some(keeper) => keeper.status(),
            None => SourceStatus { up: *up, fault, fault_at, ..SourceStatus::default() },
        }
    }

    async fn changed(&self) {
        let keeper = self.state().keeper.clone();
        match keeper {
            Some(keeper) => keeper.changed().await,
            None => self.connector.changed.notified().await,
        }
    }
}
