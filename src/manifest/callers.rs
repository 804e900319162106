//! Reads `callers:`, and finds keys that are useless or easy to guess.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::caller_references::is_credential_name;
use super::decode::{Findings, join_path};
use super::node::{Data, Node};
use super::references::{ManifestInput, References};
use super::rule::Rule;
use super::sections::Caller;
use super::tool_lists::{ListEntry, ListKind};
use crate::access::callers::{CallerSettings, hash_key};
use crate::call::CallerCredentials;

/// Keys are stored as a fast hash (`crate::access::callers`), so only their length protects them from
/// guessing: 16 characters of base64 are 96 bits.
const MIN_KEY_LENGTH: usize = 16;
/// The longest blank text whose hash is recognized. Such a hash results from a variable that is not
/// set.
const MAX_BLANK_LENGTH: u32 = 3;
const KEY_MISSING: &str = "one of key (not empty) and key_sha256 (64 hex digits) is needed";
/// Keys of examples that people forget to replace: parts of these texts, once or repeated, ignoring
/// case.
const PLACEHOLDERS: [&str; 16] = [
    "changeme",
    "change-me",
    "change_me",
    "secret",
    "password",
    "passwd",
    "example",
    "default",
    "test",
    "key",
    "apikey",
    "api-key",
    "token",
    "admin",
    "your-key-here",
    "placeholder",
];

/// The callers, and the entries of their lists.
pub(super) fn read_callers(
    root: &Node,
    base: &Path,
    input: &dyn ManifestInput,
    secrets: &mut BTreeSet<String>,
    findings: &mut Findings,
) -> (Vec<CallerSettings>, Vec<ListEntry>) {
    let Some(node) = root.get("callers") else {
        return (Vec::new(), Vec::new());
    };
    let Data::List(items) = &node.data else {
        let message =
            "a list of callers is expected here, e.g. `- {name: bot, key: \"${env:BOT_KEY}\"}`";
        findings.error(node, &[], "callers", message);
        return (Vec::new(), Vec::new());
    };
    let (mut callers, mut entries) = (Vec::<CallerSettings>::new(), Vec::new());
    for (at, unresolved) in items.iter().enumerate() {
        let entry_path = join_path("callers", &[at.to_string()]);
        let mut item = unresolved.clone();
        let before = findings.0.len();
        let mut references = References::new(input, base, std::mem::take(secrets));
        references.resolve(&mut item, &entry_path, findings);
        *secrets = references.secrets;
        let Some(caller) = findings.decode::<Caller>(&item, &entry_path) else {
            continue;
        };
        // A reference without a value was already reported, and its text is still in place of the
        // key.
        let is_resolved = findings.0.len() == before;
        let Some(key_sha256) =
            hash_caller_key(&caller, is_resolved, &item, &entry_path, secrets, findings)
        else {
            continue;
        };
        if let Some(message) = check_caller_name(&caller.name) {
            findings.error(&item, &["name".into()], &entry_path, message);
        }
        if callers.iter().any(|other| other.name == caller.name) {
            let message = "this name is used twice: names must be unique";
            findings.error_with_rule(
                Rule::DuplicateName,
                &item,
                &["name".into()],
                &entry_path,
                message,
            );
        }
        if callers.iter().any(|other| other.key_sha256 == key_sha256) {
            findings.error(
                &item,
                &["key".into()],
                &entry_path,
                "another caller has the same key",
            );
        }
        check_credentials(&caller.credentials, &item, &entry_path, findings);
        secrets.extend(caller.credentials.values().cloned());
        for (list, name, texts) in [
            (
                ListKind::Allow,
                "allow",
                caller.allow.as_deref().unwrap_or_default(),
            ),
            (ListKind::Deny, "deny", &caller.deny),
        ] {
            let Some(Node {
                data: Data::List(nodes),
                ..
            }) = unresolved.get(name)
            else {
                continue;
            };
            entries.extend(
                nodes
                    .iter()
                    .zip(texts)
                    .enumerate()
                    .map(|(at, (node, text))| {
                        ListEntry::new(
                            list,
                            node,
                            join_path(&entry_path, &[name.to_owned(), at.to_string()]),
                            text,
                        )
                    }),
            );
        }
        callers.push(CallerSettings {
            name: caller.name,
            key_sha256,
            allow: caller.allow,
            deny: caller.deny,
            limits: caller.limits,
            admin: caller.admin,
            metrics: caller.metrics,
            credentials: CallerCredentials::new(caller.credentials),
        });
    }
    (callers, entries)
}

/// Reports credentials that no reference can name or no request can send. A message never shows the
/// value.
fn check_credentials(
    credentials: &BTreeMap<String, String>,
    item: &Node,
    entry_path: &str,
    findings: &mut Findings,
) {
    for (name, value) in credentials {
        let message = if !is_credential_name(name) {
            "a credential's name has 1 to 64 characters of A-Z a-z 0-9 _ - ."
        } else if value.is_empty() {
            "the credential is empty: leave it out, or give it a value"
        } else if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            "no request can send this credential: it is one line of printable ASCII characters"
        } else {
            continue;
        };
        findings.error(
            item,
            &["credentials".into(), name.clone()],
            entry_path,
            message,
        );
    }
}

/// Why a caller cannot have this name; `None` if it can.
pub fn check_caller_name(name: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
    if name.is_empty() || name.len() > 128 || !name.chars().all(plain) {
        return Some("a caller's name has 1 to 128 characters of A-Z a-z 0-9 _ - . @");
    }
    (name == crate::call::Caller::ANONYMOUS)
        .then_some("this name stands for callers without a key: choose another")
}

/// The hash of a caller's key. Faults of the key are added to the findings.
fn hash_caller_key(
    caller: &Caller,
    is_resolved: bool,
    item: &Node,
    entry_path: &str,
    secrets: &mut BTreeSet<String>,
    findings: &mut Findings,
) -> Option<[u8; 32]> {
    let path_of = |name: &str| [name.to_owned()];
    match (&caller.key, &caller.key_sha256) {
        (Some(key), None) if !key.trim().is_empty() => {
            let plain = key.trim();
            secrets.extend([key.clone(), plain.to_owned()]);
            if plain.len() < key.len() {
                let message = "white space around a key is not part of it: leave it out";
                findings.warning(item, &path_of("key"), entry_path, message);
            }
            if !plain.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                let message = "no request can send this key: a header field has only printable ASCII characters";
                findings.error(item, &path_of("key"), entry_path, message);
                return None;
            }
            if let Some(weakness) = key_weakness(plain).filter(|_| is_resolved) {
                warn_weak_key(item, "key", entry_path, &weakness, findings);
            }
            Some(hash_key(plain))
        }
        (None, Some(text)) => {
            let hash = hex::decode(text.trim())
                .ok()
                .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            let Some(hash) = hash else {
                findings.error(item, &path_of("key_sha256"), entry_path, KEY_MISSING);
                return None;
            };
            if is_blank_hash(&hash) {
                let message = "this is the hash of an empty text: its variable was not set when the hash was made";
                findings.error(item, &path_of("key_sha256"), entry_path, message);
                return None;
            }
            if PLACEHOLDERS
                .iter()
                .any(|word| hash == hash_key(word) || hash == hash_key(&format!("{word}\n")))
            {
                warn_weak_key(
                    item,
                    "key_sha256",
                    entry_path,
                    "the key is a placeholder of examples",
                    findings,
                );
            }
            Some(hash)
        }
        _ => {
            findings.error(item, &[], entry_path, KEY_MISSING);
            None
        }
    }
}

fn warn_weak_key(
    item: &Node,
    key: &str,
    entry_path: &str,
    weakness: &str,
    findings: &mut Findings,
) {
    let message =
        format!("{weakness}, so it could be guessed; make one with `openssl rand -base64 32`");
    findings.warning_with_rule(Rule::ShortKey, item, &[key.to_owned()], entry_path, message);
}

/// Why a key is easy to guess. The text begins a sentence.
fn key_weakness(key: &str) -> Option<String> {
    let lower = key.to_ascii_lowercase();
    let mut chars = lower.chars();
    let first = chars.next();
    if chars.clone().next().is_some() && chars.all(|c| Some(c) == first) {
        return Some("one character repeated".into());
    }
    let is_made_of = |word: &str| {
        let rest: String = lower
            .replace(word, "")
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        lower.contains(word) && rest.len() < 8 && rest.chars().all(|c| c.is_ascii_digit())
    };
    if PLACEHOLDERS.iter().any(|word| is_made_of(word)) {
        return Some("a placeholder of examples".into());
    }
    (key.chars().count() < MIN_KEY_LENGTH)
        .then(|| format!("shorter than {MIN_KEY_LENGTH} characters"))
}

/// Whether it is the hash of a text that contains only white space.
fn is_blank_hash(hash: &[u8; 32]) -> bool {
    let mut texts = vec![String::new()];
    for _ in 0..=MAX_BLANK_LENGTH {
        if texts.iter().any(|text| hash_key(text) == *hash) {
            return true;
        }
        texts = texts
            .iter()
            .flat_map(|text| [' ', '\t', '\n', '\r', '\0'].map(|c| format!("{text}{c}")))
            .collect();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use super::*;
    use crate::manifest::{Severity, check};

    struct Text(String);

    impl ManifestInput for Text {
        fn env_var(&self, _: &str) -> Option<String> {
            None
        }

        fn read_text(&self, _: &Path) -> std::io::Result<String> {
            Ok(self.0.clone())
        }
    }

    /// The severity, path and message of each finding about the keys of one caller.
    fn key_findings(keys: &str) -> Vec<String> {
        let text =
            format!("tools: {{calculator: {{kind: native}}}}\ncallers:\n  - {{name: a, {keys}}}\n");
        let mut found = check(Path::new("t.yaml"), &Text(text), &HashMap::new()).findings;
        found.retain(|found| {
            found.severity <= Severity::Warning && found.rule != Rule::LiteralSecret
        });
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hashes_of_blank_texts_are_refused() {
        for blank in ["", "\n", " ", "\r\n", "\t", " \n\n"] {
            let found = key_findings(&format!("key_sha256: {}", hex::encode(hash_key(blank))));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].starts_with("t.yaml:3:") && found[0].contains("hash of an empty text"),
                "{found:?}"
            );
        }
        assert_eq!(
            key_findings(&format!(
                "key_sha256: {}",
                hex::encode(hash_key("a-key-0123456789abcdef"))
            )),
            [""; 0]
        );
    }

    #[test]
    fn weak_keys_are_warnings() {
        for (key, reason) in [
            ("x", "shorter than 16"),
            ("hunter2hunter2", "shorter than 16"),
            ("aaaaaaaaaaaaaaaaaaaaaaaa", "one character"),
            ("changeme", "a placeholder"),
            ("ChangeMe-changeme-123456", "a placeholder"),
            ("secretsecretsecretsecret", "a placeholder"),
        ] {
            let found = key_findings(&format!("key: '{key}'"));
            assert!(
                found.len() == 1 && found[0].contains("warning: callers.0.key: "),
                "{key}: {found:?}"
            );
            assert!(
                found[0].contains(reason) && found[0].ends_with("[short-key]"),
                "{key}: {found:?}"
            );
        }
        assert_eq!(
            key_findings("key: my-secret-garden-9f8e7d6c"),
            [""; 0],
            "a word among others is no placeholder"
        );
        let hashed = key_findings(&format!(
            "key_sha256: {}",
            hex::encode(hash_key("changeme"))
        ));
        assert!(
            hashed.len() == 1 && hashed[0].contains("warning: callers.0.key_sha256: "),
            "{hashed:?}"
        );
    }

    #[test]
    fn keys_must_fit_a_header() {
        for key in [
            "\"key-0123456789-\\u00e9abcdef\"",
            "\"key-0123456789\\nabcdef\"",
            "\"key-0123456789\\0abcdef\"",
        ] {
            let found = key_findings(&format!("key: {key}"));
            assert!(
                found.len() == 1 && found[0].contains("no request can send this key"),
                "{key}: {found:?}"
            );
        }
        let blanks = key_findings("key: ' a-key-0123456789abcdef '");
        assert!(
            blanks.len() == 1 && blanks[0].contains("warning: callers.0.key: white space"),
            "{blanks:?}"
        );
        for empty in ["key: ''", "key: '  '", "key_sha256: ''", "key_sha256: abc"] {
            assert!(
                key_findings(empty)[0].contains("one of key (not empty)"),
                "{empty}"
            );
        }
    }
}
