//! Checks `ledger:` of a manifest.

use super::decode::Entry;
use super::sections::Ledger;
use crate::call::DigestKey;
use crate::ledger;

/// Reports settings of the ledger that cannot be used.
pub(super) fn check_ledger(root: Entry<'_>, section: &Ledger) {
    let error = |key: &str, message: String| root.error(&["ledger", key], message);
    let is_weak = |secret: &str| DigestKey::from_secret(secret).is_none();
    if section.digest_key.as_deref().is_some_and(is_weak) {
        let message = "a key that cannot be guessed is needed: 16 bytes or more";
        error("digest_key", message.into());
    }
    if let Some(url) = section.url.as_deref() {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        let others = scheme.filter(|one| !["sqlite", "postgres", "postgresql"].contains(one));
        if ledger::is_in_memory_url(url) {
            let message =
                "there is no ledger in memory: name a file, sqlite://FILE, or leave the key out";
            error("url", message.into());
        } else if let Some(scheme) = others {
            let message = format!(
                "there is no ledger of this kind, `{scheme}`: write sqlite://FILE or postgres://USER@HOST/DATABASE"
            );
            error("url", message);
        } else if let Err(ledger::Error::InvalidUrl { reason, .. }) = ledger::check_url(url) {
            error("url", reason);
        }
    }
    if section.retention.is_some_and(|keep| keep.0.is_zero()) {
        let message = "at least some time is needed: leave it out to keep all";
        error("retention", message.into());
    }
    if let Some(size) = section.max_bytes {
        if size.0 < ledger::MIN_SIZE_BOUND {
            let smallest = bytesize::ByteSize(ledger::MIN_SIZE_BOUND);
            let message = format!("at least {smallest} is needed: leave it out for no bound");
            error("max_bytes", message);
        }
        if section.url.as_deref().is_some_and(ledger::is_shared_url) {
            let message = "a bound is only for a file: leave it out, and set `retention`";
            error("max_bytes", message.into());
        }
    }
}
