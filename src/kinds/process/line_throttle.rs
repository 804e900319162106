//! Splits the output of a program into readable lines, and bounds how many of them are handed on
//! per second.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::{CutEnds, decode_lossy};
use crate::text::sanitize;

/// The longest line that is kept, in bytes; the remainder of the line is discarded. This is longer
/// than any line that is shown. So a secret that crosses the end of the shown part is still
/// complete when the redactor searches for it.
const MAX_LINE_BYTES: usize = 16 << 10;
/// The period of the line limits. Of the lines over the limit in a period, only the last one is
/// handed on.
const LIMIT_PERIOD: Duration = Duration::from_secs(1);

/// A line of a stream, without control characters.
pub(crate) struct OutputLine<'l> {
    pub(crate) text: &'l str,
    /// Whether the remainder of the line was discarded.
    pub(crate) cut_ends: CutEnds,
    /// Lines that were skipped since the previous line.
    pub(crate) skipped: u64,
}

/// Hands the lines of one stream to `emit`, each with the number of lines that were skipped before
/// it.
pub(crate) struct LineThrottle<T> {
    emit: T,
    /// Lines handed on per period, at most.
    max_lines: u32,
    /// After this many bytes in a period, no further line is handed on.
    max_bytes: usize,
    /// The start of a line whose end has not arrived yet.
    partial_line: Vec<u8>,
    /// Whether this line is longer than the part that is kept.
    is_overlong: bool,
    period_end: Instant,
    emitted_lines: u32,
    emitted_bytes: usize,
    /// The newest line over the limit, undecoded: most such lines are replaced by the next one and
    /// never decoded.
    pending: Option<(Vec<u8>, CutEnds)>,
    /// Lines that were skipped since the last line that was handed on.
    skipped: u64,
}

impl<T: FnMut(OutputLine<'_>)> LineThrottle<T> {
    /// Calls `emit` for at most `max_lines` lines per second, without their control characters.
    pub(crate) fn new(max_lines: u32, emit: T) -> Self {
        Self {
            emit,
            max_lines,
            max_bytes: usize::MAX,
            partial_line: Vec::new(),
            is_overlong: false,
            period_end: Instant::now(),
            emitted_lines: 0,
            emitted_bytes: 0,
            pending: None,
            skipped: 0,
        }
    }

    /// Hands on no further line in a second whose lines already have `max_bytes` bytes. A few long
    /// lines fill a disk just as many short ones do.
    pub(crate) fn with_max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// When the line that is held back may be handed on.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        self.pending.as_ref().map(|_| self.period_end)
    }

    /// Takes more bytes of the stream. A carriage return also ends a line, because a terminal
    /// overwrites the line with what follows.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| matches!(byte, b'\n' | b'\r'));
        let mut piece = pieces.next();
        while let Some(bytes) = piece {
            let room = MAX_LINE_BYTES - self.partial_line.len();
            self.partial_line
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
            self.is_overlong |= bytes.len() > room;
            piece = pieces.next();
            if piece.is_some() {
                self.complete_line();
            }
        }
    }

    /// Hands on what is left. Call this when the stream or the run has ended.
    pub(crate) fn finish(&mut self) {
        self.complete_line();
        self.release_pending();
    }

    /// Hands on the line that was held back.
    pub(crate) fn release_pending(&mut self) {
        if let Some(line) = self.pending.take() {
            self.emit_line(line);
        }
    }

    fn complete_line(&mut self) {
        let cut_ends = CutEnds {
            start: false,
            end: std::mem::take(&mut self.is_overlong),
        };
        if self.partial_line.trim_ascii().is_empty() {
            self.partial_line.clear();
            return;
        }
        let line = std::mem::take(&mut self.partial_line);
        let now = Instant::now();
        if now >= self.period_end {
            (self.emitted_lines, self.emitted_bytes, self.period_end) = (0, 0, now + LIMIT_PERIOD);
        }
        if self.emitted_lines < self.max_lines && self.emitted_bytes < self.max_bytes {
            self.skipped += u64::from(self.pending.take().is_some());
            self.emit_line((line, cut_ends));
        } else if let Some((mut dropped, _)) = self.pending.replace((line, cut_ends)) {
            self.skipped += 1;
            dropped.clear();
            self.partial_line = dropped;
        }
    }

    fn emit_line(&mut self, (line, cut_ends): (Vec<u8>, CutEnds)) {
        let text = decode_lossy(&line, cut_ends);
        let text = sanitize::clean_text(text.trim_end());
        if text.is_empty() {
            return;
        }
        self.emitted_lines += 1;
        self.emitted_bytes = self.emitted_bytes.saturating_add(text.len());
        (self.emit)(OutputLine {
            text: &text,
            cut_ends,
            skipped: std::mem::take(&mut self.skipped),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    type Emitted = RefCell<Vec<(String, u64)>>;

    fn lines(emitted: &Emitted) -> LineThrottle<impl FnMut(OutputLine<'_>)> {
        LineThrottle::new(50, |line: OutputLine<'_>| {
            emitted
                .borrow_mut()
                .push((line.text.to_owned(), line.skipped));
        })
    }

    #[tokio::test(start_paused = true)]
    async fn lines_have_no_control_characters() {
        let emitted = Emitted::default();
        let mut lines = lines(&emitted);
        let text = "\x1b[1;32mdone\x1b[0m  \r\n\n 10%\r 20%\x07\r\tcaf\u{e9} \u{9b}31m\x1b]0;title\x07!\nno end";
        for byte in text.as_bytes() {
            lines.push(&[*byte]);
        }
        lines.finish();
        let texts: Vec<String> = emitted.take().into_iter().map(|(line, _)| line).collect();
        assert_eq!(
            texts,
            ["done", " 10%", " 20%", "\tcaf\u{e9} 31m!", "no end"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn flood_is_throttled_to_limit() {
        let emitted = Emitted::default();
        let mut lines = lines(&emitted);
        (0..200).for_each(|n| lines.push(format!("{n}\n").as_bytes()));
        assert_eq!(emitted.take().len(), 50);
        assert_eq!(lines.next_release(), Some(Instant::now() + LIMIT_PERIOD));
        tokio::time::advance(LIMIT_PERIOD).await;
        lines.release_pending();
        assert_eq!(emitted.take(), [("199".into(), 149)]);
        assert_eq!(lines.next_release(), None);
        lines.push(b"200\n");
        assert_eq!(emitted.take(), [("200".into(), 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn finish_emits_pending_line_and_cuts_it() {
        let emitted = Emitted::default();
        let mut lines = lines(&emitted);
        (0..52).for_each(|n| lines.push(format!("{n}\n").as_bytes()));
        lines.push("x".repeat(3 * MAX_LINE_BYTES).as_bytes());
        lines.finish();
        let all = emitted.take();
        assert_eq!(all.len(), 51);
        let (last, skipped) = all.last().unwrap();
        assert_eq!((last.len(), *skipped), (MAX_LINE_BYTES, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn byte_limit_throttles_lines() {
        let emitted = Emitted::default();
        let mut lines = lines(&emitted).with_max_bytes(1000);
        let line = format!("{}\n", "x".repeat(400));
        for second in 0..3 {
            (0..20).for_each(|_| lines.push(line.as_bytes()));
            assert_eq!(emitted.borrow().len(), 3, "second {second}");
            tokio::time::advance(LIMIT_PERIOD).await;
            lines.release_pending();
            assert_eq!(
                emitted.take().last(),
                Some(&("x".repeat(400), 16)),
                "the last line, and how many were left out"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn long_line_is_marked_as_torn() {
        let emitted = RefCell::new(Vec::new());
        let mut lines = LineThrottle::new(50, |line: OutputLine<'_>| {
            emitted.borrow_mut().push((line.text.len(), line.cut_ends));
        });
        lines.push("é".repeat(MAX_LINE_BYTES / 2).as_bytes());
        lines.push(b"\n");
        lines.push(format!("x{}\nshort\n", "é".repeat(MAX_LINE_BYTES)).as_bytes());
        assert_eq!(
            emitted.take(),
            [
                (MAX_LINE_BYTES, CutEnds::NONE),
                (MAX_LINE_BYTES - 1, CutEnds::END),
                (5, CutEnds::NONE)
            ]
        );
    }
}
