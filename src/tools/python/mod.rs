//! The `python` kind: functions of Python modules, called in long-lived worker processes.
//!
//! - `interpreter`, `venv`: find or build the interpreter; `helper` runs the programs for it
//! - `worker`, `wire`, `protocol`: one process, its lines, its messages
//! - `sync_lane`, `async_lane`, `lanes`: keep workers and give them calls; `watch` notices their end
//! - `config`, `runner`: the settings of a module, its functions as runners
//! - `prints`: what a module prints goes to the log, never into the protocol

mod async_lane;
mod config;
mod helper;
mod interpreter;
mod lanes;
mod protocol;
mod runner;
mod stderr_log;
mod sync_lane;
mod venv;
mod watch;
mod wire;
mod worker;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

pub use self::config::{Interpreter, ModulePath, ModuleSettings};
use self::lanes::Lanes;
use self::protocol::{Function, Listing, Mode, Role};
use self::worker::Launcher;
use super::process::Sweeps;
use super::{DiscoveredTool, Listed, ProcessEnv, Source, SourceFault, SourceStatus, StatusFn};
use crate::blocking;

/// A Python module and its workers. The workers end when the module and all runners that it gave are dropped.
pub struct Module {
    settings: ModuleSettings,
    surroundings: ProcessEnv,
    lanes: Mutex<Lanes>,
}

impl Module {
    /// A module for which nothing has been started yet.
    pub fn new(settings: ModuleSettings, surroundings: &ProcessEnv) -> Self {
        Self { settings, surroundings: surroundings.clone(), lanes: Mutex::default() }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current text of the module's file.
    async fn source(&self) -> Option<String> {
        let ModulePath::File(path) = &self.settings.module else { return None };
        let path = path.clone();
        // Ignore a file that cannot be read: the worker then reports the reason.
        blocking::on_a_thread(move || std::fs::read_to_string(path).ok()).await.flatten()
    }

    /// A warning for an object that has methods of both kinds: each process has its own instance.
    fn two_instances(&self, tools: &[Function]) -> Option<String> {
        let object = self.settings.object.as_ref().filter(|_| !self.settings.share)?;
        let has = |mode| tools.iter().any(|tool| tool.mode == mode);
        (has(Mode::Sync) && has(Mode::Async)).then(|| {
            format!(
                "`{object}` has blocking and async methods: they run in separate processes, each with an instance of its own, so what \
                 one keeps the other does not see; `share: true` gives them one process and one instance"
            )
        })
    }

    async fn start(&self, told: &StatusFn) -> Result<(Lanes, Listed), String> {
        let sweeps = Sweeps::new();
        let python = interpreter::find(&self.settings, &self.surroundings, &sweeps, told).await?;
        let launcher = Arc::new(Launcher {
            settings: self.settings.clone(),
            name: self.settings.name.as_str().into(),
            python,
            redactor: self.surroundings.redactor.clone(),
            source: self.source().await,
            listed: Mutex::default(),
            sweeps,
        });
        told("loading the module".into());
        let (worker, Listing { tools, warnings, left_out }) =
            launcher.start(if self.settings.share { Role::Shared } else { Role::Sync }).await?;
        let mut warnings = warnings;
        warnings.extend(self.two_instances(&tools));
        let lanes = Lanes::new(&launcher, worker, &tools);
        let mut tools: Vec<DiscoveredTool> = tools.into_iter().filter_map(|function| lanes.offer(function)).collect();
        tools.iter_mut().for_each(|offer| offer.clean(&self.surroundings.redactor));
        Ok((lanes, Listed { tools, warnings, left_out }))
    }
}

#[async_trait]
impl Source for Module {
    async fn list(&self, told: &StatusFn) -> Result<Listed, SourceFault> {
        let (lanes, result) = match self.start(told).await {
            Ok((lanes, listed)) => (lanes, Ok(listed)),
            Err(fault) => (Lanes::down(&fault), Err(SourceFault(fault))),
        };
        // Dropping the old workers takes time, so do it after the lock is released.
        let before = std::mem::replace(&mut *self.lanes(), lanes);
        drop(before);
        result
    }

    fn status(&self) -> SourceStatus {
        self.lanes().status()
    }
}

#[cfg(test)]
mod tests;
