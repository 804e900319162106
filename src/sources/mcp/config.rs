//! The manifest's settings of an MCP server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rmcp::model::ProtocolVersion;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::per_caller::PerCaller;
use crate::kinds::SandboxSetting;
use crate::kinds::http::AuthConfig;

/// One entry of `mcp_servers:`, with references and relative paths resolved.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Name of the entry.
    pub name: String,
    /// The transport to the server.
    pub transport: Transport,
    /// Whether the server stays connected between calls.
    pub mode: Mode,
    /// Tools to take: names that the server uses, or patterns with `*` for any characters. Empty:
    /// all tools.
    pub include: Vec<String>,
    /// Tools to leave out, as names or patterns. Takes precedence over `include`.
    pub exclude: Vec<String>,
    /// The version of MCP to use. `None`: the server is asked for the newest one that it knows.
    pub protocol: Option<Protocol>,
    /// Longest time for the start or connection, the handshake and the listing together.
    pub start_timeout: Duration,
}

impl ServerSettings {
    /// What differs from caller to caller.
    pub(super) fn per_caller(&self) -> Option<&PerCaller> {
        match &self.transport {
            Transport::Url { per_caller, .. } => per_caller.as_deref(),
            Transport::Command { .. } => None,
        }
    }
}

/// The transport to a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Transport {
    /// A child process that communicates over standard input and output.
    Command {
        /// The program and its arguments. A bare program name is searched in `PATH`.
        argv: Vec<String>,
        /// Variables for the process, in addition to those that every server gets. May contain
        /// secrets.
        environment: BTreeMap<String, String>,
        /// The working folder: the manifest's folder.
        workdir: PathBuf,
        /// What the process may do.
        sandbox: SandboxSetting,
    },
    /// Streamable HTTP.
    Url {
        /// The endpoint. Private addresses are permitted, because the operator wrote the full URL.
        url: Url,
        /// Header fields of every request, with lower-case names. May contain secrets.
        headers: BTreeMap<String, String>,
        /// How requests are authorized besides.
        auth: Option<AuthConfig>,
        /// What differs from caller to caller. `None`: all callers send the same requests.
        per_caller: Option<Box<PerCaller>>,
    },
}

/// A version of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Protocol {
    /// With sessions: the client begins with `initialize`.
    #[serde(rename = "2024-11-05")]
    V20241105,
    /// With sessions.
    #[serde(rename = "2025-03-26")]
    V20250326,
    /// With sessions.
    #[serde(rename = "2025-06-18")]
    V20250618,
    /// With sessions.
    #[serde(rename = "2025-11-25")]
    V20251125,
    /// Without sessions: each request says what the client can do.
    #[serde(rename = "2026-07-28")]
    V20260728,
}

impl Protocol {
    /// The SDK's value of this version.
    pub(super) fn version(self) -> ProtocolVersion {
        match self {
            Self::V20241105 => ProtocolVersion::V_2024_11_05,
            Self::V20250326 => ProtocolVersion::V_2025_03_26,
            Self::V20250618 => ProtocolVersion::V_2025_06_18,
            Self::V20251125 => ProtocolVersion::V_2025_11_25,
            Self::V20260728 => ProtocolVersion::V_2026_07_28,
        }
    }
}

/// Whether a server stays connected between calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// One connection for all calls, replaced when it breaks.
    #[default]
    Persistent,
    /// A connection for each call, which ends with the call.
    OnDemand,
}
