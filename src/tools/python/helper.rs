//! Runs programs that prepare a module. Reports their output line by line, and ends them when the caller stops waiting.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio::time::timeout;
use uuid::Uuid;

use super::worker::VARIABLE;
use crate::call::Torn;
use crate::tools::process::{Line, Lines, Mark, ProcessTree, Sweeps};

/// After a program's end its output closes within this time, unless a process that it left behind holds it open.
const GRACE: Duration = Duration::from_millis(250);
/// Lines reported per second.
const SHOWN: u32 = 50;
/// Number of last lines that are kept.
const KEPT: usize = 8;

/// How a program ended.
pub(super) struct Done {
    pub status: ExitStatus,
    /// The last lines of both outputs together.
    pub last: VecDeque<(String, Torn)>,
}

/// Runs a program to its end. Dropping the future ends the program and everything that it started.
pub(super) async fn run(mut command: Command, sweeps: &Sweeps, mut told: impl FnMut(&str, Torn)) -> io::Result<Done> {
    let (output, input) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    let mut tree = ProcessTree::spawn(&mut command, Mark::new([(VARIABLE, Uuid::now_v7().to_string())]), sweeps)?;
    // The command holds our copies of the pipe's write end. While they are open, the output has no end.
    drop(command);
    let mut output = Receiver::from_owned_fd(OwnedFd::from(output))?;
    let mut last = VecDeque::new();
    let mut lines = Lines::new(SHOWN, |line: Line<'_>| {
        told(line.text, line.torn);
        if last.len() == KEPT {
            last.pop_front();
        }
        last.push_back((line.text.to_owned(), line.torn));
    });
    let mut read = async || {
        let mut chunk = vec![0; 8 << 10];
        while let Ok(n @ 1..) = output.read(&mut chunk).await {
            lines.push(&chunk[..n]);
        }
    };
    let status = {
        let mut read = std::pin::pin!(read());
        let ended = tokio::select! {
            () = &mut read => None,
            status = tree.wait() => Some(status),
        };
        match ended {
            Some(status) => {
                let _ = timeout(GRACE, read).await;
                status
            }
            None => tree.wait().await,
        }
    }?;
    lines.end();
    drop(lines);
    Ok(Done { status, last })
}
