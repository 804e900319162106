//! Runs programs that prepare a module. Reports their output line by line, and ends them when the
//! caller stops waiting.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio::time::timeout;

use super::worker::new_marker;
use crate::call::CutEnds;
use crate::kinds::process::{Launch, LineThrottle, OrphanReaper, OutputLine, ProcessTree};

/// After a program's end its output closes within this time, unless a process that it left behind
/// holds it open.
const OUTPUT_GRACE: Duration = Duration::from_millis(250);
/// Lines reported per second.
const MAX_LINES_PER_SECOND: u32 = 50;
/// Number of last lines that are kept.
const MAX_LAST_LINES: usize = 8;

/// How a program ended.
pub(in crate::sources) struct SetupOutcome {
    pub status: ExitStatus,
    /// The last lines of both outputs together.
    pub last_lines: VecDeque<(String, CutEnds)>,
}

/// Runs a program to its end. Dropping the future ends the program and everything that it started.
pub(in crate::sources) async fn run_to_end(
    mut command: Command,
    orphan_reaper: &OrphanReaper,
    mut report_line: impl FnMut(&str, CutEnds),
) -> io::Result<SetupOutcome> {
    let (output, input) = io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(input.try_clone()?)
        .stderr(input);
    // It writes the packages of the module, and the cache of the program that installs them.
    let launch = Launch::default();
    let mut tree = ProcessTree::spawn(&mut command, new_marker(), orphan_reaper, launch)?;
    // The command holds our copies of the pipe's write end. While they are open, the output has no
    // end.
    drop(command);
    let mut output = Receiver::from_owned_fd(OwnedFd::from(output))?;
    let mut last_lines = VecDeque::new();
    let mut lines = LineThrottle::new(MAX_LINES_PER_SECOND, |line: OutputLine<'_>| {
        report_line(line.text, line.cut_ends);
        if last_lines.len() == MAX_LAST_LINES {
            last_lines.pop_front();
        }
        last_lines.push_back((line.text.to_owned(), line.cut_ends));
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
                let _ = timeout(OUTPUT_GRACE, read).await;
                status
            }
            None => tree.wait().await,
        }
    }?;
    lines.finish();
    drop(lines);
    Ok(SetupOutcome { status, last_lines })
}
