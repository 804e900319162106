//! Builds virtual environments from requirements files, once for all modules and processes that need the same one.
//!
//! An environment cannot be moved, so it is built at its final path. A lock prevents two builds at once. A marker file
//! says that the environment is complete. Without that file it is the remains of an interrupted build, and is deleted.
//! A complete environment is never removed, because another version of the service may use it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::config::ModuleSettings;
use super::helper;
use super::interpreter::{Python, command};
use super::protocol::span;
use crate::blocking;
use crate::call::json::digest;
use crate::tools::ProcessEnv;
use crate::tools::StatusFn;
use crate::tools::process::{Sweeps, clean, is_program};

/// The name of the marker file in a complete environment.
const COMPLETE: &str = "toolcrib.complete";
/// Between two attempts to take a lock that another process holds.
const PAUSE: Duration = Duration::from_millis(100);
/// The shortest time between two progress reports. The log has all lines.
const BETWEEN: Duration = Duration::from_millis(500);
/// Longest time of a build, and longest wait for the build of another process.
const PATIENCE: Duration = Duration::from_mins(10);
/// Most requirements files that are read: the given one, and those that it includes.
const FILES: usize = 64;

/// A virtual environment that a module needs.
pub(super) struct VenvSpec<'a> {
    pub file: &'a Path,
    pub settings: &'a ModuleSettings,
    pub surroundings: &'a ProcessEnv,
    pub sweeps: &'a Sweeps,
    pub told: &'a StatusFn,
}

impl VenvSpec<'_> {
    /// The interpreter of the environment. Builds the environment first, if necessary.
    pub(super) async fn ready(&self, python: &Python) -> Result<PathBuf, String> {
        let requirements = requirements(self.file)?;
        let parts = [python.version.as_bytes(), python.program.as_os_str().as_encoded_bytes(), &requirements];
        let name = hex::encode(&digest(parts)[..8]);
        let venvs = &self.settings.venvs;
        let fault = |error: io::Error| format!("cannot keep virtual environments in {}: {error}", venvs.display());
        let (folder, lock) = (venvs.join(&name), venvs.join(format!("{name}.lock")));
        let own = folder.join("bin").join("python");
        if is_complete(&folder, &own) {
            return Ok(own);
        }
        fs::create_dir_all(venvs).map_err(fault)?;
        let lock = File::options().create(true).append(true).open(lock).map_err(fault)?;
        match timeout(PATIENCE, self.wait_for(&lock)).await {
            Ok(locked) => locked.map_err(fault)?,
            Err(_) => {
                let (shown, time) = (folder.display(), span(PATIENCE));
                return Err(format!("somebody else has been building its virtual environment {shown} for {time}"));
            }
        }
        if is_complete(&folder, &own) {
            return Ok(own);
        }
        // The removal runs on a thread of its own, which a dropped future does not stop. So the lock moves into the
        // thread: it stays locked until the removal has ended.
        let lock = remove(folder.clone(), lock).await.map_err(fault)?;
        let mut step = "";
        let built = timeout(PATIENCE, self.build(python, &folder, &own, &mut step)).await;
        built.unwrap_or_else(|_| {
            let (file, time) = (self.file.display(), span(PATIENCE));
            Err(format!("the virtual environment for {file} was not built in {time}; {step} was still running"))
        })?;
        fs::write(folder.join(COMPLETE), []).map_err(fault)?;
        drop(lock);
        (self.told)("its virtual environment is built".into());
        Ok(own)
    }

    async fn wait_for(&self, lock: &File) -> io::Result<()> {
        let mut waits = false;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(()),
                Err(fs::TryLockError::Error(error)) => return Err(error),
                Err(fs::TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut waits, true) {
                        (self.told)("waiting for somebody else who builds the same virtual environment".into());
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Builds the environment. `step` names the program that is running.
    async fn build(&self, python: &Python, folder: &Path, own: &Path, step: &mut &'static str) -> Result<(), String> {
        (self.told)(format!("building a virtual environment for {}", self.file.display()));
        let mut make = command(&python.program, self.settings, self.surroundings);
        make.args(["-m", "venv"]).arg(folder);
        *step = "python -m venv";
        self.step(make, step).await?;
        let mut install = command(own, self.settings, self.surroundings);
        install
            .args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off", "-r"])
            .arg(self.file)
            // Relative paths in the file start at its own folder, as they do when a person installs it there.
            .current_dir(self.file.parent().unwrap_or(Path::new("/")))
            .env("PYTHONUNBUFFERED", "1");
        *step = "pip install";
        self.step(install, step).await
    }

    async fn step(&self, command: tokio::process::Command, what: &str) -> Result<(), String> {
        let (module, redactor) = (self.settings.name.as_str(), &*self.surroundings.redactor);
        let mut next = Instant::now();
        let done = helper::run(command, self.sweeps, |line, torn| {
            let line = clean(line, torn, redactor);
            tracing::info!(target: "toolcrib::python", module, step = what, "{line}");
            if Instant::now() >= next {
                next = Instant::now() + BETWEEN;
                (self.told)(format!("{what}: {}", line.trim()));
            }
        });
        let done = done.await.map_err(|error| format!("{what} cannot be run: {error}"))?;
        if done.status.success() {
            return Ok(());
        }
        let last: Vec<String> = done.last.iter().map(|(line, torn)| clean(line.trim(), *torn, redactor)).collect();
        Err(format!("{what} for {} failed with {}: {}", self.file.display(), done.status, last.join("; ")))
    }
}

/// Deletes what an interrupted build left, which may be much.
async fn remove(folder: PathBuf, lock: File) -> io::Result<File> {
    let remove = move || match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(lock),
    };
    blocking::on_a_thread(remove).await.unwrap_or_else(|| Err(io::ErrorKind::Interrupted.into()))
}

fn is_complete(folder: &Path, own: &Path) -> bool {
    folder.join(COMPLETE).is_file() && is_program(own)
}

/// The contents of the file and of the files that it includes, in their order.
fn requirements(file: &Path) -> Result<Vec<u8>, String> {
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    let mut waiting = vec![file.to_owned()];
    while let Some(next) = waiting.pop() {
        if !seen.insert(next.clone()) {
            continue;
        }
        if seen.len() > FILES {
            return Err(format!("{} names more than {FILES} files", file.display()));
        }
        let text = fs::read(&next).map_err(|error| format!("cannot read {}: {error}", next.display()))?;
        let folder = next.parent().unwrap_or(Path::new("/"));
        let lines = String::from_utf8_lossy(&text);
        waiting.extend(lines.lines().filter_map(named).map(|name| folder.join(name)));
        all.extend_from_slice(&text);
        all.push(b'\n');
    }
    Ok(all)
}

/// The file that a line of a requirements file includes. URLs, and names that pip itself expands, are left to pip.
fn named(line: &str) -> Option<&str> {
    let line = line.split(" #").next()?.trim();
    let rest = ["-r", "-c", "--requirement", "--constraint"].iter().find_map(|option| {
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
    fn included_files_are_part_of_what_is_required() {
        for (line, expected) in [
            ("-r other.txt", Some("other.txt")),
            ("-cconstraints.txt # pinned", Some("constraints.txt")),
            ("--requirement=more/x.txt", Some("more/x.txt")),
            ("--constraint  x.txt", Some("x.txt")),
            ("requests>=2", None),
            ("--requirements-like", None),
            ("-r https://example.com/x.txt", None),
        ] {
            assert_eq!(named(line), expected, "{line}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        file("a.txt", "-r b.txt\none");
        file("b.txt", "-c a.txt\ntwo");
        let all = requirements(&folder.path().join("a.txt")).unwrap();
        assert_eq!(String::from_utf8(all).unwrap(), "-r b.txt\none\n-c a.txt\ntwo\n");
        file("b.txt", "-r c.txt");
        let fault = requirements(&folder.path().join("a.txt")).unwrap_err();
        assert!(fault.starts_with("cannot read ") && fault.contains("c.txt: No such file"), "{fault}");
    }
}
