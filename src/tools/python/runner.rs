//! A function of a module as a tool's runner.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use super::async_lane::AsyncLane;
use super::protocol::{self, Function};
use super::sync_lane::SyncLane;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::Runner;

/// A function and the workers that run it.
pub(super) struct FunctionRunner {
    pub function: Function,
    pub lane: Lane,
}

/// Where a function runs.
pub(super) enum Lane {
    Sync(Arc<SyncLane>),
    Async(Arc<AsyncLane>),
}

#[async_trait]
impl Runner for FunctionRunner {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        // Half of the time is for waiting, at most: who waited longer would be ended in the middle, and a worker with it.
        let now = Instant::now();
        let begin_by = now + context.deadline.saturating_duration_since(now) / 2;
        let said = match &self.lane {
            Lane::Sync(lane) => lane.call(&self.function, &arguments, &context, begin_by).await,
            Lane::Async(lane) => lane.call(&self.function, &arguments, &context, begin_by).await,
        };
        protocol::shortened(said, &context)
    }

    fn is_available(&self) -> bool {
        match &self.lane {
            Lane::Sync(lane) => !lane.is_down(),
            Lane::Async(lane) => !lane.is_down(),
        }
    }

    fn takes_context(&self) -> bool {
        self.function.takes_context
    }
}
