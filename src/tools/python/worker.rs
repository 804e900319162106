//! One worker process: its start, its messages, its end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::config::ModuleSettings;
use super::protocol::{self, Function, Hello, Listing, Role, span};
use super::stderr_log::StderrLog;
use super::wire::LineReader;
use crate::call::Torn;
use crate::sanitize;
use crate::secrets::Redactor;
use crate::tools::process::{self, Mark, ProcessTree, Sweeps};

/// The program of a worker.
const SOURCE: &str = include_str!("worker.py");
/// Reads a number and so many bytes of source from standard input, and runs the source. Orders follow on the same pipe.
const BOOT: &str = "\
import os
def read(n):
    got = b''
    while len(got) < n:
        more = os.read(0, n - len(got))
        if not more:
            os._exit(0)
        got += more
    return got
size = b''
while not size.endswith(b'\\n'):
    size += read(1)
name = '<toolcrib worker>'
exec(compile(read(int(size)), name, 'exec'), {'__name__': 'toolcrib_worker', '__file__': name})
";
/// The environment variable that marks a worker and all processes that it starts. Each worker has its own value.
pub(super) const VARIABLE: &str = "TOOLCRIB_WORKER";
/// A worker whose pipe has closed ends within this time. Otherwise it is stuck.
const END: Duration = Duration::from_secs(1);
/// After the end of a worker, its last output is read for this long. Its child processes end with it.
const GRACE: Duration = Duration::from_millis(250);

pub(super) struct Launcher {
    pub settings: ModuleSettings,
    pub name: Arc<str>,
    pub python: PathBuf,
    pub redactor: Arc<Redactor>,
    /// The text of the module's file when it was listed. Workers that start later run the same text, even if the file
    /// has changed. `None`: not a file, not readable or not UTF-8.
    pub source: Option<String>,
    /// The functions that the first worker listed. The tools are made of them.
    pub listed: Mutex<Option<Vec<Function>>>,
    /// Must be the last field, so that its drop waits for the end of all workers.
    pub sweeps: Sweeps,
}

/// A process that has loaded the module. Dropping it ends the process and everything that the process started.
pub(super) struct Worker {
    pub tree: ProcessTree,
    /// The pipe for orders. `None` after a task has taken it.
    pub to: Option<ChildStdin>,
    pub from: LineReader<ChildStdout>,
    pub prints: StderrLog,
    pub born: Instant,
    /// The exit status, once it is known.
    status: Option<ExitStatus>,
}

/// The next event of a worker.
pub(super) enum Next {
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
    pub(super) async fn start(&self, role: Role) -> Result<(Worker, Listing), String> {
        let hello = timeout(self.settings.start_timeout, self.begin(role));
        let result = match hello.await {
            Ok(result) => result,
            Err(_) => Err(format!("it was not ready after {}", span(self.settings.start_timeout))),
        };
        if let Ok((_, listing)) = &result {
            self.compare(&listing.tools);
        }
        result.map_err(|fault| self.redactor.text(&sanitize::text(&fault)).into_owned())
    }

    /// Warns if the module has other functions than when it was listed. That happens when a module known by name, or an
    /// imported file, has changed. The tools stay the same until the module is listed again.
    fn compare(&self, now: &[Function]) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.get_or_insert_with(|| now.to_vec()) != now {
            let module = &*self.name;
            tracing::warn!(target: "toolcrib::python", module, "the module has other tools than when it was listed: reload to take them in");
        }
    }

    async fn begin(&self, role: Role) -> Result<(Worker, Listing), String> {
        let born = Instant::now();
        let mut tree = ProcessTree::spawn(&mut self.command(), self.mark(), &self.sweeps)
            .map_err(|error| self.start_fault(&error))?;
        let (Some(to), Some(from), Some(stderr)) = tree.pipes() else {
            return Err("its pipes are not there".into());
        };
        let prints = StderrLog::follow(stderr, self.name.clone(), self.redactor.clone());
        let mut worker = Worker { tree, to: Some(to), from: LineReader::new(from), prints, born, status: None };
        let first = [
            format!("{}\n", SOURCE.len()).as_bytes(),
            SOURCE.as_bytes(),
            &protocol::load(&self.settings, self.source.as_deref(), role),
        ]
        .concat();
        // A worker that ends during this write reports its reason on its output, which is read below. So ignore the
        // error.
        let _ = worker.write(&first).await;
        match worker.next().await {
            Next::Line => match protocol::hello(worker.from.line()) {
                Ok(Hello::Ready(listing)) => Ok((worker, listing)),
                Ok(Hello::Failed { message, traceback }) => {
                    self.log(traceback.as_deref().unwrap_or_default());
                    Err(message)
                }
                Err(error) => Err(format!("its first words are not those of a worker: {error}")),
            },
            Next::TooLong => Err("its first words are too long".into()),
            Next::Ended(how) => {
                let words = worker.prints.last_words().await;
                Err(if words.is_empty() { how } else { format!("{how}, saying: {words}") })
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        command
            .args(["-X", "utf8", "-c", BOOT])
            .current_dir(&self.settings.workdir)
            .env_clear()
            .envs(&self.settings.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn mark(&self) -> Mark {
        Mark::new([(VARIABLE, Uuid::now_v7().to_string())])
    }

    fn start_fault(&self, error: &std::io::Error) -> String {
        let workdir = &self.settings.workdir;
        if workdir.is_dir() {
            format!("cannot start {}: {error}", self.python.display())
        } else {
            format!("its working folder {} is not there", workdir.display())
        }
    }

    fn log(&self, traceback: &str) {
        for line in sanitize::text(traceback).lines() {
            let line = process::clean(line, Torn::NOWHERE, &self.redactor);
            tracing::warn!(target: "toolcrib::python", module = &*self.name, "{line}");
        }
    }
}

impl Worker {
    /// Whether the worker is still running. Discards messages that it wrote outside a call.
    pub(super) fn is_sound(&mut self) -> bool {
        while let Some(read) = self.from.advance_now() {
            if !matches!(read, Ok(true)) {
                return false;
            }
        }
        !self.tree.has_ended()
    }

    /// Writes all of `line`, or returns an error.
    pub(super) async fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match &mut self.to {
            Some(to) => to.write_all(line).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// The next message, or how the worker ended. A process that the worker left behind may hold the pipe open, so the
    /// exit of the worker itself counts as its end.
    pub(super) async fn next(&mut self) -> Next {
        if self.status.is_none() {
            tokio::select! {
                biased;
                read = self.from.advance() => return self.heard(read).await,
                status = self.tree.wait() => self.status = status.ok(),
            }
        }
        // The worker has ended, but its last messages may still be in the pipe, not noticed yet. Read them first.
        let read = timeout(GRACE, self.from.advance()).await.unwrap_or(Ok(false));
        self.heard(read).await
    }

    async fn heard(&mut self, read: io::Result<bool>) -> Next {
        match read {
            Ok(true) => Next::Line,
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Next::TooLong,
            Ok(false) | Err(_) => Next::Ended(self.ended().await),
        }
    }

    /// How the worker has ended. Waits at most `END` for its exit status.
    pub(super) async fn ended(&mut self) -> String {
        if self.status.is_none() {
            self.status = timeout(END, self.tree.wait()).await.ok().and_then(Result::ok);
        }
        let Some(status) = self.status else {
            return "its worker process closed its connection".into();
        };
        match (status.code(), status.signal()) {
            (Some(code), _) => format!("its worker process ended with exit status {code}"),
            (None, Some(9)) => "its worker process was killed (SIGKILL), perhaps because memory ran out".into(),
            (None, _) => format!("its worker process ended by {status}"),
        }
    }
}
