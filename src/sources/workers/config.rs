//! The manifest's settings of a module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::language::Language;
use crate::call::JsonObject;
use crate::kinds::SandboxSetting;

/// One entry of a section of modules, with references and relative paths resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct ModuleSettings {
    /// The language of the module.
    pub language: Language,
    /// Name of the entry.
    pub name: String,
    /// The module to load.
    pub module: ModulePath,
    /// The program that loads it. A bare name is searched in `PATH`.
    pub program: PathBuf,
    /// A file that names the packages of the module. They are installed at its first use.
    pub requirements: Option<PathBuf>,
    /// Worker processes: of Python for functions that are not async, of TypeScript for all.
    pub workers: WorkerRange,
    /// Names of the functions that become tools; `None`: all tools of the module.
    pub functions: Option<Vec<String>>,
    /// Tools to take: names of the module, or patterns. Empty: all tools.
    pub include: Vec<String>,
    /// Tools to leave out. Takes precedence over `include`.
    pub exclude: Vec<String>,
    /// Name of a class. Each worker has one instance, and its methods are the tools.
    pub object: Option<String>,
    /// Whether blocking and async methods share one process, and so one instance of `object`.
    pub share: bool,
    /// Keyword arguments for the constructor of `object`.
    pub init: JsonObject,
    /// The complete environment of a worker. Nothing is inherited.
    pub environment: BTreeMap<String, String>,
    /// What a worker may do.
    pub sandbox: SandboxSetting,
    /// The working folder: the manifest's folder.
    pub workdir: PathBuf,
    /// The folder for packages of modules, e.g. virtual environments.
    pub package_dir: PathBuf,
    /// Longest time for the program to report its version, and for a worker to load the module.
    pub start_timeout: Duration,
}

/// How many worker processes a module has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerRange {
    /// The number without load; at least 1.
    pub min: usize,
    /// The highest number, while calls wait.
    pub max: usize,
    /// Workers above `min` that no call needed for this long are ended.
    pub idle_period: Duration,
}

/// The lowest `max` of workers that start on demand: a blocking function mostly waits, so more of
/// them than processors make sense.
const MIN_ON_DEMAND: usize = 4;
/// A worker takes memory while it waits, and starts in less than a second. So a minute keeps it
/// through a pause between two turns of an agent, and no longer.
const IDLE_PERIOD: Duration = Duration::from_secs(60);

impl WorkerRange {
    /// Always this number of workers, at least 1.
    pub fn exactly(workers: usize) -> Self {
        Self {
            min: workers.max(1),
            max: workers.max(1),
            idle_period: IDLE_PERIOD,
        }
    }

    /// One worker, and more while calls wait: up to the number of processors, at least four.
    pub fn on_demand() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            min: 1,
            max: processors.max(MIN_ON_DEMAND),
            idle_period: IDLE_PERIOD,
        }
    }
}

/// The module to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModulePath {
    /// A file, as an absolute path.
    File(PathBuf),
    /// An importable module, e.g. `strands_tools.calculator`.
    Name(String),
}

impl ModulePath {
    /// The file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Name(_) => None,
        }
    }
}
