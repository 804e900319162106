//! All workers of a module: those for blocking functions, and the one for coroutines.

use std::sync::Arc;

use tokio::time::Instant;

use super::async_lane::AsyncLane;
use super::protocol::{Function, Mode, Role};
use super::runner::{FunctionRunner, WorkerPool};
use super::sync_lane::SyncLane;
use super::worker::{Launcher, Worker};
use crate::call::JsonObject;
use crate::tools::{DiscoveredTool, SourceStatus};

/// The workers after a listing, or the reason why there are none.
#[derive(Default)]
pub(super) struct Lanes {
    blocking: Option<Arc<SyncLane>>,
    coroutines: Option<Arc<AsyncLane>>,
    fault: Option<(String, Instant)>,
}

impl Lanes {
    /// Workers for these functions. `first` was started as a worker for blocking functions. If there are no such
    /// functions, it was needed only for the listing and ends.
    pub(super) fn new(launcher: &Arc<Launcher>, first: Worker, functions: &[Function]) -> Self {
        if launcher.settings.share {
            let coroutines = Some(AsyncLane::new(launcher, Role::Shared, Some(first)));
            return Self { coroutines, ..Self::default() };
        }
        let has = |mode| functions.iter().any(|function| function.mode == mode);
        let more = launcher.settings.workers.saturating_sub(1);
        Self {
            blocking: has(Mode::Sync).then(|| SyncLane::new(launcher, first, more)),
            coroutines: has(Mode::Async).then(|| AsyncLane::new(launcher, Role::Async, None)),
            fault: None,
        }
    }

    /// No workers, with the reason.
    pub(super) fn down(fault: &str) -> Self {
        Self { fault: Some((fault.to_owned(), Instant::now())), ..Self::default() }
    }

    /// A function as a tool.
    pub(super) fn offer(&self, function: Function) -> Option<DiscoveredTool> {
        let lane = match (function.mode, &self.blocking) {
            (Mode::Sync, Some(blocking)) => WorkerPool::Sync(blocking.clone()),
            // With `share: true` there are no separate workers for blocking functions: they use the one for coroutines.
            (Mode::Sync | Mode::Async, _) => WorkerPool::Async(self.coroutines.clone()?),
        };
        Some(DiscoveredTool {
            name: function.name.clone(),
            description: function.description.clone(),
            input_schema: function.input_schema.clone(),
            output_schema: function.output_schema.clone(),
            annotations: JsonObject::new(),
            result_as_answer: function.result_as_answer,
            max_calls: function.max_calls,
            env: function.env.clone(),
            runner: Arc::new(FunctionRunner { function, lane }),
            said: None,
        })
    }

    /// The state of all workers together.
    pub(super) fn status(&self) -> SourceStatus {
        let Self { blocking, coroutines, fault } = self;
        let lanes = blocking.iter().map(|lane| (lane.is_down(), lane.workers(), lane.record()));
        let lanes = lanes.chain(coroutines.iter().map(|lane| (lane.is_down(), lane.workers(), lane.record())));
        let (mut status, mut last) = (SourceStatus::default(), fault.clone());
        let (mut any, mut down) = (false, false);
        for (is_down, workers, (replaced, fault)) in lanes {
            (any, down) = (true, down | is_down);
            status.workers += workers;
            status.replaced += replaced;
            last = last.or(fault);
        }
        (status.fault, status.fault_at) = last.unzip();
        SourceStatus { up: any && !down, ..status }
    }
}
