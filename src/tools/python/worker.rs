//! One worker process: started, asked, ended.

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
use super::prints::Prints;
use super::protocol::{self, Function, Hello, Listing, Role, span};
use super::wire::LineReader;
use crate::call::Torn;
use crate::printable;
use crate::secrets::Redactor;
use crate::tools::process::{self, Mark, ProcessTree, Sweeps};

/// What a worker runs.
const SOURCE: &str = include_str!("worker.py");
/// Reads so many bytes of source from standard input, where orders follow, and runs them.
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
/// Marks a worker and all that it starts; the value is this worker's alone.
pub(super) const VARIABLE: &str = "TOOLCRIB_WORKER";
/// A worker whose pipe has closed ends at once, or is stuck.
const END: Duration = Duration::from_secs(1);
/// What a worker wrote last is read at once after its end, and what it started ends with it.
const GRACE: Duration = Duration::from_millis(250);

/// Starts the workers of one module.
pub(super) struct Launcher {
    pub settings: ModuleSettings,
    pub name: Arc<str>,
    pub python: PathBuf,
    pub redactor: Arc<Redactor>,
    /// What the module's file said when it was listed: workers that are started later run the same, whatever it says then.
    /// `None`: no file, or none that is UTF-8.
    pub source: Option<String>,
    /// What the first worker listed: what the tools are made of.
    pub listed: Mutex<Option<Vec<Function>>>,
    /// Last, so that it waits for the sweeps of all.
    pub sweeps: Sweeps,
}

/// A process that has loaded the module. Dropping it ends it, with all that it started.
pub(super) struct Worker {
    pub tree: ProcessTree,
    /// Where its orders go; a task may have taken it.
    pub to: Option<ChildStdin>,
    pub from: LineReader<ChildStdout>,
    pub prints: Prints,
    pub born: Instant,
    /// How it ended, once that is known.
    status: Option<ExitStatus>,
}

/// What comes from a worker.
pub(super) enum Next {
    /// A line; the reader has it.
    Line,
    /// One that is too long to be read.
    TooLong,
    /// Nothing more: how it ended, a part of a sentence whose subject is the call's.
    Ended(String),
}

impl Launcher {
    /// Starts a worker and waits until it has loaded the module.
    ///
    /// # Errors
    /// A sentence that says what went wrong and where. Dropping the future ends what was started.
    pub(super) async fn start(&self, role: Role) -> Result<(Worker, Listing), String> {
        let hello = timeout(self.settings.start_timeout, self.begin(role));
        let result = match hello.await {
            Ok(result) => result,
            Err(_) => Err(format!("it was not ready after {}", span(self.settings.start_timeout))),
        };
        if let Ok((_, listing)) = &result {
            self.compare(&listing.tools);
        }
        result.map_err(|fault| self.redactor.text(&printable::text(&fault)).into_owned())
    }

    /// A module that is known by name, or what a file imports, may be another by now; the tools stay what they were until
    /// they are listed again.
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
        let prints = Prints::follow(stderr, self.name.clone(), self.redactor.clone());
        let mut worker = Worker { tree, to: Some(to), from: LineReader::new(from), prints, born, status: None };
        let first = [
            format!("{}\n", SOURCE.len()).as_bytes(),
            SOURCE.as_bytes(),
            &protocol::load(&self.settings, self.source.as_deref(), role),
        ]
        .concat();
        // One that ends while it is told has its reasons: they are asked for below.
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
        for line in printable::text(traceback).lines() {
            let line = process::clean(line, Torn::NOWHERE, &self.redactor);
            tracing::warn!(target: "toolcrib::python", module = &*self.name, "{line}");
        }
    }
}

impl Worker {
    /// Whether it is still there. What it says while it has no call is passed over.
    pub(super) fn is_sound(&mut self) -> bool {
        while let Some(read) = self.from.advance_now() {
            if !matches!(read, Ok(true)) {
                return false;
            }
        }
        !self.tree.has_ended()
    }

    /// Writes to it, all or an error.
    pub(super) async fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match &mut self.to {
            Some(to) => to.write_all(line).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// What it says next, or how it ended. A process that it left behind may hold its pipe: its own end counts.
    pub(super) async fn next(&mut self) -> Next {
        if self.status.is_none() {
            tokio::select! {
                biased;
                read = self.from.advance() => return self.heard(read).await,
                status = self.tree.wait() => self.status = status.ok(),
            }
        }
        // What it wrote last is in the pipe, and may not have been noticed yet.
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

    /// How it has ended. Not waited for long.
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
