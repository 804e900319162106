//! All workers of a module: those for blocking functions, and the one for coroutines.

use std::sync::Arc;

use super::async_supervisor::AsyncWorkerSupervisor;
use super::protocol::{Function, Mode, Role};
use super::runner::{FunctionRunner, WorkerPool};
use super::sync_pool::SyncPool;
use super::worker::{Launcher, Worker};
use crate::call::JsonObject;
use crate::sources::{DiscoveredTool, SourceStatus};

/// The workers after a listing, or the reason why there are none.
#[derive(Default)]
pub(super) struct WorkerPools {
    blocking: Option<Arc<SyncPool>>,
    coroutines: Option<Arc<AsyncWorkerSupervisor>>,
    /// The state without workers.
    unlisted: SourceStatus,
}

impl WorkerPools {
    /// Workers for these functions. `first` was started as a worker for blocking functions. If
    /// there are no such functions, it was needed only for the listing and ends.
    pub(super) fn new(launcher: &Arc<Launcher>, first: Worker, functions: &[Function]) -> Self {
        if launcher.settings.share {
            let coroutines = AsyncWorkerSupervisor::new(launcher, Role::Shared, Some(first));
            return Self {
                coroutines: Some(coroutines),
                ..Self::default()
            };
        }
        let has = |mode| functions.iter().any(|function| function.mode == mode);
        Self {
            blocking: has(Mode::Sync).then(|| SyncPool::new(launcher, first)),
            coroutines: has(Mode::Async)
                .then(|| AsyncWorkerSupervisor::new(launcher, Role::Async, None)),
            unlisted: SourceStatus::default(),
        }
    }

    /// No workers, with the reason.
    pub(super) fn unavailable(fault: &str) -> Self {
        Self {
            unlisted: SourceStatus::failed(fault),
            ..Self::default()
        }
    }

    /// A function as a tool.
    pub(super) fn discovered_tool(&self, function: Function) -> Option<DiscoveredTool> {
        let pool = match (function.mode, &self.blocking) {
            (Mode::Sync, Some(blocking)) => WorkerPool::Sync(blocking.clone()),
            // With `share: true` there are no separate workers for blocking functions: they use the
            // one for coroutines.
            (Mode::Sync | Mode::Async, _) => WorkerPool::Async(self.coroutines.clone()?),
        };
        Some(DiscoveredTool {
            name: function.name.clone(),
            description: function.description.clone(),
            input_schema: function.input_schema.clone(),
            output_schema: function.output_schema.clone(),
            schema_owner: function.schema_owner,
            effect: None,
            tags: Vec::new(),
            annotations: JsonObject::new(),
            meta: JsonObject::new(),
            result_as_answer: function.result_as_answer,
            max_calls: function.max_calls,
            env: function.env.clone(),
            runner: Arc::new(FunctionRunner { function, pool }),
            snapshot: None,
        })
    }

    /// The state of all workers together.
    pub(super) fn status(&self) -> SourceStatus {
        let blocking = self.blocking.iter().map(|pool| pool.status());
        let coroutines = self.coroutines.iter().map(|pool| pool.status());
        let pools: Vec<SourceStatus> = blocking.chain(coroutines).collect();
        let mut status = SourceStatus {
            is_up: !pools.is_empty() && pools.iter().all(|pool| pool.is_up),
            ..self.unlisted.clone()
        };
        for pool in pools {
            status.workers += pool.workers;
            status.replaced += pool.replaced;
            if status.fault.is_none() {
                (status.fault, status.fault_at) = (pool.fault, pool.fault_at);
            }
        }
        status
    }
}
