//! The `mcp` kind: tools of MCP servers, as a client of them.
//!
//! `connector` makes a connection: it starts a process (`child`, spoken to over `pipes`) or asks a URL (`remote`, `events`), has
//! the SDK shake hands, and asks for the tools (`listing`). `connection` carries calls, side by side; `tap` stands between the SDK and what
//! it sends over. `keeper` has one for all calls of a persistent server, and another when it breaks; with `on_demand` each
//! call has its own (`runner`). `result` and `fault` say what an answer, or none, comes to.

mod child;
mod client;
mod config;
mod connection;
mod connector;
mod events;
mod fault;
mod keeper;
mod listing;
mod message;
mod pipes;
mod remote;
mod result;
mod runner;
mod scan;
mod subscription;
mod tap;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

pub use self::config::{Mode, Reach, ServerSettings};
use self::connector::Connector;
use self::keeper::Keeper;
use self::listing::Listing;
use self::runner::{ToolRunner, Way};
use super::{Listed, Source, SourceFault, SourceStatus, Surroundings, Told};

/// An MCP server and what is connected to it. All of that ends when it and the runners that it gave are dropped.
pub struct Server {
    connector: Arc<Connector>,
    state: Mutex<State>,
}

/// What came of the last listing.
#[derive(Default)]
struct State {
    keeper: Option<Arc<Keeper>>,
    up: bool,
    fault: Option<String>,
}

impl Server {
    /// A server that nothing is connected to yet.
    pub fn new(settings: ServerSettings, surroundings: &Surroundings) -> Self {
        Self { connector: Arc::new(Connector::new(settings, surroundings.clone())), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Over the connection that is there, if it is: a server may know its clients by their connections.
    async fn start(&self, told: &Told, keeper: Option<Arc<Keeper>>) -> Result<(Listing, Way), String> {
        if let Some(keeper) = keeper
            && let Some(relisted) = keeper.relist().await
        {
            return relisted.map(|listing| (listing, Way::Persistent(keeper)));
        }
        let (connection, listing) = self.connector.listed(told).await?;
        match self.connector.settings.mode {
            Mode::Persistent => {
                let keeper = Arc::new(Keeper::new(&self.connector, connection, &listing));
                Ok((listing, Way::Persistent(keeper)))
            }
            Mode::OnDemand => Ok((listing, Way::OnDemand(self.connector.clone()))),
        }
    }
}

#[async_trait]
impl Source for Server {
    async fn list(&self, told: &Told) -> Result<Listed, SourceFault> {
        let keeper = self.state().keeper.clone();
        let (state, result) = match self.start(told, keeper.clone()).await {
            Ok((Listing { tools, warnings }, way)) => {
                let offer = |tool: &rmcp::model::Tool| {
                    let runner = Arc::new(ToolRunner { tool: tool.name.to_string(), way: way.clone() });
                    listing::offer(tool, runner, &self.connector.surroundings.redactor)
                };
                let tools = tools.iter().map(offer).collect();
                (State { keeper: way.keeper(), up: true, fault: None }, Ok(Listed { tools, warnings }))
            }
            Err(fault) => (State { keeper, up: false, fault: Some(fault.clone()) }, Err(SourceFault(fault))),
        };
        // What was there before ends behind the lock.
        let before = std::mem::replace(&mut *self.state(), state);
        drop(before);
        result
    }

    fn status(&self) -> SourceStatus {
        let State { keeper, up, fault } = &*self.state();
        match keeper {
            Some(keeper) => keeper.status(),
            None => SourceStatus { up: *up, fault: fault.clone(), ..SourceStatus::default() },
        }
    }

    async fn changed(&self) {
        let keeper = self.state().keeper.clone();
        match keeper {
            Some(keeper) => keeper.changed().await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
