//! Lint: names of hosts and files that never match anything.

use std::path::Path;

use super::{Lints, Located};
use crate::manifest::references::ManifestInput;
use crate::manifest::rule::Rule;

/// Checks `server.allowed_hosts`, `server.allowed_origins` and `include`. `base` is the manifest's
/// folder.
pub(super) fn check_addresses(
    root: &Located<'_>,
    base: &Path,
    input: &dyn ManifestInput,
    lints: &mut Lints,
) {
    let server = root.get("server");
    let listed = |key: &str| {
        server
            .as_ref()
            .map(|server| server.items(key))
            .unwrap_or_default()
    };
    for host in listed("allowed_hosts") {
        let text = host.text();
        let bare = text.split_once("://").map_or(text, |(_, rest)| rest);
        let bare = bare.split('/').next().unwrap_or_default();
        if bare != text.trim_end_matches('/') {
            let message =
                format!("matches no request: a Host has neither scheme nor path; write {bare}");
            lints.warn_of(Rule::MalformedHost, &host, message);
        } else if text.contains('*') {
            let message = "matches no request: patterns are not supported here; write each host";
            lints.warn_of(Rule::MalformedHost, &host, message);
        }
    }
    for origin in listed("allowed_origins") {
        let text = origin.text();
        let expected = match text.split_once("://") {
            Some((scheme, rest)) => {
                format!("{scheme}://{}", rest.split('/').next().unwrap_or_default())
            }
            None => format!("https://{text}"),
        };
        if text.contains('*') {
            let message = "matches no request: patterns are not supported here; write each origin";
            lints.warn_of(Rule::MalformedHost, &origin, message);
        } else if expected != text.trim_end_matches('/') && text != "null" {
            let message =
                format!("matches no request: an Origin is scheme, host and port; write {expected}");
            lints.warn_of(Rule::MalformedHost, &origin, message);
        }
    }
    for pattern in root.items("include") {
        // A plain name of a missing file is already an error.
        let text = pattern.text();
        let found = || input.matching_files(&base.join(text).to_string_lossy());
        if text.contains(['*', '?', '[']) && found().is_ok_and(|files| files.is_empty()) {
            let message = "matches no file; relative patterns start at this file's folder";
            lints.warn_of(Rule::IdleInclude, &pattern, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::finding_lines;

    #[test]
    fn malformed_hosts_and_origins_are_warnings() {
        let text = "server:\n  allowed_hosts: [toolcrib, 'crib:80', 'http://crib', '*.example', 'crib/x']\n  allowed_origins: \
                    ['https://a.example', 'https://a.example:8443/', a.example, 'https://a.example/app', 'null']\n";
        assert_eq!(
            finding_lines(text, &[]),
            [
                "warning malformed-host server.allowed_hosts.2 2",
                "warning malformed-host server.allowed_hosts.3 2",
                "warning malformed-host server.allowed_hosts.4 2",
                "warning malformed-host server.allowed_origins.2 3",
                "warning malformed-host server.allowed_origins.3 3",
            ]
        );
    }

    #[test]
    fn include_pattern_without_files_warns() {
        assert_eq!(
            finding_lines("include: ['no-such-folder/*.yaml']\n", &[]),
            ["warning idle-include include.0 1"]
        );
        assert_eq!(
            finding_lines("include: ['[']\n", &[]),
            ["error invalid include.0 1"]
        );
    }
}
