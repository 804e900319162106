//! A server that was started by us: its process, and all that it starts.

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

/// Marks a server and all that it starts; the value is this server's alone.
const VARIABLE: &str = "TOOLCRIB_MCP_SERVER";
/// A server whose standard input was closed may take so long to end, then again after SIGTERM (the specification's
/// order for stdio). Both together, and its killing, fit into what the end of the service waits for (`Sweeps`).
const PATIENCE: Duration = Duration::from_millis(750);
/// A server whose output has closed ends at once, or is stuck.
const END: Duration = Duration::from_secs(1);

/// A server's process. Dropped, it is asked to end, and made to if it does not; nobody waits for that.
pub(super) struct Child {
    prints: Prints,
    status: tokio::sync::watch::Receiver<Option<String>>,
    close: CancellationToken,
    _close: DropGuard,
}

/// The process.
struct Process(ProcessTree);

impl Child {
    /// Starts it. `gone` is tripped when it has ended.
    ///
    /// # Errors
    /// As the system says.
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
            drop(process);
            told.send_replace(Some(how));
            drop(gone);
        });
        Ok((Self { prints, status, _close: close.clone().drop_guard(), close }, (to, from)))
    }

    /// How it has ended, and what it said last; `None` if it runs on. Not waited for long.
    pub(super) async fn ended(&self) -> Option<String> {
        let mut status = self.status.clone();
        let how = timeout(END, status.wait_for(Option::is_some)).await.ok()?.ok()?.clone()?;
        let words = self.prints.last_words().await;
        Some(if words.is_empty() { how } else { format!("{how}, saying: {words}") })
    }

    /// Ends it, whoever still holds it, and waits until it has ended. Its standard input must be closing.
    pub(super) async fn end(&self) {
        self.close.cancel();
        let _ = self.status.clone().wait_for(Option::is_some).await;
    }
}

impl Process {
    /// Its standard input is closed: waits, asks, and leaves the rest to the drop.
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
