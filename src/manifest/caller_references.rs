//! `${caller:NAME}`: references to a credential of the caller of each call.

use std::collections::BTreeSet;

use super::reference_context::EntryKind;
use crate::access::callers::CallerSettings;
use crate::kinds::literal;
use crate::text::suggest;

/// Whether the name can be the name of a credential.
pub(super) fn is_credential_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// The text that stands for `${caller:NAME}` at `path` of an entry from now on.
///
/// # Errors
/// A sentence: a reference cannot stand there, or no caller has the credential.
pub(super) fn resolve(
    name: &str,
    entry_kind: EntryKind,
    path: &str,
    callers: &[CallerSettings],
) -> Result<String, String> {
    if !entry_kind.takes_caller_credentials(path) {
        return Err(format!(
            "`${{caller:{name}}}` cannot stand here: only in headers, query and URL of an http tool, an entry of \
             `openapi:`, or an MCP server with a `url`"
        ));
    }
    if callers.is_empty() {
        return Err(format!(
            "`${{caller:{name}}}` needs `callers:`, and this manifest has none: declare callers with `credentials: \
             {{{name}: …}}`"
        ));
    }
    let known = callers.iter().flat_map(|caller| caller.credentials.names());
    let known: BTreeSet<&str> = known.collect();
    if known.contains(name) {
        return Ok(literal::caller_reference(name));
    }
    let advice = match suggest::near_name(name, known) {
        Some(near) => format!(", did you mean `{near}`?"),
        None => format!(": write `credentials: {{{name}: …}}` in entries of `callers:`"),
    };
    Err(format!("no caller has a credential `{name}`{advice}"))
}

#[cfg(test)]
mod tests {
    use crate::manifest::testing::load_text;

    const CALLERS: &str =
        "callers: [{name: ann, key: ann-0123456789abcdef, credentials: {TOKEN: '${env:KEY}'}}]\n";

    fn errors(text: &str) -> Vec<String> {
        load_text(text).err().unwrap_or_default()
    }

    fn http(request: &str, more: &str) -> String {
        format!(
            "tools: {{t: {{kind: http, description: d, effect: read{more}, request: {{{request}}}}}}}\n"
        )
    }

    #[test]
    fn references_stand_in_headers_query_and_url() {
        let request = "url: 'https://a.example/${caller:TOKEN}', query: {q: '${caller:TOKEN}'}, headers: {x: 'Bearer ${caller:TOKEN}'}";
        let text = format!("{CALLERS}{}", http(request, ""));
        let tool = load_text(&text).unwrap().tools.remove(0);
        assert_eq!(tool.runner.caller_credentials(), ["TOKEN"]);
        let source = "openapi: {a: {document: 'https://x.example/a', base_url: 'https://x.example/${caller:TOKEN}', headers: {x: '${caller:TOKEN}'}}}\n";
        assert_eq!(errors(&format!("{CALLERS}{source}")), [""; 0]);
        let server =
            "mcp_servers: {s: {url: 'https://x.example/mcp', headers: {x: '${caller:TOKEN}'}}}\n";
        assert_eq!(errors(&format!("{CALLERS}{server}")), [""; 0]);
    }

    #[test]
    fn misplaced_references_are_errors() {
        let headers = |value: &str| {
            http(
                &format!("url: 'https://a.example/', headers: {{x: '{value}'}}"),
                "",
            )
        };
        for (text, expected) in [
            (
                headers("${caller:TOKEN}"),
                "`${caller:TOKEN}` needs `callers:`, and this manifest has none",
            ),
            (
                format!("{CALLERS}{}", headers("${caller:TOKN}")),
                "no caller has a credential `TOKN`, did you mean `TOKEN`?",
            ),
            (
                format!(
                    "{CALLERS}{}",
                    http(
                        "url: 'https://a.example/', json: {a: '${caller:TOKEN}'}",
                        ""
                    )
                ),
                "tools.t.request.json.a: `${caller:TOKEN}` cannot stand here",
            ),
            (
                format!("{CALLERS}{}", http("url: 'https://${caller:TOKEN}/'", "")),
                "a placeholder in the host needs `allow_hosts`",
            ),
            (
                format!(
                    "{CALLERS}tools: {{t: {{kind: command, description: d, command: [/bin/echo, '${{caller:TOKEN}}']}}}}\n"
                ),
                "tools.t.command.1: `${caller:TOKEN}` cannot stand here",
            ),
            (
                format!(
                    "{CALLERS}{}",
                    http("url: 'https://a.example/'", ", tags: ['${caller:TOKEN}']")
                ),
                "tools.t.tags.0: callers can see this",
            ),
            (
                format!(
                    "{CALLERS}mcp_servers: {{s: {{command: [x], environment: {{A: '${{caller:TOKEN}}'}}}}}}\n"
                ),
                "mcp_servers.s.environment.A: `${caller:TOKEN}` cannot stand here",
            ),
            (
                format!(
                    "{CALLERS}mcp_servers: {{s: {{url: 'https://x.example/mcp', mode: persistent, headers: {{x: '${{caller:TOKEN}}'}}}}}}\n"
                ),
                "mcp_servers.s.mode: each call needs a connection of its own",
            ),
            (
                format!(
                    "{CALLERS}mcp_servers: {{s: {{url: 'https://x.example/${{caller:TOKEN}}/mcp'}}}}\n"
                ),
                "mcp_servers.s.url: the URL has a credential of the caller, so write `list_as`",
            ),
            (
                format!(
                    "{CALLERS}mcp_servers: {{s: {{url: 'https://${{caller:TOKEN}}/mcp', list_as: ann}}}}\n"
                ),
                "mcp_servers.s.url: ",
            ),
            (
                format!(
                    "{CALLERS}mcp_servers: {{s: {{url: 'https://x.example/mcp', list_as: anne, headers: {{x: '${{caller:TOKEN}}'}}}}}}\n"
                ),
                "mcp_servers.s.list_as: there is no caller `anne`, did you mean `ann`?",
            ),
        ] {
            let errors = errors(&text);
            assert!(
                errors.iter().any(|error| error.contains(expected)),
                "{text}: {errors:?}"
            );
        }
    }

    #[test]
    fn shared_results_are_errors() {
        let shared = "cache: {ttl: 1m, scope: shared}";
        let headers = "headers: {x: '${caller:TOKEN}'}";
        let tool = http(
            &format!("url: 'https://a.example/', {headers}"),
            &format!(", {shared}"),
        );
        assert!(
            errors(&format!("{CALLERS}{tool}"))[0]
                .contains("tools.t.cache.scope: each call sends its caller's own")
        );
        for (rules, expected) in [
            (
                format!("defaults: {{{shared}}}"),
                "openapi.a.defaults.cache.scope",
            ),
            (
                format!("tools: {{'get_*': {{{shared}}}}}"),
                "openapi.a.tools.get_*.cache.scope",
            ),
            (
                format!("tools: {{get: {{{shared}}}}}"),
                "openapi.a.tools.get.cache.scope",
            ),
        ] {
            let source = format!(
                "openapi: {{a: {{document: 'https://x.example/a', {headers}, {rules}}}}}\n"
            );
            let errors = errors(&format!("{CALLERS}{source}"));
            assert!(
                errors.iter().any(|error| error.contains(expected)),
                "{rules}: {errors:?}"
            );
        }
        let tool = http(&format!("url: 'https://a.example/', {headers}"), "");
        let text = format!("{CALLERS}defaults: {{effect: read, {shared}}}\n{tool}");
        let tool = load_text(&text).unwrap().tools.remove(0);
        assert_eq!(
            tool.policy.cache.unwrap().scope,
            crate::call::CacheScope::Caller,
            "defaults are for other tools too"
        );
    }
}
