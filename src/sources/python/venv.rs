//! Builds virtual environments from requirements files, once for all modules and processes that
//! need the same one.
//!
//! An environment cannot be moved, so it is built at its final path. A lock prevents two builds at
//! once. A marker file says that the environment is complete. Without that file it is the remains
//! of an interrupted build, and is deleted. A complete environment is never removed, because
//! another version of the service may use it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use humantime::format_duration;
use tokio::time::{Instant, sleep, timeout};

use super::config::ModuleSettings;
use super::interpreter::Python;
use super::setup_program::{self, setup_command};
use crate::call::json::hash_parts;
use crate::kinds::ProcessEnv;
use crate::kinds::process::{OrphanReaper, is_executable_file, redact_line};
use crate::runtime::blocking;
use crate::sources::StatusFn;

/// The name of the marker file in a complete environment.
const COMPLETE_MARKER: &str = "toolcrib.complete";
/// Between two attempts to take a lock that another process holds.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// The shortest time between two progress reports. The log has all lines.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time of a build, and longest wait for another build.
const BUILD_TIMEOUT: Duration = Duration::from_mins(10);
/// Most requirements files that are read: the given one, and those that it includes.
const MAX_FILES: usize = 64;

/// A virtual environment that a module needs.
pub(super) struct VenvSpec<'a> {
    pub file: &'a Path,
    pub settings: &'a ModuleSettings,
    pub process_env: &'a ProcessEnv,
    pub orphan_reaper: &'a OrphanReaper,
    pub report_status: &'a StatusFn,
}

impl VenvSpec<'_> {
    /// The interpreter of the environment. Builds the environment first, if necessary.
    pub(super) async fn ensure_built(&self, python: &Python) -> Result<PathBuf, String> {
        let requirements = read_requirements(self.file)?;
        let parts = [
            python.version.as_bytes(),
            python.program.as_os_str().as_encoded_bytes(),
            &requirements,
        ];
        let name = hex::encode(&hash_parts(parts)[..8]);
        let venvs = &self.settings.venvs;
        let fault = |error: io::Error| {
            format!(
                "cannot keep virtual environments in {}: {error}",
                venvs.display()
            )
        };
        let (folder, lock) = (venvs.join(&name), venvs.join(format!("{name}.lock")));
        let interpreter = folder.join("bin").join("python");
        if is_complete(&folder, &interpreter) {
            return Ok(interpreter);
        }
        fs::create_dir_all(venvs).map_err(fault)?;
        let lock = File::options()
            .create(true)
            .append(true)
            .open(lock)
            .map_err(fault)?;
        match timeout(BUILD_TIMEOUT, self.acquire_lock(&lock)).await {
            Ok(locked) => locked.map_err(fault)?,
            Err(_) => {
                let (shown, time) = (folder.display(), format_duration(BUILD_TIMEOUT));
                return Err(format!(
                    "another build of the virtual environment {shown} has been running for {time}"
                ));
            }
        }
        if is_complete(&folder, &interpreter) {
            return Ok(interpreter);
        }
        // The removal runs on a thread of its own, which a dropped future does not stop. So the
        // lock moves into the thread: it stays locked until the removal has ended.
        let lock = remove_incomplete(folder.clone(), lock)
            .await
            .map_err(fault)?;
        let mut step = "";
        let built = timeout(
            BUILD_TIMEOUT,
            self.build(python, &folder, &interpreter, &mut step),
        )
        .await;
        built.unwrap_or_else(|_| {
            let (file, time) = (self.file.display(), format_duration(BUILD_TIMEOUT));
            Err(format!("the virtual environment for {file} was not built in {time}; {step} was still running"))
        })?;
        fs::write(folder.join(COMPLETE_MARKER), []).map_err(fault)?;
        drop(lock);
        (self.report_status)("its virtual environment is built".into());
        Ok(interpreter)
    }

    async fn acquire_lock(&self, lock: &File) -> io::Result<()> {
        let mut is_waiting = false;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(()),
                Err(fs::TryLockError::Error(error)) => return Err(error),
                Err(fs::TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut is_waiting, true) {
                        (self.report_status)(
                            "waiting for another build of the same virtual environment".into(),
                        );
                    }
                    sleep(LOCK_PAUSE).await;
                }
            }
        }
    }

    /// Builds the environment. `step` names the program that is running.
    async fn build(
        &self,
        python: &Python,
        folder: &Path,
        interpreter: &Path,
        step: &mut &'static str,
    ) -> Result<(), String> {
        (self.report_status)(format!(
            "building a virtual environment for {}",
            self.file.display()
        ));
        let mut make = setup_command(&python.program, self.settings, self.process_env);
        make.args(["-m", "venv"]).arg(folder);
        *step = "python -m venv";
        self.run_step(make, step).await?;
        let mut install = setup_command(interpreter, self.settings, self.process_env);
        install
            .args([
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-input",
                "--progress-bar",
                "off",
                "-r",
            ])
            .arg(self.file)
            // Relative paths in the file start at its own folder, as they do when a person installs
            // it there.
            .current_dir(self.file.parent().unwrap_or(Path::new("/")))
            .env("PYTHONUNBUFFERED", "1");
        *step = "pip install";
        self.run_step(install, step).await
    }

    async fn run_step(&self, command: tokio::process::Command, what: &str) -> Result<(), String> {
        let (module, redactor) = (self.settings.name.as_str(), &*self.process_env.redactor);
        let mut next = Instant::now();
        let outcome = setup_program::run_to_end(command, self.orphan_reaper, |line, cut| {
            let line = redact_line(line, cut, redactor);
            tracing::info!(target: "toolcrib::python", module, step = what, "{line}");
            if Instant::now() >= next {
                next = Instant::now() + REPORT_INTERVAL;
                (self.report_status)(format!("{what}: {}", line.trim()));
            }
        });
        let outcome = outcome
            .await
            .map_err(|error| format!("{what} cannot be run: {error}"))?;
        if outcome.status.success() {
            return Ok(());
        }
        let last_lines: Vec<String> = outcome
            .last_lines
            .iter()
            .map(|(line, cut)| redact_line(line.trim(), *cut, redactor))
            .collect();
        Err(format!(
            "{what} for {} failed with {}: {}",
            self.file.display(),
            outcome.status,
            last_lines.join("; ")
        ))
    }
}

/// Deletes what an interrupted build left, which may be much.
async fn remove_incomplete(folder: PathBuf, lock: File) -> io::Result<File> {
    let remove = move || match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(lock),
    };
    blocking::run_blocking(remove)
        .await
        .unwrap_or_else(|| Err(io::ErrorKind::Interrupted.into()))
}

fn is_complete(folder: &Path, interpreter: &Path) -> bool {
    folder.join(COMPLETE_MARKER).is_file() && is_executable_file(interpreter)
}

/// The contents of the file and of the files that it includes, in their order.
fn read_requirements(file: &Path) -> Result<Vec<u8>, String> {
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    let mut pending = vec![file.to_owned()];
    while let Some(next) = pending.pop() {
        if !seen.insert(next.clone()) {
            continue;
        }
        if seen.len() > MAX_FILES {
            return Err(format!(
                "{} names more than {MAX_FILES} files",
                file.display()
            ));
        }
        let text =
            fs::read(&next).map_err(|error| format!("cannot read {}: {error}", next.display()))?;
        let folder = next.parent().unwrap_or(Path::new("/"));
        let lines = String::from_utf8_lossy(&text);
        pending.extend(
            lines
                .lines()
                .filter_map(included_file)
                .map(|name| folder.join(name)),
        );
        all.extend_from_slice(&text);
        all.push(b'\n');
    }
    Ok(all)
}

/// The file that a line of a requirements file includes. URLs, and names that pip itself expands,
/// are left to pip.
fn included_file(line: &str) -> Option<&str> {
    let line = line.split(" #").next()?.trim();
    let rest = ["-r", "-c", "--requirement", "--constraint"]
        .iter()
        .find_map(|option| {
            let rest = line.strip_prefix(option)?;
            let is_short = option.len() == 2;
            (is_short || rest.starts_with([' ', '\t', '='])).then_some(rest)
        })?;
    let name = rest.trim_start_matches('=').trim();
    (!name.is_empty() && !name.contains("://") && !name.contains("${")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_part_of_the_requirements() {
        for (line, expected) in [
            ("-r other.txt", Some("other.txt")),
            ("-cconstraints.txt # pinned", Some("constraints.txt")),
            ("--requirement=more/x.txt", Some("more/x.txt")),
            ("--constraint  x.txt", Some("x.txt")),
            ("requests>=2", None),
            ("--requirements-like", None),
            ("-r https://example.com/x.txt", None),
        ] {
            assert_eq!(included_file(line), expected, "{line}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        file("a.txt", "-r b.txt\none");
        file("b.txt", "-c a.txt\ntwo");
        let all = read_requirements(&folder.path().join("a.txt")).unwrap();
        assert_eq!(
            String::from_utf8(all).unwrap(),
            "-r b.txt\none\n-c a.txt\ntwo\n"
        );
        file("b.txt", "-r c.txt");
        let fault = read_requirements(&folder.path().join("a.txt")).unwrap_err();
        assert!(
            fault.starts_with("cannot read ") && fault.contains("c.txt: No such file"),
            "{fault}"
        );
    }
}
