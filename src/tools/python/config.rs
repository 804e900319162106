//! What the manifest says of a Python module.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::call::JsonObject;

/// One entry of `python_modules:`, references and relative paths resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct ModuleSettings {
    /// The entry's name.
    pub name: String,
    /// What is loaded.
    pub module: ModulePath,
    /// What loads it.
    pub interpreter: Interpreter,
    /// Worker processes for functions that are not async; at least 1.
    pub workers: usize,
    /// Only these; `None`: every tool found.
    pub functions: Option<Vec<String>>,
    /// A class: one instance in each worker, its methods are the tools.
    pub object: Option<String>,
    /// One process, and so one instance of `object`, for blocking and async methods alike.
    pub share: bool,
    /// Keyword arguments for `object`.
    pub init: JsonObject,
    /// The environment, and nothing else.
    pub environment: BTreeMap<String, String>,
    /// The working folder: the manifest's.
    pub workdir: PathBuf,
    /// Where virtual environments are kept.
    pub venvs: PathBuf,
    /// For the interpreter to have said what it is, and for a worker to have loaded the module.
    pub start_timeout: Duration,
}

/// What is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModulePath {
    /// A file, absolute.
    File(PathBuf),
    /// An importable module, e.g. `strands_tools.calculator`.
    Name(String),
}

/// What loads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interpreter {
    /// This program; a bare name is looked for along the path.
    Program(PathBuf),
    /// The one of a virtual environment with what this requirements file lists, built when it is first needed.
    Requirements(PathBuf),
}
