//! The interface of every kind of tool.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::sandbox::EntrySandbox;
use super::{ValueFault, Values};
use crate::call::{Definition, JsonObject, ToolContext, ToolError, ToolResult};

/// What is true of all calls of a runner. The layers ask for nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerTraits {
    /// All calls have the same target. Otherwise one bad target must not open the circuit for the
    /// others.
    pub has_one_target: bool,
    /// A call gets the caller's whole `context` if the tool declares no fields. It is cached by named
    /// fields only.
    pub takes_context: bool,
    /// The runner can take declared fields of the caller's `context`.
    pub takes_context_fields: bool,
    /// A call gets to know which agent makes it, so its results may depend on that.
    pub sees_agent: bool,
    /// It calls other tools. Then its results may depend on the tools that the request denies.
    pub calls_tools: bool,
    /// It finds tools that a list leaves out, or calls them. So each list has it, and a search does
    /// not find it.
    pub finds_tools: bool,
    /// It runs scripts that find and call the tools that a list leaves out. So each shortened list has it, and a
    /// script cannot call it.
    pub runs_scripts: bool,
    /// Calls may ask their caller ([`ToolContext::ask`]).
    pub may_ask: bool,
    /// It reads further pages of recorded results, so models can be referred to it.
    pub reads_results: bool,
    /// Results may be cached. A part of another cached result must not be: it would outlive the
    /// original.
    pub is_cacheable: bool,
}

impl Default for RunnerTraits {
    /// A runner of one target that sees its arguments only.
    fn default() -> Self {
        Self {
            has_one_target: true,
            takes_context: false,
            takes_context_fields: false,
            sees_agent: false,
            calls_tools: false,
            finds_tools: false,
            runs_scripts: false,
            may_ask: false,
            reads_results: false,
            is_cacheable: true,
        }
    }
}

impl RunnerTraits {
    /// A runner that sees the caller's `context`, if `takes` says so.
    pub fn with_context(takes: bool) -> Self {
        Self {
            takes_context: takes,
            takes_context_fields: takes,
            sees_agent: takes,
            ..Self::default()
        }
    }
}

/// What one attempt gives.
pub type ToolOutcome = Result<ToolResult, ToolError>;

/// Runs a tool. A tool has one runner, which all its calls share.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Makes one attempt. Dropping the future must stop everything that it has started.
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome;

    /// What is true of all calls.
    fn traits(&self) -> RunnerTraits {
        RunnerTraits::default()
    }

    /// Faults of values that a JSON Schema cannot express. Checked before the call costs anything.
    fn value_faults(&self, _values: Values<'_>) -> Vec<ValueFault> {
        Vec::new()
    }

    /// The longest result in bytes, if the operator raised it. Texts of that length are then shown
    /// in full.
    fn max_output(&self) -> Option<usize> {
        None
    }

    /// Whether a call can be attempted now. If not, an attempt fails and says why.
    fn is_available(&self) -> bool {
        true
    }

    /// The names of the credentials that calls send for their caller. A caller without one of them
    /// is refused.
    fn caller_credentials(&self) -> &[String] {
        &[]
    }

    /// Whether a model can hand work to this agent with it. Then its description names the agent
    /// and its purpose.
    fn delegates_to(&self, _agent: &Definition) -> bool {
        false
    }

    /// The part of the description about these tools, which every caller of this tool may use.
    fn describe_tools(&self, _tools: &[&Definition]) -> Option<String> {
        None
    }

    /// The sandbox of the programs that calls start.
    fn sandbox(&self) -> Option<&EntrySandbox> {
        None
    }

    /// The timeout of one attempt, if the kind has a better value than the general default.
    fn default_timeout(&self) -> Option<Duration> {
        None
    }
}
