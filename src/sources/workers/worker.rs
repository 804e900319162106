//! One worker process: its start, its messages, its end.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use humantime::format_duration;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::config::ModuleSettings;
use super::language::{Language, log_as};
use super::line_reader::LineReader;
use super::protocol::{self, Function, Hello, ModuleListing, Role};
use super::runtime::WorkerProgram;
use super::stderr_log::StderrLog;
use crate::call::CutEnds;
use crate::kinds::process::{self, Launch, OrphanReaper, ProcessMarker, ProcessTree};
use crate::kinds::sandbox::EntrySandbox;
use crate::secrets::Redactor;
use crate::text::sanitize;

/// The environment variable that marks a worker and all processes that it starts. Each worker has
/// its own value.
const MARKER_VARIABLE: &str = "TOOLCRIB_WORKER";
/// A worker whose pipe has closed ends within this time. Otherwise it is stuck.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);
/// After the end of a worker, its last output is read for this long. Its child processes end with
/// it.
const FINAL_READ_TIMEOUT: Duration = Duration::from_millis(250);

pub(super) struct Launcher {
    pub settings: ModuleSettings,
    pub sandbox: Arc<EntrySandbox>,
    pub name: Arc<str>,
    /// The program of a worker.
    pub program: WorkerProgram,
    pub redactor: Arc<Redactor>,
    /// The text of the module's file when it was listed. Workers that start later run the same
    /// text, even if the file has changed. `None`: not a file, not readable or not UTF-8.
    pub source: Option<String>,
    /// The functions that the first worker listed. The tools are made of them.
    pub listed_functions: Mutex<Option<Vec<Function>>>,
    /// Must be the last field, so that its drop waits for the end of all workers.
    pub orphan_reaper: OrphanReaper,
}

/// A process that has loaded the module. Dropping it ends the process and everything that the
/// process started.
pub(super) struct Worker {
    pub language: Language,
    pub tree: ProcessTree,
    /// The pipe for requests. `None` after a task has taken it.
    pub stdin: Option<ChildStdin>,
    pub stdout: LineReader<ChildStdout>,
    pub stderr: StderrLog,
    pub started_at: Instant,
    /// The exit status, once it is known.
    status: Option<ExitStatus>,
}

/// The next event of a worker.
pub(super) enum WorkerEvent {
    /// A message. [`LineReader::line`] returns it.
    Line,
    /// A message that is too long to be read.
    TooLong,
    /// The worker has ended. The text says how, as the end of a sentence about the call.
    Ended(String),
}

impl Launcher {
    /// Starts a worker and waits until it has loaded the module.
    ///
    /// # Errors
    /// A sentence that says what failed and where. Dropping the future ends what was started.
    pub(super) async fn start(&self, role: Role) -> Result<(Worker, ModuleListing), String> {
        let hello = timeout(self.settings.start_timeout, self.start_untimed(role));
        let result = match hello.await {
            Ok(result) => result,
            Err(_) => Err(format!(
                "it was not ready after {}",
                format_duration(self.settings.start_timeout)
            )),
        };
        if let Ok((_, listing)) = &result {
            self.warn_if_changed(&listing.tools);
        }
        result.map_err(|fault| self.redactor.clean_and_redact(&fault))
    }

    /// Warns if the module has other functions than when it was listed. That happens when a module
    /// known by name, or an imported file, has changed. The tools stay the same until the module is
    /// listed again.
    fn warn_if_changed(&self, functions: &[Function]) {
        let mut listed = self.listed_functions.lock();
        if listed.get_or_insert_with(|| functions.to_vec()) != functions {
            let module = &*self.name;
            log_as!(
                self.settings.language,
                warn,
                module,
                "the tools of the module have changed since it was listed: reload to use them"
            );
        }
    }

    async fn start_untimed(&self, role: Role) -> Result<(Worker, ModuleListing), String> {
        let started_at = Instant::now();
        let mut launch = self.sandbox.launch()?;
        let mut command = self.worker_command(&mut launch);
        let tree = ProcessTree::spawn(&mut command, new_marker(), &self.orphan_reaper, launch);
        let workdir = &self.settings.workdir;
        let mut tree = tree.map_err(|error| match workdir.is_dir() {
            true => format!("cannot start {}: {error}", self.program.path.display()),
            false => format!("its working folder {} does not exist", workdir.display()),
        })?;
        let (Some(stdin), Some(stdout), Some(stderr)) = tree.take_pipes() else {
            return Err("its pipes are missing".into());
        };
        let stderr = StderrLog::follow(
            stderr,
            self.settings.language,
            self.name.clone(),
            self.redactor.clone(),
        );
        let mut worker = Worker {
            language: self.settings.language,
            tree,
            stdin: Some(stdin),
            stdout: LineReader::new(stdout),
            stderr,
            started_at,
            status: None,
        };
        let load = protocol::load_message(
            &self.settings,
            self.program.packages.as_deref(),
            self.source.as_deref(),
            role,
        );
        // A worker that ends during these writes reports its reason on its output, which is read
        // below. So ignore the error.
        if worker.write(&self.program.boot_message).await.is_ok() {
            let _ = worker.write(&load).await;
        }
        match worker.next_event().await {
            WorkerEvent::Line => match protocol::read_hello(worker.stdout.line()) {
                Ok(Hello::Ready(listing)) => Ok((worker, listing)),
                Ok(Hello::Failed { message, traceback }) => {
                    self.log_traceback(traceback.as_deref().unwrap_or_default());
                    Err(message)
                }
                Err(error) => Err(format!("its first message is invalid: {error}")),
            },
            WorkerEvent::TooLong => Err("its first message is too long".into()),
            WorkerEvent::Ended(reason) => {
                let output = worker.stderr.tail().await;
                Err(if output.is_empty() {
                    reason
                } else {
                    format!("{reason}; its last output: {output}")
                })
            }
        }
    }

    /// The module, as the subject of a sentence.
    pub(super) fn describe_module(&self) -> String {
        let (language, name) = (self.settings.language.name(), &self.name);
        format!("the {language} module {name}")
    }

    fn worker_command(&self, launch: &mut Launch) -> Command {
        let mut command = launch.command(&self.program.path);
        command
            .args(&self.program.arguments)
            .current_dir(&self.settings.workdir)
            .env_clear()
            .envs(self.program.variables.iter().cloned())
            .envs(&self.settings.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn log_traceback(&self, traceback: &str) {
        for line in sanitize::clean_text(traceback).lines() {
            let line = process::redact_line(line, CutEnds::NONE, &self.redactor);
            log_as!(self.settings.language, warn, module = &*self.name, "{line}");
        }
    }
}

pub(super) fn new_marker() -> ProcessMarker {
    ProcessMarker::new([(MARKER_VARIABLE, Uuid::now_v7().to_string())])
}

impl Worker {
    /// Whether the worker is still running. Discards messages that it wrote outside a call.
    pub(super) fn is_healthy(&mut self) -> bool {
        while let Some(read) = self.stdout.try_advance() {
            if !matches!(read, Ok(true)) {
                return false;
            }
        }
        !self.tree.has_ended()
    }

    /// Writes all of `line`, or returns an error.
    pub(super) async fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match &mut self.stdin {
            Some(stdin) => stdin.write_all(line).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Writes as much of `line` as the pipe accepts now. Returns the number of bytes.
    pub(super) fn write_now(&mut self, line: &[u8]) -> usize {
        let written = self
            .stdin
            .as_mut()
            .and_then(|stdin| stdin.write(line).now_or_never());
        // The call that writes the rest finds out why there was an error.
        written.and_then(Result::ok).unwrap_or(0)
    }

    /// The next message, or how the worker ended. A process that the worker left behind may hold
    /// the pipe open, so the exit of the worker itself counts as its end.
    pub(super) async fn next_event(&mut self) -> WorkerEvent {
        if self.status.is_none() {
            tokio::select! {
                biased;
                read = self.stdout.advance() => return self.event_of_read(read).await,
                status = self.tree.wait() => self.status = status.ok(),
            }
        }
        // The worker has ended, but its last messages may still be in the pipe, not noticed yet.
        // Read them first.
        let read = timeout(FINAL_READ_TIMEOUT, self.stdout.advance())
            .await
            .unwrap_or(Ok(false));
        self.event_of_read(read).await
    }

    async fn event_of_read(&mut self, read: io::Result<bool>) -> WorkerEvent {
        match read {
            Ok(true) => WorkerEvent::Line,
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => WorkerEvent::TooLong,
            Ok(false) | Err(_) => WorkerEvent::Ended(self.exit_reason().await),
        }
    }

    /// How the worker has ended. Waits at most `STATUS_TIMEOUT` for its exit status.
    pub(super) async fn exit_reason(&mut self) -> String {
        if self.status.is_none() {
            self.status = timeout(STATUS_TIMEOUT, self.tree.wait())
                .await
                .ok()
                .and_then(Result::ok);
        }
        let Some(status) = self.status else {
            return "its worker process closed its connection".into();
        };
        process::describe_exit("its worker process", status)
    }
}
