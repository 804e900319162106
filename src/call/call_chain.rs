//! The calls of tools that led to a call.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::definition::ToolName;
use super::invocation_id::InvocationId;
use super::selection::Selection;

/// The chain of nested calls that led to a call. The default is the chain of a client's own call.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CallChain {
    /// The call whose tool made this call.
    pub parent: Option<InvocationId>,
    /// The attempt of that call which made this call.
    pub parent_attempt: u32,
    /// The tools of the calls that led here, the outermost first.
    #[serde(rename = "chain")]
    pub tools: Arc<[ToolName]>,
    /// The nearest agent among these tools.
    pub agent: Option<ToolName>,
    /// Levels of nested calls that are still permitted for this call. `None` for a client's own
    /// call, which has no limit yet.
    pub remaining_depth: Option<u32>,
    /// Patterns of tools that the request denies, as the request wrote them. They hold for all
    /// nested calls.
    pub deny: Arc<[String]>,
    /// The tools that the client's connection has. It bounds the tools that a search finds.
    #[serde(default)]
    pub selection: Selection,
    /// Whether the request denies the tool of this call to the model.
    pub denied: bool,
    /// Whether a script made this call. It may repeat a call, and gets whole results.
    #[serde(default)]
    pub from_script: bool,
}

impl CallChain {
    /// Whether a call of this tool led to this call, directly or through other calls.
    pub fn includes_tool(&self, tool: &ToolName) -> bool {
        self.tools.contains(tool)
    }
}
