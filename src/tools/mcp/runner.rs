//! A tool of a server as a tool's runner.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use super::connector::Connector;
use super::fault::Failed;
use super::keeper::Keeper;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::Runner;
use crate::tools::process::Sweeps;

/// Tenths of a call's time that a server may take to start for it. What begins later would be ended in the middle, and of
/// a write nobody would know whether it was done.
const START: u32 = 9;

/// A tool and how its server is reached.
pub(super) struct ToolRunner {
    /// The server's own name for it.
    tool: String,
    way: Way,
    /// Waits for the ends of processes, behind all that may still call, if the service does not (`Ends`).
    _sweeps: Arc<Sweeps>,
}

impl ToolRunner {
    /// The tool that the server calls so.
    pub(super) fn new(tool: &str, way: Way, sweeps: Arc<Sweeps>) -> Self {
        Self { tool: tool.to_owned(), way, _sweeps: sweeps }
    }
}

/// How a call reaches the server.
#[derive(Clone)]
pub(super) enum Way {
    /// Over the one connection.
    Persistent(Arc<Keeper>),
    /// Over one of its own.
    OnDemand(Arc<Connector>),
}

impl Way {
    /// What keeps the one connection.
    pub(super) fn keeper(&self) -> Option<Arc<Keeper>> {
        match self {
            Self::Persistent(keeper) => Some(keeper.clone()),
            Self::OnDemand(_) => None,
        }
    }
}

#[async_trait]
impl Runner for ToolRunner {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        match &self.way {
            Way::Persistent(keeper) => {
                // Half of the time is for waiting, at most: who waited longer would be ended in the middle.
                let now = Instant::now();
                let begin_by = now + context.deadline.saturating_duration_since(now) / 2;
                keeper.call(&self.tool, &arguments, &context, begin_by).await
            }
            Way::OnDemand(connector) => on_demand(connector, &self.tool, &arguments, &context).await,
        }
    }

    fn is_available(&self) -> bool {
        match &self.way {
            Way::Persistent(keeper) => !keeper.is_down(),
            Way::OnDemand(_) => true,
        }
    }
}

async fn on_demand(
    connector: &Connector,
    tool: &str,
    arguments: &JsonObject,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    let name = &connector.name;
    let now = Instant::now();
    let most = context.deadline.saturating_duration_since(now) * START / 10;
    let down = |why: &str| ToolError::unavailable_before(format!("the MCP server {name} is down: {why}"), None);
    let connection = match context.waiting(timeout_at(now + most, connector.connected())).await {
        Ok(connection) => connection.map_err(|fault| down(&fault))?,
        Err(_) => {
            let message = format!(
                "the MCP server {name} was not ready within {most:.1?}, which leaves a tenth of the call's time for the tool: if \
                 it takes so long to start, raise the tool's `timeout`"
            );
            return Err(ToolError::unavailable_before(message, None));
        }
    };
    match connection.call(tool, arguments, context).await {
        Ok(result) => Ok(result),
        Err(Failed::Said(error)) => Err(error),
        Err(Failed::NotBegun(why)) => Err(down(&why)),
        Err(Failed::Lost) => {
            let why = connection.why().await;
            Err(ToolError::unavailable(format!("the MCP server {name} did not answer: {why}")))
        }
    }
}
