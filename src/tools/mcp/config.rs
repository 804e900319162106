//! What the manifest says of an MCP server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

/// One entry of `mcp_servers:`, references and relative paths resolved.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// The entry's name.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// Whether it is kept at hand between calls.
    pub mode: Mode,
    /// Only tools whose own names fit one of these (`*` stands for anything); none given: all.
    pub include: Vec<String>,
    /// None of these.
    pub exclude: Vec<String>,
    /// For a start or a connection, the handshake and the listing together.
    pub start_timeout: Duration,
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum Reach {
    /// A child process that speaks on standard input and output.
    Command {
        /// The program and its arguments; a bare program name is looked for along the path.
        argv: Vec<String>,
        /// Told to it beside what every server gets; may hold secrets.
        environment: BTreeMap<String, String>,
        /// The working folder: the manifest's.
        workdir: PathBuf,
    },
    /// Streamable HTTP.
    Url {
        /// The endpoint; the operator wrote it in full, so it is not gated.
        url: Url,
        /// Sent with every request, names in lower case; may hold secrets.
        headers: BTreeMap<String, String>,
    },
}

/// Whether a server is kept at hand between calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// One connection for all calls, made anew when it breaks.
    #[default]
    Persistent,
    /// A connection for each call, ended with it.
    OnDemand,
}
