//! A folder with the packages of a module, built once for all modules and processes that need the
//! same one.
//!
//! Such a folder cannot be moved, so it is built at its final path. A lock prevents two builds at
//! once. A marker file says that the folder is complete. Without that file it is the remains of an
//! interrupted build, and is deleted. A complete folder is never removed, because another version of
//! the service may use it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use humantime::format_duration;
use parking_lot::Mutex;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::language::log_as;
use super::runtime::Setup;
use super::setup_program;
use crate::call::json::hash_parts;
use crate::kinds::process::redact_line;
use crate::runtime::blocking;

/// The name of the marker file in a complete folder.
const COMPLETE_MARKER: &str = "toolcrib.complete";
/// Between two attempts to take a lock that another process holds.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// The shortest time between two progress reports. The log has all lines.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time of a build, and longest wait for another build.
const BUILD_TIMEOUT: Duration = Duration::from_mins(10);

/// A folder with the packages that a requirements file names.
pub(in crate::sources) struct PackageFolder<'a> {
    pub path: PathBuf,
    setup: &'a Setup<'a>,
    file: &'a Path,
    /// What it is, in the singular, for messages.
    what: &'static str,
    /// The program that is running.
    step: Mutex<&'static str>,
}

impl<'a> PackageFolder<'a> {
    /// The folder for this file. `parts` are all that its contents depend on.
    pub(in crate::sources) fn new<'p>(
        setup: &'a Setup<'a>,
        file: &'a Path,
        what: &'static str,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> Self {
        let name = hex::encode(&hash_parts(parts)[..8]);
        Self {
            path: setup.settings.package_dir.join(name),
            setup,
            file,
            what,
            step: Mutex::default(),
        }
    }

    /// Runs `build`, unless the folder is complete and usable.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub(in crate::sources) async fn ensure_built(
        &self,
        is_usable: impl Fn() -> bool,
        build: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let what = self.what;
        let folders = &self.setup.settings.package_dir;
        let fault = |error: io::Error| {
            let folders = folders.display();
            format!("cannot keep {what}s in {folders}: {error}")
        };
        let marker = self.path.join(COMPLETE_MARKER);
        let is_complete = || marker.is_file() && is_usable();
        if is_complete() {
            return Ok(());
        }
        fs::create_dir_all(folders).map_err(fault)?;
        let lock = File::options()
            .create(true)
            .append(true)
            .open(self.path.with_extension("lock"))
            .map_err(fault)?;
        match timeout(BUILD_TIMEOUT, self.acquire_lock(&lock)).await {
            Ok(locked) => locked.map_err(fault)?,
            Err(_) => {
                let (shown, time) = (self.path.display(), format_duration(BUILD_TIMEOUT));
                return Err(format!(
                    "another build of the {what} {shown} has been running for {time}"
                ));
            }
        }
        if is_complete() {
            return Ok(());
        }
        // The removal runs on a thread of its own, which a dropped future does not stop. So the
        // lock moves into the thread: it stays locked until the removal has ended.
        let lock = remove_incomplete(self.path.clone(), lock)
            .await
            .map_err(fault)?;
        let file = self.file.display();
        (self.setup.report_status)(format!("building a {what} for {file}"));
        let built = timeout(BUILD_TIMEOUT, build).await;
        built.unwrap_or_else(|_| {
            let (time, step) = (format_duration(BUILD_TIMEOUT), *self.step.lock());
            Err(format!(
                "the {what} for {file} was not built in {time}; {step} was still running"
            ))
        })?;
        fs::write(marker, []).map_err(fault)?;
        drop(lock);
        (self.setup.report_status)(format!("its {what} is built"));
        Ok(())
    }

    async fn acquire_lock(&self, lock: &File) -> io::Result<()> {
        let mut is_waiting = false;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(()),
                Err(fs::TryLockError::Error(error)) => return Err(error),
                Err(fs::TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut is_waiting, true) {
                        let what = self.what;
                        let waiting = format!("waiting for another build of the same {what}");
                        (self.setup.report_status)(waiting);
                    }
                    sleep(LOCK_PAUSE).await;
                }
            }
        }
    }

    /// Runs one program of the build, with this name in messages.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub(in crate::sources) async fn run_step(
        &self,
        command: Command,
        step: &'static str,
    ) -> Result<(), String> {
        *self.step.lock() = step;
        let settings = self.setup.settings;
        let (module, redactor) = (settings.name.as_str(), &*self.setup.process_env.redactor);
        let mut next = Instant::now();
        let outcome = setup_program::run_to_end(command, self.setup.orphan_reaper, |line, cut| {
            let line = redact_line(line, cut, redactor);
            log_as!(settings.language, info, module, step, "{line}");
            if Instant::now() >= next {
                next = Instant::now() + REPORT_INTERVAL;
                (self.setup.report_status)(format!("{step}: {}", line.trim()));
            }
        });
        let outcome = outcome
            .await
            .map_err(|error| format!("{step} cannot be run: {error}"))?;
        if outcome.status.success() {
            return Ok(());
        }
        let last_lines: Vec<String> = outcome
            .last_lines
            .iter()
            .map(|(line, cut)| redact_line(line.trim(), *cut, redactor))
            .collect();
        Err(format!(
            "{step} for {} failed with {}: {}",
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
