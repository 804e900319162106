//! The program of a worker, and its arguments.

use async_trait::async_trait;

use super::interpreter::query_version;
use super::venv::build_venv;
use crate::sources::workers::{Setup, WorkerProgram, WorkerRuntime};

/// The argument of `python -c`. Reads the other files from standard input, and runs them.
const BOOT_SCRIPT: &str = include_str!("worker/boot.py");

/// Pairs of the path of a file in `worker/` and its text, listed by `build.rs`.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/python_worker.rs"));

/// Workers in Python.
pub(in crate::sources) struct PythonRuntime;

#[async_trait]
impl WorkerRuntime for PythonRuntime {
    async fn prepare(&self, setup: &Setup<'_>) -> Result<WorkerProgram, String> {
        let settings = setup.settings;
        let program = setup.locate_program(&settings.program, "interpreter")?;
        let python = query_version(&program, setup).await?;
        let path = match &settings.requirements {
            None => python.program,
            Some(file) => build_venv(&python, file, setup).await?,
        };
        Ok(WorkerProgram {
            path,
            arguments: ["-X", "utf8", "-c", BOOT_SCRIPT].map(Into::into).into(),
            boot_message: WorkerProgram::boot_message(FILES),
            needed: Vec::new(),
            variables: Vec::new(),
            packages: None,
        })
    }
}
