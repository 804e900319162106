//! A module as a source of tools.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::async_supervisor::AsyncWorkerSupervisor;
use super::config::{ModulePath, ModuleSettings};
use super::protocol::{self, Function, Mode, Role};
use super::runtime::{Setup, WorkerProgram, WorkerRuntime};
use super::sync_pool::SyncPool;
use super::worker::{Launcher, Worker};
use crate::call::{JsonObject, ToolContext};
use crate::kinds::process::OrphanReaper;
use crate::kinds::sandbox::{EntrySandbox, OwnPaths, program_paths};
use crate::kinds::{ProcessEnv, Runner, RunnerTraits, ToolOutcome};
use crate::runtime::blocking;
use crate::sources::{DiscoveredTool, Source, SourceFault, SourceListing, SourceStatus, StatusFn};

/// A module and its workers. The workers end when the module and all runners that it gave
/// are dropped.
pub struct Module {
    settings: ModuleSettings,
    runtime: Box<dyn WorkerRuntime>,
    process_env: ProcessEnv,
    pools: Mutex<WorkerPools>,
}

impl Module {
    /// A module for which nothing has been started yet.
    pub(in crate::sources) fn new(
        settings: ModuleSettings,
        runtime: impl WorkerRuntime,
        process_env: &ProcessEnv,
    ) -> Self {
        Self {
            settings,
            runtime: Box::new(runtime),
            process_env: process_env.clone(),
            pools: Mutex::default(),
        }
    }

    /// The current text of the module's file.
    async fn read_source(&self) -> Option<String> {
        let ModulePath::File(path) = &self.settings.module else {
            return None;
        };
        let path = path.clone();
        // Ignore a file that cannot be read: the worker then reports the reason.
        blocking::run_blocking(move || std::fs::read_to_string(path).ok())
            .await
            .flatten()
    }

    /// A warning for an object that has methods of both kinds: each process has its own instance.
    fn two_instances_warning(&self, tools: &[Function]) -> Option<String> {
        let object = self
            .settings
            .object
            .as_ref()
            .filter(|_| !self.settings.share)?;
        let has = |mode| tools.iter().any(|tool| tool.mode == mode);
        (has(Mode::Sync) && has(Mode::Async)).then(|| {
            format!(
                "`{object}` has blocking and async methods: they run in separate processes, each with its own instance, so they do \
                 not share state; `share: true` gives them one process and one instance"
            )
        })
    }

    /// The sandbox of the workers.
    fn sandbox(&self, program: &WorkerProgram) -> EntrySandbox {
        let mut needed = program_paths(&program.path);
        needed.extend(program.needed.iter().cloned());
        if let ModulePath::File(file) = &self.settings.module {
            // The module may import what is beside it.
            needed.extend(file.parent().map(PathBuf::from));
        }
        let own = OwnPaths {
            entry: format!(
                "{}.{}",
                self.settings.language.section(),
                self.settings.name
            ),
            workdir: self.settings.workdir.clone(),
            needed,
            written: Vec::new(),
        };
        let shared = self.process_env.sandboxes.clone();
        EntrySandbox::new(self.settings.sandbox.clone(), own, shared)
    }

    async fn load(&self, report_status: &StatusFn) -> Result<(WorkerPools, SourceListing), String> {
        let orphan_reaper = OrphanReaper::default();
        let setup = Setup {
            settings: &self.settings,
            process_env: &self.process_env,
            orphan_reaper: &orphan_reaper,
            report_status,
        };
        let program = self.runtime.prepare(&setup).await?;
        let sandbox = Arc::new(self.sandbox(&program));
        let launcher = Arc::new(Launcher {
            settings: self.settings.clone(),
            sandbox,
            name: self.settings.name.as_str().into(),
            program,
            redactor: self.process_env.redactor.clone(),
            source: self.read_source().await,
            listed_functions: Mutex::default(),
            orphan_reaper,
        });
        report_status("loading the module".into());
        let role = match self.settings.share {
            true => Role::Shared,
            false => Role::Sync,
        };
        let (worker, module) = launcher.start(role).await?;
        let pools = WorkerPools::new(&launcher, worker, &module.tools);
        let mut listing = SourceListing {
            tools: Vec::new(),
            warnings: module.warnings,
            skipped_names: module.skipped_names,
        };
        let two_instances = self.two_instances_warning(&module.tools);
        listing.warnings.extend(two_instances);
        for function in module.tools {
            listing.tools.extend(pools.discovered_tool(function));
        }
        for tool in &mut listing.tools {
            tool.redact_secrets(&self.process_env.redactor);
        }
        Ok((pools, listing))
    }
}

#[async_trait]
impl Source for Module {
    async fn list(&self, report_status: &StatusFn) -> Result<SourceListing, SourceFault> {
        let (pools, result) = match self.load(report_status).await {
            Ok((pools, listed)) => (pools, Ok(listed)),
            Err(fault) => (WorkerPools::unavailable(&fault), Err(SourceFault(fault))),
        };
        // Dropping the old workers takes time, so do it after the lock is released.
        let previous = std::mem::replace(&mut *self.pools.lock(), pools);
        drop(previous);
        result
    }

    fn status(&self) -> SourceStatus {
        self.pools.lock().status()
    }
}

/// The workers after a listing, or the reason why there are none.
#[derive(Default)]
struct WorkerPools {
    sandbox: Option<Arc<EntrySandbox>>,
    blocking: Option<Arc<SyncPool>>,
    coroutines: Option<Arc<AsyncWorkerSupervisor>>,
    /// The state without workers.
    unlisted: SourceStatus,
}

impl WorkerPools {
    /// Workers for these functions. `first` was started as a worker for blocking functions. If
    /// there are no such functions, it was needed only for the listing and ends.
    pub(super) fn new(launcher: &Arc<Launcher>, first: Worker, functions: &[Function]) -> Self {
        let sandbox = Some(launcher.sandbox.clone());
        if launcher.settings.share {
            let coroutines = AsyncWorkerSupervisor::new(launcher, Role::Shared, Some(first));
            return Self {
                sandbox,
                coroutines: Some(coroutines),
                ..Self::default()
            };
        }
        let has = |mode| functions.iter().any(|function| function.mode == mode);
        Self {
            sandbox,
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
            runner: Arc::new(FunctionRunner {
                function,
                pool,
                sandbox: self.sandbox.clone(),
            }),
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
            sandbox: self.sandbox.as_ref().map(|sandbox| sandbox.report()),
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

struct FunctionRunner {
    pub sandbox: Option<Arc<EntrySandbox>>,
    pub function: Function,
    pub pool: WorkerPool,
}

/// The workers that run a function.
enum WorkerPool {
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

    fn sandbox(&self) -> Option<&EntrySandbox> {
        self.sandbox.as_deref()
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
