//! Settings that change only at the next start, and a comparison that finds such changes.

use super::service_config::ServiceConfig;
use crate::approval::receivers::ApprovalNotices;
use crate::cache::RedisAddress;
use crate::call::Digest;
use crate::ledger;
use crate::manifest::{Manifest, ServerSettings};
use crate::telemetry;

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
