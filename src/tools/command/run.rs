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

use crate::call::units::Count;
use crate::call::{Between, ToolContext, ToolError, Torn};
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
    let reach = context.reach();
    let mut stdout = Capture::new(limits.max_output, 0, reach);
    let mut stderr = Capture::new(STDERR.0, STDERR.1, reach);
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
    /// The beginning, and a margin behind it.
    head: Vec<u8>,
    head_max: usize,
    /// The end of what follows `head_max` bytes, and a margin before it.
    tail: Vec<u8>,
    tail_max: usize,
    /// Bytes beside a part that tell whether a secret lies across its end.
    margin: usize,
    total: u64,
}

impl Capture {
    fn new(head_max: usize, tail_max: usize, margin: usize) -> Self {
        Self { head: Vec::new(), head_max, tail: Vec::new(), tail_max, margin, total: 0 }
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
        let rest = &bytes[bytes.len().min(self.head_max.saturating_sub(self.head.len()))..];
        self.total += bytes.len() as u64;
        let room = self.head_max + self.margin - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if self.tail_max > 0 {
            self.tail.extend_from_slice(rest);
            self.tail.drain(..self.tail.len().saturating_sub(self.tail_max + self.margin));
        }
    }

    /// Whether all of the stream is shown.
    pub(super) fn is_whole(&self) -> bool {
        self.left_out() == 0
    }

    /// Bytes that are not shown.
    pub(super) fn left_out(&self) -> u64 {
        self.total.saturating_sub((self.head_max + self.tail_max) as u64)
    }

    /// What the stream began with; all of it when that was kept and there is no tail.
    pub(super) fn head(&self) -> &[u8] {
        &self.head[..self.head.len().min(self.head_max)]
    }

    /// What the stream began with, as text, where the rest is not shown.
    pub(super) fn head_of_more(&self, context: &ToolContext) -> String {
        let (part, after) = self.head.split_at(self.head.len().min(self.head_max));
        let torn = Torn { start: false, end: self.total > self.head.len() as u64 };
        context.excerpt_between(Between { before: &[], part, after, torn })
    }

    /// What was kept, as text, with a word about what was not. Where something was left out, no secret is left in part.
    pub(super) fn summary(&self, context: &ToolContext) -> String {
        let left_out = self.left_out();
        if left_out == 0 {
            return String::from_utf8_lossy(&[self.head(), &self.tail].concat()).into_owned();
        }
        let (before, part) = self.tail.split_at(self.tail.len() - self.tail.len().min(self.tail_max));
        // Nothing is missing between the head and a tail of which nothing was thrown away.
        let is_all = self.total == (self.head().len() + self.tail.len()) as u64;
        let between = if is_all { [self.head(), before].concat() } else { before.to_vec() };
        let torn = Torn { start: !is_all, end: false };
        let tail = context.excerpt_between(Between { before: &between, part, after: &[], torn });
        format!("{}\n[… {} left out …]\n{tail}", self.head_of_more(context), Count(left_out, "byte"))
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
        let mut capture = Capture::new(4, 3, 0);
        for byte in b"abcdefghijklmnop" {
            capture.push(&[*byte]);
        }
        let context = crate::tools::http::tests::context().0;
        assert_eq!(capture.summary(&context), "abcd\n[… 9 bytes left out …]\nnop");
        let mut capture = Capture::new(4, 3, 0);
        capture.push(b"abcdefg");
        assert!(capture.is_whole());
        assert_eq!(capture.summary(&context), "abcdefg");
    }

    #[test]
    fn a_capture_loses_no_words_beside_the_gap() {
        let redactor = Arc::new(Redactor::new(["sk-scripted-0123456789abcdef"]));
        let context = crate::tools::http::tests::context().0.redacting(redactor);
        let shown = |text: &str| {
            let mut capture = Capture::new(4, 4, context.reach());
            text.as_bytes().chunks(3).for_each(|chunk| capture.push(chunk));
            capture.summary(&context)
        };
        for gap in [1, 20, 2000] {
            let text = format!("tsk-{}cdef", ".".repeat(gap));
            assert_eq!(shown(&text), format!("tsk-\n[… {} left out …]\ncdef", Count(gap as u64, "byte")));
        }
        assert_eq!(shown("sk-scripted-0123456789abcdef"), "[redacted]\n[… 20 bytes left out …]\n[redacted]");
        let far = format!("xxsk-scripted-0123456789abcdef{}", "é".repeat(500));
        assert_eq!(shown(&far), "xx[redacted]\n[… 1022 bytes left out …]\néé");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn a_capture_holds_no_part_of_a_secret(
            secret in secrets(), encoding in 0..ENCODINGS, at in 0..400_usize, chunk in 1..50_usize, tail_max in 0..300_usize,
            margin in prop::option::of(0..20_usize),
        ) {
            let redactor = Arc::new(Redactor::new([&*secret]));
            let context = crate::tools::http::tests::context().0.redacting(redactor.clone());
            let mut capture = Capture::new(200, tail_max, margin.unwrap_or(context.reach()));
            let text = format!("{}{}{}", ".".repeat(at), encoded(&secret, encoding), ".".repeat(400 - at));
            text.as_bytes().chunks(chunk).for_each(|chunk| capture.push(chunk));
            let shown = redactor.text(&capture.summary(&context)).into_owned();
            prop_assert_eq!(leak(&shown, &secret, encoding), None, "{:?}", shown);
        }
    }
}
