//! A function of a module as a tool's runner.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use super::async_supervisor::AsyncWorkerSupervisor;
use super::protocol::{self, Function};
use super::sync_pool::SyncPool;
use crate::call::{JsonObject, ToolContext};
use crate::kinds::{Runner, RunnerTraits, ToolOutcome};

pub(super) struct FunctionRunner {
    pub function: Function,
    pub pool: WorkerPool,
}

/// The workers that run a function.
pub(super) enum WorkerPool {
    Sync(Arc<SyncPool>),
    Async(Arc<AsyncWorkerSupervisor>),
}

#[async_trait]
impl Runner for FunctionRunner {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        // Wait for at most half of the remaining time. A call that started later would probably
        // reach its deadline while it runs, and its end would also end its worker.
        let now = Instant::now();
        let begin_by = now + context.deadline.saturating_duration_since(now) / 2;
        let result = match &self.pool {
            WorkerPool::Sync(pool) => {
                pool.call(&self.function, &arguments, &context, begin_by)
                    .await
            }
            WorkerPool::Async(pool) => {
                pool.call(&self.function, &arguments, &context, begin_by)
                    .await
            }
        };
        protocol::shorten_error(result, &context)
    }

    fn is_available(&self) -> bool {
        match &self.pool {
            WorkerPool::Sync(pool) => !pool.is_unavailable(),
            WorkerPool::Async(pool) => !pool.is_unavailable(),
        }
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            may_ask: self.function.may_ask(),
            ..RunnerTraits::with_context(self.function.takes_context)
        }
    }
}
