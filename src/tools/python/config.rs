//! What the manifest says of a Python module.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::call::JsonObject;
use crate::secrets::Redactor;

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
    /// Keyword arguments for `object`.
    pub init: JsonObject,
    /// The environment, and nothing else.
    pub environment: BTreeMap<String, String>,
    /// The working folder: the manifest's.
    pub workdir: PathBuf,
    /// Where virtual environments are kept.
    pub venvs: PathBuf,
    /// For a worker to have loaded the module.
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

/// What all modules share of the service around them.
#[derive(Clone)]
pub struct Surroundings {
    /// Takes secrets out of what goes to the log and of what is said when a module does not load.
    pub redactor: Arc<Redactor>,
    /// For finding an interpreter and building virtual environments; no worker sees it.
    pub variables: BTreeMap<OsString, OsString>,
}

/// Variables of the service that are told to what finds an interpreter and to pip.
const PASSED_ON: [&str; 13] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

impl Surroundings {
    /// Those of this process: its path, home, proxies and certificates, and the settings of pip (`PIP_…`).
    pub fn of_this_process(redactor: Arc<Redactor>) -> Self {
        let passed_on =
            |name: &OsString| name.to_str().is_some_and(|name| PASSED_ON.contains(&name) || name.starts_with("PIP_"));
        Self { redactor, variables: std::env::vars_os().filter(|(name, _)| passed_on(name)).collect() }
    }
}
