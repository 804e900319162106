//! A module as a source of tools.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::async_supervisor::AsyncWorkerSupervisor;
use super::config::ModuleSettings;
use super::imported_files::ImportedFiles;
use super::protocol::{self, Function, Mode, ModuleListing, Role};
use super::runtime::{Setup, WorkerProgram, WorkerRuntime};
use super::sync_pool::SyncPool;
use super::worker::{Launcher, Worker};
use crate::call::{JsonObject, ToolContext, ToolError};
use crate::kinds::process::OrphanReaper;
use crate::kinds::sandbox::{EntrySandbox, OwnPaths, program_paths};
use crate::kinds::{ProcessEnv, Runner, RunnerTraits, ToolOutcome};
use crate::runtime::blocking;
use crate::sources::{
    DiscoveredTool, Source, SourceFault, SourceListing, SourceStatus, StatusFn, ToolFilter,
};

/// Between two looks at the imported files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A module and its workers. The workers end when the module and all runners that it gave
/// are dropped.
pub struct Module {
    settings: ModuleSettings,
    runtime: Box<dyn WorkerRuntime>,
    process_env: ProcessEnv,
    pools: Mutex<WorkerPools>,
    /// The functions of the last listing, by name.
    callables: Mutex<HashMap<String, Arc<Callable>>>,
    /// The files that the last listing was made of, without the module itself.
    imported_files: Mutex<ImportedFiles>,
}

/// A function and its workers. A tool that is equal in the next listing keeps its runner, so the
/// next workers take the place of these.
struct Callable {
    function: Function,
    pool: Mutex<WorkerPool>,
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
            callables: Mutex::default(),
            imported_files: Mutex::default(),
        }
    }

    /// The current text of the module's file.
    async fn read_source(&self) -> Option<String> {
        let path = self.settings.module.file()?.to_owned();
        // Ignore a file that cannot be read: the worker then reports the reason.
        blocking::run_blocking(move || std::fs::read_to_string(path).ok())
            .await
            .flatten()
    }

    /// Leaves out the tools that `include` and `exclude` do not select.
    fn apply_filter(&self, module: &mut ModuleListing) {
        let filter = ToolFilter::new(&self.settings.include, &self.settings.exclude);
        let names: Vec<&str> = module.tools.iter().map(|tool| &*tool.name).collect();
        for (key, text) in filter.unmatched_entries(&names) {
            let warning = format!("`{key}`: no tool of the module has the name `{text}`");
            module.warnings.push(warning);
        }
        module.tools.retain(|tool| filter.allows(&tool.name));
        module.skipped_names.retain(|name| filter.allows(name));
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
        // The module may import what is beside it.
        let folder = self.settings.module.file().and_then(Path::parent);
        needed.extend(folder.map(PathBuf::from));
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
        // What has changed so far is no reason to load it again, even if this fails.
        let before = {
            let mut imported_files = self.imported_files.lock();
            *imported_files = imported_files.refreshed();
            imported_files.clone()
        };
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
        let role = match (self.settings.share, self.settings.language.may_block()) {
            (true, _) => Role::Shared,
            (false, true) => Role::Sync,
            (false, false) => Role::Async,
        };
        let (worker, mut module) = launcher.start(role).await?;
        let imported = std::mem::take(&mut module.files).into_iter();
        let own = self.settings.module.file();
        let imported = imported.filter(|file| Some(file.as_path()) != own);
        *self.imported_files.lock() = ImportedFiles::new(imported, &before);
        self.apply_filter(&mut module);
        let pools = WorkerPools::new(&launcher, role, worker, &module.tools);
        let mut listing = SourceListing {
            tools: Vec::new(),
            warnings: module.warnings,
            skipped_names: module.skipped_names,
        };
        let two_instances = self.two_instances_warning(&module.tools);
        listing.warnings.extend(two_instances);
        for callable in self.replace_callables(module.tools, &pools) {
            let tool = discovered_tool(callable, pools.sandbox.clone());
            listing.tools.push(tool);
        }
        for tool in &mut listing.tools {
            tool.redact_secrets(&self.process_env.redactor);
        }
        Ok((pools, listing))
    }
}

impl Module {
    /// Gives these functions the workers, in place of those of the last listing.
    fn replace_callables(
        &self,
        functions: Vec<Function>,
        pools: &WorkerPools,
    ) -> Vec<Arc<Callable>> {
        let mut known = self.callables.lock();
        let (mut replaced, mut callables) = (Vec::new(), Vec::new());
        for function in functions {
            let Some(pool) = pools.pool_for(function.mode) else {
                continue;
            };
            let equal = known.get(&function.name);
            callables.push(match equal.filter(|known| known.function == function) {
                Some(known) => {
                    replaced.push(std::mem::replace(&mut *known.pool.lock(), pool));
                    known.clone()
                }
                None => Arc::new(Callable {
                    function,
                    pool: Mutex::new(pool),
                }),
            });
        }
        let by_name = callables
            .iter()
            .map(|callable| (callable.function.name.clone(), callable.clone()));
        let previous = std::mem::replace(&mut *known, by_name.collect());
        drop(known);
        // Dropping the old workers takes time, so do it after the locks are released.
        drop((replaced, previous));
        callables
    }
}

#[async_trait]
impl Source for Module {
    async fn list(&self, report_status: &StatusFn) -> Result<SourceListing, SourceFault> {
        let (pools, result) = match self.load(report_status).await {
            Ok((pools, listed)) => (pools, Ok(listed)),
            // The workers of the last listing still serve its tools.
            Err(fault) if self.pools.lock().has_workers() => return Err(SourceFault(fault)),
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

    /// Ends when an imported file has changed. The module's own file is watched with the manifest.
    async fn changed(&self) {
        loop {
            sleep(POLL_INTERVAL).await;
            let known = self.imported_files.lock().clone();
            if known.is_empty() {
                continue;
            }
            let refreshed = blocking::run_blocking(move || known.refreshed() != known).await;
            if refreshed.unwrap_or_default() {
                return;
            }
        }
    }
}

/// The workers after a listing, or the reason why there are none.
#[derive(Default)]
struct WorkerPools {
    sandbox: Option<Arc<EntrySandbox>>,
    blocking: Option<Arc<SyncPool>>,
    /// One for each process that takes many calls at once.
    coroutines: Arc<[Arc<AsyncWorkerSupervisor>]>,
    /// The state without workers.
    unlisted: SourceStatus,
}

impl WorkerPools {
    /// Workers for these functions. `first` was started in this role. If it is for blocking
    /// functions, and there are none, it was needed only for the listing and ends.
    pub(super) fn new(
        launcher: &Arc<Launcher>,
        role: Role,
        first: Worker,
        functions: &[Function],
    ) -> Self {
        let sandbox = Some(launcher.sandbox.clone());
        if role != Role::Sync {
            let mut first = Some(first);
            let numbers = 0..launcher.settings.workers.min;
            return Self {
                sandbox,
                coroutines: numbers
                    .map(|_| AsyncWorkerSupervisor::new(launcher, role, first.take()))
                    .collect(),
                ..Self::default()
            };
        }
        let has = |mode| functions.iter().any(|function| function.mode == mode);
        Self {
            sandbox,
            blocking: has(Mode::Sync).then(|| SyncPool::new(launcher, first)),
            coroutines: has(Mode::Async)
                .then(|| AsyncWorkerSupervisor::new(launcher, Role::Async, None))
                .into_iter()
                .collect(),
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

    fn has_workers(&self) -> bool {
        self.blocking.is_some() || !self.coroutines.is_empty()
    }

    /// The workers that run functions of this mode.
    fn pool_for(&self, mode: Mode) -> Option<WorkerPool> {
        match (mode, &self.blocking) {
            (Mode::Sync, Some(blocking)) => Some(WorkerPool::Sync(blocking.clone())),
            // With `share: true` there are no separate workers for blocking functions: they use the
            // one for coroutines.
            (Mode::Sync | Mode::Async, _) if self.coroutines.is_empty() => None,
            (Mode::Sync | Mode::Async, _) => Some(WorkerPool::Async(self.coroutines.clone())),
        }
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

/// A function as a tool.
fn discovered_tool(callable: Arc<Callable>, sandbox: Option<Arc<EntrySandbox>>) -> DiscoveredTool {
    let function = &callable.function;
    DiscoveredTool {
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
        runner: Arc::new(FunctionRunner { callable, sandbox }),
        snapshot: None,
    }
}

struct FunctionRunner {
    sandbox: Option<Arc<EntrySandbox>>,
    callable: Arc<Callable>,
}

/// The workers that run a function.
#[derive(Clone)]
enum WorkerPool {
    Sync(Arc<SyncPool>),
    Async(Arc<[Arc<AsyncWorkerSupervisor>]>),
}

#[async_trait]
impl Runner for FunctionRunner {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        // Wait for at most half of the remaining time. A call that started later would probably
        // reach its deadline while it runs, and its end would also end its worker.
        let now = Instant::now();
        let begin_by = now + context.deadline.saturating_duration_since(now) / 2;
        let function = &self.callable.function;
        let pool = self.callable.pool.lock().clone();
        let result = match &pool {
            WorkerPool::Sync(pool) => pool.call(function, &arguments, &context, begin_by).await,
            WorkerPool::Async(pools) => {
                // The least busy one. Its worker may be blocked all the same, but then calls pile up
                // there, and the next ones go elsewhere.
                let Some(pool) = pools.iter().min_by_key(|pool| pool.load()) else {
                    return Err(ToolError::unavailable("the module has no workers"));
                };
                pool.call(function, &arguments, &context, begin_by).await
            }
        };
        protocol::shorten_error(result, &context)
    }

    fn sandbox(&self) -> Option<&EntrySandbox> {
        self.sandbox.as_deref()
    }

    fn is_available(&self) -> bool {
        match &*self.callable.pool.lock() {
            WorkerPool::Sync(pool) => !pool.is_unavailable(),
            WorkerPool::Async(pools) => pools.iter().any(|pool| !pool.is_unavailable()),
        }
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            may_ask: self.callable.function.may_ask(),
            ..RunnerTraits::with_context(self.callable.function.takes_context)
        }
    }
}
