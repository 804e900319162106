//! `toolcrib import`: prints a manifest made from another format.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use saphyr::{Mapping, Scalar, Yaml, YamlEmitter};
use serde_json::{Map, Value, json};

use super::{Failure, print_line};
use crate::call::{JsonObject, ToolName};
use crate::openapi::{Import, Selector};
use crate::tools::openapi::{ApiSettings, DocumentLocation, compilable_schema, read_document};

#[derive(Subcommand)]
pub(super) enum ImportCommand {
    /// Print the operations of an OpenAPI document as tools of kind http.
    Openapi(OpenapiArgs),
    /// Print the `mcpServers` of another MCP client as `mcp_servers`.
    Mcp {
        /// The JSON file with `mcpServers`; `-` reads standard input.
        file: PathBuf,
    },
}

#[derive(Args)]
pub(super) struct OpenapiArgs {
    /// The document, as YAML or JSON; `-` reads standard input.
    file: PathBuf,
    /// The base URL of all operations. By default, the first server of the document.
    #[arg(long)]
    base_url: Option<String>,
    /// Operations to print: method and path, path, operationId or tag; `*` stands for any characters.
    #[arg(long)]
    include: Vec<String>,
    /// Operations to leave out.
    #[arg(long)]
    exclude: Vec<String>,
    /// Text before the name of every tool.
    #[arg(long, default_value = "")]
    prefix: String,
}

pub(super) fn run(command: ImportCommand) -> Result<(), Failure> {
    match command {
        ImportCommand::Openapi(args) => print_openapi_tools(args),
        ImportCommand::Mcp { file } => print_mcp_servers(&file),
    }
}

fn print_openapi_tools(args: OpenapiArgs) -> Result<(), Failure> {
    let text = read_input(&args.file)?;
    let selectors = |option: &str, texts: &[String]| -> Result<Vec<Selector>, Failure> {
        let parsed: Result<_, String> = texts.iter().map(|text| Selector::parse(text)).collect();
        parsed.map_err(|message| Failure::Usage(format!("--{option}: {message}")))
    };
    let settings = ApiSettings {
        name: "import".into(),
        document: DocumentLocation::File(args.file.clone()),
        base_url: args.base_url,
        include: selectors("include", &args.include)?,
        exclude: selectors("exclude", &args.exclude)?,
        headers: Default::default(),
        query: Default::default(),
        auth: None,
        allow_private: false,
        allow_hosts: Vec::new(),
        max_output: None,
        start_timeout: Duration::ZERO,
    };
    let shown = args.file.display();
    let Import { found, operations, left_out, warnings } =
        read_document(&settings, &text).map_err(|message| Failure::Usage(format!("{shown}: {message}")))?;
    print_line(&format!("# {} of {found} operations of {shown}", operations.len()));
    for warning in warnings {
        print_line(&format!("# {warning}"));
    }
    for left_out in left_out {
        print_line(&format!("# left out: {}: {}", left_out.operation, left_out.reason));
    }
    let mut tools = Map::new();
    for operation in operations {
        let input_schema = match compilable_schema(&operation.input_schema) {
            Ok(schema) => schema,
            Err(reason) => {
                print_line(&format!(
                    "# left out: {} {}: {reason}",
                    operation.method.to_ascii_uppercase(),
                    operation.path
                ));
                continue;
            }
        };
        let mut tool = json!({
            "kind": "http",
            "description": operation.description,
            "input_schema": input_schema,
        });
        if let Some(schema) = operation.output_schema {
            tool["output_schema"] = schema;
        }
        tool["request"] = operation.request.into();
        tool["effect"] = operation.effect.as_str().into();
        if !operation.tags.is_empty() {
            tool["tags"] = operation.tags.into();
        }
        tools.insert(format!("{}{}", args.prefix, operation.name), tool);
    }
    print_yaml(&json!({"tools": tools}))
}

fn print_mcp_servers(file: &Path) -> Result<(), Failure> {
    let text = read_input(file)?;
    let usage = |message: &str| Failure::Usage(format!("{}: {message}", file.display()));
    let root: Value = serde_json::from_str(&text).map_err(|error| usage(&format!("not JSON: {error}")))?;
    // VS Code has the same entries below `servers`, and some clients have no outer object.
    let entries = ["mcpServers", "servers"].iter().find_map(|key| root.get(key)).unwrap_or(&root);
    let Some(entries) = entries.as_object().filter(|entries| entries.values().all(Value::is_object)) else {
        return Err(usage("there is no object `mcpServers` in it"));
    };
    let mut servers = Map::new();
    for (name, entry) in entries {
        if entry.get("disabled") == Some(&Value::Bool(true)) {
            print_line(&format!("# left out: {name}: it is disabled"));
            continue;
        }
        match convert_server(entry) {
            Ok(server) => drop(servers.insert(server_name(name), server)),
            Err(reason) => print_line(&format!("# left out: {name}: {reason}")),
        }
    }
    print_yaml(&json!({"mcp_servers": servers}))
}

fn convert_server(entry: &Value) -> Result<Value, String> {
    let texts = |key: &str| -> JsonObject {
        let entries = entry.get(key).and_then(Value::as_object).into_iter().flatten();
        entries.map(|(name, value)| (name.clone(), Value::from(with_references(&text_of(value))))).collect()
    };
    let mut server = Map::new();
    if let Some(command) = entry.get("command").and_then(Value::as_str) {
        let arguments = entry.get("args").and_then(Value::as_array).into_iter().flatten().map(text_of);
        let argv: Vec<String> =
            std::iter::once(command.to_owned()).chain(arguments).map(|text| with_references(&text)).collect();
        server.insert("command".into(), argv.into());
        let environment = texts("env");
        if !environment.is_empty() {
            server.insert("environment".into(), environment.into());
        }
    } else if let Some(url) = ["url", "serverUrl", "httpUrl"].iter().find_map(|key| entry.get(key)?.as_str()) {
        if entry.get("type").and_then(Value::as_str) == Some("sse") {
            return Err(
                "it uses the old HTTP+SSE transport, which is not supported; ask for a streamable HTTP URL".into()
            );
        }
        server.insert("url".into(), with_references(url).into());
        let headers = texts("headers");
        if !headers.is_empty() {
            server.insert("headers".into(), headers.into());
        }
    } else {
        return Err("it has neither `command` nor `url`".into());
    }
    Ok(server.into())
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The text with `${NAME}`, `${NAME:-default}` and `${env:NAME}` of other clients as references of a manifest.
fn with_references(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((content, end)) = after.split_once('}') else {
            out.push_str("$${");
            rest = after;
            continue;
        };
        let name = content.strip_prefix("env:").unwrap_or(content);
        let name = name.split(":-").next().unwrap_or(name);
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        match is_name {
            true => out.push_str(&format!("${{env:{name}}}")),
            // Such as `${input:token}` or `${workspaceFolder}`: only the other client knows these.
            false => out.push_str(&format!("$${{{content}}}")),
        }
        rest = end;
    }
    out + rest
}

/// A name that a manifest accepts.
fn server_name(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' }).collect();
    let plain: String = plain.trim_matches('.').chars().take(64).collect();
    if ToolName::parse(&plain).is_ok() { plain } else { "server".into() }
}

fn read_input(file: &Path) -> Result<String, Failure> {
    let read = if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    read.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}

fn print_yaml(value: &Value) -> Result<(), Failure> {
    print_line(&to_yaml(value).map_err(Failure::Failed)?);
    Ok(())
}

fn to_yaml(value: &Value) -> Result<String, String> {
    let mut text = String::new();
    YamlEmitter::new(&mut text).dump(&yaml_node(value)).map_err(|error| format!("cannot write YAML: {error}"))?;
    Ok(text.trim_start_matches("---\n").to_owned())
}

fn yaml_node(value: &Value) -> Yaml<'_> {
    match value {
        Value::Null => Yaml::Value(Scalar::Null),
        Value::Bool(value) => Yaml::Value(Scalar::Boolean(*value)),
        Value::Number(number) => Yaml::Value(match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Scalar::Integer(number),
            (None, number) => Scalar::FloatingPoint(number.unwrap_or_default().into()),
        }),
        Value::String(text) => Yaml::Value(Scalar::String(text.as_str().into())),
        Value::Array(items) => Yaml::Sequence(items.iter().map(yaml_node).collect()),
        Value::Object(fields) => {
            let mut mapping = Mapping::new();
            for (name, value) in fields {
                mapping.insert(Yaml::Value(Scalar::String(name.as_str().into())), yaml_node(value));
            }
            Yaml::Mapping(mapping)
        }
    }
}

#[cfg(test)]
mod tests {
    use saphyr::LoadableYamlNode as _;

    use super::*;

    #[test]
    fn yaml_keeps_every_value() {
        let value = json!({
            "a": ["yes", "no", "1", "1.5", "null", "~", "", " x ", "a: b", "- x", "# x", "{{ x }}", "'", "\"", "a\nb\n", "é", "0x1", "1_000", "2026-11-23", "\t"],
            "b": {"true": true, "n": null, "i": -7, "f": 2.5, "empty": {}, "none": []},
            "off": "on"
        });
        let text = to_yaml(&value).unwrap();
        let parsed = Yaml::load_from_str(&text).unwrap();
        assert_eq!(parsed, [yaml_node(&value)], "{text}");
    }

    #[test]
    fn servers_of_other_clients_are_converted() {
        let entry = json!({"command": "npx", "args": ["-y", "server", 7], "env": {"TOKEN": "${TOKEN}", "X": "${input:x}", "Y": "a${env:B}c${C:-d}"}});
        assert_eq!(
            convert_server(&entry).unwrap(),
            json!({"command": ["npx", "-y", "server", "7"], "environment": {"TOKEN": "${env:TOKEN}", "X": "$${input:x}", "Y": "a${env:B}c${env:C}"}})
        );
        let entry =
            json!({"type": "http", "url": "https://m.example/mcp", "headers": {"authorization": "Bearer ${KEY}"}});
        assert_eq!(
            convert_server(&entry).unwrap(),
            json!({"url": "https://m.example/mcp", "headers": {"authorization": "Bearer ${env:KEY}"}})
        );
        assert!(
            convert_server(&json!({"type": "sse", "url": "https://m.example/sse"}))
                .unwrap_err()
                .contains("old HTTP+SSE")
        );
        assert!(convert_server(&json!({})).unwrap_err().contains("neither"));
        assert_eq!((server_name("My Server!").as_str(), server_name("..").as_str()), ("My_Server_", "server"));
    }
}
