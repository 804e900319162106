//! A Python module as a source of tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::config::{Interpreter, ModulePath, ModuleSettings};
use super::interpreter::{locate_program, query_version};
use super::protocol::{Function, Mode, Role};
use super::setup_program::setup_command;
use super::venv::VenvSpec;
use super::worker::Launcher;
use super::worker_pools::WorkerPools;
use super::worker_source;
use crate::kinds::ProcessEnv;
use crate::kinds::process::OrphanReaper;
use crate::runtime::blocking;
use crate::sources::{Source, SourceFault, SourceListing, SourceStatus, StatusFn};

/// The program that makes virtual environments.
const DEFAULT_PROGRAM: &str = "python3";

/// A Python module and its workers. The workers end when the module and all runners that it gave
/// are dropped.
pub struct Module {
    settings: ModuleSettings,
    process_env: ProcessEnv,
    pools: Mutex<WorkerPools>,
}

impl Module {
    /// A module for which nothing has been started yet.
    pub fn new(settings: ModuleSettings, process_env: &ProcessEnv) -> Self {
        Self {
            settings,
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

    /// The interpreter of the module. Builds its virtual environment, if there is none.
    ///
    /// # Errors
    /// A sentence with the reason.
    async fn find_interpreter(
        &self,
        orphan_reaper: &OrphanReaper,
        report_status: &StatusFn,
    ) -> Result<PathBuf, String> {
        let (settings, process_env) = (&self.settings, &self.process_env);
        let find_python = async |name: &Path| {
            let program = locate_program(name, process_env)?;
            query_version(
                &program,
                setup_command(&program, settings, process_env),
                orphan_reaper,
                settings.start_timeout,
            )
            .await
        };
        match &settings.interpreter {
            Interpreter::Program(name) => Ok(find_python(name).await?.program),
            Interpreter::Requirements(file) => {
                let python = find_python(Path::new(DEFAULT_PROGRAM)).await?;
                let venv = VenvSpec {
                    file,
                    settings,
                    process_env,
                    orphan_reaper,
                    report_status,
                };
                venv.ensure_built(&python).await
            }
        }
    }

    async fn load(&self, report_status: &StatusFn) -> Result<(WorkerPools, SourceListing), String> {
        let orphan_reaper = OrphanReaper::default();
        let python = self.find_interpreter(&orphan_reaper, report_status).await?;
        let launcher = Arc::new(Launcher {
            settings: self.settings.clone(),
            name: self.settings.name.as_str().into(),
            python,
            redactor: self.process_env.redactor.clone(),
            worker_source: worker_source::message(),
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
