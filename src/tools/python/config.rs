//! The manifest's settings of a Python module.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::call::JsonObject;

/// One entry of `python_modules:`, with references and relative paths resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct ModuleSettings {
    /// Name of the entry.
    pub name: String,
    /// The module to load.
    pub module: ModulePath,
    /// The Python that loads it.
    pub interpreter: Interpreter,
    /// Worker processes for functions that are not async; at least 1.
    pub workers: usize,
    /// Names of the functions that become tools; `None`: all tools of the module.
    pub functions: Option<Vec<String>>,
    /// Name of a class. Each worker has one instance, and its methods are the tools.
    pub object: Option<String>,
    /// Whether blocking and async methods share one process, and so one instance of `object`.
    pub share: bool,
    /// Keyword arguments for the constructor of `object`.
    pub init: JsonObject,
    /// The complete environment of a worker. Nothing is inherited.
    pub environment: BTreeMap<String, String>,
    /// The working folder: the manifest's folder.
    pub workdir: PathBuf,
    /// The folder for virtual environments.
    pub venvs: PathBuf,
    /// Longest time for the interpreter to report its version, and for a worker to load the module.
    pub start_timeout: Duration,
}

/// The module to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModulePath {
    /// A file, as an absolute path.
    File(PathBuf),
    /// An importable module, e.g. `strands_tools.calculator`.
    Name(String),
}

/// The Python that loads a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interpreter {
    /// This program. A bare name is searched in `PATH`.
    Program(PathBuf),
    /// The Python of a virtual environment with the packages of this requirements file. It is built at its first use.
    Requirements(PathBuf),
}
