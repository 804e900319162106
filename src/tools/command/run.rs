//! One run: feeds standard input, reads both outputs within their bounds, waits for the end; all at the same time,
//! because a program may wait for any of the three.

use std::borrow::Cow;
use std::future::pending;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::timeout_at;

use crate::call::{ToolContext, ToolError, Torn};
use crate::tools::process::{Line, Lines, ProcessTree};

/// After its end a program's pipes close at once, unless a process that it left behind holds them.
const GRACE: Duration = Duration::from_millis(250);
/// What is kept of standard error: how it began and how it ended.
const STDERR: (usize, usize) = (4 << 10, 12 << 10);
/// Lines of standard error that are told each second: a person watches.
const SHOWN: u32 = 50;
/// Bytes read at once.
const CHUNK: usize = 16 << 10;

/// Bounds of a run.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Most that is kept of standard output.
    pub max_output: usize,
    /// Too much output: stop the program. Else the rest is read and thrown away, so that its work is completed.
    pub stop_on_overflow: bool,
}

/// What came of a run.
pub(super) struct Run {
    /// `None`: stopped because of its output's size.
    pub status: Option<ExitStatus>,
    pub stdout: Capture,
    pub stderr: Capture,
    /// A process that the program left behind held its output open.
    pub held_open: bool,
}

/// Runs the program to its end and tells what it writes to standard error. Dropping the future ends the program and
/// all that it started.
pub(super) async fn run(
    mut tree: ProcessTree,
    input: Vec<u8>,
    limits: &Limits,
    context: &ToolContext,
) -> Result<Run, ToolError> {
    // Nobody listens: then no line is looked for.
    let mut lines = context.is_watched().then(|| {
        Lines::new(SHOWN, |line: Line<'_>| context.progress_after(line.missed, json!({"stderr": shown(line, context)})))
    });
    let mut stdout = Capture::new(limits.max_output, 0);
    let mut stderr = Capture::new(STDERR.0, STDERR.1);
    let (to, out, err) = tree.pipes();
    let (status, clean) = {
        let mut read = pin!(async {
            tokio::try_join!(
                stdout.fill(out, limits.stop_on_overflow, None::<&mut Lines<fn(Line<'_>)>>),
                stderr.fill(err, false, lines.as_mut())
            )
        });
        let mut ended = pin!(async {
            let fed = async {
                feed(to, &input).await;
                pending().await
            };
            tokio::select! { status = tree.wait() => status, never = fed => never }
        });
        let mut all_read = false;
        let status = loop {
            // In random order: the one that always has something to do must not starve the other.
            tokio::select! {
                read = &mut read, if !all_read => match read {
                    Ok(_) => all_read = true,
                    Err(TooMuch) => break None,
                },
                status = &mut ended => break Some(status),
            }
        };
        match status {
            Some(_) if !all_read => (status, matches!(tokio::time::timeout(GRACE, read).await, Ok(Ok(_)))),
            _ => (status, all_read),
        }
    };
    if let Some(lines) = &mut lines {
        lines.end();
    }
    let status = status
        .transpose()
        .map_err(|error| ToolError::upstream_final(format!("cannot tell how the program ended: {error}")))?;
    if clean {
        tree.release();
    }
    let held_open = status.is_some() && !clean && stdout.is_whole();
    Ok(Run { status, stdout, stderr, held_open })
}

fn shown<'l>(line: Line<'l>, context: &ToolContext) -> Cow<'l, str> {
    match line.torn {
        Torn::NOWHERE => Cow::Borrowed(line.text),
        torn => Cow::Owned(context.excerpt(line.text.as_bytes(), torn)),
    }
}

/// Writes the input, as far as the program wants it, and closes the pipe.
async fn feed(to: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut to) = to {
        // A program may leave its input unread: a closed pipe is no failure.
        let _ = to.write_all(input).await;
    }
}

/// The bound is reached, and nothing more is wanted.
struct TooMuch;

/// The beginning and the end of a stream, in bounded memory.
pub(super) struct Capture {
    head: Vec<u8>,
    head_max: usize,
    tail: Vec<u8>,
    tail_max: usize,
    total: u64,
}

impl Capture {
    fn new(head_max: usize, tail_max: usize) -> Self {
        Self { head: Vec::new(), head_max, tail: Vec::new(), tail_max, total: 0 }
    }

    /// Reads to the end, or until there is more than can be kept.
    async fn fill<R: AsyncRead + Unpin>(
        &mut self,
        from: Option<R>,
        stop: bool,
        mut lines: Option<&mut Lines<impl FnMut(Line<'_>)>>,
    ) -> Result<(), TooMuch> {
        let Some(mut from) = from else { return Ok(()) };
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = from.read(&mut chunk);
            let read = match lines.as_deref_mut().and_then(|lines| Some((lines.due()?, lines))) {
                None => read.await,
                Some((due, lines)) => match timeout_at(due, read).await {
                    Ok(read) => read,
                    Err(_) => {
                        lines.release();
                        continue;
                    }
                },
            };
            let read = match read {
                Ok(0) | Err(_) => return Ok(()),
                Ok(n) => &chunk[..n],
            };
            self.push(read);
            if let Some(lines) = &mut lines {
                lines.push(read);
            }
            if stop && !self.is_whole() {
                return Err(TooMuch);
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(head);
        if self.tail_max > 0 {
            self.tail.extend_from_slice(rest);
            self.tail.drain(..self.tail.len().saturating_sub(self.tail_max));
        }
    }

    /// Whether everything was kept.
    pub(super) fn is_whole(&self) -> bool {
        self.left_out() == 0
    }

    /// Bytes thrown away so far.
    pub(super) fn left_out(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// What the stream began with; all of it when that was kept and there is no tail.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// What was kept, as text, with a word about what was not. Where something was left out, no secret is left in part.
    pub(super) fn summary(&self, context: &ToolContext) -> String {
        let left_out = self.left_out();
        if left_out == 0 {
            return String::from_utf8_lossy(&[&*self.head, &self.tail].concat()).into_owned();
        }
        let (head, tail) = (context.excerpt(&self.head, Torn::END), context.excerpt(&self.tail, Torn::START));
        format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::secrets::Redactor;
    use crate::secrets::tests::{ENCODINGS, encoded, leak, secrets};

    #[test]
    fn a_capture_keeps_the_beginning_and_the_end() {
        let mut capture = Capture::new(4, 3);
        for byte in b"abcdefghijklmnop" {
            capture.push(&[*byte]);
        }
        let context = crate::tools::http::tests::context().0;
        assert_eq!(capture.summary(&context), "abcd\n[… 9 bytes left out …]\nnop");
        let mut capture = Capture::new(4, 3);
        capture.push(b"abcdefg");
        assert!(capture.is_whole());
        assert_eq!(capture.summary(&context), "abcdefg");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn a_capture_holds_no_part_of_a_secret(
            secret in secrets(), encoding in 0..ENCODINGS, at in 0..400_usize, chunk in 1..50_usize, tail_max in 0..300_usize,
        ) {
            let redactor = Arc::new(Redactor::new([&*secret]));
            let context = crate::tools::http::tests::context().0.redacting(redactor.clone());
            let mut capture = Capture::new(200, tail_max);
            let text = format!("{}{}{}", ".".repeat(at), encoded(&secret, encoding), ".".repeat(400 - at));
            text.as_bytes().chunks(chunk).for_each(|chunk| capture.push(chunk));
            let shown = redactor.text(&capture.summary(&context)).into_owned();
            prop_assert_eq!(leak(&shown, &secret, encoding), None, "{:?}", shown);
        }
    }
}
