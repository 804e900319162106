//! Checks `ledger:` of a manifest.

use super::decode::Findings;
use super::node::Node;
use super::sections::Ledger;
use crate::call::DigestKey;
use crate::ledger;

/// Reports settings of the ledger that cannot be used.
pub(super) fn check_ledger(root: &Node, section: &Ledger, findings: &mut Findings) {
    let key = |name: &str| ["ledger".to_owned(), name.to_owned()];
    if section
        .digest_key
        .as_deref()
        .is_some_and(|secret| DigestKey::from_secret(secret).is_none())
    {
        let message = "a key that cannot be guessed is needed: 16 bytes or more";
        findings.error(root, &key("digest_key"), "", message);
    }
    if section.url.as_deref().is_some_and(ledger::is_in_memory_url) {
        let message =
            "there is no ledger in memory: name a file, sqlite://FILE, or leave the key out";
        findings.error(root, &key("url"), "", message);
    } else if let Some((scheme, _)) = section.url.as_deref().and_then(|url| url.split_once("://"))
        && !["sqlite", "postgres", "postgresql"].contains(&scheme)
    {
        let message = format!(
            "there is no ledger of this kind, `{scheme}`: write sqlite://FILE or postgres://USER@HOST/DATABASE"
        );
        findings.error(root, &key("url"), "", message);
    } else if let Some(Err(ledger::Error::InvalidUrl { reason, .. })) =
        section.url.as_deref().map(ledger::check_url)
    {
        findings.error(root, &key("url"), "", reason);
    }
    if section.retention.is_some_and(|keep| keep.0.is_zero()) {
        findings.error(
            root,
            &key("retention"),
            "",
            "at least some time is needed: leave it out to keep all",
        );
    }
    if section
        .max_bytes
        .is_some_and(|size| size.0 < ledger::MIN_SIZE_BOUND)
    {
        let smallest = bytesize::ByteSize(ledger::MIN_SIZE_BOUND);
        let message = format!("at least {smallest} is needed: leave it out for no bound");
        findings.error(root, &key("max_bytes"), "", message);
    }
    if section.max_bytes.is_some() && section.url.as_deref().is_some_and(ledger::is_shared_url) {
        let message = "a bound is only for a file: leave it out, and set `retention`";
        findings.error(root, &key("max_bytes"), "", message);
    }
}
