//! `toolcrib check --no-secrets`: references whose values are absent, as in CI. A placeholder takes
//! the place of each value, so that everything around it is still checked. Findings about the
//! placeholder itself are dropped.

use super::finding::{Finding, Severity};
use super::node::Node;
use super::rule::Rule;

/// The value of a reference without a value: long enough for a key, valid in a URL, and the same
/// for the same name.
pub(super) fn placeholder(name: &str, is_whole_url: bool) -> String {
    let name: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    let name = name.trim_matches('-');
    // Names below `invalid` never resolve (RFC 2606).
    if is_whole_url {
        format!("https://value-of-{name}.invalid")
    } else {
        format!("value-of-{name}-is-not-set")
    }
}

/// Checks the name of a variable whose value is not known.
///
/// # Errors
/// A sentence: no variable can have this name.
pub(super) fn check_variable_name(name: &str) -> Result<(), String> {
    let is_name = !name.is_empty()
        && !name.contains(|c: char| c == '=' || c.is_whitespace() || c.is_control());
    if is_name {
        Ok(())
    } else {
        Err(format!("`{name}` is no name of an environment variable"))
    }
}

/// The finding that a value was not checked.
pub(super) fn unchecked_value(node: &Node, path: &str, what: &str) -> Finding {
    let message = format!("{what}, so its value is not checked");
    let finding =
        Finding::warning(node.location.clone(), path, message).with_rule(Rule::MissingSecret);
    Finding {
        severity: Severity::Hint,
        ..finding
    }
}

/// Drops the other findings at and below texts whose values are not known.
pub(super) fn drop_findings_about_placeholders(findings: &mut Vec<Finding>) {
    let is_unchecked = |finding: &Finding| {
        finding.severity == Severity::Hint && finding.rule == Rule::MissingSecret
    };
    let paths: Vec<String> = findings
        .iter()
        .filter(|one| is_unchecked(one))
        .map(|one| one.path.clone())
        .collect();
    let is_at = |finding: &Finding, path: &str| {
        finding
            .path
            .strip_prefix(path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    findings
        .retain(|finding| is_unchecked(finding) || !paths.iter().any(|path| is_at(finding, path)));
}

#[cfg(test)]
mod tests {
    use super::super::testing::check_without_secrets;

    const EVERYWHERE: &str = "\
server: {listen: '${env:A_LISTEN}', allowed_hosts: ['${env:A_HOST}'], drain: '${env:A_DRAIN}', public_url: '${env:A_PUBLIC}'}
approvals: {notify: [{url: 'https://c.test', secret: '${env:A_HOOK}'}]}
ledger: {url: '${env:A_LEDGER}', digest_key: '${file:/none/digest}', retention: '${env:A_RETENTION}'}
callers:
  - {name: a, key: '${env:A_KEY}', credentials: {shop: '${env:A_CREDENTIAL}'}}
  - {name: b, key: '${file:/none/key}', admin: true}
  - {name: c, key_sha256: '${env:A_HASH}'}
defaults: {timeout: '${env:A_TIMEOUT}'}
tools:
  h:
    kind: http
    description: Reads an order of the shop by its number.
    env: [{name: A_DECLARED, description: d}]
    request: {url: '${env:A_BASE}/x/{{ id }}', headers: {authorization: 'Bearer ${env:A_DECLARED}'}, query: {k: '${env:A_QUERY}'}}
    parameters: {id: {type: string, description: Number of the order}}
    effect: read
    cache: {ttl: 1m}
  c:
    kind: command
    description: Prints what the program knows about the order.
    command: ['${env:A_PROGRAM}', '--key=${env:A_ARGUMENT}']
    environment: {TOKEN: '${env:A_ENVIRONMENT}'}
    workdir: '${env:A_FOLDER}'
  p:
    kind: sql
    description: Reads all rows of the table of orders.
    database: '${env:A_DATABASE}'
    statement: select 1
    effect: read
  s:
    kind: sql
    description: Reads all rows of the table of stock.
    database: 'postgres://u:${env:A_PASSWORD}@db.invalid/x'
    statement: select 1
    effect: read
  g:
    kind: agent
    description: Answers a question with other tools.
    model: {base_url: '${env:A_MODEL_URL}', name: '${env:A_MODEL}', api_key: '${env:A_MODEL_KEY}'}
    prompt: Answer the question.
    tools: [h]
  o:
    kind: http
    description: Reads the stock of the shop by its number.
    request: {url: 'https://shop.example/x'}
    auth: {oauth: {token_url: '${env:A_TOKEN_URL}', client_id: '${env:A_CLIENT}', client_secret: '${env:A_CLIENT_SECRET}'}}
    effect: read
    cache: {ttl: 1m}
python_modules:
  m: {module: '${env:A_MODULE}', object: C, init: {key: '${env:A_INIT}'}}
mcp_servers:
  f: {command: ['${env:A_SERVER}'], environment: {K: '${env:A_SERVER_KEY}'}}
  u: {url: '${env:A_SERVER_URL}', headers: {authorization: '${env:A_HEADER}'}}
openapi:
  o: {document: '${env:A_DOCUMENT}', base_url: '${env:A_API}', headers: {x: '${env:A_API_KEY}'}}
";

    #[test]
    fn every_place_accepts_missing_values() {
        let found = check_without_secrets(EVERYWHERE);
        let is_expected =
            |line: &&String| !line.contains("hint: ") && !line.contains("[unpinned-server]");
        let others: Vec<&String> = found.iter().filter(is_expected).collect();
        assert!(others.is_empty(), "{others:#?}");
        let references = EVERYWHERE.matches("${").count();
        assert!(found.len() >= references, "each has a hint: {found:#?}");
    }

    #[test]
    fn other_faults_stay_errors() {
        let found = check_without_secrets(
            "tools:\n  t: {kind: http, description: Reads an order., request: {url: '${env:A}/x', query: {q: '{{ nope }}'}}}\n  \
             u: {kind: http, description: Reads an order., request: {url: 'https://a.example', headers: {x: '${env:B'}}}\n  \
             v: {kind: http, description: Reads an order., request: {url: 'https://a.example/${env:}', query: {q: '${file: }'}}}\n",
        );
        for expected in [
            "no parameter `nope`",
            "`${` without `}`",
            "`` is no name of an environment variable",
            "file  ",
        ] {
            assert!(
                found.iter().any(|line| line.contains(expected)),
                "{expected}: {found:#?}"
            );
        }
    }

    #[test]
    fn values_that_are_set_are_checked() {
        let found = check_without_secrets("ledger: {retention: '${env:KEY}'}\n");
        assert!(
            found.iter().any(|line| line.contains("ledger.retention")),
            "{found:#?}"
        );
    }
}
