//! The settings of the server.

use std::time::Duration;

use crate::access::public_url::PublicUrl;

/// `server:` of the manifest.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Largest request body, in bytes.
    pub max_body: usize,
    /// Calls running at once over all tools.
    pub max_in_flight: usize,
    /// Connections that are open at once.
    pub max_connections: usize,
    /// How long new calls are still served after SIGTERM, for clients that learn late that the
    /// service stops.
    pub linger: Duration,
    /// How long running calls may continue after `linger`. Then they are cancelled.
    pub drain: Duration,
    /// `Host` values answered besides the listen address, with or without a port.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values answered besides the service's own.
    pub allowed_origins: Vec<String>,
    /// Allows listening beyond loopback without callers, so without keys.
    pub allow_open: bool,
    /// The address at which people reach the service.
    pub public_url: Option<PublicUrl>,
    /// `compat.toolbox`: serves clients of MCP Toolbox for Databases.
    pub serves_toolbox: bool,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            max_body: 1 << 20,
            max_in_flight: 256,
            max_connections: 1024,
            linger: Duration::ZERO,
            drain: Duration::from_secs(20),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            allow_open: false,
            public_url: None,
            serves_toolbox: false,
        }
    }
}
