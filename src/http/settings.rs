//! What the operator may set about the server, and what is fixed.

use std::time::Duration;

use crate::file_handles;

/// `server:` of the manifest.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Largest request body, in bytes.
    pub max_body: usize,
    /// Calls running at once over all tools.
    pub max_in_flight: usize,
    /// How long new calls are still served after SIGTERM, for who is told late that the service is going.
    pub linger: Duration,
    /// How long running calls may go on after that.
    pub drain: Duration,
    /// `Host` values answered besides the listen address, with or without a port.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values answered besides the service's own.
    pub allowed_origins: Vec<String>,
    /// May listen beyond loopback although there are no callers.
    pub allow_open: bool,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            max_body: 1 << 20,
            max_in_flight: 256,
            linger: Duration::ZERO,
            drain: Duration::from_secs(20),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            allow_open: false,
        }
    }
}

/// A client that has not sent its header block by then is cut off (slow-loris): counted from when it connected, or from
/// the first byte of a later request.
pub(super) const HEADER_TIME: Duration = Duration::from_secs(10);
/// Largest header block. hyper answers 431 beyond it.
pub(super) const HEADER_BYTES: usize = 32 << 10;
/// Most header fields in a request.
pub(super) const HEADER_FIELDS: usize = 64;
/// A connection may stay open so long between two requests, unless its place is needed. nginx's default.
pub(super) const IDLE_TIME: Duration = Duration::from_secs(75);
/// A client that has read nothing of its answer for so long is cut off.
pub(super) const WRITE_TIME: Duration = Duration::from_secs(30);
/// For a client to close its side when we have closed ours.
pub(super) const CLOSING_TIME: Duration = Duration::from_secs(1);
/// A body must have arrived by then.
pub(super) const BODY_TIME: Duration = Duration::from_secs(30);
/// Some of a body must arrive in each such time.
pub(super) const BODY_IDLE_TIME: Duration = Duration::from_secs(10);
/// A body that is refused for its declared length is read and thrown away up to this length and time, so that its
/// sender gets to see why; a longer one is cut off.
pub(super) const LINGER_BYTES: u64 = 16 << 20;
pub(super) const LINGER_TIME: Duration = Duration::from_secs(1);
/// Connections at once, where there are file handles for them.
const CONNECTIONS: usize = 1024;

/// Connections at once. A file handle in two is for them; the ledger, tools and their programs need the others.
pub(super) fn connections() -> usize {
    file_handles::limit().map_or(CONNECTIONS, |handles| (handles / 2).clamp(8, CONNECTIONS))
}
