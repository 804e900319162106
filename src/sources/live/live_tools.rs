//! The tools of a running service.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch::Sender;

use super::file_snapshot::FileSnapshot;
use super::lifecycle::entry::Sources;
use super::lifecycle::live_source::LiveSource;
use super::service_config::ServiceConfig;
use crate::access::callers::Callers;
use crate::approval::receivers::ApprovalNotices;
use crate::cache::RedisAddress;
use crate::call::{CallSettings, Digest};
use crate::catalog::registry::{Catalog, Registry};
use crate::kinds::process::OrphanReaper;
use crate::kinds::{HttpClients, ProcessEnv, Tool};
use crate::manifest::{Defaults, KnownTools, ListEntry, Manifest, ServerSettings, Severity};
use crate::{ledger, telemetry};

/// The tools of a running service, with everything that can change them.
pub struct LiveTools {
    pub(super) registry: Arc<Registry>,
    pub(super) config: Arc<ServiceConfig>,
    pub(super) process_env: ProcessEnv,
    /// The HTTP clients of all registered tools. Each holds the system's certificates, about 100
    /// KB. A new manifest replaces the clients, so that tools which change later trust the
    /// certificates of that time.
    pub(super) clients: ArcSwap<HttpClients>,
    /// Locked during each change.
    pub(super) state: tokio::sync::Mutex<State>,
    pub(super) reload_status: ArcSwap<ReloadStatus>,
    /// The manifest's lists of tools.
    pub(super) tool_lists: Mutex<ToolLists>,
    /// The sources, for readers.
    pub(super) live_sources: ArcSwap<Vec<Arc<LiveSource>>>,
    /// Signals a change of `live_sources`, or of the state of one of them.
    pub(super) status_changed: Sender<()>,
    pub(super) has_started: AtomicBool,
    // Must stay behind the sources: its drop waits for the end of everything that they started.
    pub(super) _orphan_reaper: Arc<OrphanReaper>,
}

pub(super) struct State {
    pub(super) declared_state: DeclaredState,
    pub(super) sources: Sources,
    /// The settings of the start.
    pub(super) startup_settings: StartupSettings,
    /// The files of the last reading, whether it succeeded or not.
    pub(super) manifest_files: FileSnapshot,
}

/// The state that program and manifest declare, without sources. A source that is listed later is
/// added to it.
#[derive(Default)]
pub(super) struct DeclaredState {
    pub(super) callers: Arc<Callers>,
    pub(super) calls: CallSettings,
    pub(super) tools: Vec<Tool>,
    pub(super) defaults: Defaults,
    /// The manifest had a file of pins.
    pub(super) has_pins: bool,
}

/// The outcome of the reloads so far.
#[derive(Debug, Clone, Default)]
pub struct ReloadStatus {
    /// Manifests that were accepted after the first.
    pub accepted: u64,
    /// Manifests that were refused.
    pub refused: u64,
    /// Why the current manifest file is not the one that is served. Short, and without contents of
    /// the file.
    pub refusal: Option<String>,
}

impl LiveTools {
    /// The registry, which holds the current catalog.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The outcome of the reloads so far; `None` without a manifest.
    pub fn reload_status(&self) -> Option<Arc<ReloadStatus>> {
        self.config
            .manifest
            .is_some()
            .then(|| self.reload_status.load_full())
    }

    /// Whether the start has ended. A source that is added later is not awaited by the readiness
    /// probe.
    pub(super) fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Relaxed)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.registry.shared().clock.now()
    }

    /// Removes control characters and secrets from a text of a source.
    pub(super) fn sanitize_text(&self, text: &str) -> String {
        self.registry.shared().redactor.clean_and_redact(text)
    }

    /// Logs the entries of the lists that match no tool, and those reported before that match a
    /// tool now. Does nothing until all sources have settled, because their tools are not known
    /// before.
    pub(super) fn check_tool_lists(&self) {
        if self
            .live_sources
            .load()
            .iter()
            .all(|source| source.is_settled())
        {
            self.tool_lists.lock().check(&self.registry.catalog());
        }
    }
}

/// The entries of the manifest's lists of tools, and which of them match no tool. They are checked
/// when all sources have settled, and again whenever the tools have changed.
#[derive(Default)]
pub(super) struct ToolLists {
    entries: Vec<ListEntry>,
    /// Indices of the entries that the log has reported as matching no tool.
    unmatched: HashSet<usize>,
}

impl ToolLists {
    pub(super) fn new(entries: Vec<ListEntry>) -> Self {
        Self {
            entries,
            unmatched: HashSet::new(),
        }
    }

    /// Logs the entries that match no tool, and those reported before that match a tool now.
    pub(super) fn check(&mut self, catalog: &Catalog) {
        let known = KnownTools::listed(catalog.entries().map(|entry| &entry.definition));
        let Self { entries, unmatched } = self;
        for (at, entry) in entries.iter().enumerate() {
            match entry.finding_for(&known) {
                Some(finding) if finding.severity == Severity::Warning && unmatched.insert(at) => {
                    tracing::warn!("{finding}");
                }
                Some(_) => {}
                None if unmatched.remove(&at) => tracing::info!("{entry} matches a tool now"),
                None => {}
            }
        }
    }
}

/// The values of these settings.
pub(super) struct StartupSettings {
    server: ServerSettings,
    listen: String,
    ledger: ledger::Settings,
    /// The key's digest of an empty text. It tells two keys apart without keeping one.
    digest_key: Option<Digest>,
    cache_bytes: u64,
    redis: Option<RedisAddress>,
    approvals: Option<ApprovalNotices>,
    telemetry: Option<telemetry::Settings>,
}

impl StartupSettings {
    pub(super) fn from_manifest(manifest: &Manifest) -> Self {
        Self {
            server: manifest.server.clone(),
            listen: manifest.listen.clone(),
            ledger: manifest.ledger.clone(),
            digest_key: manifest.digest_key.as_ref().map(|key| key.digest("")),
            cache_bytes: manifest.cache_bytes,
            redis: manifest.redis.clone(),
            approvals: manifest.approvals.clone(),
            telemetry: manifest.telemetry.clone(),
        }
    }

    /// Keys whose values differ in `newer`. Skips a setting that was given outside the manifest,
    /// because the manifest cannot change it.
    pub(super) fn changed_keys(&self, newer: &Self, config: &ServiceConfig) -> Vec<&'static str> {
        let ServerSettings {
            max_body,
            max_in_flight,
            max_connections,
            linger,
            drain,
            allowed_hosts,
            allowed_origins,
            allow_open,
            public_url,
            requires_sandbox,
            serves_toolbox,
        } = &self.server;
        let ledger::Settings {
            url,
            base,
            durability,
            when_down,
            retention,
            max_bytes,
            accept_loss: _,
        } = &self.ledger;
        let new = &newer.server;
        let keys = [
            (
                "server.listen",
                config.listen.is_none() && self.listen != newer.listen,
            ),
            ("server.max_body", *max_body != new.max_body),
            ("server.max_in_flight", *max_in_flight != new.max_in_flight),
            (
                "server.max_connections",
                *max_connections != new.max_connections,
            ),
            ("server.linger", *linger != new.linger),
            ("server.drain", *drain != new.drain),
            ("server.allowed_hosts", *allowed_hosts != new.allowed_hosts),
            (
                "server.allowed_origins",
                *allowed_origins != new.allowed_origins,
            ),
            ("server.allow_open", *allow_open != new.allow_open),
            ("server.public_url", *public_url != new.public_url),
            ("server.sandbox", *requires_sandbox != new.requires_sandbox),
            ("compat.toolbox", *serves_toolbox != new.serves_toolbox),
            (
                "ledger.url",
                !config.has_ledger_override
                    && (url, base) != (&newer.ledger.url, &newer.ledger.base),
            ),
            ("ledger.durability", *durability != newer.ledger.durability),
            ("ledger.when_down", *when_down != newer.ledger.when_down),
            ("ledger.retention", *retention != newer.ledger.retention),
            ("ledger.max_bytes", *max_bytes != newer.ledger.max_bytes),
            ("ledger.digest_key", self.digest_key != newer.digest_key),
            ("cache.max_bytes", self.cache_bytes != newer.cache_bytes),
            ("cache.redis", self.redis != newer.redis),
            ("approvals", self.approvals != newer.approvals),
            ("telemetry", self.telemetry != newer.telemetry),
        ];
        keys.into_iter()
            .filter(|(_, changed)| *changed)
            .map(|(key, _)| key)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_keys_skip_overridden_settings() {
        let start = StartupSettings::from_manifest(&Manifest::default());
        let mut later = Manifest {
            listen: "127.0.0.1:1".into(),
            cache_bytes: 7,
            ..Manifest::default()
        };
        later.ledger.url = "sqlite://other.db".into();
        later.server.allowed_hosts.push("crib".into());
        let later = StartupSettings::from_manifest(&later);
        let keys = [
            "server.listen",
            "server.allowed_hosts",
            "ledger.url",
            "cache.max_bytes",
        ];
        assert_eq!(start.changed_keys(&later, &ServiceConfig::default()), keys);
        let given = ServiceConfig {
            listen: Some("127.0.0.1:2".into()),
            has_ledger_override: true,
            ..ServiceConfig::default()
        };
        assert_eq!(start.changed_keys(&later, &given), [keys[1], keys[3]]);
        assert_eq!(later.changed_keys(&later, &given), [""; 0]);
    }
}
