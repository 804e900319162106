//! Hands the standard error of a long-lived program to the log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::line_throttle::{LineThrottle, OutputLine};
use crate::call::{CutEnds, Redact, shorten_text};
use crate::secrets::Redactor;

/// The longest line in the log, in bytes.
const MAX_LINE_BYTES: usize = 4 << 10;
/// Lines in the log per second. Operators read the log later, and it should contain a whole
/// traceback.
const MAX_LINES_PER_SECOND: u32 = 200;
/// Bytes in the log per second, after which no further line is logged. A program that never stops
/// printing writes at most about 5 GB a day.
const MAX_BYTES_PER_SECOND: usize = 64 << 10;
/// The number of last lines that are kept. They explain why a program did not start.
const TAIL_LINES: usize = 5;
/// How long to read on after the program has ended. The pipe closes then, unless a process that the
/// program started still has it open.
const GRACE: Duration = Duration::from_secs(2);

/// The reader of one program's standard error. It is dropped with the program; what the pipe
/// contains then is still handed on.
pub(crate) struct StderrLog {
    tail: Arc<Mutex<VecDeque<(Instant, String)>>>,
    pipe_closed: CancellationToken,
    _program_ended: DropGuard,
}

impl StderrLog {
    /// Hands each line from the pipe to `emit`, without secrets, and with the number of lines that
    /// were skipped before it, if any.
    pub(crate) fn follow(
        mut from: ChildStderr,
        redactor: Arc<Redactor>,
        emit: impl Fn(&str, Option<u64>) + Send + Sync + 'static,
    ) -> Self {
        let tail = Arc::new(Mutex::default());
        let (program_ended, pipe_closed) = (CancellationToken::new(), CancellationToken::new());
        let log = Self {
            tail: tail.clone(),
            pipe_closed: pipe_closed.clone(),
            _program_ended: program_ended.clone().drop_guard(),
        };
        let task = async move {
            let _pipe_closed = pipe_closed.drop_guard();
            let mut lines = LineThrottle::new(MAX_LINES_PER_SECOND, |line: OutputLine<'_>| {
                let text = redact_line(line.text, line.cut_ends, &redactor);
                emit(&text, Some(line.skipped).filter(|skipped| *skipped > 0));
                if explains_nothing(&text) {
                    return;
                }
                let mut tail = tail.lock();
                if tail.len() == TAIL_LINES {
                    tail.pop_front();
                }
                tail.push_back((Instant::now(), text));
            })
            .with_max_bytes(MAX_BYTES_PER_SECOND);
            let mut chunk = vec![0; 8 << 10];
            let mut stop_at = None;
            loop {
                let due = lines.next_release();
                let sleep_to =
                    |time: Option<Instant>| sleep_until(time.unwrap_or_else(Instant::now));
                tokio::select! {
                    read = from.read(&mut chunk) => match read {
                        Ok(0) | Err(_) => break,
                        Ok(n) => lines.push(&chunk[..n]),
                    },
                    () = sleep_to(due), if due.is_some() => lines.release_pending(),
                    () = program_ended.cancelled(), if stop_at.is_none() => stop_at = Some(Instant::now() + GRACE),
                    () = sleep_to(stop_at), if stop_at.is_some() => break,
                }
            }
            lines.finish();
        };
        tokio::spawn(task.boxed());
        log
    }

    /// The last lines that came after `since`; all last lines without it. Waits until the pipe is
    /// closed, but not for long.
    pub(crate) async fn stderr_tail(&self, since: Option<Instant>) -> String {
        let _ = tokio::time::timeout(GRACE, self.pipe_closed.cancelled()).await;
        let tail = self.tail.lock();
        let lines = tail
            .iter()
            .filter(|(at, _)| since.is_none_or(|since| *at >= since));
        Vec::from_iter(lines.map(|(_, line)| line.as_str())).join("; ")
    }
}

/// Whether a line is blank, or a frame of a native stack such as ` 3: 0xc9ba5f  [node]`. Node.js prints
/// many of these after the reason for its end.
fn explains_nothing(line: &str) -> bool {
    let line = line.trim();
    let address = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.is_empty() || address.starts_with(": 0x")
}

/// The line as it may be shown. Secrets are removed before the line is cut, because half of a
/// secret would not be found.
pub(crate) fn redact_line(line: &str, cut_ends: CutEnds, redactor: &Redactor) -> String {
    let mut line = redactor.excerpt(line, cut_ends).into_owned();
    shorten_text(&mut line, MAX_LINE_BYTES);
    line
}

#[cfg(test)]
mod tests {
    use super::explains_nothing;

    #[test]
    fn blank_lines_and_native_frames_explain_nothing() {
        for line in [
            "",
            "  ",
            " 3: 0xc9ba5f  [/usr/bin/node]",
            "14: 0x7f6cee _start [node]",
        ] {
            assert!(explains_nothing(line), "{line}");
        }
        for line in [
            "# Fatal process out of memory",
            "1: file:///a.ts:1:9",
            "3: 0",
            "0x1",
        ] {
            assert!(!explains_nothing(line), "{line}");
        }
    }
}
