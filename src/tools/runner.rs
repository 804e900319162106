//! The interface of every kind of tool.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{ValueFault, Values};
use crate::call::{Definition, JsonObject, ToolContext, ToolError, ToolResult};

/// Runs a tool. A tool has one runner, which all its calls share.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Makes one attempt. Dropping the future must stop everything that it has started.
    async fn call(
        &self,
        arguments: Arc<JsonObject>,
        context: ToolContext,
    ) -> Result<ToolResult, ToolError>;

    /// Faults of values that a JSON Schema cannot express. Checked before the call costs anything.
    fn value_faults(&self, _values: Values<'_>) -> Vec<ValueFault> {
        Vec::new()
    }

    /// Whether all calls have the same target. Otherwise one bad target must not open the circuit
    /// for the others.
    fn has_one_target(&self) -> bool {
        true
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

    /// Whether a call gets the caller's whole `context` if the tool declares no fields. It is
    /// cached by named fields only.
    fn takes_context(&self) -> bool {
        false
    }

    /// Whether a call gets to know which agent makes it, so that its results may depend on that.
    fn sees_agent(&self) -> bool {
        self.takes_context()
    }

    /// The names of the credentials that calls send for their caller. A caller without one of them
    /// is refused.
    fn caller_credentials(&self) -> &[String] {
        &[]
    }

    /// Whether the runner can take declared fields of the caller's `context`.
    fn takes_context_fields(&self) -> bool {
        self.takes_context()
    }

    /// Whether it calls other tools. Then its results may depend on the tools that the request
    /// denies.
    fn calls_tools(&self) -> bool {
        false
    }

    /// Whether a model can hand work to this agent with it. Then its description names the agent
    /// and its purpose.
    fn delegates_to(&self, _agent: &Definition) -> bool {
        false
    }

    /// The timeout of one attempt, if the kind has a better value than the general default.
    fn default_timeout(&self) -> Option<Duration> {
        None
    }

    /// Whether calls may ask their caller ([`ToolContext::ask`]).
    fn may_ask(&self) -> bool {
        self.calls_tools()
    }

    /// Whether it reads further pages of recorded results, so that models can be referred to it.
    fn reads_results(&self) -> bool {
        false
    }

    /// Whether results may be cached. A part of another cached result must not be: it would outlive
    /// the original.
    fn is_cacheable(&self) -> bool {
        true
    }
}
