//! A function of a module as a tool's runner.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::async_lane::AsyncLane;
use super::protocol::Function;
use super::sync_lane::SyncLane;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::Runner;

/// A call that has less time left than this does not begin: it would be ended at once, and with it perhaps a worker.
const LEAST: Duration = Duration::from_millis(20);

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
        let begin_by = context.deadline.checked_sub(LEAST).unwrap_or(context.deadline);
        match &self.lane {
            Lane::Sync(lane) => lane.call(&self.function, &arguments, &context, begin_by).await,
            Lane::Async(lane) => lane.call(&self.function, &arguments, &context, begin_by).await,
        }
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
