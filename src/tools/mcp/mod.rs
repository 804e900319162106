//! The `mcp` kind: tools of MCP servers, as a client of them.

mod config;

use async_trait::async_trait;

pub use self::config::{Mode, Reach, ServerSettings};
use super::{Listed, Source, SourceFault, SourceStatus, Surroundings, Told};

/// An MCP server and what is connected to it. All of that ends when it and the runners that it gave are dropped.
pub struct Server {
    settings: ServerSettings,
    surroundings: Surroundings,
}

impl Server {
    /// A server that nothing is connected to yet.
    pub fn new(settings: ServerSettings, surroundings: &Surroundings) -> Self {
        Self { settings, surroundings: surroundings.clone() }
    }
}

#[async_trait]
impl Source for Server {
    async fn list(&self, _told: &Told) -> Result<Listed, SourceFault> {
        let (name, known) = (&self.settings.name, self.surroundings.variables.len());
        Err(SourceFault(format!("{name}: MCP servers are not built yet ({known})")))
    }

    fn status(&self) -> SourceStatus {
        SourceStatus::default()
    }
}
