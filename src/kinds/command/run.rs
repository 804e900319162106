//! Runs a program once. It feeds standard input, reads both outputs within their bounds, and waits
//! for the end. These happen concurrently, because a program may wait for any of the three.

use std::borrow::Cow;
use std::future::pending;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout_at;

use crate::call::units::OmissionNote;
use crate::call::{CutEnds, SurroundedPart, ToolContext, ToolError};
use crate::kinds::process::{LineThrottle, OutputLine, ProcessTree};

/// How long to read on after the program has ended. Its pipes close at once then, unless a process
/// that it left behind holds them open.
const CLOSE_GRACE: Duration = Duration::from_millis(250);
/// The bytes that are kept of standard error: at its start and at its end.
const STDERR_BYTES: (usize, usize) = (4 << 10, 12 << 10);
/// The lines of standard error that are reported per second, at most: a person watches them.
const MAX_PROGRESS_LINES: u32 = 50;
/// The most bytes per read.
const READ_CHUNK_BYTES: usize = 16 << 10;

/// The default `max_output`, in bytes.
pub(super) const DEFAULT_MAX_OUTPUT: usize = 256 << 10;

/// The bounds of a run.
#[derive(Clone, Copy)]
pub(super) struct RunLimits {
    /// The bytes of standard output that are kept.
    pub max_output: usize,
    /// Whether to stop the program if it writes more. Otherwise the remaining output is read and
    /// discarded, so that the program can complete its work.
    pub stop_on_overflow: bool,
}

/// The outcome of a run.
pub(super) struct RunOutcome {
    /// `None` if the program was stopped because of too much output.
    pub status: Option<ExitStatus>,
    pub stdout: StreamCapture,
    pub stderr: StreamCapture,
    /// Whether a process that the program left behind held its output open.
    pub output_held_open: bool,
}

/// Runs the program to its end, and reports its standard error as progress. Dropping the future
/// ends the program and everything that it started.
pub(super) async fn run_program(
    mut tree: ProcessTree,
    input: Vec<u8>,
    limits: &RunLimits,
    context: &ToolContext,
) -> Result<RunOutcome, ToolError> {
    // Without a listener there is no need to split the output into lines.
    let mut lines = context.has_listener().then(|| {
        LineThrottle::new(MAX_PROGRESS_LINES, |line: OutputLine<'_>| {
            context.progress_with_missed(
                line.skipped,
                json!({"stderr": redacted_line(line, context)}),
            );
        })
    });
    let margin = context.max_secret_len();
    let mut stdout = StreamCapture::new(limits.max_output, 0, margin);
    let mut stderr = StreamCapture::new(STDERR_BYTES.0, STDERR_BYTES.1, margin);
    let (stdin, out, err) = tree.take_pipes();
    let (status, pipes_closed) = {
        let mut read = pin!(async {
            tokio::try_join!(
                stdout.read_stream(
                    out,
                    limits.stop_on_overflow,
                    None::<&mut LineThrottle<fn(OutputLine<'_>)>>
                ),
                stderr.read_stream(err, false, lines.as_mut())
            )
        });
        let mut ended = pin!(async {
            let feed = async {
                if let Some(mut stdin) = stdin {
                    // A program may ignore its input, so a closed pipe is not a failure. The pipe is
                    // closed at the end of the input.
                    let _ = stdin.write_all(&input).await;
                }
                pending().await
            };
            tokio::select! { status = tree.wait() => status, never = feed => never }
        });
        let mut all_read = false;
        let status = loop {
            // `select!` polls in random order: a branch that is always ready must not starve the
            // other.
            tokio::select! {
                read = &mut read, if !all_read => match read {
                    Ok(_) => all_read = true,
                    Err(OutputTooLong) => break None,
                },
                status = &mut ended => break Some(status),
            }
        };
        // The pipes of an ended program close at once, unless a process that it left behind holds
        // them open. If they are not closed after the grace period, `pipes_closed` is false. Then the
        // drop of the tree searches for that process and kills it.
        match status {
            Some(_) if !all_read => (
                status,
                matches!(tokio::time::timeout(CLOSE_GRACE, read).await, Ok(Ok(_))),
            ),
            _ => (status, all_read),
        }
    };
    if let Some(lines) = &mut lines {
        lines.finish();
    }
    let status = status.transpose().map_err(|error| {
        ToolError::upstream_permanent(format!(
            "cannot read the exit status of the program: {error}"
        ))
    })?;
    if pipes_closed {
        tree.finish();
    }
    let output_held_open = status.is_some() && !pipes_closed && stdout.is_complete();
    Ok(RunOutcome {
        status,
        stdout,
        stderr,
        output_held_open,
    })
}

fn redacted_line<'l>(line: OutputLine<'l>, context: &ToolContext) -> Cow<'l, str> {
    match line.cut_ends {
        CutEnds::NONE => Cow::Borrowed(line.text),
        cut_ends => Cow::Owned(context.excerpt(line.text.as_bytes(), cut_ends)),
    }
}

/// The output exceeds its bound, and the program is to be stopped.
struct OutputTooLong;

/// The start and the end of a stream, in bounded memory.
pub(super) struct StreamCapture {
    /// The start of the stream, and a margin after it.
    head: Vec<u8>,
    head_max: usize,
    /// The end of the stream after its first `head_max` bytes, and a margin before it.
    tail: Vec<u8>,
    tail_max: usize,
    /// How many bytes next to a shown part the redactor needs, to find a secret that crosses the
    /// edge of the part.
    margin: usize,
    total: u64,
}

impl StreamCapture {
    fn new(head_max: usize, tail_max: usize, margin: usize) -> Self {
        Self {
            head: Vec::new(),
            head_max,
            tail: Vec::new(),
            tail_max,
            margin,
            total: 0,
        }
    }

    /// Reads to the end of the stream. With `stop_on_overflow`, also ends when there is more than
    /// can be kept.
    async fn read_stream<R: AsyncRead + Unpin>(
        &mut self,
        from: Option<R>,
        stop_on_overflow: bool,
        mut lines: Option<&mut LineThrottle<impl FnMut(OutputLine<'_>)>>,
    ) -> Result<(), OutputTooLong> {
        let Some(mut from) = from else { return Ok(()) };
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        loop {
            let read = from.read(&mut chunk);
            let read = match lines
                .as_deref_mut()
                .and_then(|lines| Some((lines.next_release()?, lines)))
            {
                None => read.await,
                Some((due, lines)) => match timeout_at(due, read).await {
                    Ok(read) => read,
                    Err(_) => {
                        lines.release_pending();
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
            if stop_on_overflow && !self.is_complete() {
                return Err(OutputTooLong);
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let rest = &bytes[bytes
            .len()
            .min(self.head_max.saturating_sub(self.head.len()))..];
        self.total += bytes.len() as u64;
        let room = self.head_max + self.margin - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if self.tail_max > 0 {
            self.tail.extend_from_slice(rest);
            self.tail
                .drain(..self.tail.len().saturating_sub(self.tail_max + self.margin));
        }
    }

    /// Whether the whole stream was kept.
    pub(super) fn is_complete(&self) -> bool {
        self.omitted_bytes() == 0
    }

    /// The number of bytes that are not shown.
    pub(super) fn omitted_bytes(&self) -> u64 {
        self.total
            .saturating_sub((self.head_max + self.tail_max) as u64)
    }

    /// The start of the stream; the whole stream if it was kept and there is no tail.
    pub(super) fn head(&self) -> &[u8] {
        &self.head[..self.head.len().min(self.head_max)]
    }

    /// The start of the stream as text, for a stream that is not shown completely.
    pub(super) fn truncated_head(&self, context: &ToolContext) -> String {
        let (part, after) = self.head.split_at(self.head.len().min(self.head_max));
        let cut_ends = CutEnds {
            start: false,
            end: self.total > self.head.len() as u64,
        };
        context.excerpt_between(SurroundedPart {
            before: &[],
            part,
            after,
            cut_ends,
        })
    }

    /// The kept parts as text, with a note about the skipped bytes. At a cut, a secret is removed
    /// even if only a part of it is kept.
    pub(super) fn summary(&self, context: &ToolContext) -> String {
        let omitted = self.omitted_bytes();
        if omitted == 0 {
            return String::from_utf8_lossy(&[self.head(), &self.tail].concat()).into_owned();
        }
        let (before, part) = self
            .tail
            .split_at(self.tail.len() - self.tail.len().min(self.tail_max));
        // If no byte of the tail was discarded, the head and the tail are adjacent.
        let is_adjacent = self.total == (self.head().len() + self.tail.len()) as u64;
        let between = if is_adjacent {
            [self.head(), before].concat()
        } else {
            before.to_vec()
        };
        let cut_ends = CutEnds {
            start: !is_adjacent,
            end: false,
        };
        let tail = context.excerpt_between(SurroundedPart {
            before: &between,
            part,
            after: &[],
            cut_ends,
        });
        format!(
            "{}\n{}\n{tail}",
            self.truncated_head(context),
            OmissionNote(omitted, "byte")
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::call::units::Count;
    use crate::secrets::Redactor;
    use crate::secrets::tests::{ENCODINGS, any_secret, encode_secret, find_leak};

    #[test]
    fn capture_keeps_start_and_end() {
        let mut capture = StreamCapture::new(4, 3, 0);
        for byte in b"abcdefghijklmnop" {
            capture.push(&[*byte]);
        }
        let context = crate::kinds::http::tests::test_context().0;
        assert_eq!(
            capture.summary(&context),
            "abcd\n[… 9 bytes left out …]\nnop"
        );
        let mut capture = StreamCapture::new(4, 3, 0);
        capture.push(b"abcdefg");
        assert!(capture.is_complete());
        assert_eq!(capture.summary(&context), "abcdefg");
    }

    #[test]
    fn capture_keeps_text_beside_the_gap() {
        let redactor = Arc::new(Redactor::new(["sk-scripted-0123456789abcdef"]));
        let context = crate::kinds::http::tests::test_context()
            .0
            .with_redactor(redactor);
        let shown = |text: &str| {
            let mut capture = StreamCapture::new(4, 4, context.max_secret_len());
            text.as_bytes()
                .chunks(3)
                .for_each(|chunk| capture.push(chunk));
            capture.summary(&context)
        };
        for gap in [1, 20, 2000] {
            let text = format!("tsk-{}cdef", ".".repeat(gap));
            assert_eq!(
                shown(&text),
                format!("tsk-\n[… {} left out …]\ncdef", Count(gap, "byte"))
            );
        }
        assert_eq!(
            shown("sk-scripted-0123456789abcdef"),
            "[redacted]\n[… 20 bytes left out …]\n[redacted]"
        );
        let far = format!("xxsk-scripted-0123456789abcdef{}", "é".repeat(500));
        assert_eq!(shown(&far), "xx[redacted]\n[… 1022 bytes left out …]\néé");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn capture_holds_no_part_of_secret(
            secret in any_secret(), encoding in 0..ENCODINGS, at in 0..400_usize, chunk in 1..50_usize, tail_max in 0..300_usize,
            margin in prop::option::of(0..20_usize),
        ) {
            let redactor = Arc::new(Redactor::new([&*secret]));
            let context = crate::kinds::http::tests::test_context().0.with_redactor(redactor.clone());
            let mut capture = StreamCapture::new(200, tail_max, margin.unwrap_or(context.max_secret_len()));
            let text = format!("{}{}{}", ".".repeat(at), encode_secret(&secret, encoding), ".".repeat(400 - at));
            text.as_bytes().chunks(chunk).for_each(|chunk| capture.push(chunk));
            let shown = redactor.redact_text(&capture.summary(&context)).into_owned();
            prop_assert_eq!(find_leak(&shown, &secret, encoding), None, "{:?}", shown);
        }
    }
}
