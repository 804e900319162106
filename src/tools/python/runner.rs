//! A function of a module as a tool's runner.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use super::async_lane::AsyncLane;
use super::protocol::{self, Function};
use super::sync_lane::SyncLane;
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::Runner;

pub(super) struct FunctionRunner {
    pub function: Function,
    pub lane: WorkerPool,
}

/// The workers that run a function.
pub(super) enum WorkerPool {
    Sync(Arc<SyncLane>),
    Async(Arc<AsyncLane>),
}

#[async_trait]
impl Runner for FunctionRunner {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        // Wait for at most half of the remaining time. A call that started later would probably reach its deadline
        // while it runs, and its end would also end its worker.
        let now = Instant::now();
        let begin_by = now + context.deadline.saturating_duration_since(now) / 2;
        let said = match &self.lane {
            WorkerPool::Sync(lane) => lane.call(&self.function, &arguments, &context, begin_by).await,
            WorkerPool::Async(lane) => lane.call(&self.function, &arguments, &context, begin_by).await,
        };
        protocol::shortened(said, &context)
    }

    fn is_available(&self) -> bool {
        match &self.lane {
            WorkerPool::Sync(lane) => !lane.is_down(),
            WorkerPool::Async(lane) => !lane.is_down(),
        }
    }

    fn takes_context(&self) -> bool {
        self.function.takes_context
    }
}
