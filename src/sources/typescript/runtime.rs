//! Finds a runtime, and asks for its name and version.

use std::path::{Path, PathBuf};

use humantime::format_duration;
use tokio::time::timeout;

use crate::call::CutEnds;
use crate::kinds::process::is_executable_file;
use crate::sources::workers::{Setup, run_to_end};

/// From here on Node.js can hide its warnings about experimental features.
const NODE_WITH_QUIET_WARNINGS: (u32, u32) = (20, 11);
/// The program in `PATH` may be a script that selects a version, so the answer has the runtime's own
/// path.
const VERSION_SCRIPT: &str = "const v = process.versions; console.log('runtime:' + (v.bun ? 'bun:' + v.bun : v.deno ? \
                              'deno:' + v.deno : 'node:' + v.node) + ':' + process.execPath)";
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

impl Runtime {
    /// The arguments before the script.
    pub(super) fn arguments(&self) -> &'static [&'static str] {
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
pub(super) async fn query_runtime(program: &Path, setup: &Setup<'_>) -> Result<Runtime, String> {
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
        let whole = outcome
            .last_lines
            .iter()
            .filter(|(line, cut)| *cut == CutEnds::NONE && !line.trim().is_empty());
        let last: Vec<&str> = whole.map(|(line, _)| line.trim()).collect();
        let last = match last.is_empty() {
            true => String::new(),
            false => format!("; its last output: {}", last.join("; ")),
        };
        return Err(format!(
            "{shown} did not report a version of Node.js, Deno or Bun: it ended with {}{last}",
            outcome.status
        ));
    };
    let version = &runtime.version;
    if runtime.flavor == Flavor::Node && !is_supported(version_parts(version)) {
        return Err(format!(
            "{shown} is Node.js {version}; 18.20, or 20.9 or newer, is needed, and 22.18 or newer runs TypeScript by itself"
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

/// Whether the worker runs on this version of Node.js. Others have no hooks for the loader of modules,
/// or crash at `import()` in `-e`.
fn is_supported(version: (u32, u32)) -> bool {
    matches!(version, (18, 20..) | (20, 9..) | (21.., _))
}

fn version_parts(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|number| number.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
