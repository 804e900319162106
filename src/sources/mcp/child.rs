//! A server process that this service started, with everything that the process starts.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::kinds::process::{
    Launch, OrphanReaper, ProcessMarker, ProcessTree, StderrLog, describe_exit,
};
use crate::secrets::Redactor;

/// The environment variable that marks a server and all processes that it starts. Each server has
/// its own value.
const MARKER_VARIABLE: &str = "TOOLCRIB_MCP_SERVER";
/// Time for a server to end after its standard input is closed, and again after SIGTERM. The
/// specification gives this order for stdio. Both times and the SIGKILL fit into the time that a
/// shutdown waits (`OrphanReaper`).
const EXIT_TIMEOUT: Duration = Duration::from_millis(750);
/// A server whose output has closed ends within this time. Otherwise it is stuck.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// What the official Python SDK logs about a request that it does not know. The oldest versions send
/// no answer then. The lines below it are one error for each request that they know.
const REFUSED_DISCOVERY: &str = "validation errors for ClientRequest";

/// A server's process. Dropping it asks the process to end, and kills it later if it does not. The
/// drop does not wait.
pub(super) struct Child {
    stderr: StderrLog,
    exit: tokio::sync::watch::Receiver<Option<String>>,
    terminate_requested: CancellationToken,
    _terminate_on_drop: DropGuard,
}

impl Child {
    /// Starts the process. `exited` is cancelled when the process has ended.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn spawn(
        (mut command, launch): (Command, Launch),
        orphan_reaper: &OrphanReaper,
        server: Arc<str>,
        redactor: Arc<Redactor>,
        exited: &CancellationToken,
    ) -> io::Result<(Self, (ChildStdin, ChildStdout))> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let marker = ProcessMarker::new([(MARKER_VARIABLE, Uuid::now_v7().to_string())]);
        let mut tree = ProcessTree::spawn(&mut command, marker, orphan_reaper, launch)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = tree.take_pipes() else {
            return Err(io::Error::other("its pipes are missing"));
        };
        let (seen_refusal, in_refusal) = (AtomicBool::new(false), AtomicBool::new(false));
        let stderr = StderrLog::follow(stderr, redactor, move |line, missed| {
            if line.contains(REFUSED_DISCOVERY) && !seen_refusal.swap(true, Ordering::Relaxed) {
                in_refusal.store(true, Ordering::Relaxed);
            } else if !is_refusal_detail(line) {
                in_refusal.store(false, Ordering::Relaxed);
            }
            // Some 90 lines about a request that an old server need not know.
            if in_refusal.load(Ordering::Relaxed) {
                tracing::debug!(target: "toolcrib::mcp", server = &*server, missed, "{line}");
            } else {
                tracing::info!(target: "toolcrib::mcp", server = &*server, missed, "{line}");
            }
        });
        let (terminate_requested, exited) = (CancellationToken::new(), exited.clone().drop_guard());
        let (exit_sender, exit) = tokio::sync::watch::channel(None);
        let terminate = terminate_requested.clone();
        let task = async move {
            let result = tokio::select! {
                result = tree.wait() => Some(result),
                () = terminate.cancelled() => shut_down(&mut tree).await,
            };
            let reason = match result {
                Some(Ok(exit)) => describe_exit("its process", exit),
                _ => "it did not end by itself and was killed".into(),
            };
            // Order: first the drop ends everything that the process started. Then waiting tasks
            // get the status. `exited` comes last: it ends the transport, whose users then ask for
            // the status.
            drop(tree);
            exit_sender.send_replace(Some(reason));
            drop(exited);
        };
        tokio::spawn(task.boxed());
        Ok((
            Self {
                stderr,
                exit,
                _terminate_on_drop: terminate_requested.clone().drop_guard(),
                terminate_requested,
            },
            (stdin, stdout),
        ))
    }

    /// How the process has ended, with its last output, if that came after `since`; `None` if it
    /// still runs. Waits at most `STATUS_TIMEOUT`.
    pub(super) async fn exit_reason(&self, since: Option<Instant>) -> Option<String> {
        let mut exit = self.exit.clone();
        let reason = timeout(STATUS_TIMEOUT, exit.wait_for(Option::is_some))
            .await
            .ok()?
            .ok()?
            .clone()?;
        let output = self.stderr.stderr_tail(since).await;
        Some(if output.is_empty() {
            reason
        } else {
            format!("{reason}; its last output: {output}")
        })
    }

    /// Ends the process, even if others still hold this value, and waits for its end. Its standard
    /// input must be closing.
    pub(super) async fn terminate(&self) {
        self.terminate_requested.cancel();
        let _ = self.exit.clone().wait_for(Option::is_some).await;
    }
}

/// Waits for the end after the standard input was closed, then sends SIGTERM and waits again.
/// Dropping the process tree then kills what is left.
async fn shut_down(tree: &mut ProcessTree) -> Option<io::Result<ExitStatus>> {
    if let Ok(ended) = timeout(EXIT_TIMEOUT, tree.wait()).await {
        return Some(ended);
    }
    tree.terminate();
    timeout(EXIT_TIMEOUT, tree.wait()).await.ok()
}

/// Whether a line belongs to the errors below [`REFUSED_DISCOVERY`].
fn is_refusal_detail(line: &str) -> bool {
    let is_path = |line: &str| line.contains("Request.") && !line.contains(' ');
    line.contains("https://errors.pydantic.dev/")
        || line.contains(", input_type=")
        || is_path(line.trim())
}
