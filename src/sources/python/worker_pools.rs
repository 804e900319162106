//! All workers of a module: those for blocking functions, and the one for coroutines.

use std::sync::Arc;

use tokio::time::Instant;

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
    fault: Option<(String, Instant)>,
}

impl WorkerPools {
    /// Workers for these functions. `first` was started as a worker for blocking functions. If
    /// there are no such functions, it was needed only for the listing and ends.
    pub(super) fn new(launcher: &Arc<Launcher>, first: Worker, functions: &[Function]) -> Self {
        if launcher.settings.share {
            let coroutines = Some(AsyncWorkerSupervisor::new(
                launcher,
                Role::Shared,
                Some(first),
            ));
            return Self {
                coroutines,
                ..Self::default()
            };
        }
        let has = |mode| functions.iter().any(|function| function.mode == mode);
        Self {
            blocking: has(Mode::Sync).then(|| SyncPool::new(launcher, first)),
            coroutines: has(Mode::Async)
                .then(|| AsyncWorkerSupervisor::new(launcher, Role::Async, None)),
            fault: None,
        }
    }

    /// No workers, with the reason.
    pub(super) fn unavailable(fault: &str) -> Self {
        Self {
            fault: Some((fault.to_owned(), Instant::now())),
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
        let Self {
            blocking,
            coroutines,
            fault,
        } = self;
        let pools = blocking.iter().map(|pool| {
            (
                pool.is_unavailable(),
                pool.worker_count(),
                pool.replacements(),
            )
        });
        let pools = pools.chain(coroutines.iter().map(|pool| {
            (
                pool.is_unavailable(),
                pool.worker_count(),
                pool.replacements(),
            )
        }));
        let (mut status, mut last) = (SourceStatus::default(), fault.clone());
        let (mut has_pools, mut is_any_unavailable) = (false, false);
        for (is_unavailable, workers, (replaced, fault)) in pools {
            (has_pools, is_any_unavailable) = (true, is_any_unavailable | is_unavailable);
            status.workers += workers;
            status.replaced += replaced;
            last = last.or(fault);
        }
        (status.fault, status.fault_at) = last.unzip();
        SourceStatus {
            is_up: has_pools && !is_any_unavailable,
            ..status
        }
    }
}
