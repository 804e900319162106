//! A server process that this service started, with everything that the process starts.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, kill_process_group};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::secrets::Redactor;
use crate::tools::process::{Mark, Prints, ProcessTree, Sweeps};

/// The environment variable that marks a server and all processes that it starts. Each server has its own value.
const VARIABLE: &str = "TOOLCRIB_MCP_SERVER";
/// Time for a server to end after its standard input is closed, and again after SIGTERM. The specification gives this
/// order for stdio. Both times and the SIGKILL fit into the time that a shutdown waits (`Sweeps`).
const PATIENCE: Duration = Duration::from_millis(750);
/// A server whose output has closed ends within this time. Otherwise it is stuck.
const END: Duration = Duration::from_secs(1);

/// A server's process. Dropping it asks the process to end, and kills it later if it does not. The drop does not wait.
pub(super) struct Child {
    prints: Prints,
    status: tokio::sync::watch::Receiver<Option<String>>,
    close: CancellationToken,
    _close: DropGuard,
}

struct Process(ProcessTree);

impl Child {
    /// Starts the process. `gone` is cancelled when the process has ended.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn spawn(
        mut command: Command,
        sweeps: &Sweeps,
        server: Arc<str>,
        redactor: Arc<Redactor>,
        gone: &CancellationToken,
    ) -> io::Result<(Self, (ChildStdin, ChildStdout))> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mark = Mark::new([(VARIABLE, Uuid::now_v7().to_string())]);
        let mut tree = ProcessTree::spawn(&mut command, mark, sweeps)?;
        let (Some(to), Some(from), Some(stderr)) = tree.pipes() else {
            return Err(io::Error::other("its pipes are not there"));
        };
        let prints = Prints::follow(stderr, redactor, move |line, missed| {
            tracing::info!(target: "toolcrib::mcp", server = &*server, missed, "{line}");
        });
        let (close, gone) = (CancellationToken::new(), gone.clone().drop_guard());
        let (told, status) = tokio::sync::watch::channel(None);
        let (closed, mut process) = (close.clone(), Process(tree));
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = process.0.wait() => Some(ended),
                () = closed.cancelled() => process.end().await,
            };
            let how = match ended {
                Some(Ok(status)) => describe(status),
                _ => "it did not end by itself and was killed".into(),
            };
            // Order: first the drop ends everything that the process started. Then waiting tasks get the status. `gone`
            // comes last: it ends the transport, whose users then ask for the status.
            drop(process);
            told.send_replace(Some(how));
            drop(gone);
        });
        Ok((Self { prints, status, _close: close.clone().drop_guard(), close }, (to, from)))
    }

    /// How the process has ended, with its last output; `None` if it still runs. Waits at most `END`.
    pub(super) async fn ended(&self) -> Option<String> {
        let mut status = self.status.clone();
        let how = timeout(END, status.wait_for(Option::is_some)).await.ok()?.ok()?.clone()?;
        let words = self.prints.last_words().await;
        Some(if words.is_empty() { how } else { format!("{how}, saying: {words}") })
    }

    /// Ends the process, even if others still hold this value, and waits for its end. Its standard input must be
    /// closing.
    pub(super) async fn end(&self) {
        self.close.cancel();
        let _ = self.status.clone().wait_for(Option::is_some).await;
    }
}

impl Process {
    /// Waits for the end after the standard input was closed, then sends SIGTERM and waits again. Dropping the process
    /// tree then kills what is left.
    async fn end(&mut self) -> Option<io::Result<ExitStatus>> {
        if let Ok(ended) = timeout(PATIENCE, self.0.wait()).await {
            return Some(ended);
        }
        let _ = kill_process_group(self.0.id(), Signal::TERM);
        timeout(PATIENCE, self.0.wait()).await.ok()
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("its process ended with exit status {code}"),
        (None, Some(9)) => "its process was killed (SIGKILL), perhaps because memory ran out".into(),
        (None, _) => format!("its process ended by {status}"),
    }
}
