//! Runs a tool whose real runner is missing: every call fails with the reason.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Runner, RunnerTraits};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};

/// A runner that refuses every call with the current reason.
pub struct UnavailableTool(Box<UnavailableReason>);

/// Gives the current reason why a runner is missing: a sentence, and how long to wait if that is
/// known.
pub type UnavailableReason = dyn Fn() -> (String, Option<Duration>) + Send + Sync;

impl UnavailableTool {
    /// A stand-in that calls `reason` for each call: a sentence, and how long to wait if that is
    /// known.
    pub fn new(reason: impl Fn() -> (String, Option<Duration>) + Send + Sync + 'static) -> Self {
        Self(Box::new(reason))
    }
}

#[async_trait]
impl Runner for UnavailableTool {
    async fn call(&self, _: Arc<JsonObject>, _: ToolContext) -> Result<ToolResult, ToolError> {
        let (reason, wait) = (self.0)();
        Err(ToolError::unavailable_before_start(reason, wait))
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            // No call reaches a target, so there is nothing for a circuit breaker.
            has_one_target: false,
            is_cacheable: false,
            // The real runner may take the context.
            ..RunnerTraits::with_context(true)
        }
    }

    fn is_available(&self) -> bool {
        false
    }
}
