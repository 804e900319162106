//! The JSON Schema of a manifest, made from the types that decode it. Editors complete keys with
//! it, and the reference page is made from it.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::apis::ApiEntry;
use super::modules::ModuleEntry;
use super::sections::{
    Approvals, Cache, Caller, Compat, DefinitionEntry, Ledger, NativeEntry, PolicyEntry,
    ProgramDefaults, Results, Server, Telemetry, ToolsetEntry,
};
use super::servers::ServerEntry;
use super::source_tools::SOURCE_TOOL_KEYS;
use super::typescript_modules::TypescriptEntry;
use crate::call::{CallSettings, Discovery, Kind};
use crate::kinds::{self, builtin};

/// The sections of a manifest.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only the keys and their schemas are used")]
pub(super) struct Sections {
    /// The HTTP service.
    server: Server,
    /// The record of calls.
    ledger: Ledger,
    /// Results in memory, and in Redis.
    cache: Cache,
    /// How much of a result an answer shows.
    results: Results,
    /// Webhooks about calls that wait for a person.
    approvals: Approvals,
    /// Spans, metrics and logs for a collector of OpenTelemetry.
    telemetry: Telemetry,
    /// The HTTP APIs of other servers, for their clients.
    compat: Compat,
    /// `POST /calls`, and how names are matched.
    calls: CallSettings,
    /// Named parts of the tools, for listings, connections and callers.
    toolsets: BTreeMap<String, ToolsetEntry>,
    /// Shortens long lists to the tools that find and call the others.
    discovery: Discovery,
    /// Clients with keys. Without callers, only loopback clients are served, and all are trusted.
    callers: Vec<Caller>,
    #[schemars(
        description = "Further files with `tools`, `python_modules`, `typescript_modules`, `mcp_servers` and `openapi`; `*` stands for any characters."
    )]
    include: Vec<String>,
    /// Policy of every tool that has no such key of its own.
    // The schema has the keys in place.
    defaults: Value,
    /// Tools by name.
    // The schema of a tool depends on its kind.
    tools: BTreeMap<String, Value>,
    /// Python files and modules by name.
    python_modules: BTreeMap<String, ModuleEntry>,
    /// TypeScript and JavaScript files and packages by name.
    typescript_modules: BTreeMap<String, TypescriptEntry>,
    /// MCP servers by name.
    mcp_servers: BTreeMap<String, ServerEntry>,
    /// OpenAPI documents by name. Each operation becomes a tool of kind `http`.
    openapi: BTreeMap<String, ApiEntry>,
}

/// The schema, in JSON Schema 2020-12. `toolcrib check` finds more, because a schema cannot check
/// files, references and other tools.
pub fn json_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let policy = keys_of_type::<PolicyEntry>(&mut generator);
    let definition = keys_of_type::<DefinitionEntry>(&mut generator);
    let of_source = definition.select(&SOURCE_TOOL_KEYS).merge(&policy);
    let mut of_kinds = Map::new();
    for kind in kinds::MANIFEST_KINDS {
        let own = match kind {
            Kind::Native => keys_of_type::<NativeEntry>(&mut generator),
            _ => Keys::from_schema(kinds::manifest_schema(kind, &mut generator)),
        };
        let mut tool = definition
            .merge(&policy)
            .merge(&own)
            .to_object_schema(&format!("A tool of kind `{}`.", kind.as_str()));
        tool["properties"]["kind"] =
            json!({"description": "What runs the tool.", "const": kind.as_str()});
        tool["required"] = own
            .required
            .iter()
            .map(String::as_str)
            .chain(["kind"])
            .collect();
        of_kinds.insert(format!("{}Tool", capitalize(kind.as_str())), tool);
    }
    let tool = choose_by_kind(&of_kinds);
    let generator = &mut generator;
    let mut properties = keys_of_type::<Sections>(generator).properties;
    properties["tools"]["additionalProperties"] = tool;
    let mut defaults = policy
        .merge(&keys_of_type::<ProgramDefaults>(generator))
        .to_object_schema("");
    defaults["description"] = properties["defaults"]["description"].take();
    properties["defaults"] = defaults;
    let mut definitions = Map::new();
    for (name, schema) in builtin::settings_schemas(generator) {
        definitions.insert(name.into(), schema.to_value());
    }
    definitions.extend(generator.take_definitions(true));
    for source in ["ModuleEntry", "ServerEntry", "ApiEntry"] {
        definitions[source]["properties"]["tools"]["additionalProperties"] =
            definition_ref("SourceTool");
    }
    definitions.extend(of_kinds);
    definitions.insert(
        "SourceTool".into(),
        of_source.to_object_schema("Policy and description of a tool that a source brings."),
    );
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Toolcrib manifest",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "$defs": definitions,
    });
    remove_empty_defaults(&mut schema);
    schema
}

/// A tool of one of these kinds. With `oneOf`, an editor reports a wrong key as a fault of the
/// whole tool, because the tool fits none of the kinds. `if` lets it report the key.
fn choose_by_kind(of_kinds: &Map<String, Value>) -> Value {
    let kinds: Vec<&Value> = of_kinds
        .values()
        .map(|tool| &tool["properties"]["kind"]["const"])
        .collect();
    let choices = of_kinds.keys().zip(&kinds).map(|(name, kind)| {
        json!({
            "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
            "then": definition_ref(name),
        })
    });
    json!({
        "type": "object",
        "properties": {"kind": {"description": "What runs the tool.", "enum": kinds}},
        "required": ["kind"],
        "allOf": choices.collect::<Vec<_>>(),
    })
}

/// The keys of one settings type.
#[derive(Default)]
struct Keys {
    properties: Map<String, Value>,
    required: Vec<String>,
}

fn keys_of_type<T: JsonSchema>(generator: &mut SchemaGenerator) -> Keys {
    Keys::from_schema(T::json_schema(generator))
}

impl Keys {
    fn from_schema(schema: schemars::Schema) -> Self {
        let mut schema = schema.to_value();
        let required = schema["required"].as_array().into_iter().flatten();
        let required = required
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let properties = match schema["properties"].take() {
            Value::Object(properties) => properties,
            _ => Map::new(),
        };
        Self {
            properties,
            required,
        }
    }

    fn merge(&self, other: &Self) -> Self {
        let properties = self.properties.iter().chain(&other.properties);
        Self {
            properties: properties
                .map(|(key, schema)| (key.clone(), schema.clone()))
                .collect(),
            required: [self.required.as_slice(), &other.required].concat(),
        }
    }

    fn select(&self, names: &[&str]) -> Self {
        let mut properties = self.properties.clone();
        properties.retain(|key, _| names.contains(&key.as_str()));
        Self {
            properties,
            required: Vec::new(),
        }
    }

    fn to_object_schema(&self, description: &str) -> Value {
        let mut schema =
            json!({"type": "object", "properties": self.properties, "additionalProperties": false});
        if !description.is_empty() {
            schema["description"] = description.into();
        }
        schema
    }
}

fn definition_ref(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

fn capitalize(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    format!("{}{rest}", first.to_ascii_uppercase())
}

/// Removes empty defaults. An absent list means an empty list, so such a default is no information.
fn remove_empty_defaults(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let is_empty = |value: &Value| match value {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Object(fields) => fields.is_empty() || fields.values().all(Value::is_null),
                Value::Bool(_) | Value::Number(_) => false,
            };
            if map.get("default").is_some_and(is_empty) {
                map.shift_remove("default");
            }
            map.values_mut().for_each(remove_empty_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_empty_defaults),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_valid(manifest: &str) -> Result<(), String> {
        let (node, _) =
            crate::manifest::node::Node::parse(std::path::Path::new("test.yaml"), manifest);
        let node = node.expect("YAML");
        let validator = jsonschema::validator_for(&json_schema()).expect("a schema");
        validator
            .validate(&node.to_json())
            .map_err(|error| format!("{}: {error}", error.instance_path()))
    }

    #[test]
    fn schema_accepts_the_full_example() {
        assert_eq!(
            is_valid(include_str!("../../examples/toolcrib.yaml")),
            Ok(())
        );
    }

    #[test]
    fn schema_refuses_unknown_keys() {
        for manifest in [
            "serve: {}",
            "server: {listn: x}",
            "tools: {a: {kind: http, descripton: x, request: {url: 'https://example.com'}}}",
            "tools: {a: {kind: htp}}",
            "mcp_servers: {a: {url: 'https://example.com', tools: {b: {kind: http}}}}",
        ] {
            assert!(is_valid(manifest).is_err(), "{manifest}");
        }
    }

    #[test]
    fn wrong_keys_are_reported_at_their_place() {
        let manifest =
            "tools: {a: {kind: http, request: {url: 'https://example.com', metod: GET}}}";
        let error = is_valid(manifest).unwrap_err();
        assert!(
            error.starts_with("/tools/a") && error.contains("metod"),
            "{error}"
        );
    }

    /// The defaults of keys that have one, in the form of a manifest.
    fn defaults(properties: &Value) -> Value {
        let defaults = properties.as_object().into_iter().flatten();
        defaults
            .filter_map(|(key, property)| Some((key.clone(), property.get("default")?.clone())))
            .collect()
    }

    #[test]
    fn schema_defaults_match_the_code() {
        let schema = json_schema();
        let of = |name: &str| defaults(&schema["$defs"][name]["properties"]);
        let mut policy = defaults(&schema["properties"]["defaults"]["properties"]);
        policy["concurrency"] = of("ConcurrencyEntry");
        let tool = json!({"kind": "native", "use": "calculator"});
        // Written explicitly, these two keys also set the folder of the file and the policy of each
        // tool.
        let ledger = json!({"url": crate::manifest::DEFAULT_LEDGER, "capture": "full"});
        let absent = json!({"ledger": ledger, "tools": {"a": tool}});
        let mut all = json!({"defaults": policy, "tools": {"a": tool}});
        for (section, name) in [
            ("server", "Server"),
            ("ledger", "Ledger"),
            ("cache", "Cache"),
            ("calls", "CallSettings"),
        ] {
            all[section] = of(name);
        }
        let [absent, all] = [absent, all].map(|manifest| {
            let read =
                crate::manifest::testing::load_text(&manifest.to_string()).expect("a manifest");
            let policy = read
                .tools
                .iter()
                .map(|tool| tool.policy.clone())
                .collect::<Vec<_>>();
            format!(
                "{:?}",
                (
                    read.server,
                    read.listen,
                    read.ledger,
                    read.capture,
                    read.cache_bytes,
                    read.calls,
                    policy
                )
            )
        });
        assert_eq!(all, absent);
    }

    /// The example of each key is decoded at the position of the key.
    #[test]
    fn schema_examples_fit_their_keys() {
        let schema = json_schema();
        let mut count = 0;
        let mut check = |at: &str, property: &Value| {
            let mut property = property.clone();
            property["$defs"] = schema["$defs"].clone();
            let validator = jsonschema::validator_for(&property).expect("a schema");
            for example in property["examples"].as_array().into_iter().flatten() {
                assert!(validator.is_valid(example), "{at}: {example}");
                count += 1;
            }
        };
        for (name, definition) in schema["$defs"].as_object().expect("definitions") {
            for (key, property) in definition["properties"].as_object().into_iter().flatten() {
                check(&format!("{name}.{key}"), property);
            }
        }
        assert!(count > 100, "{count}");
    }
}
