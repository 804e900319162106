//! Something outside that brings tools: how it is asked for them, and what it says.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::Runner;
use crate::call::JsonObject;

/// Something outside that brings tools of its own, such as a Python module. Dropping it and the runners it gave ends
/// all that it started.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Starts it and lists its tools. `told` hears what takes long. Asked again after a failure; dropping the future
    /// stops what was begun.
    async fn list(&self, told: &Told) -> Result<Listed, SourceFault>;

    /// How it is now.
    fn status(&self) -> SourceStatus;
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
    /// Runs it.
    pub runner: Arc<dyn Runner>,
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
    /// Why it is down, or what went wrong last.
    pub fault: Option<String>,
}
