//! Reads a tool that came over HTTP. It is an entry of `tools:` as JSON, read by the same reader
//! but with less trust.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::decode::Findings;
use super::finding::{Finding, Severity};
use super::inputs::Inputs;
use super::node::Node;
use super::references::{ManifestInput, Secrets};
use super::schema::json_schema;
use super::sections::PolicyEntry;
use super::tool::read_tool;
use crate::call::Origin;
use crate::call::words;
use crate::kinds::sandbox::SandboxDefaults;
use crate::kinds::{Databases, HttpClients, Tool};

/// `defaults:` of a manifest. It also applies to registered tools.
#[derive(Debug, Clone, Default)]
pub struct Defaults(pub(super) PolicyEntry);

/// Resolves no references, because a registration must not name variables or files of the process.
struct NoInput;

impl ManifestInput for NoInput {
    fn env_var(&self, _: &str) -> Option<String> {
        None
    }

    fn read_text(&self, _: &Path) -> std::io::Result<String> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Reads the definition of a tool that is registered at run time. Also returns warnings and hints.
///
/// # Errors
/// All findings. Their positions are JSON Pointers.
pub fn read_registered_tool(
    name: &str,
    value: &Value,
    defaults: &Defaults,
    clients: &HttpClients,
) -> Result<(Tool, Vec<Finding>), Vec<Finding>> {
    let (findings, node) = (Findings::default(), Node::from_json(value));
    let inputs = Inputs {
        input: &NoInput,
        base: Path::new(""),
        defaults: &defaults.0,
        natives: &HashMap::new(),
        origin: Origin::Registered,
        clients,
        databases: &Databases::default(),
        sandboxes: &SandboxDefaults::default(),
        callers: &[],
        warns_of_documents: false,
        secrets: &Secrets::default(),
    };
    let path = format!("tools.{name}");
    let tool = read_tool(&inputs, name, findings.entry(&node, &path));
    let mut findings = findings.into_list();
    findings.sort_by_key(|finding| finding.severity == Severity::Warning);
    match tool {
        Some(tool) => Ok((tool, findings)),
        None => Err(findings),
    }
}

/// What only the operator's file may have: types of the manifest's schema, and their keys.
const PRIVILEGED: [(&str, &str); 3] = [
    ("HttpTool", "env"),
    ("HttpTool", "auth"),
    ("RequestConfig", "allow_private"),
];

/// Numbers that must not be zero: types of the manifest's schema, and their keys.
const POSITIVE: [(&str, &str); 3] = [
    ("Retry", "attempts"),
    ("ConcurrencyEntry", "max"),
    ("ConcurrencyEntry", "per_caller"),
];
/// Types that the OpenAPI document has for other routes as well.
const SHARED: [&str; 11] = words(
    "CacheScope Capture Duration Effect Idempotency Limit LimitScope OnDisconnect
     OutputCheckMode Paging Per",
);

/// The JSON Schema of a registered tool, and those to which it refers, by their names in the
/// OpenAPI document.
pub(crate) fn registered_schemas() -> Map<String, Value> {
    let mut definitions = json_schema()["$defs"].take();
    for (name, key) in PRIVILEGED {
        if let Some(Value::Object(keys)) = definitions[name].get_mut("properties") {
            keys.shift_remove(key);
        }
    }
    for (name, key) in POSITIVE {
        definitions[name]["properties"][key]["minimum"] = 1.into();
    }
    let (mut schemas, mut open) = (Map::new(), vec!["HttpTool".to_owned()]);
    while let Some(name) = open.pop() {
        let mut schema = definitions[&name].take();
        if !schema.is_null() {
            refer_to_components(&mut schema, &mut open);
            schemas.insert(component_name(&name), schema);
        }
    }
    schemas
}

fn is_shared(name: &str) -> bool {
    SHARED.contains(&name)
}

fn component_name(name: &str) -> String {
    match name {
        "HttpTool" => "RegisteredTool".to_owned(),
        _ if is_shared(name) => name.to_owned(),
        _ => {
            let name = name.trim_end_matches("Entry").trim_end_matches("Config");
            format!("Registered{name}")
        }
    }
}

/// Changes the targets of references, and adds their names to `found`. Examples are left out: they
/// have references to variables, which a registered tool cannot have.
fn refer_to_components(schema: &mut Value, found: &mut Vec<String>) {
    if let Value::Object(keywords) = schema {
        keywords.retain(|keyword, value| keyword != "examples" || !value.is_array());
        if let Some(Value::String(reference)) = keywords.get_mut("$ref")
            && let Some(name) = reference.strip_prefix("#/$defs/").map(str::to_owned)
        {
            *reference = format!("#/components/schemas/{}", component_name(&name));
            found.extend(Some(name).filter(|name| !is_shared(name)));
        }
    }
    match schema {
        Value::Object(keywords) => {
            keywords
                .values_mut()
                .for_each(|value| refer_to_components(value, found));
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| refer_to_components(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(value: &Value) -> Vec<(String, String)> {
        let findings =
            read_registered_tool("t", value, &Defaults::default(), &HttpClients::default())
                .err()
                .unwrap_or_default();
        let errors = findings
            .into_iter()
            .filter(|finding| finding.severity == Severity::Error);
        errors
            .map(|finding| (finding.location.pointer().unwrap(), finding.message))
            .collect()
    }

    fn http(request: &Value) -> Value {
        json!({"kind": "http", "description": "…", "parameters": {"a/b": {"type": "string", "default": ""}, "host": {"type": "string"}}, "request": request})
    }

    #[test]
    fn registered_json_becomes_a_tool() {
        let value =
            http(&json!({"url": "https://api.example.com/v1/$${x}", "query": {"q": "{{ host }}"}}));
        let (tool, _) =
            read_registered_tool("t", &value, &Defaults::default(), &HttpClients::default())
                .unwrap_or_else(|f| panic!("{}", f[0]));
        assert_eq!((tool.name(), tool.origin), ("t", Origin::Registered));
        assert!(!tool.settings.generation.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn faults_have_json_pointers() {
        let mut value = http(&json!({"url": "https://api.example.com/", "methd": "GET"}));
        value["timeout"] = json!("soon");
        value["parameters"]["a/b"]["typ"] = json!("string");
        let found = faults(&value);
        let pointers: Vec<&str> = found.iter().map(|(pointer, _)| pointer.as_str()).collect();
        for pointer in ["/timeout", "/parameters/a~1b/typ", "/request/methd"] {
            assert!(pointers.contains(&pointer), "{found:?}");
        }
    }

    #[test]
    fn registration_refuses_privileged_settings() {
        for (value, pointer, expected) in [
            (
                json!({"kind": "command", "command": ["/bin/true"]}),
                "/kind",
                "kind http",
            ),
            (
                json!({"kind": "native", "use": "read_file"}),
                "/kind",
                "kind http",
            ),
            (json!({"kind": "python"}), "/kind", "kind http"),
            (
                http(&json!({"url": "https://x.example/", "headers": {"k": "${env:HOME}"}})),
                "/request/headers/k",
                "reference",
            ),
            (
                http(&json!({"url": "https://x.example/${file:/etc/passwd}"})),
                "/request/url",
                "reference",
            ),
            (
                http(&json!({"url": "https://x.example/", "body": "${other}"})),
                "/request/body",
                "reference",
            ),
            (
                http(&json!({"url": "https://x.example/", "allow_private": true})),
                "/request/allow_private",
                "allow_private",
            ),
            (
                http(&json!({"url": "http://127.0.0.1/"})),
                "/request/url",
                "may not reach",
            ),
            (
                http(&json!({"url": "http://localhost:80/"})),
                "/request/url",
                "may not reach",
            ),
            (
                http(&json!({"url": "http://[::ffff:10.0.0.1]/"})),
                "/request/url",
                "may not reach",
            ),
            (
                http(&json!({"url": "http://169.254.169.254/latest"})),
                "/request/url",
                "may not reach",
            ),
            (
                http(&json!({"url": "http://{{ host }}/", "allow_hosts": ["10.1.2.3"]})),
                "/request/url",
                "may not reach",
            ),
            (json!([]), "", "a map"),
            (json!("x"), "", "a map"),
        ] {
            let found = faults(&value);
            assert!(
                found
                    .iter()
                    .any(|(at, message)| at == pointer && message.contains(expected)),
                "{value}: {found:?}"
            );
        }
        let mut env = http(&json!({"url": "https://x.example/"}));
        env["env"] = json!([{"name": "HOME"}]);
        assert_eq!(faults(&env)[0].0, "/env");
        env["env"] = json!(null);
        env["description"] = json!("costs ${env:HOME}");
        assert!(faults(&env).iter().any(|(at, _)| at == "/description"));
    }
}
