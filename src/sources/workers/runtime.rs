//! What a language adds: how its workers are started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tokio::process::Command;

use super::config::ModuleSettings;
use crate::kinds::ProcessEnv;
use crate::kinds::process::{OrphanReaper, is_executable_file, which};
use crate::sources::StatusFn;

/// The program of the workers of a language.
#[async_trait]
pub(in crate::sources) trait WorkerRuntime: Send + Sync + 'static {
    /// Finds the program of a worker. Installs the packages of the module, if they are not there.
    ///
    /// # Errors
    /// A sentence with the reason.
    async fn prepare(&self, setup: &Setup<'_>) -> Result<WorkerProgram, String>;
}

/// How a worker is started.
pub(in crate::sources) struct WorkerProgram {
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
    /// What a worker reads first.
    pub boot_message: Vec<u8>,
    /// Files and folders that it needs beside its program and the folder of the module.
    pub needed: Vec<PathBuf>,
    /// Variables beside those that the module declares.
    pub variables: Vec<(&'static str, OsString)>,
    /// The folder with the installed packages, if the worker itself must find them there.
    pub packages: Option<PathBuf>,
}

impl WorkerProgram {
    /// What a boot script reads: a line with a number, and so many bytes of JSON, an object with the
    /// text of each file of the worker.
    pub(in crate::sources) fn boot_message(files: &[(&str, &str)]) -> Vec<u8> {
        let files: std::collections::BTreeMap<_, _> = files.iter().copied().collect();
        // Cannot fail: it writes to memory, and all keys are strings.
        let json = serde_json::to_vec(&files).unwrap_or_default();
        [format!("{}\n", json.len()).into_bytes(), json].concat()
    }
}

/// What is there while a module is prepared.
pub(in crate::sources) struct Setup<'a> {
    pub settings: &'a ModuleSettings,
    pub process_env: &'a ProcessEnv,
    pub orphan_reaper: &'a OrphanReaper,
    pub report_status: &'a StatusFn,
}

impl Setup<'_> {
    /// A command for a preparing program. It sees the variables that the module declares and a few
    /// of the service.
    pub(in crate::sources) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(&self.process_env.variables)
            .envs(&self.settings.environment);
        command
    }

    /// The program's file. A bare name is searched in `PATH`. `what` is the word for the program.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub(in crate::sources) fn locate_program(
        &self,
        name: &Path,
        what: &str,
    ) -> Result<PathBuf, String> {
        let shown = name.display();
        if name.components().count() > 1 || name.is_absolute() {
            return match name.metadata() {
                Err(error) => Err(format!("the {what} {shown} cannot be run: {error}")),
                Ok(_) if !is_executable_file(name) => Err(format!(
                    "the {what} {shown} cannot be run: it is not an executable file"
                )),
                Ok(_) => Ok(name.to_owned()),
            };
        }
        let path = self.process_env.variables.get(std::ffi::OsStr::new("PATH"));
        let path = path.cloned().unwrap_or_default();
        which(&path, name)
            .ok_or_else(|| format!("there is no {what} `{shown}` in the service's PATH"))
    }
}
