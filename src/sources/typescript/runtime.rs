//! Finds a runtime, and gives a worker its program and arguments.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use humantime::format_duration;
use tokio::time::timeout;

use super::packages::install_packages;
use crate::kinds::process::is_executable_file;
use crate::sources::workers::{ModulePath, Setup, WorkerProgram, WorkerRuntime, run_to_end};

/// Reads the other files from standard input, and runs them.
const BOOT_SCRIPT: &str = include_str!("worker/boot.cjs");

/// Pairs of the path of a file in `worker/` and its text, listed by `build.rs`.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/typescript_worker.rs"));

/// The oldest version of Node.js on which the worker runs. It has hooks for the loader of modules.
const MIN_NODE: (u32, u32) = (18, 19);
/// From here on Node.js can hide its warnings about experimental features.
const NODE_WITH_QUIET_WARNINGS: (u32, u32) = (20, 11);
/// The program in `PATH` may be a script that selects a version, so the answer has the runtime's own
/// path.
const VERSION_SCRIPT: &str = "const v = process.versions; console.log('runtime:' + (v.bun ? 'bun:' + v.bun : v.deno ? \
                              'deno:' + v.deno : 'node:' + v.node) + ':' + process.execPath)";
/// What Node.js reads in the folder of a file and in those above it.
const PROJECT_FILES: [&str; 3] = ["node_modules", "package.json", "tsconfig.json"];

/// Workers in JavaScript.
pub(in crate::sources) struct TypescriptRuntime;

/// A runtime that has reported its version.
pub(super) struct Runtime {
    pub flavor: Flavor,
    pub version: String,
    pub program: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavor {
    Node,
    Deno,
    Bun,
}

#[async_trait]
impl WorkerRuntime for TypescriptRuntime {
    async fn prepare(&self, setup: &Setup<'_>) -> Result<WorkerProgram, String> {
        let settings = setup.settings;
        let program = setup.locate_program(&settings.program, "runtime")?;
        let runtime = query_runtime(&program, setup).await?;
        let packages = match &settings.requirements {
            None => None,
            Some(_) if runtime.flavor == Flavor::Deno => {
                return Err("`requirements` does not work with Deno: run `deno install` beside the module, and leave \
                            `requirements` out".into());
            }
            Some(file) => Some(install_packages(&runtime, file, setup).await?),
        };
        let folder = match &settings.module {
            ModulePath::File(file) => file.parent().unwrap_or(Path::new("/")),
            ModulePath::Name(_) => &settings.workdir,
        };
        let mut needed = project_files(folder);
        needed.extend(packages.clone());
        Ok(WorkerProgram {
            arguments: runtime
                .arguments()
                .iter()
                .chain(&[BOOT_SCRIPT])
                .map(Into::into)
                .collect(),
            path: runtime.program,
            boot_message: WorkerProgram::boot_message(FILES),
            needed,
            // Bun, and `require`, search packages there. `import` of Node.js does not.
            variables: packages
                .iter()
                .map(|folder| ("NODE_PATH", folder.join("node_modules").into()))
                .collect(),
            packages,
        })
    }
}

impl Runtime {
    /// The arguments before the script.
    fn arguments(&self) -> &'static [&'static str] {
        match self.flavor {
            Flavor::Node if version_parts(&self.version) >= NODE_WITH_QUIET_WARNINGS => {
                &["--disable-warning=ExperimentalWarning", "-e"]
            }
            Flavor::Node => &["-e"],
            // Without this, Bun downloads packages that are not installed.
            Flavor::Bun => &["--no-install", "-e"],
            Flavor::Deno => &["eval", "--quiet", "--no-lock"],
        }
    }
}

/// Asks a runtime for its name and version.
async fn query_runtime(program: &Path, setup: &Setup<'_>) -> Result<Runtime, String> {
    let shown = program.display();
    let max_time = setup.settings.start_timeout;
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let mut command = setup.command(program);
    command.args(match name.starts_with("deno") {
        true => ["eval", VERSION_SCRIPT],
        false => ["-e", VERSION_SCRIPT],
    });
    let mut response = None;
    let outcome = run_to_end(command, setup.orphan_reaper, |line, _| {
        response = parse_response(line).or(response.take());
    });
    let outcome = match timeout(max_time, outcome).await {
        Err(_) => {
            let time = format_duration(max_time);
            return Err(format!("{shown} did not report its version within {time}"));
        }
        Ok(Err(error)) => return Err(format!("the runtime {shown} cannot be run: {error}")),
        Ok(Ok(outcome)) => outcome,
    };
    let Some(mut runtime) = response else {
        let last = outcome.last_lines.back().map(|(line, _)| line.trim());
        let last = last
            .map(|line| format!("; its last output: {line}"))
            .unwrap_or_default();
        return Err(format!(
            "{shown} is not Node.js, Deno or Bun: it ended with {}{last}",
            outcome.status
        ));
    };
    let version = &runtime.version;
    if runtime.flavor == Flavor::Node && version_parts(version) < MIN_NODE {
        let (major, minor) = MIN_NODE;
        return Err(format!(
            "{shown} is Node.js {version}; {major}.{minor} or newer is needed, and 22.18 or newer runs TypeScript by itself"
        ));
    }
    if !is_executable_file(&runtime.program) {
        runtime.program = program.to_owned();
    }
    Ok(runtime)
}

fn parse_response(line: &str) -> Option<Runtime> {
    let mut parts = line.strip_prefix("runtime:")?.splitn(3, ':');
    Some(Runtime {
        flavor: match parts.next()? {
            "node" => Flavor::Node,
            "deno" => Flavor::Deno,
            "bun" => Flavor::Bun,
            _ => return None,
        },
        version: parts.next()?.to_owned(),
        program: parts.next()?.into(),
    })
}

fn version_parts(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|number| number.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// The packages and settings that apply to a file in this folder.
fn project_files(folder: &Path) -> Vec<PathBuf> {
    let paths = folder
        .ancestors()
        .flat_map(|folder| PROJECT_FILES.map(|name| folder.join(name)));
    paths.filter(|path| path.exists()).collect()
}
