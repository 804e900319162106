//! The `python` kind: functions of Python modules, called in long-lived worker processes.
//!
//! `interpreter` and `venv` find or build what runs a module, `worker` starts one process and `protocol` says what is
//! said to it, `sync_lane` and `async_lane` keep processes and hand them calls (`lanes`: both), `health` says when one that died is
//! replaced. What a module prints goes to the log (`prints`) and never into the protocol.

mod async_lane;
mod config;
mod health;
mod helper;
mod interpreter;
mod lanes;
mod prints;
mod protocol;
mod runner;
mod sync_lane;
mod venv;
mod watch;
mod wire;
mod worker;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

pub use self::config::{Interpreter, ModulePath, ModuleSettings, Surroundings};
use self::lanes::Lanes;
use self::protocol::{Listing, Mode};
use self::worker::Launcher;
use super::process::Sweeps;
use super::{Listed, Source, SourceFault, SourceStatus, Told};

/// A Python module and the workers that have loaded it. They end when it and the runners that it gave are dropped.
pub struct Module {
    settings: ModuleSettings,
    surroundings: Surroundings,
    lanes: Mutex<Lanes>,
}

impl Module {
    /// A module that nothing is started of yet.
    pub fn new(settings: ModuleSettings, surroundings: &Surroundings) -> Self {
        Self { settings, surroundings: surroundings.clone(), lanes: Mutex::default() }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn start(&self, told: &Told) -> Result<(Lanes, Listed), String> {
        let sweeps = Sweeps::new();
        let python = interpreter::find(&self.settings, &self.surroundings, &sweeps, told).await?;
        let launcher = Arc::new(Launcher {
            settings: self.settings.clone(),
            name: self.settings.name.as_str().into(),
            python,
            redactor: self.surroundings.redactor.clone(),
            listed: Mutex::default(),
            sweeps,
        });
        told("loading the module".into());
        let (worker, Listing { tools, warnings }) = launcher.start(Mode::Sync).await?;
        let lanes = Lanes::new(&launcher, worker, &tools);
        let tools = tools.into_iter().filter_map(|function| lanes.offer(function)).collect();
        Ok((lanes, Listed { tools, warnings }))
    }
}

#[async_trait]
impl Source for Module {
    async fn list(&self, told: &Told) -> Result<Listed, SourceFault> {
        let (lanes, result) = match self.start(told).await {
            Ok((lanes, listed)) => (lanes, Ok(listed)),
            Err(fault) => (Lanes::down(&fault), Err(SourceFault(fault))),
        };
        // What was there before ends behind the lock.
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
