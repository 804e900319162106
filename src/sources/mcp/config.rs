//! The manifest's settings of an MCP server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rmcp::model::ProtocolVersion;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::per_caller::PerCaller;
use crate::access::tool_pattern::{ToolPattern, any_denies, any_grants};
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

/// `include` and `exclude` of a server.
pub(crate) struct ToolFilter {
    include: Vec<ToolPattern>,
    exclude: Vec<ToolPattern>,
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

impl ToolFilter {
    /// The filter of this server.
    pub(crate) fn from_settings(settings: &ServerSettings) -> Self {
        Self {
            include: ToolPattern::parse_list(&settings.include),
            exclude: ToolPattern::parse_list(&settings.exclude),
        }
    }

    /// Whether a tool with this name is wanted. The name is the server's own, without a prefix.
    pub(crate) fn allows(&self, name: &str) -> bool {
        let included = self.include.is_empty() || any_grants(&self.include, [name], |_| false);
        included && !any_denies(&self.exclude, [name], |_| false)
    }

    /// Entries that match none of these names: the key, and the entry as it is written.
    pub(crate) fn unmatched_entries(&self, names: &[&str]) -> Vec<(&'static str, &str)> {
        let as_list = std::slice::from_ref;
        let names = || names.iter().copied();
        let included = self
            .include
            .iter()
            .filter(|entry| !any_grants(as_list(entry), names(), |_| false));
        // A pattern that excludes nothing may be for tools that the server gets later. A name that
        // excludes nothing is an error.
        let excluded = self
            .exclude
            .iter()
            .filter(|entry| !entry.is_glob() && !any_denies(as_list(entry), names(), |_| false));
        let included = included.map(|entry| ("include", entry.text()));
        included
            .chain(excluded.map(|entry| ("exclude", entry.text())))
            .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> ToolFilter {
        ToolFilter {
            include: ToolPattern::parse_list(include),
            exclude: ToolPattern::parse_list(exclude),
        }
    }

    #[test]
    fn filter_matches_other_spellings() {
        for exclude in ["delete_repo", "Delete-Repo", "DELETE_*", "delete.repo"] {
            assert!(!filter(&[], &[exclude]).allows("delete_repo"), "{exclude}");
        }
        assert!(
            filter(&["Get-Repo"], &[]).allows("get_repo")
                && !filter(&["Get-*"], &[]).allows("get_repo")
        );
        assert!(
            !filter(&["get_*"], &["get_all"]).allows("get_all")
                && filter(&[], &[]).allows("get_all")
        );
    }

    #[test]
    fn unmatched_entries_are_returned() {
        let filter = filter(&["get_*", "gone"], &["delet_repo", "delete_*", "Get-Repo"]);
        assert_eq!(
            filter.unmatched_entries(&["get_repo"]),
            [("include", "gone"), ("exclude", "delet_repo")]
        );
    }
}
