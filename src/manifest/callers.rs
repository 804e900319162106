//! Reads `callers:`, and finds keys that are useless or easy to guess.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use super::caller_references::is_credential_name;
use super::decode::{Entry, Findings};
use super::finding::{Severity, join_path};
use super::node::{Data, Node};
use super::references::{ManifestInput, References, Secrets};
use super::rule::Rule;
use super::sections::Caller;
use super::tool_lists::{ListEntry, ListKind};
use crate::access::callers::{CallerSettings, hash_key};
use crate::call::CallerCredentials;
use crate::call::words;

/// Keys are stored as a fast hash (`crate::access::callers`), so only their length protects them from
/// guessing: 16 characters of base64 are 96 bits.
const MIN_KEY_LENGTH: usize = 16;
/// The longest blank text whose hash is recognized. Such a hash results from a variable that is not
/// set.
const MAX_BLANK_LENGTH: u32 = 3;
const KEY_MISSING: &str = "one of key (not empty) and key_sha256 (64 hex digits) is needed";
/// Keys of examples that people forget to replace: parts of these texts, once or repeated, ignoring
/// case.
const PLACEHOLDERS: [&str; 16] = words(
    "changeme change-me change_me secret password passwd example default test key apikey
     api-key token admin your-key-here placeholder",
);

/// The callers, and the entries of their lists.
pub(super) fn read_callers(
    root: &Node,
    base: &Path,
    input: &dyn ManifestInput,
    secrets: &Secrets,
    findings: &Findings,
) -> (Vec<CallerSettings>, Vec<ListEntry>) {
    let (mut callers, mut entries) = (Vec::new(), Vec::new());
    let (mut names, mut keys) = (HashSet::new(), HashSet::new());
    let Some(node) = root.get("callers") else {
        return (callers, entries);
    };
    if !matches!(node.data, Data::List(_)) {
        let message =
            "a list of callers is expected here, e.g. `- {name: bot, key: \"${env:BOT_KEY}\"}`";
        findings.entry(node, "callers").own_error(message);
    }
    for (at, unresolved) in node.items().iter().enumerate() {
        let path = join_path("callers", &[at.to_string()]);
        let mut item = unresolved.clone();
        let before = findings.len();
        References::new(input, base, secrets, findings).resolve(&mut item, &path);
        let entry = findings.entry(&item, &path);
        let Some(caller) = entry.decode::<Caller>() else {
            continue;
        };
        // A reference without a value was already reported, and its text is still in place of the
        // key.
        let is_resolved = findings.len() == before;
        let Some(key_sha256) = hash_caller_key(&caller, is_resolved, entry, secrets) else {
            continue;
        };
        if let Some(message) = check_caller_name(&caller.name) {
            entry.error(&["name"], message);
        }
        if !names.insert(caller.name.clone()) {
            let message = "this name is used twice: names must be unique";
            entry.report(Severity::Error, Rule::DuplicateName, &["name"], message);
        }
        if !keys.insert(key_sha256) {
            entry.error(&["key"], "another caller has the same key");
        }
        check_credentials(&caller.credentials, entry);
        secrets.extend(caller.credentials.values().cloned());
        if let Some(name) = &caller.toolset
            && let Some(message) = unknown_toolset(name, root.get("toolsets"))
        {
            entry.error(&["toolset"], message);
        }
        for (list, name, texts) in [
            (
                ListKind::Allow,
                "allow",
                caller.allow.as_deref().unwrap_or_default(),
            ),
            (ListKind::Deny, "deny", &caller.deny),
        ] {
            let nodes = unresolved.get(name).map(Node::items).unwrap_or_default();
            for (at, (node, text)) in nodes.iter().zip(texts).enumerate() {
                let path = join_path(&path, &[name, &at.to_string()]);
                entries.push(ListEntry::new(list, node, path, text));
            }
        }
        callers.push(CallerSettings {
            name: caller.name,
            key_sha256,
            allow: caller.allow,
            toolset: caller.toolset,
            deny: caller.deny,
            limits: caller.limits,
            admin: caller.admin,
            metrics: caller.metrics,
            credentials: CallerCredentials::new(caller.credentials),
        });
    }
    (callers, entries)
}

/// Why a caller cannot have this toolset.
fn unknown_toolset(name: &str, section: Option<&Node>) -> Option<String> {
    let sets = section.and_then(Node::entries).unwrap_or_default();
    let names: Vec<&str> = sets.iter().map(|(key, _)| key.text.as_str()).collect();
    (!names.contains(&name)).then(|| match names.is_empty() {
        true => format!("there is no toolset `{name}`: declare it in `toolsets`"),
        false => {
            let names = names.join(", ");
            format!("there is no toolset `{name}`: `toolsets` declares {names}")
        }
    })
}

/// Reports credentials that no reference can name or no request can send. A message never shows the
/// value.
fn check_credentials(credentials: &BTreeMap<String, String>, entry: Entry<'_>) {
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
        entry.error(&["credentials", name], message);
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

/// The hash of a caller's key. Faults of the key are reported.
fn hash_caller_key(
    caller: &Caller,
    is_resolved: bool,
    entry: Entry<'_>,
    secrets: &Secrets,
) -> Option<[u8; 32]> {
    match (&caller.key, &caller.key_sha256) {
        (Some(key), None) if !key.trim().is_empty() => {
            let plain = key.trim();
            secrets.extend([key.clone(), plain.to_owned()]);
            if plain.len() < key.len() {
                entry.warning(
                    &["key"],
                    "white space around a key is not part of it: leave it out",
                );
            }
            if !plain.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                let message = "no request can send this key: a header field has only printable ASCII characters";
                entry.error(&["key"], message);
                return None;
            }
            if let Some(weakness) = key_weakness(plain).filter(|_| is_resolved) {
                warn_weak_key(entry, "key", &weakness);
            }
            Some(hash_key(plain))
        }
        (None, Some(text)) => {
            let bytes = hex::decode(text.trim()).ok();
            let Some(hash) = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()) else {
                entry.error(&["key_sha256"], KEY_MISSING);
                return None;
            };
            if is_blank_hash(&hash) {
                let message = "this is the hash of an empty text: its variable was not set when the hash was made";
                entry.error(&["key_sha256"], message);
                return None;
            }
            let is_hash_of =
                |word: &&str| hash == hash_key(word) || hash == hash_key(&format!("{word}\n"));
            if PLACEHOLDERS.iter().any(is_hash_of) {
                warn_weak_key(entry, "key_sha256", "the key is a placeholder of examples");
            }
            Some(hash)
        }
        _ => {
            entry.own_error(KEY_MISSING);
            None
        }
    }
}

fn warn_weak_key(entry: Entry<'_>, key: &str, weakness: &str) {
    let message =
        format!("{weakness}, so it could be guessed; make one with `openssl rand -base64 32`");
    entry.report(Severity::Warning, Rule::ShortKey, &[key], message);
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
