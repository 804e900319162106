//! `toolcrib import mcp`: the servers of another MCP client. What cannot be converted is a comment,
//! so that nothing is lost unseen.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::super::Failure;
use super::super::output::print_line;
use super::client_settings::{self, ForeignServer};
use super::client_text::FoundVariables;
use super::{print_yaml, read_input};
use crate::call::words;
use crate::call::{JsonObject, ToolName};

/// Keys with a text that is the URL of a server.
const URL_KEYS: [&str; 4] = ["url", "serverUrl", "httpUrl", "uri"];
/// Keys of lists of tools, with the key of the manifest.
const TOOL_LISTS: [(&str, &str); 8] = [
    ("includeTools", "include"),
    ("enabled_tools", "include"),
    ("available_tools", "include"),
    ("tools", "include"),
    ("excludeTools", "exclude"),
    ("disabledTools", "exclude"),
    ("disabled_tools", "exclude"),
    ("excluded_tools", "exclude"),
];
/// Keys of times, with the key of the manifest, and the milliseconds of their unit if it is known.
const TIMES: [(&str, &str, Option<f64>); 4] = [
    ("timeout", "timeout", None),
    ("tool_timeout_sec", "timeout", Some(1000.0)),
    ("startup_timeout_sec", "start_timeout", Some(1000.0)),
    ("startup_timeout_ms", "start_timeout", Some(1.0)),
];
/// Keys that are read elsewhere, or that say nothing about the server.
const OTHER_KEYS: [&str; 25] = words(
    "command cmd args env envs environment env_vars env_keys headers http_headers
     env_http_headers bearer_token_env_var requestOptions cwd type transport source
     disabled enabled name display_name description bundled gallery version",
);

/// Prints the servers of the file as `mcp_servers`.
pub(super) fn print_servers(file: &Path) -> Result<(), Failure> {
    let text = read_input(file)?;
    let usage = |message: &str| Failure::Usage(format!("{}: {message}", file.display()));
    let root = client_settings::parse(file, &text).map_err(|message| usage(&message))?;
    let (servers, comments) = convert_servers(&root, is_of_gemini(file, &root));
    if servers.is_empty() {
        let mut message = "there is no MCP server in it that can be used; it has none of mcpServers, servers, mcp, \
                           mcp_servers, context_servers and extensions"
            .to_owned();
        if !comments.is_empty() {
            message = format!("none of its servers can be used: {}", comments.join("; "));
        }
        return Err(usage(&message));
    }
    for comment in comments {
        print_line(&format!("# {}", comment.replace('\n', " ")));
    }
    print_yaml(&json!({"mcp_servers": servers}))
}

/// Whether the file is of Gemini, where `url` means the old transport, and `httpUrl` the new one.
fn is_of_gemini(file: &Path, root: &Value) -> bool {
    let in_its_folder = file.iter().any(|part| part == ".gemini");
    let servers = client_settings::find_servers(root);
    in_its_folder
        || servers
            .iter()
            .any(|server| server.entry.get("httpUrl").is_some())
}

/// The servers with their names in a manifest, and what a person must know about them.
fn convert_servers(root: &Value, is_gemini: bool) -> (JsonObject, Vec<String>) {
    let (mut servers, mut comments) = (Map::new(), Vec::new());
    let mut secrets = BTreeMap::new();
    for foreign in client_settings::find_servers(root) {
        let (written, entry) = (foreign.name, foreign.entry);
        if entry.get("disabled") == Some(&Value::Bool(true))
            || entry.get("enabled") == Some(&Value::Bool(false))
        {
            comments.push(format!("left out: {written}: it is disabled"));
            continue;
        }
        let known_secrets = std::mem::take(&mut secrets);
        let mut found = FoundVariables {
            secrets: known_secrets.clone(),
            ..FoundVariables::default()
        };
        let mut notes = Vec::new();
        let name = distinct_name(written, &servers);
        let converted = convert_server(&foreign, &name, is_gemini, &mut found, &mut notes);
        match converted {
            Ok(mut server) => {
                if name != *written {
                    comments.push(format!(
                        "{name}: named `{written}` before; its tools begin with `{name}_`"
                    ));
                }
                let folder = foreign
                    .folder
                    .map(|folder| format!("the other client has it only in the folder {folder}"));
                let new_secrets = found
                    .secrets
                    .keys()
                    .filter(|name| !known_secrets.contains_key(*name))
                    .map(|name| {
                        format!(
                            "a secret stood in the file: set the environment variable {name} to it"
                        )
                    });
                let notes = folder
                    .into_iter()
                    .chain(new_secrets)
                    .chain(describe_variables(&found, &root["inputs"]))
                    .chain(notes)
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
        secrets = found.secrets;
    }
    (servers, comments)
}

fn convert_server(
    foreign: &ForeignServer<'_>,
    name: &str,
    is_gemini: bool,
    found: &mut FoundVariables,
    notes: &mut Vec<String>,
) -> Result<JsonObject, String> {
    let entry = foreign.entry;
    let mut server = Map::new();
    let argv = command_of(entry);
    if !argv.is_empty() {
        server.insert("command".into(), convert_command(argv, name, found).into());
        let mut environment = Map::new();
        for key in ["env", "environment", "envs"] {
            insert_texts(
                &mut environment,
                entry.get(key),
                |key| key.to_owned(),
                found,
            );
        }
        // In older files of Zed, `command` is an object.
        let nested = entry.get("command").and_then(|command| command.get("env"));
        insert_texts(&mut environment, nested, |key| key.to_owned(), found);
        for passed in ["env_vars", "env_keys"] {
            for variable in texts_of(entry.get(passed)) {
                let reference = format!("${{env:{variable}}}");
                environment.insert(variable, reference.into());
            }
        }
        insert_nonempty(&mut server, "environment", environment);
        if let Some(folder) = entry.get("cwd").and_then(Value::as_str) {
            server.insert("workdir".into(), found.convert(folder).into());
        }
    } else if let Some((key, url)) = URL_KEYS
        .iter()
        .find_map(|key| Some((*key, entry.get(*key)?.as_str()?)))
    {
        let kind = ["type", "transport"]
            .iter()
            .find_map(|key| entry.get(*key)?.as_str());
        let is_old = match kind {
            Some(kind) => kind == "sse",
            None => is_gemini && key == "url",
        };
        if is_old {
            return Err(format!(
                "it uses the old HTTP+SSE transport, which is not supported; ask for a streamable HTTP URL, or let a program \
                 translate: `command: [npx, -y, mcp-remote, {url}, --transport, sse-only]`"
            ));
        }
        let is_http = url.starts_with("http://") || url.starts_with("https://");
        if matches!(kind, Some("ws" | "websocket")) || !(is_http || url.contains('$')) {
            return Err(format!("{url} is not a URL of streamable HTTP"));
        }
        let url = found.convert_secret("url", url, &format!("{name}_url"));
        server.insert("url".into(), url.into());
        server.extend(convert_headers(entry, name, found));
    } else {
        return Err("it has neither `command` nor `url`".into());
    }
    for (written, key) in TOOL_LISTS {
        let tools = texts_of(entry.get(written));
        if !tools.is_empty() && tools != ["*"] {
            server.insert(key.into(), tools.into());
        }
    }
    for (written, key, unit) in TIMES {
        let Some(time) = entry
            .get(written)
            .and_then(Value::as_f64)
            .filter(|time| *time > 0.0)
        else {
            continue;
        };
        // Clients have seconds or milliseconds in this key. No call waits for 1,000 seconds.
        let unit = unit.unwrap_or(if time < 1000.0 { 1000.0 } else { 1.0 });
        let millis = (time * unit).round().max(1.0);
        let text = if millis % 1000.0 == 0.0 {
            format!("{}s", millis / 1000.0)
        } else {
            format!("{millis}ms")
        };
        if written == "timeout" {
            notes.push(format!("`timeout: {time}` is read as {text}"));
        }
        // In opencode it is the time to list the tools.
        let key = if foreign.place == "mcp" && written == "timeout" {
            "start_timeout"
        } else {
            key
        };
        server.insert(key.into(), text.into());
    }
    Ok(server)
}

/// The program and its arguments, as the file has them. Empty: it has none.
fn command_of(entry: &Value) -> Vec<String> {
    let command = entry.get("command").or_else(|| entry.get("cmd"));
    let mut argv = match command {
        Some(Value::String(program)) => vec![program.clone()],
        Some(Value::Array(_)) => texts_of(command),
        Some(Value::Object(nested)) => {
            let program = nested.get("path").and_then(Value::as_str);
            let arguments = texts_of(nested.get("args"));
            program
                .map(str::to_owned)
                .into_iter()
                .chain(arguments)
                .collect()
        }
        _ => Vec::new(),
    };
    if !argv.is_empty() {
        argv.extend(texts_of(entry.get("args")));
    }
    argv
}

/// The command with references. A secret is recognized by the flag before it.
fn convert_command(argv: Vec<String>, name: &str, found: &mut FoundVariables) -> Vec<String> {
    let mut flag = String::new();
    let mut converted = Vec::with_capacity(argv.len());
    let has_script = argv.first().is_some_and(|program| {
        ["sh", "bash", "zsh"]
            .iter()
            .any(|shell| program.ends_with(shell))
    });
    for text in argv {
        let (start, value) = match text.split_once('=') {
            Some((key, value)) if key.starts_with('-') => {
                flag = key.to_owned();
                (format!("{key}="), value)
            }
            _ => (String::new(), text.as_str()),
        };
        let key = flag.trim_start_matches('-').to_owned();
        let variable = format!("{name}_{}", if key.is_empty() { "token" } else { &key });
        converted.push(match has_script && text.contains(char::is_whitespace) {
            true => found.convert_script(&text),
            false => start + &found.convert_secret(&key, value, &variable),
        });
        flag = if text.starts_with('-') && !text.contains('=') {
            text
        } else {
            String::new()
        };
    }
    converted
}

/// `headers` of a server, unless there are none.
fn convert_headers(entry: &Value, name: &str, found: &mut FoundVariables) -> JsonObject {
    let mut headers = Map::new();
    let variable = |key: &str| format!("{name}_{key}");
    let nested = entry.pointer("/requestOptions/headers");
    for texts in [entry.get("headers"), entry.get("http_headers"), nested] {
        insert_texts(&mut headers, texts, variable, found);
    }
    let variables = entry.get("env_http_headers").and_then(Value::as_object);
    for (header, variable) in variables.into_iter().flatten() {
        headers.insert(
            header.clone(),
            format!("${{env:{}}}", text_of(variable)).into(),
        );
    }
    if let Some(variable) = entry.get("bearer_token_env_var").and_then(Value::as_str) {
        headers.insert(
            "authorization".into(),
            format!("Bearer ${{env:{variable}}}").into(),
        );
    }
    let mut section = Map::new();
    insert_nonempty(&mut section, "headers", headers);
    section
}

fn insert_nonempty(server: &mut JsonObject, key: &str, texts: JsonObject) {
    if !texts.is_empty() {
        server.insert(key.into(), texts.into());
    }
}

/// Inserts the texts of an object. `variable` names the variable for a secret below a key.
fn insert_texts(
    into: &mut JsonObject,
    texts: Option<&Value>,
    variable: impl Fn(&str) -> String,
    found: &mut FoundVariables,
) {
    for (key, value) in texts.and_then(Value::as_object).into_iter().flatten() {
        let text = found.convert_secret(key, &text_of(value), &variable(key));
        into.insert(key.clone(), text.into());
    }
}

/// The texts of a list, or one text. Other values have none.
fn texts_of(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(items)) => items.iter().map(text_of).collect(),
        Some(Value::String(text)) => vec![text.clone()],
        _ => Vec::new(),
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
            || TIMES.iter().any(|(written, ..)| *written == key)
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

    fn imported(root: Value) -> (Value, Vec<String>) {
        let (servers, comments) = convert_servers(&root, false);
        (servers.into(), comments)
    }

    /// The one server of a file.
    fn server(file: &str, text: &str) -> Value {
        let file = Path::new(file);
        let root = client_settings::parse(file, text).unwrap_or_else(|error| panic!("{error}"));
        let (servers, comments) = convert_servers(&root, is_of_gemini(file, &root));
        assert_eq!(servers.len(), 1, "{text}: {comments:?}");
        servers.into_iter().next().unwrap().1
    }

    #[test]
    fn files_of_other_clients_are_read() {
        let command = json!({"command": ["npx", "-y", "x"], "environment": {"K": "${env:V}"}});
        for (file, text) in [
            (
                "mcp.json",
                "{// the servers\n\"servers\": {\"s\": {\"command\": \"npx\", \"args\": [\"-y\", \"x\",], \"env\": {\"K\": \"${env:V}\"},}}}",
            ),
            (
                "settings.json",
                r#"{"editor.tabSize": 2, "mcp": {"servers": {"s": {"command": "npx", "args": ["-y", "x"], "env": {"K": "${V}"}}}}}"#,
            ),
            (
                "config.toml",
                "model = \"m\"\n[mcp_servers.s]\ncommand = \"npx\"\nargs = [\"-y\", \"x\"]\nenv = { K = \"$V1\" }\n",
            ),
            (
                "settings.json",
                r#"{"context_servers": {"s": {"source": "custom", "command": "npx", "args": ["-y", "x"], "env": {"K": "$V1"}}}}"#,
            ),
            (
                "settings.json",
                r#"{"context_servers": {"s": {"command": {"path": "npx", "args": ["-y", "x"], "env": {"K": "$V1"}}}}}"#,
            ),
            (
                "opencode.json",
                r#"{"mcp": {"s": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"K": "{env:V}"}, "enabled": true}}}"#,
            ),
            (
                "config.yaml",
                "name: a\nmcpServers:\n  - name: s\n    command: npx\n    args: [-y, x]\n    env: {K: '${{ secrets.V }}'}\n",
            ),
            (
                "config.yaml",
                "extensions:\n  developer: {type: builtin, enabled: true}\n  s: {type: stdio, cmd: npx, args: [-y, x], envs: {K: $V1}, enabled: true}\n",
            ),
            (
                ".claude.json",
                r#"{"projects": {"/home/a": {"mcpServers": {"s": {"command": "npx", "args": ["-y", "x"], "env": {"K": "${V}"}}}}}}"#,
            ),
            (
                "any.json",
                r#"{"s": {"command": "npx", "args": ["-y", "x"], "env": {"K": "${V}"}}}"#,
            ),
        ] {
            let mut expected = command.clone();
            if text.contains("$V1") {
                expected["environment"]["K"] = json!("${env:V1}");
            }
            assert_eq!(server(file, text), expected, "{text}");
        }
    }

    #[test]
    fn keys_of_other_clients_are_converted() {
        for (entry, expected) in [
            (
                json!({"command": "npx", "args": ["-y", "server", 7], "env": {"TOKEN": "${TOKEN}", "Y": "a${env:B}c"}, "excludeTools": ["rm"]}),
                json!({"command": ["npx", "-y", "server", "7"], "environment": {"TOKEN": "${env:TOKEN}", "Y": "a${env:B}c"}, "exclude": ["rm"]}),
            ),
            (
                json!({"command": "x", "cwd": "/x", "timeout": 600_000, "tools": ["*"], "env_vars": ["A"], "startup_timeout_sec": 2.5}),
                json!({"command": ["x"], "environment": {"A": "${env:A}"}, "workdir": "/x", "timeout": "600s", "start_timeout": "2500ms"}),
            ),
            (
                json!({"command": "x", "timeout": 60, "tools": ["t1", "t2"]}),
                json!({"command": ["x"], "include": ["t1", "t2"], "timeout": "60s"}),
            ),
            (
                json!({"type": "http", "url": "https://m.example/mcp", "headers": {"authorization": "Bearer ${KEY}"}}),
                json!({"url": "https://m.example/mcp", "headers": {"authorization": "Bearer ${env:KEY}"}}),
            ),
            (
                json!({"url": "https://m.example/mcp", "bearer_token_env_var": "KEY", "env_http_headers": {"x-a": "B"}}),
                json!({"url": "https://m.example/mcp", "headers": {"x-a": "${env:B}", "authorization": "Bearer ${env:KEY}"}}),
            ),
            (
                json!({"command": "bash", "args": ["-c", "for N in $LIST; do :; done"]}),
                json!({"command": ["bash", "-c", "for N in $LIST; do :; done"]}),
            ),
        ] {
            let (servers, comments) = imported(json!({"mcpServers": {"s": entry}}));
            assert_eq!(servers["s"], expected, "{comments:?}");
        }
        for (entry, reason) in [
            (
                json!({"type": "sse", "url": "https://m.example/sse"}),
                "old HTTP+SSE",
            ),
            (
                json!({"type": "ws", "url": "wss://m.example"}),
                "not a URL of",
            ),
            (json!({"url": "unix:///tmp/s"}), "not a URL of"),
            (json!({}), "neither"),
        ] {
            let (servers, comments) = imported(json!({"mcpServers": {"s": entry}}));
            assert!(
                servers == json!({}) && comments[0].contains(reason),
                "{comments:?}"
            );
        }
    }

    #[test]
    fn gemini_has_the_old_transport_below_url() {
        let text = r#"{"mcpServers": {"new": {"httpUrl": "https://m.example/mcp"}, "old": {"url": "https://m.example/sse"}}}"#;
        assert_eq!(
            server("settings.json", text),
            json!({"url": "https://m.example/mcp"})
        );
    }

    #[test]
    fn secrets_are_left_out() {
        let token = "ghp_0123456789abcdef0123";
        let other = "ghp_another89abcdef01234";
        let (servers, comments) = imported(json!({"mcpServers": {
            "git": {"command": "x", "args": ["--api-key", "0123456789abcdef", "--token=abcdefgh1"], "env": {"GITHUB_TOKEN": token}},
            "hub": {"command": "y", "env": {"GITHUB_TOKEN": other}},
            "docs": {"url": "https://m.example/mcp", "headers": {"Authorization": format!("Bearer {token}")}},
        }}));
        assert_eq!(
            servers,
            json!({
                "git": {"command": ["x", "--api-key", "${env:GIT_API_KEY}", "--token=${env:GIT_TOKEN}"],
                        "environment": {"GITHUB_TOKEN": "${env:GITHUB_TOKEN}"}},
                "hub": {"command": ["y"], "environment": {"GITHUB_TOKEN": "${env:GITHUB_TOKEN_2}"}},
                "docs": {"url": "https://m.example/mcp", "headers": {"Authorization": "Bearer ${env:DOCS_AUTHORIZATION}"}}
            })
        );
        assert_eq!(comments.len(), 5, "{comments:?}");
        assert!(!format!("{servers}{comments:?}").contains("ghp_"));
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
            "servers": {"s": {"command": "x", "args": ["${input:api-key}", "${input:region}", "${C:-d}", "${workspaceFolder}"], "autoApprove": ["x"]}}});
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
                "s: left out, since a manifest has no such keys: `autoApprove`",
            ]
        );
    }

    #[test]
    fn disabled_servers_are_comments() {
        let (servers, comments) = imported(
            json!({"mcpServers": {"a": {"disabled": true}, "b": {"enabled": false}, "c": {}}}),
        );
        assert_eq!((servers, comments.len()), (json!({}), 3));
    }
}
