//! Lint: secrets that are written in plain text, too short, or not used.

use std::path::Path;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{Lints, Located};
use crate::call::words;
use crate::ledger;
use crate::manifest::decode::Findings;
use crate::manifest::finding::join_path;
use crate::manifest::node::{Data, Node};
use crate::manifest::parsed::TOOL_SECTIONS;
use crate::manifest::references::{ManifestInput, PUBLIC_KEYS, References, Secrets};
use crate::manifest::rule::Rule;
use crate::secrets::MIN_SECRET_LENGTH;

/// The last word of a key whose value is a secret.
const SECRET_WORDS: [&str; 9] =
    words("authorization token secret password passwd pwd passphrase cookie apikey");
/// Prefixes of keys of well-known services.
const SECRET_PREFIXES: [&str; 12] =
    words("sk- sk_live_ ghp_ gho_ github_pat_ glpat- xoxb- xoxp- AKIA AIza hf_ npm_");
/// The shortest value that counts as a secret. Shorter values are flags and examples.
const MIN_LITERAL_LENGTH: usize = 8;

/// A text below a node, with the last key on its path.
struct FoundText<'a> {
    at: Located<'a>,
    key: &'a str,
    text: &'a str,
}

/// Every text of a value, except below its keys that `skip` selects.
fn collect_texts<'a>(entry: &Located<'a>, skip: &dyn Fn(&str) -> bool) -> Vec<FoundText<'a>> {
    let mut open = vec![(entry.clone(), "", true)];
    let mut found = Vec::new();
    while let Some((at, key, top)) = open.pop() {
        match &at.node.data {
            Data::Scalar(Value::String(text)) => found.push(FoundText { at, key, text }),
            Data::Scalar(_) => {}
            Data::List(items) => {
                for (number, node) in items.iter().enumerate() {
                    let path = join_path(&at.path, &[number.to_string()]);
                    open.push((Located { node, path }, key, false));
                }
            }
            Data::Map(_) => {
                let entries = at.entries().filter(|(key, _)| !(top && skip(&key.text)));
                open.extend(entries.map(|(key, value)| (value, key.text.as_str(), false)));
            }
        }
    }
    found
}

/// Finds texts in a tool's entry that look like secrets. Keys that callers see are skipped, because
/// a reference is not allowed there.
pub(super) fn check_literals(entry: &Located<'_>, lints: &mut Lints) {
    let skip = |key: &str| PUBLIC_KEYS.contains(&key) || key == "env";
    report_literals(collect_texts(entry, &skip), lints);
}

/// Does the same for some settings of a source, or of the manifest itself.
pub(super) fn check_settings_literals(entry: &Located<'_>, settings: &[&str], lints: &mut Lints) {
    let skip = |key: &str| !settings.contains(&key);
    report_literals(collect_texts(entry, &skip), lints);
}

fn report_literals(texts: Vec<FoundText<'_>>, lints: &mut Lints) {
    let is_secret = |text: &FoundText<'_>| looks_like_secret(text.key, text.text);
    for FoundText { at, .. } in texts.into_iter().filter(is_secret) {
        let message = "a secret in plain text, readable for everyone with this file; put it into a variable and \
                       write ${env:NAME}";
        lints.warn_of(Rule::LiteralSecret, &at, message);
    }
}

/// Parses a URL. Of a database with several hosts, only the first host is kept.
fn parse_url(text: &str) -> Option<url::Url> {
    let first = ledger::split_hosts(text).into_iter().next()?;
    url::Url::parse(&first).ok()
}

/// Whether a text below this key looks like a secret in plain text.
pub(crate) fn looks_like_secret(key: &str, text: &str) -> bool {
    if text.contains("://")
        && let Some(url) = parse_url(text)
    {
        let is_literal =
            |value: &str| !value.is_empty() && !value.contains("${") && !value.contains("{{");
        let in_query = url
            .query_pairs()
            .any(|(name, value)| looks_like_secret(&name, &value));
        return in_query
            || url.password().is_some_and(|password| {
                is_literal(&percent_decode_str(password).decode_utf8_lossy())
            });
    }
    // A part that is a reference or an argument is not written in plain text.
    if text.contains("${") || text.contains("{{") {
        return false;
    }
    let value = ["Bearer ", "Basic ", "Token "]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .unwrap_or(text)
        .trim();
    if value.len() < MIN_LITERAL_LENGTH || value.contains(char::is_whitespace) {
        return false;
    }
    let is_path = value.contains("://") || value.starts_with(['/', '.', '~']);
    let mut prefixes = SECRET_PREFIXES.into_iter();
    let by_prefix = value.len() >= 16 && prefixes.any(|prefix| value.starts_with(prefix));
    let key = key.to_lowercase();
    let last = key.rsplit(['_', '-', '.', ' ']).next().unwrap_or_default();
    let is_word = SECRET_WORDS.contains(&last);
    let by_key = is_word || (last == "key" && looks_random(value));
    by_prefix || (by_key && !is_path)
}

/// Whether letters and digits are mixed, which does not occur in words.
fn looks_random(value: &str) -> bool {
    value.len() >= 16
        && value.contains(|c: char| c.is_ascii_digit())
        && value.contains(|c: char| c.is_alphabetic())
}

/// Finds references whose values are too short to be removed from the output of tools.
///
/// Sections that declare tools are skipped at the top level. Each of their entries is checked
/// separately, because relative paths start at its own file.
pub(super) fn check_short_values(
    entry: &Located<'_>,
    base: &Path,
    input: &dyn ManifestInput,
    lints: &mut Lints,
) {
    let skip = |key: &str| TOOL_SECTIONS.contains(&key) || PUBLIC_KEYS.contains(&key);
    for FoundText { at, text, .. } in collect_texts(entry, &skip) {
        for reference in find_references(text) {
            let value = match reference.split_once(':') {
                Some(("env", name)) => input.env_var(name),
                Some(("file", path)) => input.read_text(&base.join(path)).ok(),
                _ => None,
            };
            if value.is_some_and(|value| value.trim().len() < MIN_SECRET_LENGTH) {
                let message = format!(
                    "the value of ${{{reference}}} is shorter than {MIN_SECRET_LENGTH} characters, too short to be \
                     removed from results; if it is a secret, use a longer one"
                );
                let path = at.path.clone();
                lints.hint(Rule::ShortSecret, &at.node.location, path, message);
            }
        }
    }
}

/// The text with its references replaced. `None` if a value is missing.
pub(super) fn resolve_text(node: &Node, base: &Path, input: &dyn ManifestInput) -> Option<String> {
    let mut node = node.clone();
    let (secrets, ignored) = (Secrets::default(), Findings::default());
    References::new(input, base, &secrets, &ignored).resolve(&mut node, "");
    match node.data {
        Data::Scalar(Value::String(text)) if ignored.len() == 0 => Some(text),
        _ => None,
    }
}

/// The texts between `${` and `}`. `$${` is a literal.
fn find_references(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let literal = rest[..at].ends_with('$');
        rest = &rest[at + 2..];
        if let Some((inside, tail)) = rest.split_once('}').filter(|_| !literal) {
            found.push(inside);
            rest = tail;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_text, finding_lines, tool_findings};
    use super::{find_references, looks_like_secret};

    #[test]
    fn secrets_are_recognized() {
        for (key, text) in [
            ("authorization", "Bearer abcdef123456"),
            ("x-api-key", "0123456789abcdef0"),
            ("DB_PASSWORD", "correct-horse"),
            ("comment", "ghp_0123456789abcdef"),
            ("password", "user:correct-horse"),
            ("url", "postgres://crib:hunter2@db.example/crib"),
            ("url", "postgres://crib:hunter2@db1:5432,db2:5432/crib"),
            ("url", "https://api.example/{{ city }}?token=0123456789"),
        ] {
            assert!(looks_like_secret(key, text), "{key}: {text}");
        }
        for (key, text) in [
            ("authorization", "Bearer ${env:KEY}"),
            ("token", "{{ token }}"),
            ("TOKEN_FILE", "/run/secrets/token"),
            ("token", "/run/secrets/token"),
            ("sort_key", "created_at"),
            ("partition_key", "customer-and-region"),
            ("max_tokens", "4096000000"),
            ("password", "none"),
            (
                "url",
                "https://api.example.com/v1/auth?token={{ token }}&sort_key=name-and-date",
            ),
            ("url", "postgres://crib:${env:PASSWORD}@db.example/crib"),
            ("text", "a long sentence about tokens and passwords"),
        ] {
            assert!(!looks_like_secret(key, text), "{key}: {text}");
        }
    }

    #[test]
    fn literal_secrets_are_reported_unquoted() {
        let text = "    environment: {API_TOKEN: tok-123456789}\n";
        assert_eq!(
            tool_findings(text),
            ["warning literal-secret environment.API_TOKEN 6"]
        );
        let manifest = format!("tools:\n  t:\n    kind: command\n    command: [/bin/true]\n{text}");
        assert!(
            check_text(&manifest, &[])
                .findings
                .iter()
                .all(|finding| !finding.message.contains("tok-"))
        );
        assert_eq!(tool_findings("    environment: {LANG: C.UTF-8}\n"), [""; 0]);
        let ledger = "ledger: {url: 'sqlite://a:secretword@x'}\n";
        assert_eq!(
            finding_lines(ledger, &[]),
            ["warning literal-secret ledger.url 1"]
        );
    }

    #[test]
    fn short_secrets_are_hints() {
        let text = "tools:\n  t:\n    kind: command\n    command: [/bin/true]\n    description: Counts rows of customers.\n    \
                    environment: {A: \"${env:A}\", B: \"$${env:A}\"}\n";
        assert_eq!(
            finding_lines(text, &[("A", "short")]),
            ["hint short-secret tools.t.environment.A 6"]
        );
        assert_eq!(finding_lines(text, &[("A", "long enough")]), [""; 0]);
        assert_eq!(
            finding_lines(text, &[]),
            ["error missing-secret tools.t.environment.A 6"]
        );
    }

    #[test]
    fn find_references_skips_literals() {
        assert_eq!(
            find_references("a ${env:A} $${env:B} ${file:/c}"),
            ["env:A", "file:/c"]
        );
        assert_eq!(find_references("${open"), [""; 0]);
    }
}
