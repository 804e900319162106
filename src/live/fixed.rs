//! Settings that change only at the next start, and a comparison that finds such changes.

use crate::call::Digest;
use crate::http::ServerSettings;
use crate::ledger;
use crate::live::Plan;
use crate::manifest::Manifest;

/// The values of these settings.
pub(super) struct Fixed {
    server: ServerSettings,
    listen: String,
    ledger: ledger::Settings,
    /// The key's digest of an empty text. It tells two keys apart without keeping one.
    digest_key: Option<Digest>,
    cache_bytes: u64,
}

impl Fixed {
    pub(super) fn of(manifest: &Manifest) -> Self {
        let Manifest { server, listen, ledger, digest_key, cache_bytes, .. } = manifest;
        Self {
            server: server.clone(),
            listen: listen.clone(),
            ledger: ledger.clone(),
            digest_key: digest_key.as_ref().map(|key| key.digest("")),
            cache_bytes: *cache_bytes,
        }
    }

    /// Keys whose values differ in `now`. Skips a setting that was given outside the manifest, because the manifest
    /// cannot change it.
    pub(super) fn changed(&self, now: &Self, plan: &Plan) -> Vec<&'static str> {
        let ServerSettings { max_body, max_in_flight, linger, drain, allowed_hosts, allowed_origins, allow_open } =
            &self.server;
        let ledger::Settings { url, base, durability, retention, max_bytes, accept_loss: _ } = &self.ledger;
        let keys = [
            ("server.listen", plan.listen.is_none() && self.listen != now.listen),
            ("server.max_body", *max_body != now.server.max_body),
            ("server.max_in_flight", *max_in_flight != now.server.max_in_flight),
            ("server.linger", *linger != now.server.linger),
            ("server.drain", *drain != now.server.drain),
            ("server.allowed_hosts", *allowed_hosts != now.server.allowed_hosts),
            ("server.allowed_origins", *allowed_origins != now.server.allowed_origins),
            ("server.allow_open", *allow_open != now.server.allow_open),
            ("ledger.url", !plan.ledger_given && (url, base) != (&now.ledger.url, &now.ledger.base)),
            ("ledger.durability", *durability != now.ledger.durability),
            ("ledger.retention", *retention != now.ledger.retention),
            ("ledger.max_bytes", *max_bytes != now.ledger.max_bytes),
            ("ledger.digest_key", self.digest_key != now.digest_key),
            ("cache.max_bytes", self.cache_bytes != now.cache_bytes),
        ];
        keys.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_outside_the_manifest_is_not_its_to_change() {
        let start = Fixed::of(&Manifest::default());
        let mut later = Manifest { listen: "127.0.0.1:1".into(), cache_bytes: 7, ..Manifest::default() };
        later.ledger.url = "sqlite://other.db".into();
        later.server.allowed_hosts.push("crib".into());
        let later = Fixed::of(&later);
        let keys = ["server.listen", "server.allowed_hosts", "ledger.url", "cache.max_bytes"];
        assert_eq!(start.changed(&later, &Plan::default()), keys);
        let given = Plan { listen: Some("127.0.0.1:2".into()), ledger_given: true, ..Plan::default() };
        assert_eq!(start.changed(&later, &given), [keys[1], keys[3]]);
        assert_eq!(later.changed(&later, &given), [""; 0]);
    }
}
