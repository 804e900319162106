//! Reads only the address of the ledger from a manifest, for commands that read the ledger without
//! the service. Faults elsewhere, and secrets of tools and callers that are not set, do not concern
//! them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::decode::Findings;
use super::file::{parent_folder, parse_file};
use super::finding::Finding;
use super::node::{Data, Node};
use super::references::{ManifestInput, References, Secrets};
use super::sections::Ledger;
use super::{DEFAULT_LEDGER, Manifest};
use crate::ledger;

/// The ledger of the manifest at `path`, with its file and the defaults of all other settings.
///
/// # Errors
/// The manifest cannot be read, or `ledger.url` refers to a value that is not set.
pub fn read_ledger_address(
    path: &Path,
    input: &dyn ManifestInput,
) -> Result<ledger::Settings, Vec<Finding>> {
    let findings = Findings::default();
    let Some(root) = parse_file(path, input, &findings) else {
        return Err(findings.into_list());
    };
    // Faults elsewhere do not concern the ledger.
    let findings = Findings::default();
    let plain = Manifest::default().ledger;
    let section = root.get("ledger");
    if let Some(section) = section.filter(|section| section.entries().is_none()) {
        let _: Option<Ledger> = findings.entry(section, "ledger").decode();
        return Err(findings.into_list());
    }
    let is_set = |url: &&Node| !matches!(url.data, Data::Scalar(Value::Null));
    let url = section.and_then(|section| section.get("url"));
    let Some(node) = url.filter(is_set) else {
        // The default file is in the working folder.
        return Ok(ledger::Settings {
            url: DEFAULT_LEDGER.into(),
            base: PathBuf::new(),
            ..plain
        });
    };
    let (mut node, base, secrets) = (node.clone(), parent_folder(path), Secrets::default());
    References::new(input, &base, &secrets, &findings).resolve(&mut node, "ledger.url");
    let url: Option<String> = findings.entry(&node, "ledger.url").decode();
    match url.filter(|_| !findings.has_error(0, |_| true)) {
        Some(url) => Ok(ledger::Settings { url, base, ..plain }),
        None => Err(findings.into_list()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{load_text, read_ledger};
    use super::*;

    #[test]
    fn other_secrets_are_not_needed() {
        let text = "ledger: {url: 'sqlite://${env:KEY}.db', digest_key: '${env:NOT_THERE}'}\n\
                    callers: [{name: a, key: '${env:NOT_THERE}'}]\ntools: {x: {kind: nonsense}}\n";
        assert_eq!(
            read_ledger(text),
            Ok(("sqlite://value-of-key.db".into(), "/etc/crib".into()))
        );
        for text in ["tools: {}\n", "ledger: {url: null}\n", "ledger:\n", ""] {
            let default = (DEFAULT_LEDGER.into(), PathBuf::new());
            assert_eq!(read_ledger(text), Ok(default), "{text}");
        }
    }

    #[test]
    fn unreadable_addresses_are_located_errors() {
        let found = read_ledger("ledger:\n  url: ${env:NOT_THERE}\n").unwrap_err();
        assert_eq!(
            found,
            ["2:8: ledger.url: environment variable NOT_THERE is not set"]
        );
        assert!(
            read_ledger("ledger: {url: [x]}").unwrap_err()[0].starts_with("1:15: ledger.url: ")
        );
        assert_eq!(read_ledger("ledger: [").unwrap_err().len(), 1);
        for text in ["[tools]\n", "ledger: 5\n", "ledger: []\n"] {
            let found = read_ledger(text).unwrap_err();
            assert_eq!(load_text(text).err(), Some(found), "{text}");
        }
    }
}
