//! The settings file of another MCP client: its text as JSON, and where its servers are.

use std::path::Path;

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde_json::Value;

use crate::call::words;
use crate::sources::openapi::reader::parse_yaml;

/// Where clients keep their servers, by the keys on the way. `*` stands for any key.
///
/// - `mcpServers`: Claude, Cursor, Windsurf, Cline, Gemini, Copilot and most others; in Continue a
///   list. Claude Code keeps those of a folder below `projects`.
/// - `servers`: VS Code; in its `settings.json` below `mcp`
/// - `mcp_servers`: Codex; `context_servers`: Zed; `extensions`: Goose; `mcp`: opencode
const PLACES: [&[&str]; 9] = [
    &["mcpServers"],
    &["projects", "*", "mcpServers"],
    &["mcp", "mcpServers"],
    &["servers"],
    &["mcp", "servers"],
    &["mcp_servers"],
    &["context_servers"],
    &["extensions"],
    &["mcp"],
];
/// Keys of which a server has one at least.
const SERVER_KEYS: [&str; 7] = words("command cmd url serverUrl httpUrl uri source");

/// A server of another client.
pub(super) struct ForeignServer<'v> {
    /// Its name in the file.
    pub(super) name: &'v str,
    pub(super) entry: &'v Value,
    /// The key of the folder to which it belongs, if it is not for all folders.
    pub(super) folder: Option<&'v str>,
    /// The last key on the way to it.
    pub(super) place: &'static str,
}

/// Reads JSON with comments and trailing commas, TOML or YAML. The file's extension decides, else
/// its first character.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn parse(file: &Path, text: &str) -> Result<Value, String> {
    let text = text.trim_start_matches('\u{feff}');
    let extension = file.extension().and_then(|name| name.to_str());
    match extension {
        Some("toml") => parse_toml(text),
        Some("yaml" | "yml") => parse_yaml(text),
        _ if text.trim_start().starts_with(['{', '/']) => parse_json(text),
        Some("json" | "jsonc" | "json5") => parse_json(text),
        _ => parse_toml(text).or_else(|_| parse_yaml(text)),
    }
}

fn parse_json(text: &str) -> Result<Value, String> {
    parse_to_serde_value(text, &ParseOptions::default())
        .map(|value: Option<Value>| value.unwrap_or_default())
        .map_err(|error| format!("not JSON: {error}"))
}

fn parse_toml(text: &str) -> Result<Value, String> {
    toml::from_str(text).map_err(|error| format!("not TOML: {}", error.message()))
}

/// The servers of all places. A file without such a place may be the object of servers itself.
pub(super) fn find_servers(root: &Value) -> Vec<ForeignServer<'_>> {
    let mut found = Vec::new();
    for place in PLACES {
        // Several clients use these words for other settings, too.
        let takes_all = !matches!(place, ["extensions" | "mcp" | "servers"]);
        for (folder, servers) in values_at(root, place) {
            let place = place.last().copied().unwrap_or_default();
            add_servers(&mut found, servers, (folder, place), takes_all);
        }
    }
    if found.is_empty() {
        add_servers(&mut found, root, (None, ""), false);
    }
    found
}

/// The values at the end of a way, each with the key that `*` stands for.
fn values_at<'v>(root: &'v Value, way: &[&str]) -> Vec<(Option<&'v str>, &'v Value)> {
    let mut values = vec![(None, root)];
    for key in way {
        let below = |(folder, value): (Option<&'v str>, &'v Value)| -> Vec<_> {
            match (*key, value) {
                ("*", Value::Object(parts)) => {
                    let parts = parts.iter();
                    parts
                        .map(|(key, part)| (Some(key.as_str()), part))
                        .collect()
                }
                (key, value) => value
                    .get(key)
                    .map(|part| (folder, part))
                    .into_iter()
                    .collect(),
            }
        };
        values = values.into_iter().flat_map(below).collect();
    }
    values
}

fn add_servers<'v>(
    found: &mut Vec<ForeignServer<'v>>,
    servers: &'v Value,
    (folder, place): (Option<&'v str>, &'static str),
    takes_all: bool,
) {
    let named: Vec<(&str, &Value)> = match servers {
        Value::Object(servers) => servers
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
            .collect(),
        Value::Array(servers) => servers
            .iter()
            .map(|entry| (entry["name"].as_str().unwrap_or("server"), entry))
            .collect(),
        _ => Vec::new(),
    };
    let is_server = |entry: &Value| {
        entry.is_object() && (takes_all || SERVER_KEYS.iter().any(|key| entry.get(key).is_some()))
    };
    let servers = named.into_iter().filter(|(_, entry)| is_server(entry));
    found.extend(servers.map(|(name, entry)| ForeignServer {
        name,
        entry,
        folder,
        place,
    }));
}
