//! Reads `callers:`, and finds keys that are useless or easy to guess.

use std::collections::BTreeSet;
use std::path::Path;

use super::decode::{Findings, join};
use super::node::{Data, Node};
use super::references::{References, Source};
use super::rule::Rule;
use super::sections::Caller;
use super::tool_lists::{List, ListEntry};
use crate::callers::{CallerSettings, hash_key};

/// Keys are stored as a fast hash (`crate::callers`), so only their length protects them from guessing: 16 characters
/// of base64 are 96 bits.
const SHORTEST_KEY: usize = 16;
/// The longest blank text whose hash is recognized. Such a hash results from a variable that is not set.
const LONGEST_BLANK: u32 = 3;
const NO_KEY: &str = "one of key (not empty) and key_sha256 (64 hex digits) is needed";
/// Keys of examples that people forget to replace: parts of these texts, once or repeated, ignoring case.
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
pub(super) fn read(
    root: &Node,
    base: &Path,
    source: &dyn Source,
    secrets: &mut BTreeSet<String>,
    findings: &mut Findings,
) -> (Vec<CallerSettings>, Vec<ListEntry>) {
    let Some(node) = root.get("callers") else { return (Vec::new(), Vec::new()) };
    let Data::List(items) = &node.data else {
        findings.error(node, &[], "callers", "a list of callers is expected here");
        return (Vec::new(), Vec::new());
    };
    let (mut callers, mut entries) = (Vec::<CallerSettings>::new(), Vec::new());
    for (at, written) in items.iter().enumerate() {
        let under = join("callers", &[at.to_string()]);
        let mut item = written.clone();
        let before = findings.0.len();
        let mut references = References::new(source, base, std::mem::take(secrets));
        references.resolve(&mut item, &under, findings);
        *secrets = references.secrets;
        let Some(said) = findings.decode::<Caller>(&item, &under) else { continue };
        // A reference without a value was already reported, and its text is still in place of the key.
        let is_whole = findings.0.len() == before;
        let Some(key_sha256) = key(&said, is_whole, &item, &under, secrets, findings) else { continue };
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
        if said.name.is_empty() || said.name.len() > 128 || !said.name.chars().all(plain) {
            let message = "a caller's name has 1 to 128 characters of A-Z a-z 0-9 _ - . @";
            findings.error(&item, &["name".into()], &under, message);
        }
        if said.name == crate::call::Caller::ANONYMOUS {
            let message = "this name stands for callers without a key: choose another";
            findings.error(&item, &["name".into()], &under, message);
        }
        if callers.iter().any(|other| other.name == said.name) {
            let message = "this name is there twice: names are unique";
            findings.error_of(Rule::DuplicateName, &item, &["name".into()], &under, message);
        }
        if callers.iter().any(|other| other.key_sha256 == key_sha256) {
            findings.error(&item, &["key".into()], &under, "another caller has the same key");
        }
        for (list, name, texts) in
            [(List::Allow, "allow", said.allow.as_deref().unwrap_or_default()), (List::Deny, "deny", &said.deny)]
        {
            let Some(Node { data: Data::List(nodes), .. }) = written.get(name) else { continue };
            entries.extend(nodes.iter().zip(texts).enumerate().map(|(at, (node, text))| {
                ListEntry::new(list, node, join(&under, &[name.to_owned(), at.to_string()]), text)
            }));
        }
        callers.push(CallerSettings {
            name: said.name,
            key_sha256,
            allow: said.allow,
            deny: said.deny,
            limits: said.limits,
            admin: said.admin,
            metrics: said.metrics,
        });
    }
    (callers, entries)
}

/// The hash of a caller's key. Faults of the key are added to the findings.
fn key(
    said: &Caller,
    is_whole: bool,
    item: &Node,
    under: &str,
    secrets: &mut BTreeSet<String>,
    findings: &mut Findings,
) -> Option<[u8; 32]> {
    let place = |name: &str| [name.to_owned()];
    match (&said.key, &said.key_sha256) {
        (Some(key), None) if !key.trim().is_empty() => {
            let plain = key.trim();
            secrets.extend([key.clone(), plain.to_owned()]);
            if plain.len() < key.len() {
                let message = "white space around a key is not part of it: leave it out";
                findings.warning(item, &place("key"), under, message);
            }
            if !plain.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                let message = "no request can bring this key: a header field holds printable ASCII characters only";
                findings.error(item, &place("key"), under, message);
                return None;
            }
            if let Some(why) = weakness(plain).filter(|_| is_whole) {
                warn_of_weak_key(item, "key", under, &why, findings);
            }
            Some(hash_key(plain))
        }
        (None, Some(text)) => {
            let hash = hex::decode(text.trim()).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            let Some(hash) = hash else {
                findings.error(item, &[], under, NO_KEY);
                return None;
            };
            if is_of_blank(&hash) {
                let message = "this is the hash of an empty text: the variable that it was made of was not set";
                findings.error(item, &place("key_sha256"), under, message);
                return None;
            }
            if PLACEHOLDERS.iter().any(|word| hash == hash_key(word) || hash == hash_key(&format!("{word}\n"))) {
                warn_of_weak_key(item, "key_sha256", under, "the key is a placeholder of examples", findings);
            }
            Some(hash)
        }
        _ => {
            findings.error(item, &[], under, NO_KEY);
            None
        }
    }
}

fn warn_of_weak_key(item: &Node, key: &str, under: &str, why: &str, findings: &mut Findings) {
    let message = format!("{why}, so it could be guessed; make one with `openssl rand -base64 32`");
    findings.warning_of(Rule::ShortKey, item, &[key.to_owned()], under, message);
}

/// Why a key is easy to guess. The text begins a sentence.
fn weakness(key: &str) -> Option<String> {
    let lower = key.to_ascii_lowercase();
    let mut chars = lower.chars();
    let first = chars.next();
    if chars.clone().next().is_some() && chars.all(|c| Some(c) == first) {
        return Some("one character repeated".into());
    }
    let is_made_of = |word: &str| {
        let rest: String = lower.replace(word, "").chars().filter(char::is_ascii_alphanumeric).collect();
        lower.contains(word) && rest.len() < 8 && rest.chars().all(|c| c.is_ascii_digit())
    };
    if PLACEHOLDERS.iter().any(|word| is_made_of(word)) {
        return Some("a placeholder of examples".into());
    }
    (key.chars().count() < SHORTEST_KEY).then(|| format!("shorter than {SHORTEST_KEY} characters"))
}

/// Whether it is the hash of a text that contains only white space.
fn is_of_blank(hash: &[u8; 32]) -> bool {
    let mut texts = vec![String::new()];
    for _ in 0..=LONGEST_BLANK {
        if texts.iter().any(|text| hash_key(text) == *hash) {
            return true;
        }
        texts = texts.iter().flat_map(|text| [' ', '\t', '\n', '\r', '\0'].map(|c| format!("{text}{c}"))).collect();
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

    impl Source for Text {
        fn env(&self, _: &str) -> Option<String> {
            None
        }

        fn file(&self, _: &Path) -> std::io::Result<String> {
            Ok(self.0.clone())
        }
    }

    /// The severity, path and message of each finding about the keys of one caller.
    fn of(keys: &str) -> Vec<String> {
        let text = format!("tools: {{calculator: {{kind: native}}}}\ncallers:\n  - {{name: a, {keys}}}\n");
        let mut found = check(Path::new("t.yaml"), &Text(text), &HashMap::new()).findings;
        found.retain(|found| found.severity <= Severity::Warning && found.rule != Rule::LiteralSecret);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hashes_of_blank_texts_are_refused() {
        for blank in ["", "\n", " ", "\r\n", "\t", " \n\n"] {
            let found = of(&format!("key_sha256: {}", hex::encode(hash_key(blank))));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("t.yaml:3:") && found[0].contains("hash of an empty text"), "{found:?}");
        }
        assert_eq!(of(&format!("key_sha256: {}", hex::encode(hash_key("a-key-0123456789abcdef")))), [""; 0]);
    }

    #[test]
    fn weak_keys_are_warned_of() {
        for (key, why) in [
            ("x", "shorter than 16"),
            ("hunter2hunter2", "shorter than 16"),
            ("aaaaaaaaaaaaaaaaaaaaaaaa", "one character"),
            ("changeme", "a placeholder"),
            ("ChangeMe-changeme-123456", "a placeholder"),
            ("secretsecretsecretsecret", "a placeholder"),
        ] {
            let found = of(&format!("key: '{key}'"));
            assert!(found.len() == 1 && found[0].contains("warning: callers.0.key: "), "{key}: {found:?}");
            assert!(found[0].contains(why) && found[0].ends_with("[short-key]"), "{key}: {found:?}");
        }
        assert_eq!(of("key: my-secret-garden-9f8e7d6c"), [""; 0], "a word among others is no placeholder");
        let hashed = of(&format!("key_sha256: {}", hex::encode(hash_key("changeme"))));
        assert!(hashed.len() == 1 && hashed[0].contains("warning: callers.0.key_sha256: "), "{hashed:?}");
    }

    #[test]
    fn keys_that_no_header_holds_are_errors() {
        for key in ["\"key-0123456789-\\u00e9abcdef\"", "\"key-0123456789\\nabcdef\"", "\"key-0123456789\\0abcdef\""] {
            let found = of(&format!("key: {key}"));
            assert!(found.len() == 1 && found[0].contains("no request can bring this key"), "{key}: {found:?}");
        }
        let blanks = of("key: ' a-key-0123456789abcdef '");
        assert!(blanks.len() == 1 && blanks[0].contains("warning: callers.0.key: white space"), "{blanks:?}");
        for empty in ["key: ''", "key: '  '", "key_sha256: ''", "key_sha256: abc"] {
            assert!(of(empty)[0].contains("one of key (not empty)"), "{empty}");
        }
    }
}
