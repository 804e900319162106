//! What handlers work with: handles, and nothing that is configuration.

use std::sync::Arc;

use axum::extract::FromRef;

use super::mcp::Face;
use crate::live::Live;
use crate::registry::Registry;

/// Shared by all handlers; cheap to clone.
#[derive(Clone)]
pub(super) struct AppState {
    /// The tools, and through them everything that calls share.
    pub registry: Arc<Registry>,
    /// What changes them.
    pub live: Arc<Live>,
    /// The MCP server.
    pub mcp: Face,
    /// Largest request body, in bytes.
    pub max_body: usize,
}

impl FromRef<AppState> for Arc<Registry> {
    fn from_ref(state: &AppState) -> Self {
        state.registry.clone()
    }
}

impl FromRef<AppState> for Arc<Live> {
    fn from_ref(state: &AppState) -> Self {
        state.live.clone()
    }
}
