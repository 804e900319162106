//! `toolcrib import mcp`: the servers of another MCP client. What cannot be converted is a comment,
//! so that nothing is lost unseen.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::super::Failure;
use super::super::output::print_line;
use super::client_text::FoundVariables;
use super::{print_yaml, read_input};
use crate::call::{JsonObject, ToolName};

/// Keys with a text that is the URL of a server.
const URL_KEYS: [&str; 3] = ["url", "serverUrl", "httpUrl"];
/// Keys of lists of tools, with the key of the manifest.
const TOOL_LISTS: [(&str, &str); 3] = [
    ("includeTools", "include"),
    ("excludeTools", "exclude"),
    ("disabledTools", "exclude"),
];
/// Keys that are read elsewhere, or that say nothing about the server.
const OTHER_KEYS: [&str; 10] = [
    "command",
    "args",
    "env",
    "headers",
    "type",
    "transport",
    "disabled",
    "enabled",
    "name",
    "description",
];

/// Prints the servers of the file as `mcp_servers`.
pub(super) fn print_servers(file: &Path) -> Result<(), Failure> {
    let text = read_input(file)?;
    let usage = |message: &str| Failure::Usage(format!("{}: {message}", file.display()));
    let root: Value = serde_json::from_str(&text).map_err(|error| {
        usage(&format!(
            "not JSON at line {}, column {}; comments and trailing commas are not JSON",
            error.line(),
            error.column()
        ))
    })?;
    let Some((servers, comments)) = convert_servers(&root) else {
        return Err(usage("there is no object `mcpServers` in it"));
    };
    for comment in comments {
        print_line(&format!("# {}", comment.replace('\n', " ")));
    }
    print_yaml(&json!({"mcp_servers": servers}))
}

/// The servers with their names in a manifest, and what a person must know about them. `None` if
/// the settings have no servers.
fn convert_servers(root: &Value) -> Option<(JsonObject, Vec<String>)> {
    // VS Code has the same entries below `servers`, and some clients have no outer object.
    let entries = ["mcpServers", "servers"]
        .iter()
        .find_map(|key| root.get(key))
        .unwrap_or(root);
    let entries = entries
        .as_object()
        .filter(|entries| entries.values().all(Value::is_object))?;
    let (mut servers, mut comments) = (Map::new(), Vec::new());
    for (written, entry) in entries {
        if entry.get("disabled") == Some(&Value::Bool(true))
            || entry.get("enabled") == Some(&Value::Bool(false))
        {
            comments.push(format!("left out: {written}: it is disabled"));
            continue;
        }
        let mut found = FoundVariables::default();
        match convert_server(entry, &mut found) {
            Ok(mut server) => {
                let name = distinct_name(written, &servers);
                if name != *written {
                    comments.push(format!(
                        "{name}: named `{written}` before; its tools begin with `{name}_`"
                    ));
                }
                let notes = describe_variables(&found, &root["inputs"])
                    .into_iter()
                    .chain(describe_lost_keys(entry));
                comments.extend(notes.map(|note| format!("{name}: {note}")));
                let declared = declare_defaults(&found, &root["inputs"]);
                if !declared.is_empty() {
                    server.insert("env".into(), declared.into());
                }
                servers.insert(name, server.into());
            }
            Err(reason) => comments.push(format!("left out: {written}: {reason}")),
        }
    }
    Some((servers, comments))
}

fn convert_server(entry: &Value, found: &mut FoundVariables) -> Result<JsonObject, String> {
    let mut server = Map::new();
    if let Some(command) = entry.get("command").and_then(Value::as_str) {
        let arguments = entry
            .get("args")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(text_of);
        let argv: Vec<String> = std::iter::once(command.to_owned())
            .chain(arguments)
            .map(|text| found.convert(&text))
            .collect();
        server.insert("command".into(), argv.into());
        insert_texts(&mut server, "environment", entry.get("env"), found);
    } else if let Some(url) = URL_KEYS.iter().find_map(|key| entry.get(key)?.as_str()) {
        if entry.get("type").and_then(Value::as_str) == Some("sse") {
            return Err(
                "it uses the old HTTP+SSE transport, which is not supported; ask for a streamable HTTP URL".into()
            );
        }
        server.insert("url".into(), found.convert(url).into());
        insert_texts(&mut server, "headers", entry.get("headers"), found);
    } else {
        return Err("it has neither `command` nor `url`".into());
    }
    for (written, key) in TOOL_LISTS {
        if let Some(tools) = entry
            .get(written)
            .and_then(Value::as_array)
            .filter(|tools| !tools.is_empty())
        {
            server.insert(key.into(), tools.clone().into());
        }
    }
    Ok(server)
}

/// Inserts the texts of an object below `key`, unless the object is empty.
fn insert_texts(
    server: &mut JsonObject,
    key: &str,
    texts: Option<&Value>,
    found: &mut FoundVariables,
) {
    let entries = texts.and_then(Value::as_object).into_iter().flatten();
    let texts: JsonObject = entries
        .map(|(name, value)| (name.clone(), found.convert(&text_of(value)).into()))
        .collect();
    if !texts.is_empty() {
        server.insert(key.into(), texts.into());
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The prompt of a client with this id.
fn find_prompt<'i>(inputs: &'i Value, id: &str) -> Option<&'i Value> {
    inputs.as_array()?.iter().find(|input| input["id"] == id)
}

/// `env` of the server: variables with a default.
fn declare_defaults(found: &FoundVariables, inputs: &Value) -> Vec<Value> {
    let mut defaults = found.defaults.clone();
    for (id, name) in &found.prompts {
        if let Some(default) = find_prompt(inputs, id).and_then(|prompt| prompt["default"].as_str())
        {
            defaults
                .entry(name.clone())
                .or_insert_with(|| default.to_owned());
        }
    }
    defaults
        .into_iter()
        .map(|(name, default)| json!({"name": name, "default": default}))
        .collect()
}

/// What a person must fill in, one sentence for each variable.
fn describe_variables(found: &FoundVariables, inputs: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    for (id, name) in &found.prompts {
        let about = find_prompt(inputs, id).and_then(|prompt| prompt["description"].as_str());
        let about = about.map(|text| format!(" ({text})")).unwrap_or_default();
        notes.push(format!(
            "the other client asks a person for `{id}`{about}: set the environment variable {name}"
        ));
    }
    for (name, default) in &found.defaults {
        notes.push(format!(
            "{name} has the default `{default}`, which is declared below `env`"
        ));
    }
    for (name, default) in &found.other_defaults {
        notes.push(format!(
            "{name} has another default, `{default}`, which is lost: a variable has one default"
        ));
    }
    for content in &found.unknown {
        notes.push(format!(
            "only the other client knows `${{{content}}}`: replace it by its value"
        ));
    }
    notes
}

/// The keys of an entry that have no counterpart.
fn describe_lost_keys(entry: &Value) -> Option<String> {
    let is_known = |key: &str| {
        URL_KEYS.contains(&key)
            || OTHER_KEYS.contains(&key)
            || TOOL_LISTS.iter().any(|(written, _)| *written == key)
    };
    let keys = entry
        .as_object()?
        .keys()
        .filter(|key| !is_known(key))
        .map(|key| format!("`{key}`"));
    let lost = keys.collect::<Vec<_>>().join(", ");
    (!lost.is_empty()).then(|| format!("left out, since a manifest has no such keys: {lost}"))
}

/// A name that a manifest accepts, and that no other server has.
fn distinct_name(written: &str, servers: &JsonObject) -> String {
    let plain: String = written
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "_-.".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    let plain: String = plain.trim_matches('.').chars().take(60).collect();
    let name = if ToolName::parse(&plain).is_ok() {
        plain
    } else {
        "server".into()
    };
    // Without `_` before the number: the prefix of one server must not begin with that of another.
    let numbered = (2..).map(|number| format!("{name}{number}"));
    std::iter::once(name.clone())
        .chain(numbered)
        .find(|name| !servers.contains_key(name))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(entry: Value) -> Result<Value, String> {
        convert_server(&entry, &mut FoundVariables::default()).map(Value::Object)
    }

    fn imported(root: Value) -> (Value, Vec<String>) {
        let (servers, comments) = convert_servers(&root).unwrap();
        (servers.into(), comments)
    }

    #[test]
    fn servers_of_other_clients_are_converted() {
        let entry = json!({"command": "npx", "args": ["-y", "server", 7], "env": {"TOKEN": "${TOKEN}", "Y": "a${env:B}c"},
                           "excludeTools": ["rm"]});
        assert_eq!(
            converted(entry),
            Ok(
                json!({"command": ["npx", "-y", "server", "7"], "environment": {"TOKEN": "${env:TOKEN}", "Y": "a${env:B}c"},
                      "exclude": ["rm"]})
            )
        );
        let entry = json!({"type": "http", "url": "https://m.example/mcp", "headers": {"authorization": "Bearer ${KEY}"}});
        assert_eq!(
            converted(entry),
            Ok(
                json!({"url": "https://m.example/mcp", "headers": {"authorization": "Bearer ${env:KEY}"}})
            )
        );
        let old = json!({"type": "sse", "url": "https://m.example/sse"});
        assert!(converted(old).unwrap_err().contains("old HTTP+SSE"));
        assert!(converted(json!({})).unwrap_err().contains("neither"));
    }

    #[test]
    fn equal_names_become_distinct() {
        let server = json!({"command": "x"});
        let root = json!({"mcpServers": {"my server": server, "my/server": server, "my_server": server, "...": server}});
        let (servers, comments) = imported(root);
        let names: Vec<&String> = servers.as_object().unwrap().keys().collect();
        assert_eq!(names, ["my_server", "my_server2", "my_server3", "server"]);
        assert_eq!(
            comments[1],
            "my_server2: named `my/server` before; its tools begin with `my_server2_`"
        );
        assert_eq!(comments.len(), 4);
    }

    #[test]
    fn defaults_and_prompts_are_kept() {
        let root = json!({
            "inputs": [{"id": "api-key", "description": "Key of the shop"}, {"id": "region", "default": "eu"}],
            "servers": {"s": {"command": "x", "args": ["${input:api-key}", "${input:region}", "${C:-d}", "${workspaceFolder}"], "cwd": "/x"}}});
        let (servers, comments) = imported(root);
        assert_eq!(
            servers,
            json!({"s": {"command": ["x", "${env:API_KEY}", "${env:REGION}", "${env:C}", "$${workspaceFolder}"],
                         "env": [{"name": "C", "default": "d"}, {"name": "REGION", "default": "eu"}]}})
        );
        assert_eq!(
            comments,
            [
                "s: the other client asks a person for `api-key` (Key of the shop): set the environment variable API_KEY",
                "s: the other client asks a person for `region`: set the environment variable REGION",
                "s: C has the default `d`, which is declared below `env`",
                "s: only the other client knows `${workspaceFolder}`: replace it by its value",
                "s: left out, since a manifest has no such keys: `cwd`",
            ]
        );
    }

    #[test]
    fn disabled_servers_are_comments() {
        let (servers, comments) =
            imported(json!({"a": {"disabled": true}, "b": {"enabled": false}, "c": {}}));
        assert_eq!((servers, comments.len()), (json!({}), 3));
    }
}
