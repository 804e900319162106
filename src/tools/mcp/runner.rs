//! A tool of a server as a tool's runner.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use super::connector::Connector;
use super::fault::Failed;
use super::keeper::Keeper;
use super::said::says;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::process::Sweeps;
use crate::tools::{Prints, Runner};

/// Tenths of a call's time that a server may take to start for it. What begins later would be ended in the middle, and of
/// a write nobody would know whether it was done.
const START: u32 = 9;

/// A tool and how its server is reached.
pub(super) struct ToolRunner {
    /// The server's own name for it.
    tool: String,
    /// What it has to be; `None`: whatever the server says of it.
    prints: Option<Arc<Prints>>,
    way: Way,
    /// Waits for the ends of processes, behind all that may still call, if the service does not (`Ends`).
    _sweeps: Arc<Sweeps>,
}

impl ToolRunner {
    /// The tool that the server calls so.
    pub(super) fn new(tool: &str, prints: Option<Arc<Prints>>, way: Way, sweeps: Arc<Sweeps>) -> Self {
        Self { tool: tool.to_owned(), prints, way, _sweeps: sweeps }
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
        let (tool, prints) = (&*self.tool, self.prints.as_deref());
        match &self.way {
            Way::Persistent(keeper) => {
                // Half of the time is for waiting, at most: who waited longer would be ended in the middle.
                let now = Instant::now();
                let begin_by = now + context.deadline.saturating_duration_since(now) / 2;
                keeper.call(tool, prints, &arguments, &context, begin_by).await
            }
            Way::OnDemand(connector) => on_demand(connector, tool, prints, &arguments, &context).await,
        }
    }

    fn takes_fields(&self) -> bool {
        true
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
    prints: Option<&Prints>,
    arguments: &JsonObject,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    let name = &connector.name;
    let now = Instant::now();
    let most = context.deadline.saturating_duration_since(now) * START / 10;
    let down = |why: &str| ToolError::unavailable_before(format!("the MCP server {name} is down: {why}"), None);
    let connecting = async {
        let Some(prints) = prints else { return connector.connected().await.map_err(|fault| down(&fault)) };
        // Nobody hears from it between calls, so it says each time what the tool is.
        let (connection, listing) = connector.listed(&|_| {}).await.map_err(|fault| down(&fault))?;
        connector.heard(&listing);
        let says = says(connector, &connection, tool, prints).await;
        says.map_err(|doubt| connector.refuses(doubt, &connector.changed)).map(|()| connection)
    };
    let connection = match context.waiting(timeout_at(now + most, connecting)).await {
        Ok(connection) => connection?,
        Err(_) => {
            let message = format!(
                "the MCP server {name} was not ready within {:.1} s, which leaves a tenth of the call's time for the tool: if \
                 it takes so long to start, raise the tool's `timeout`",
                most.as_secs_f64()
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
