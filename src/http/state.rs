//! The state of the handlers: handles, and no configuration.

use std::sync::Arc;

use axum::extract::FromRef;
use tokio_util::sync::CancellationToken;

use super::mcp::McpService;
use super::memory::MemoryBudget;
use crate::live::LiveTools;
use crate::registry::Registry;

/// Shared by all handlers; cheap to clone.
#[derive(Clone)]
pub(super) struct AppState {
    /// The tools, and the parts of the service that all calls share.
    pub registry: Arc<Registry>,
    /// Reload and registration of tools.
    pub live: Arc<LiveTools>,
    /// The MCP server.
    pub mcp: McpService,
    /// Largest request body, in bytes.
    pub max_body: usize,
    /// Memory for the values of all requests.
    pub memory: MemoryBudget,
}

impl AppState {
    /// Makes the state. `shutdown` ends the MCP streams that clients keep open without a call.
    pub(super) fn new(live: Arc<LiveTools>, max_body: usize, shutdown: &CancellationToken) -> Self {
        let registry = live.registry().clone();
        let mcp = McpService::new(registry.clone(), max_body, shutdown);
        Self {
            registry,
            live,
            mcp,
            max_body,
            memory: MemoryBudget::new(max_body),
        }
    }
}

impl FromRef<AppState> for Arc<Registry> {
    fn from_ref(state: &AppState) -> Self {
        state.registry.clone()
    }
}

impl FromRef<AppState> for Arc<LiveTools> {
    fn from_ref(state: &AppState) -> Self {
        state.live.clone()
    }
}
