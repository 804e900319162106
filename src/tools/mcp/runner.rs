//! A tool of a server as a tool's runner.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use super::connections::Connections;
use super::connector::Connector;
use super::fault::Failed;
use super::pin_check::says;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::process::Sweeps;
use crate::tools::{DefinitionFingerprint, Runner};

/// Tenths of a call's time that a server may take to start for it. A call that starts later would be interrupted at the
/// deadline, and the effect of an interrupted write is unknown.
const START: u32 = 9;

/// A tool, and how its server is reached.
pub(super) struct ToolRunner {
    /// The server's own name of the tool.
    tool: String,
    /// The approved definition; `None`: the tool is not pinned.
    prints: Option<Arc<DefinitionFingerprint>>,
    way: CallPath,
    /// Owns the sweeps, so that they outlive everything that may still call. If the service does not wait for the end
    /// of the processes (`Ends`), the last runner does.
    _sweeps: Arc<Sweeps>,
}

impl ToolRunner {
    /// A runner for the tool with this name at the server.
    pub(super) fn new(
        tool: &str,
        prints: Option<Arc<DefinitionFingerprint>>,
        way: CallPath,
        sweeps: Arc<Sweeps>,
    ) -> Self {
        Self { tool: tool.to_owned(), prints, way, _sweeps: sweeps }
    }
}

/// The connection that a call uses.
#[derive(Clone)]
pub(super) enum CallPath {
    /// The one connection of the server.
    Persistent(Arc<Connections>),
    /// A connection of its own.
    OnDemand(Arc<Connector>),
}

impl CallPath {
    /// The keeper of the one connection, if there is one.
    pub(super) fn keeper(&self) -> Option<Arc<Connections>> {
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
            CallPath::Persistent(keeper) => {
                // Wait for at most half of the remaining time. A call that started later would probably be interrupted
                // at its deadline.
                let now = Instant::now();
                let begin_by = now + context.deadline.saturating_duration_since(now) / 2;
                keeper.call(tool, prints, &arguments, &context, begin_by).await
            }
            CallPath::OnDemand(connector) => on_demand(connector, tool, prints, &arguments, &context).await,
        }
    }

    fn takes_fields(&self) -> bool {
        true
    }

    fn is_available(&self) -> bool {
        match &self.way {
            CallPath::Persistent(keeper) => !keeper.is_down(),
            CallPath::OnDemand(_) => true,
        }
    }
}

async fn on_demand(
    connector: &Connector,
    tool: &str,
    prints: Option<&DefinitionFingerprint>,
    arguments: &JsonObject,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    let name = &connector.name;
    let now = Instant::now();
    let most = context.deadline.saturating_duration_since(now) * START / 10;
    let down = |why: &str| ToolError::unavailable_before(format!("the MCP server {name} is down: {why}"), None);
    let connecting = async {
        let Some(prints) = prints else { return connector.connected().await.map_err(|fault| down(&fault)) };
        // There is no connection between calls that could report changes. So list the tools before each call.
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
