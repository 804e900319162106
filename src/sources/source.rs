//! The interface of sources: parties that provide tools, how their tools are listed, and what a
//! listing contains.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::call::canonical::canonical_json;
use crate::call::{Effect, EnvVar, JsonObject};
use crate::kinds::Runner;
use crate::kinds::sandbox::SandboxReport;
use crate::schema::SchemaOwner;
use crate::secrets::Redactor;
use crate::sources::openapi::reader::LeftOut;

/// A party that brings tools of its own, such as a Python module or an MCP server. Dropping the
/// source and its runners ends everything that it has started.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Starts the source and lists its tools. `report` receives progress messages for slow steps.
    /// Called again after a failure, and after [`Source::changed`] has ended. The runners of an
    /// earlier listing must keep working then. Dropping the future stops what it has started.
    async fn list(&self, report: &StatusFn) -> Result<SourceListing, SourceFault>;

    /// The current state of the source.
    fn status(&self) -> SourceStatus;

    /// Ends when the tools may differ from the last listing, so that the source should be listed
    /// again. Never ends if the source cannot detect that.
    async fn changed(&self) {
        std::future::pending::<()>().await;
    }
}

/// Receives short messages for people about what a source is doing, e.g. "installing 12 packages".
pub type StatusFn = dyn Fn(String) + Send + Sync;

/// The result of listing a source.
#[derive(Default)]
pub struct SourceListing {
    /// The tools, in the source's order and under the source's names.
    pub tools: Vec<DiscoveredTool>,
    /// Sentences about tools that could not be offered, and about other problems. Each names the
    /// position.
    pub warnings: Vec<String>,
    /// The source's names of tools that cannot be offered. The warnings give the reasons.
    pub skipped_names: Vec<String>,
}

/// The operations of an OpenAPI document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = OperationsView)]
pub struct Operations {
    /// All operations of the document.
    pub found: usize,
    /// Those that are tools.
    pub imported: usize,
    /// Those that are selected and cannot be tools.
    pub left_out: Vec<LeftOut>,
}

/// One tool of a source, before the manifest's settings are applied.
pub struct DiscoveredTool {
    /// The source's own name for the tool, not validated yet.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The schema of the arguments, not compiled yet.
    pub input_schema: Value,
    /// The schema of the output, if the source declares one.
    pub output_schema: Option<Value>,
    /// Who wrote both schemas.
    pub schema_owner: SchemaOwner,
    /// What the tool may do, if the source knows. The manifest takes precedence.
    pub effect: Option<Effect>,
    /// Words to filter `GET /tools` by.
    pub tags: Vec<String>,
    /// The MCP annotations.
    pub annotations: JsonObject,
    /// `_meta` of an MCP tool.
    pub meta: JsonObject,
    /// Whether results are final answers.
    pub result_as_answer: bool,
    /// The most calls that the tool may have in total. Limits of the manifest replace this.
    pub max_calls: Option<u64>,
    /// Environment variables that the tool declares. Those of the manifest take precedence.
    pub env: Vec<EnvVar>,
    /// The runner of the tool.
    pub runner: Arc<dyn Runner>,
    /// For a tool that another party defines: its definition, so that an operator can approve (pin)
    /// it.
    pub snapshot: Option<ToolDefinitionSnapshot>,
}

/// A tool as its source defines it, for approval.
#[derive(Clone)]
pub struct ToolDefinitionSnapshot {
    /// The hashes of the definition, before anything was removed from it.
    pub fingerprint: Arc<DefinitionFingerprint>,
    /// Runs the tool while the source defines it exactly so. If the definition changes, calls fail
    /// with [`ToolError::DefinitionChanged`](crate::call::ToolError).
    pub runner: Arc<dyn Runner>,
}

/// The hashes of a definition: SHA-256 of canonical JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionFingerprint {
    /// The hash of all parts and the name.
    pub full_hash: [u8; 32],
    /// The hash of each part.
    pub part_hashes: BTreeMap<&'static str, [u8; 32]>,
}

impl DefinitionFingerprint {
    /// The hashes of a tool with this name. Parts without a value are left out.
    pub fn new(name: &str, parts: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Self {
        let parts: BTreeMap<&str, Value> = parts
            .into_iter()
            .filter_map(|(part, value)| Some((part, value?)))
            .collect();
        let hash = |bytes: Vec<u8>| -> [u8; 32] { Sha256::digest(bytes).into() };
        let named_parts: BTreeMap<&str, Value> = parts
            .clone()
            .into_iter()
            .chain([("name", Value::from(name))])
            .collect();
        Self {
            full_hash: hash(canonical_json(&named_parts)),
            part_hashes: parts
                .iter()
                .map(|(part, value)| (*part, hash(canonical_json(value))))
                .collect(),
        }
    }
}

impl DiscoveredTool {
    /// Removes secrets from what callers and models see. A default that contains a secret is
    /// removed completely: its redacted text would be filled in as a value. The source applies the
    /// original default itself.
    pub(crate) fn redact_secrets(&mut self, redactor: &Redactor) {
        redactor.redact_string(&mut self.description);
        let objects = [&mut self.annotations, &mut self.meta];
        objects
            .into_iter()
            .flat_map(JsonObject::values_mut)
            .for_each(|value| redactor.redact_json(value));
        let schemas = std::iter::once(&mut self.input_schema).chain(&mut self.output_schema);
        for schema in schemas {
            drop_secret_defaults(schema, redactor);
            redactor.redact_json(schema);
        }
    }
}

fn drop_secret_defaults(schema: &mut Value, redactor: &Redactor) {
    match schema {
        Value::Object(fields) => {
            let is_secret = |default: &Value| {
                let mut clean = default.clone();
                redactor.redact_json(&mut clean);
                clean != *default
            };
            if fields.get("default").is_some_and(is_secret) {
                fields.shift_remove("default");
            }
            fields
                .values_mut()
                .for_each(|value| drop_secret_defaults(value, redactor));
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| drop_secret_defaults(item, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Why a source has no tools: one sentence that says where and what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceFault(pub String);

/// The state of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceStatus {
    /// Whether its calls can be attempted.
    pub is_up: bool,
    /// The number of processes that are ready or at work.
    pub workers: usize,
    /// The number of processes that were replaced since the listing.
    pub replaced: u64,
    /// Why the source is unavailable, or the last failure since the last good start.
    pub fault: Option<String>,
    /// The time of that failure.
    pub fault_at: Option<Instant>,
    /// The operations of an OpenAPI document.
    pub operations: Option<Arc<Operations>>,
    /// The sandbox of its processes.
    pub sandbox: Option<SandboxReport>,
}

impl SourceStatus {
    /// A source that is not up, because it has failed now.
    pub(in crate::sources) fn failed(fault: &str) -> Self {
        Self {
            fault: Some(fault.to_owned()),
            fault_at: Some(Instant::now()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::UnavailableTool;

    #[test]
    fn redaction_covers_schemas_and_defaults() {
        let schema = json!({
            "properties": {"key": {"type": "string", "default": "very-secret", "description": "Like very-secret"}, "n": {"default": 1}}
        });
        let mut tool = DiscoveredTool {
            name: "t".into(),
            description: "Uses very-secret.".into(),
            input_schema: schema,
            output_schema: None,
            schema_owner: SchemaOwner::Foreign,
            effect: None,
            tags: Vec::new(),
            annotations: JsonObject::from_iter([("title".to_owned(), json!("very-secret tool"))]),
            meta: JsonObject::from_iter([("a".to_owned(), json!({"b": "very-secret"}))]),
            result_as_answer: false,
            max_calls: None,
            env: Vec::new(),
            runner: Arc::new(UnavailableTool::new(|| (String::new(), None))),
            snapshot: None,
        };
        tool.redact_secrets(&Redactor::new(["very-secret"]));
        let all = format!(
            "{} {} {:?} {:?}",
            tool.description, tool.input_schema, tool.annotations, tool.meta
        );
        assert!(!all.contains("very-secret"), "{all}");
        let properties = &tool.input_schema["properties"];
        assert_eq!(
            (
                properties["key"].get("default"),
                &properties["n"]["default"]
            ),
            (None, &json!(1))
        );
    }
}
