//! Reads the pins of MCP servers, and of OpenAPI documents at URLs, from the file beside the
//! manifest.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Manifest;
use super::decode::Findings;
use super::finding::{Finding, Location};
use super::node::Node;
use super::parsed::{MCP_SERVERS, OPENAPI};
use super::references::ManifestInput;
use super::rule::Rule;
use crate::call::ToolName;
use crate::call::json::parse_strict;
use crate::manifest::pins::{self, Pins, ServerPins};
use crate::sources::SourceSettings;
use crate::sources::ToolFilter;

/// Reads the pins of the manifest at `path`, if it has any. An unreadable file is an error: without
/// pins, a server could change its definitions at will.
pub(super) fn read_pins(
    path: &Path,
    input: &dyn ManifestInput,
    findings: &Findings,
) -> Option<Pins> {
    let file = pins::pins_path(path);
    let start = Location::start_of(file.as_path());
    let unreadable = |location: Location, message: String| {
        findings.push(Finding::error(location, "", message).with_rule(Rule::Unreadable));
    };
    if let Some(other) = manifest_with_same_pins(path, input) {
        let message = format!(
            "{} has servers too, and its pins would be in the same {}; give one of the manifests another name",
            other.display(),
            file.display()
        );
        findings.push(Finding::error(Location::start_of(path), "", message));
        return None;
    }
    let text = match input.read_text(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            unreadable(start, format!("cannot be read: {error}"));
            return None;
        }
    };
    if let Err(error) = parse_strict(text.as_bytes()) {
        let message =
            format!("not JSON: {error}; `toolcrib pin` writes this file: delete it and pin again");
        let at = Location {
            line: error.line().max(1),
            column: error.column().max(1),
            ..start
        };
        unreadable(at, message);
        return None;
    }
    let (node, faults) = Node::parse(&file, &text);
    findings.extend(faults);
    let node = node?;
    let entry = findings.entry(&node, "");
    match node.get("version").map(Node::to_json) {
        Some(version) if is_readable(&version) => return entry.decode(),
        Some(version) => {
            let newest = pins::FORMAT_VERSION;
            let message = format!(
                "pins of version {version}; this Toolcrib reads the versions up to {newest}"
            );
            entry.error(&["version"], message);
        }
        None => entry.own_error("version is missing: is this a file that `toolcrib pin` wrote?"),
    }
    None
}

fn is_readable(version: &serde_json::Value) -> bool {
    let version = version.as_u64();
    version.is_some_and(|version| pins::READABLE_VERSIONS.contains(&version))
}

/// Another manifest with servers whose pins would be in the same file.
fn manifest_with_same_pins(path: &Path, input: &dyn ManifestInput) -> Option<PathBuf> {
    let others = ["yaml", "yml", "json"].map(|extension| path.with_extension(extension));
    others
        .into_iter()
        .filter(|other| other != path && pins::pins_path(other) == pins::pins_path(path))
        .find(|other| {
            let text = input
                .is_file(other)
                .then(|| input.read_text(other).ok())
                .flatten();
            text.and_then(|text| Node::parse(other, &text).0)
                .is_some_and(|root| {
                    [MCP_SERVERS, OPENAPI]
                        .iter()
                        .any(|section| root.get(section).is_some())
                })
        })
}

/// Gives each server, and each document at a URL, its pins. The pinned tool names are thereby known
/// before the server is listed.
pub(super) fn apply_pins(manifest: &mut Manifest, pins: &Pins) {
    for declared in &mut manifest.sources {
        if !declared.settings.can_be_pinned() {
            continue;
        }
        let Some(server) = pins.servers.get(declared.name()) else {
            // The operator has pinned other servers, so this one must not be served without pins.
            declared.rules.pins = Some(Arc::new(ServerPins::for_missing_server(
                &declared.written_settings,
            )));
            continue;
        };
        let is_name =
            |own: &&String| ToolName::parse(&format!("{}{own}", declared.rules.prefix)).is_ok();
        let is_selected = |own: &&String| match &declared.settings {
            SourceSettings::Mcp(settings) => {
                ToolFilter::new(&settings.include, &settings.exclude).allows(own)
            }
            // The selectors of an API are about operations, and the pins have only names.
            _ => true,
        };
        let known = server.tools.keys().filter(is_selected).filter(is_name);
        declared.rules.expected_tools = known.cloned().collect();
        declared.rules.pins = Some(Arc::new(ServerPins::clone(server)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::manifest::{check, load};

    const MANIFEST: &str = "mcp_servers:\n  near:\n    command: [npx, server]\n    exclude: [\"x_*\"]\n    tools: {get_weather: {timeout: 3s}}\n  far: {url: \"https://e.example\"}\n";

    /// A manifest and the lock file beside it.
    struct Files(String, Option<String>);

    impl ManifestInput for Files {
        fn env_var(&self, _: &str) -> Option<String> {
            None
        }

        fn read_text(&self, path: &Path) -> std::io::Result<String> {
            match path.to_str() {
                Some("t.yaml") => Ok(self.0.clone()),
                Some("t.lock") => self.1.clone().ok_or_else(|| ErrorKind::NotFound.into()),
                Some("t.yml") => Ok("tools: {}".into()),
                Some("u.json" | "u.yaml") => Ok("mcp_servers: {near: {command: [npx]}}".into()),
                _ => panic!("unexpected path {path:?}"),
            }
        }

        fn is_file(&self, path: &Path) -> bool {
            path == Path::new("t.yml") || self.0.is_empty() && path == Path::new("u.yaml")
        }
    }

    /// Pins of the server `near`.
    fn pins_json(command: &[&str], tools: &[&str]) -> String {
        let settings = serde_json::json!({"command": command});
        let mut near = ServerPins::new(&settings, &[]);
        for tool in tools {
            let pin = format!("{{\"sha256\": \"{}\", \"parts\": {{}}}}", "0".repeat(64));
            near.tools
                .insert((*tool).to_owned(), serde_json::from_str(&pin).unwrap());
        }
        let pins = Pins {
            version: pins::FORMAT_VERSION,
            servers: [("near".to_owned(), near)].into(),
        };
        serde_json::to_string_pretty(&pins).unwrap()
    }

    fn load_with_pins(lock: Option<String>) -> Result<Manifest, Vec<String>> {
        let loaded = load(
            Path::new("t.yaml"),
            &Files(MANIFEST.into(), lock),
            &HashMap::new(),
        );
        loaded.map_err(|findings| findings.iter().map(ToString::to_string).collect())
    }

    fn finding_lines(lock: Option<String>) -> Vec<String> {
        let found = check(
            Path::new("t.yaml"),
            &Files(MANIFEST.into(), lock),
            &HashMap::new(),
        )
        .findings;
        found
            .iter()
            .map(|finding| {
                format!(
                    "{} {} {}",
                    finding.rule.as_str(),
                    finding.path,
                    finding.location.line
                )
            })
            .collect()
    }

    #[test]
    fn servers_get_pins_and_tool_names() {
        let manifest = load_with_pins(Some(pins_json(
            &["npx", "server"],
            &["get_weather", "more", "x_out", "no name"],
        )))
        .unwrap();
        let [near, far] = &manifest.sources[..] else {
            panic!("two servers")
        };
        assert!(
            near.rules
                .pins
                .as_ref()
                .unwrap()
                .matches_reach(&near.written_settings)
        );
        assert!(
            far.rules.pins.as_ref().unwrap().is_missing,
            "no pins for this server"
        );
        assert_eq!(
            near.rules.known_tools().collect::<Vec<_>>(),
            ["get_weather", "more"]
        );
        let without = load_with_pins(None).unwrap();
        assert!(
            without.pins.is_none()
                && without
                    .sources
                    .iter()
                    .all(|source| source.rules.pins.is_none())
        );
    }

    #[test]
    fn unreadable_pins_are_located_errors() {
        let good = pins_json(&["npx", "server"], &["get_weather"]);
        for (lock, expected) in [
            (String::new(), "t.lock:1:1: not JSON"),
            (
                "{\n  \"version\": 1,\n  \"servers\": {},\n}".into(),
                "t.lock:4:1: not JSON: trailing comma",
            ),
            ("version: 1\nservers: {}\n".into(), "t.lock:1:1: not JSON"),
            (
                good.replace("\"version\": 2", "\"version\": 3"),
                "t.lock:2:3: version: pins of version 3; this Toolcrib reads",
            ),
            ("{\"servers\": {}}".into(), "t.lock:1:1: version is missing"),
            ("[]".into(), "t.lock:1:1: version is missing"),
            ("{\"version\": 1}".into(), "t.lock:1:1: servers: is missing"),
            (
                good.replace("\"reach\"", "\"reech\""),
                "servers.near.reech: unknown key, did you mean reach?",
            ),
            (
                good.replace("\"sha256\"", "\"sha\""),
                "servers.near.tools.get_weather.sha: unknown key",
            ),
            (
                good.replace("00000000\"", "\""),
                "sha256: a SHA-256 is expected here",
            ),
            (
                good.replace("\"servers\"", "\"version\": 1, \"servers\""),
                "not JSON: duplicate key `version`",
            ),
        ] {
            let errors = load_with_pins(Some(lock.clone())).err().unwrap_or_default();
            assert!(
                errors.iter().any(|error| error.contains(expected)),
                "{lock}: {expected}: {errors:?}"
            );
        }
    }

    #[test]
    fn check_reports_unpinned_servers() {
        assert_eq!(
            finding_lines(None),
            [
                "unpinned-server mcp_servers.near 3",
                "unpinned-server mcp_servers.far 6"
            ]
        );
        let far = "unpinned-server mcp_servers.far 6".to_owned();
        assert_eq!(
            finding_lines(Some(pins_json(&["npx", "server"], &["get_weather"]))),
            std::slice::from_ref(&far)
        );
        assert_eq!(
            finding_lines(Some(pins_json(&["npx", "other"], &["get_weather"]))),
            ["unpinned-server mcp_servers.near 3".into(), far.clone()]
        );
        let unknown = "unknown-tool mcp_servers.near.tools.get_weather 5".to_owned();
        assert_eq!(
            finding_lines(Some(pins_json(&["npx", "server"], &["get_wether"]))),
            [unknown, far.clone()]
        );
    }

    #[test]
    fn patterns_match_pinned_tools() {
        let pins = pins_json(&["npx", "server"], &["get_weather"]);
        let is_unknown = |pattern: &str| {
            let text = MANIFEST.replace("get_weather", pattern);
            let found = check(
                Path::new("t.yaml"),
                &Files(text, Some(pins.clone())),
                &HashMap::new(),
            )
            .findings;
            found
                .iter()
                .any(|finding| finding.rule == Rule::UnknownTool)
        };
        assert!(!is_unknown("'get_*'") && is_unknown("'list_*'"));
    }

    #[test]
    fn trusted_hints_need_pins() {
        let text = "mcp_servers:\n  near:\n    command: [npx, server]\n    trust_hints: true\n";
        let rules = |lock: Option<String>| -> Vec<String> {
            let found = check(
                Path::new("t.yaml"),
                &Files(text.into(), lock),
                &HashMap::new(),
            )
            .findings;
            found
                .iter()
                .map(|finding| format!("{} {}", finding.rule.as_str(), finding.path))
                .collect()
        };
        let unpinned = [
            "unpinned-server mcp_servers.near",
            "ineffective mcp_servers.near.trust_hints",
        ];
        assert_eq!(rules(None), unpinned);
        assert_eq!(
            rules(Some(pins_json(&["npx", "server"], &["get_weather"]))),
            [""; 0]
        );
    }

    #[test]
    fn documents_at_urls_are_pinned_like_servers() {
        let text = "openapi:\n  near: {document: \"https://e.example/a.json\"}\n  file: {document: ./a.yaml}\n";
        let settings = serde_json::json!({"document": "https://e.example/a.json"});
        let lock = |settings: &serde_json::Value| {
            let servers = [("near".to_owned(), ServerPins::new(settings, &[]))].into();
            serde_json::to_string(&Pins {
                version: pins::FORMAT_VERSION,
                servers,
            })
            .unwrap()
        };
        let rules = |lock: Option<String>| -> Vec<String> {
            let found = check(
                Path::new("t.yaml"),
                &Files(text.into(), lock),
                &HashMap::new(),
            )
            .findings;
            let found = found
                .iter()
                .filter(|finding| finding.rule == Rule::UnpinnedServer);
            found.map(|finding| finding.path.clone()).collect()
        };
        assert_eq!(rules(None), ["openapi.near"]);
        assert_eq!(rules(Some(lock(&settings))), [""; 0]);
        let elsewhere = serde_json::json!({"document": "https://e.example/b.json"});
        assert_eq!(rules(Some(lock(&elsewhere))), ["openapi.near"]);
    }

    #[test]
    fn pinned_name_conflicts_are_warnings() {
        let text = format!("tools: {{near_more: {{kind: native, use: calculator}}}}\n{MANIFEST}");
        let lock = pins_json(&["npx", "server"], &["get_weather", "more"]);
        let loaded = load(
            Path::new("t.yaml"),
            &Files(text, Some(lock)),
            &HashMap::new(),
        );
        let warnings: Vec<String> = loaded
            .unwrap()
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = "t.yaml:3:3: warning: mcp_servers.near: its tool `more` is pinned, and `near_more` is another tool's name: t.yaml:1:9";
        assert!(
            warnings.len() == 1 && warnings[0].starts_with(expected),
            "{warnings:?}"
        );
    }

    #[test]
    fn manifests_cannot_share_a_pin_file() {
        let loaded = load(
            Path::new("u.json"),
            &Files(String::new(), None),
            &HashMap::new(),
        );
        let errors: Vec<String> = loaded
            .err()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = "u.json:1:1: u.yaml has servers too, and its pins would be in the same u.lock; give one of the manifests another name";
        assert_eq!(errors, [expected]);
        assert!(
            load_with_pins(None).is_ok(),
            "t.yml exists, but declares no servers"
        );
    }
}
