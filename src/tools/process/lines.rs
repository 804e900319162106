//! Splits the output of a program into readable lines, and bounds how many of them are handed on per second.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::{Torn, decode};
use crate::sanitize;

/// The longest line that is kept, in bytes; the remainder of the line is discarded. This is longer than any line that
/// is shown. So a secret that crosses the end of the shown part is still complete when the redactor searches for it.
const LONGEST: usize = 16 << 10;
/// The period of the line limits. Of the lines over the limit in a period, only the last one is handed on.
const SPAN: Duration = Duration::from_secs(1);

/// A line of a stream, without control characters.
pub(in crate::tools) struct Line<'l> {
    pub(in crate::tools) text: &'l str,
    /// Whether the remainder of the line was discarded.
    pub(in crate::tools) torn: Torn,
    /// Lines that were skipped since the previous line.
    pub(in crate::tools) missed: u64,
}

/// Hands the lines of one stream to `tell`, each with the number of lines that were skipped before it.
pub(in crate::tools) struct Lines<T> {
    tell: T,
    /// Lines handed on per period, at most.
    most: u32,
    /// After this many bytes in a period, no further line is handed on.
    most_bytes: usize,
    /// The start of a line whose end has not arrived yet.
    begun: Vec<u8>,
    /// Whether this line is longer than the part that is kept.
    overflown: bool,
    span_ends: Instant,
    told: u32,
    told_bytes: usize,
    /// The newest line over the limit, undecoded: most such lines are replaced by the next one and never decoded.
    held: Option<(Vec<u8>, Torn)>,
    /// Lines that were skipped since the last line that was handed on.
    missed: u64,
}

impl<T: FnMut(Line<'_>)> Lines<T> {
    /// Calls `tell` for at most `most` lines per second, without their control characters.
    pub(in crate::tools) fn new(most: u32, tell: T) -> Self {
        Self {
            tell,
            most,
            most_bytes: usize::MAX,
            begun: Vec::new(),
            overflown: false,
            span_ends: Instant::now(),
            told: 0,
            told_bytes: 0,
            held: None,
            missed: 0,
        }
    }

    /// Hands on no further line in a second whose lines already have `most_bytes` bytes. A few long lines fill a disk
    /// just as many short ones do.
    pub(in crate::tools) fn most_bytes(self, most_bytes: usize) -> Self {
        Self { most_bytes, ..self }
    }

    /// When the line that is held back may be handed on.
    pub(in crate::tools) fn due(&self) -> Option<Instant> {
        self.held.as_ref().map(|_| self.span_ends)
    }

    /// Takes more bytes of the stream. A carriage return also ends a line, because a terminal overwrites the line
    /// with what follows.
    pub(in crate::tools) fn push(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| matches!(byte, b'\n' | b'\r'));
        let mut piece = pieces.next();
        while let Some(bytes) = piece {
            let room = LONGEST - self.begun.len();
            self.begun.extend_from_slice(&bytes[..bytes.len().min(room)]);
            self.overflown |= bytes.len() > room;
            piece = pieces.next();
            if piece.is_some() {
                self.line();
            }
        }
    }

    /// Hands on what is left. Call this when the stream or the run has ended.
    pub(in crate::tools) fn end(&mut self) {
        self.line();
        self.release();
    }

    /// Hands on the line that was held back.
    pub(in crate::tools) fn release(&mut self) {
        if let Some(line) = self.held.take() {
            self.tell(line);
        }
    }

    fn line(&mut self) {
        let torn = Torn { start: false, end: std::mem::take(&mut self.overflown) };
        if self.begun.trim_ascii().is_empty() {
            self.begun.clear();
            return;
        }
        let line = std::mem::take(&mut self.begun);
        let now = Instant::now();
        if now >= self.span_ends {
            (self.told, self.told_bytes, self.span_ends) = (0, 0, now + SPAN);
        }
        if self.told < self.most && self.told_bytes < self.most_bytes {
            self.missed += u64::from(self.held.take().is_some());
            self.tell((line, torn));
        } else if let Some((mut left_out, _)) = self.held.replace((line, torn)) {
            self.missed += 1;
            left_out.clear();
            self.begun = left_out;
        }
    }

    fn tell(&mut self, (line, torn): (Vec<u8>, Torn)) {
        let text = decode(&line, torn);
        let text = sanitize::text(text.trim_end());
        if text.is_empty() {
            return;
        }
        self.told += 1;
        self.told_bytes = self.told_bytes.saturating_add(text.len());
        (self.tell)(Line { text: &text, torn, missed: std::mem::take(&mut self.missed) });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    type Told = RefCell<Vec<(String, u64)>>;

    fn lines(told: &Told) -> Lines<impl FnMut(Line<'_>)> {
        Lines::new(50, |line: Line<'_>| told.borrow_mut().push((line.text.to_owned(), line.missed)))
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_told_plainly_however_they_come_in() {
        let told = Told::default();
        let mut lines = lines(&told);
        let text = "\x1b[1;32mdone\x1b[0m  \r\n\n 10%\r 20%\x07\r\tcaf\u{e9} \u{9b}31m\x1b]0;title\x07!\nno end";
        for byte in text.as_bytes() {
            lines.push(&[*byte]);
        }
        lines.end();
        let said: Vec<String> = told.take().into_iter().map(|(line, _)| line).collect();
        assert_eq!(said, ["done", " 10%", " 20%", "\tcaf\u{e9} 31m!", "no end"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_thinned_out_and_its_last_line_is_told() {
        let told = Told::default();
        let mut lines = lines(&told);
        (0..200).for_each(|n| lines.push(format!("{n}\n").as_bytes()));
        assert_eq!(told.take().len(), 50);
        assert_eq!(lines.due(), Some(Instant::now() + SPAN));
        tokio::time::advance(SPAN).await;
        lines.release();
        assert_eq!(told.take(), [("199".into(), 149)]);
        assert_eq!(lines.due(), None);
        lines.push(b"200\n");
        assert_eq!(told.take(), [("200".into(), 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_back_at_the_end_is_told_and_a_long_line_is_cut() {
        let told = Told::default();
        let mut lines = lines(&told);
        (0..52).for_each(|n| lines.push(format!("{n}\n").as_bytes()));
        lines.push("x".repeat(3 * LONGEST).as_bytes());
        lines.end();
        let all = told.take();
        assert_eq!(all.len(), 51);
        let (last, missed) = all.last().unwrap();
        assert_eq!((last.len(), *missed), (LONGEST, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_bounded_as_lines_are() {
        let told = Told::default();
        let mut lines = lines(&told).most_bytes(1000);
        let line = format!("{}\n", "x".repeat(400));
        for second in 0..3 {
            (0..20).for_each(|_| lines.push(line.as_bytes()));
            assert_eq!(told.borrow().len(), 3, "second {second}");
            tokio::time::advance(SPAN).await;
            lines.release();
            assert_eq!(told.take().last(), Some(&("x".repeat(400), 16)), "the last line, and how many were left out");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_line_is_torn() {
        let told = RefCell::new(Vec::new());
        let mut lines = Lines::new(50, |line: Line<'_>| told.borrow_mut().push((line.text.len(), line.torn)));
        lines.push("é".repeat(LONGEST / 2).as_bytes());
        lines.push(b"\n");
        lines.push(format!("x{}\nshort\n", "é".repeat(LONGEST)).as_bytes());
        assert_eq!(told.take(), [(LONGEST, Torn::NOWHERE), (LONGEST - 1, Torn::END), (5, Torn::NOWHERE)]);
    }
}
