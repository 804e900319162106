//! Something outside that brings tools: how it is asked for them, and what it says.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::Runner;
use crate::call::canonical::canonical;
use crate::call::{EnvVar, JsonObject};
use crate::secrets::Redactor;

/// Something outside that brings tools of its own, such as a Python module or an MCP server. Dropping it and the runners it gave ends
/// all that it started.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Starts it and lists its tools. `told` hears what takes long. Asked again after a failure, and when
    /// [`Source::changed`] has ended: what runs the tools of an earlier listing must stay good then. Dropping the future
    /// stops what was begun.
    async fn list(&self, told: &Told) -> Result<Listed, SourceFault>;

    /// How it is now.
    fn status(&self) -> SourceStatus;

    /// Ends when its tools may be others than those it listed last, and it should be asked again; never, where it has
    /// no way to know.
    async fn changed(&self) {
        std::future::pending::<()>().await;
    }
}

/// Hears, in a few words for people, what a source is busy with, e.g. "installing 12 packages".
pub type Told = dyn Fn(String) + Send + Sync;

/// What a source brings.
#[derive(Default)]
pub struct Listed {
    /// Its tools, in its own order and under its own names.
    pub tools: Vec<Offer>,
    /// What it could not offer, and other oddities: sentences that say where.
    pub warnings: Vec<String>,
    /// Own names of tools that it has and that cannot be offered; why is among the warnings.
    pub left_out: Vec<String>,
}

/// One tool of a source, before the manifest has its say.
pub struct Offer {
    /// The source's own name for it; nobody has looked at it yet.
    pub name: String,
    /// For the model.
    pub description: String,
    /// What it takes; not compiled yet.
    pub input_schema: Value,
    /// What it promises.
    pub output_schema: Option<Value>,
    /// MCP annotations.
    pub annotations: JsonObject,
    /// Its results are final answers.
    pub result_as_answer: bool,
    /// How many calls it may have, over all; limits of the manifest replace this.
    pub max_calls: Option<u64>,
    /// Variables that it declares itself; those of the manifest go before.
    pub env: Vec<EnvVar>,
    /// Runs it.
    pub runner: Arc<dyn Runner>,
    /// How it can be approved as it is, where somebody else decides what it is.
    pub said: Option<Said>,
}

/// A tool as its source defines it.
#[derive(Clone)]
pub struct Said {
    /// Of the definition, before anything was taken out of it.
    pub prints: Arc<Prints>,
    /// Runs it as long as the source says just that of it, and otherwise fails with [`ToolError::Changed`](crate::call::ToolError).
    pub runner: Arc<dyn Runner>,
}

/// Hashes of a definition: SHA-256 over canonical JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prints {
    /// Over all parts and the name.
    pub whole: [u8; 32],
    /// Over each part.
    pub parts: BTreeMap<&'static str, [u8; 32]>,
}

impl Prints {
    /// Of a tool of that name and those of its parts that it has.
    pub fn of(name: &str, parts: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Self {
        let parts: BTreeMap<&str, Value> = parts.into_iter().filter_map(|(part, value)| Some((part, value?))).collect();
        let hash = |bytes: Vec<u8>| -> [u8; 32] { Sha256::digest(bytes).into() };
        let whole: BTreeMap<&str, Value> = parts.clone().into_iter().chain([("name", Value::from(name))]).collect();
        Self {
            whole: hash(canonical(&whole)),
            parts: parts.iter().map(|(part, value)| (*part, hash(canonical(value)))).collect(),
        }
    }
}

impl Offer {
    /// Takes secrets out of what callers and models see. A default that holds one is left out: what stood in its place
    /// would be filled in, and the source has the default itself.
    pub(crate) fn clean(&mut self, redactor: &Redactor) {
        redactor.string(&mut self.description);
        self.annotations.values_mut().for_each(|value| redactor.progress(value));
        let schemas = std::iter::once(&mut self.input_schema).chain(&mut self.output_schema);
        for schema in schemas {
            drop_secret_defaults(schema, redactor);
            redactor.progress(schema);
        }
    }
}

fn drop_secret_defaults(schema: &mut Value, redactor: &Redactor) {
    match schema {
        Value::Object(fields) => {
            let is_secret = |default: &Value| {
                let mut clean = default.clone();
                redactor.progress(&mut clean);
                clean != *default
            };
            if fields.get("default").is_some_and(is_secret) {
                fields.shift_remove("default");
            }
            fields.values_mut().for_each(|value| drop_secret_defaults(value, redactor));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_secret_defaults(item, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Why a source has no tools; one sentence that says where and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFault(pub String);

impl fmt::Display for SourceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a source is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceStatus {
    /// Its calls can be tried.
    pub up: bool,
    /// Processes that are ready or at work.
    pub workers: usize,
    /// Processes that were replaced since it was listed.
    pub replaced: u64,
    /// Why it is down, or what went wrong since the last good start.
    pub fault: Option<String>,
    /// When that was.
    pub fault_at: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::StandIn;

    #[test]
    fn a_secret_stands_in_no_schema_and_is_no_default() {
        let schema = json!({
            "properties": {"key": {"type": "string", "default": "very-secret", "description": "Like very-secret"}, "n": {"default": 1}}
        });
        let mut offer = Offer {
            name: "t".into(),
            description: "Uses very-secret.".into(),
            input_schema: schema,
            output_schema: None,
            annotations: JsonObject::from_iter([("title".to_owned(), json!("very-secret tool"))]),
            result_as_answer: false,
            max_calls: None,
            env: Vec::new(),
            runner: Arc::new(StandIn::new(|| (String::new(), None))),
            said: None,
        };
        offer.clean(&Redactor::new(["very-secret"]));
        let all = format!("{} {} {:?}", offer.description, offer.input_schema, offer.annotations);
        assert!(!all.contains("very-secret"), "{all}");
        let properties = &offer.input_schema["properties"];
        assert_eq!((properties["key"].get("default"), &properties["n"]["default"]), (None, &json!(1)));
    }
}
