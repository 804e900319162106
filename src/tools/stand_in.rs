//! Stands for a tool that is known by name only: what would run it is not there.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Runner;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};

/// A runner whose calls are all refused; they say why, as it is when they come.
pub struct StandIn(Box<Why>);

/// Says why something is not there, as it is now: a sentence, and how long to wait when that is known.
pub type Why = dyn Fn() -> (String, Option<Duration>) + Send + Sync;

impl StandIn {
    /// `why` is asked for each call: a sentence, and how long to wait when that is known.
    pub fn new(why: impl Fn() -> (String, Option<Duration>) + Send + Sync + 'static) -> Self {
        Self(Box::new(why))
    }
}

#[async_trait]
impl Runner for StandIn {
    async fn call(&self, _: Arc<JsonObject>, _: ToolContext) -> Result<ToolResult, ToolError> {
        let (why, wait) = (self.0)();
        Err(ToolError::unavailable_before(why, wait))
    }

    fn has_one_target(&self) -> bool {
        // Nothing of its is tried, so a circuit breaker would have nothing to go by.
        false
    }

    fn is_available(&self) -> bool {
        false
    }

    fn takes_context(&self) -> bool {
        // What would run the tool may take it.
        true
    }

    fn keeps(&self) -> bool {
        false
    }
}
