//! What a manifest contains, after all its files are read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::finding::Finding;
use super::registered::Defaults;
use super::source::DeclaredSource;
use super::tool_lists::ListEntry;
use crate::access::callers::CallerSettings;
use crate::access::public_url::PublicUrl;
use crate::access::toolset::Toolset;
use crate::approval::receivers::ApprovalNotices;
use crate::cache::RedisAddress;
use crate::call::{CallSettings, Capture, DigestKey, NameMatching};
use crate::kinds::Tool;
use crate::manifest::pins::Pins;
use crate::text::names::{normalize_name, strip_known_prefix};
use crate::{ledger, telemetry};

/// A manifest as read.
pub struct Manifest {
    /// `server:`
    pub server: ServerSettings,
    /// `server.listen:`, or its default.
    pub listen: String,
    /// `ledger:`
    pub ledger: ledger::Settings,
    /// `ledger.capture:`, for tools without a `capture` of their own.
    pub capture: Capture,
    /// `results.reference_above:`, in characters.
    pub reference_above: Option<usize>,
    /// `ledger.digest_key:`
    pub digest_key: Option<DigestKey>,
    /// `cache.max_bytes:`
    pub cache_bytes: u64,
    /// `cache.redis:`
    pub redis: Option<RedisAddress>,
    /// `approvals:`
    pub approvals: Option<ApprovalNotices>,
    /// `telemetry:`
    pub telemetry: Option<telemetry::Settings>,
    /// `calls:`
    pub calls: CallSettings,
    /// `defaults:`
    pub defaults: Defaults,
    /// `callers:`
    pub callers: Vec<CallerSettings>,
    /// `toolsets:`
    pub toolsets: BTreeMap<Arc<str>, Toolset>,
    /// The entries of all lists of tools. They are checked again when all tools are known.
    pub(crate) tool_lists: Vec<ListEntry>,
    /// `tools:`, including those of included files.
    pub tools: Vec<Tool>,
    /// `python_modules:`, `mcp_servers:` and `openapi:`, including those of included files.
    pub sources: Vec<DeclaredSource>,
    /// The pins of MCP servers and of OpenAPI documents at URLs, from the file beside the manifest.
    /// `None` if there is no such file.
    pub pins: Option<Pins>,
    /// Names of the embedding program's tools that entries of the manifest replace.
    pub replaced_natives: Vec<String>,
    /// Every value that replaced a reference. They are secrets.
    pub secrets: Vec<String>,
    /// Findings that do not prevent the use of the manifest.
    pub warnings: Vec<Finding>,
}

impl Manifest {
    /// Leaves out the sources that the tool of this name does not need, for a process that calls only
    /// this tool.
    pub(crate) fn keep_sources_for(&mut self, name: &str) {
        let spellings = std::iter::once(name).chain(strip_known_prefix(name));
        let spellings: Vec<String> = spellings.map(normalize_name).collect();
        let is_wanted = |known: &str| spellings.contains(&normalize_name(known));
        let mut own = self.tools.iter();
        let own = own.find(|tool| tool.definition.names().any(is_wanted));
        if own.is_some_and(|tool| tool.runner.traits().calls_tools)
            || self.calls.name_matching == NameMatching::Similar
        {
            return;
        }
        let is_own = own.is_some();
        self.sources.retain(|source| {
            let prefix = normalize_name(&source.rules.prefix);
            let mut aliases = source.rules.tools.values().flat_map(|tool| &tool.aliases);
            let may_have = spellings.iter().any(|name| name.starts_with(&prefix))
                || aliases.any(|alias| is_wanted(alias.as_str()));
            !is_own && may_have
        });
    }
}

/// The default listen address.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7411";
/// The default ledger: a file in the working folder.
pub const DEFAULT_LEDGER: &str = "sqlite://toolcrib.db";
/// The default memory for cached results, in bytes.
pub const DEFAULT_CACHE_BYTES: u64 = 64 << 20;

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
    /// `sandbox: required`: refuses to start if a sandbox cannot be enforced completely.
    pub requires_sandbox: bool,
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
            requires_sandbox: false,
            serves_toolbox: false,
        }
    }
}
