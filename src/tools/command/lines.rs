//! Standard error as progress: a line each, as a person would read it, and not more of them than a person could.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::call::ToolContext;
use crate::printable;

/// Longest line that is looked at, in bytes; the rest of it is thrown away. Longer than what is shown, so that a secret
/// at the end of what is shown is whole when it is looked for.
const LONGEST: usize = 16 << 10;
/// Lines told in each such time; of the others the last.
const MOST: u32 = 50;
const SPAN: Duration = Duration::from_secs(1);

/// Tells the lines of one run.
pub(super) struct Lines<'a> {
    context: &'a ToolContext,
    /// The beginning of a line that has not ended.
    begun: Vec<u8>,
    span_ends: Instant,
    told: u32,
    /// The newest line that was too many for its span, as it came: most of such are never looked at.
    held: Option<Vec<u8>>,
    /// Lines left out since the last that was told.
    missed: u64,
}

impl<'a> Lines<'a> {
    /// `None` when nobody listens: then no line is looked for.
    pub(super) fn new(context: &'a ToolContext) -> Option<Self> {
        let lines = Self { context, begun: Vec::new(), span_ends: Instant::now(), told: 0, held: None, missed: 0 };
        context.is_watched().then_some(lines)
    }

    /// When the line that is held back may be told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.held.as_ref().map(|_| self.span_ends)
    }

    /// More of the stream. A carriage return ends a line too: what follows it is written over what was there.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| matches!(byte, b'\n' | b'\r'));
        let mut piece = pieces.next();
        while let Some(bytes) = piece {
            let room = LONGEST - self.begun.len();
            self.begun.extend_from_slice(&bytes[..bytes.len().min(room)]);
            piece = pieces.next();
            if piece.is_some() {
                self.line();
            }
        }
    }

    /// The stream has ended, or the run has.
    pub(super) fn end(&mut self) {
        self.line();
        self.release();
    }

    /// Tells the line that was held back.
    pub(super) fn release(&mut self) {
        if let Some(line) = self.held.take() {
            self.tell(line);
        }
    }

    fn line(&mut self) {
        if self.begun.trim_ascii().is_empty() {
            self.begun.clear();
            return;
        }
        let line = std::mem::take(&mut self.begun);
        let now = Instant::now();
        if now >= self.span_ends {
            (self.told, self.span_ends) = (0, now + SPAN);
        }
        if self.told < MOST {
            self.missed += u64::from(self.held.take().is_some());
            self.tell(line);
        } else if let Some(mut left_out) = self.held.replace(line) {
            self.missed += 1;
            left_out.clear();
            self.begun = left_out;
        }
    }

    fn tell(&mut self, line: Vec<u8>) {
        let line = String::from_utf8_lossy(&line);
        let line = printable::text(line.trim_end());
        if line.is_empty() {
            return;
        }
        self.told += 1;
        self.context.progress_after(std::mem::take(&mut self.missed), json!({"stderr": line}));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::call::{Caller, Event, Invocation, JsonObject, Listener, ProgressSink, Reporter, ToolName};

    fn watched() -> (ToolContext, Listener) {
        let (sink, listener) = ProgressSink::channel();
        let (tool, caller) = (ToolName::parse("t").unwrap(), Arc::new(Caller::anonymous()));
        let mut invocation = Invocation::new(tool, JsonObject::new(), caller, jiff::Timestamp::UNIX_EPOCH);
        invocation.progress = Some(sink);
        let reporter = Reporter::of(&invocation, || Box::new(|_| {}));
        (ToolContext::new(&invocation, Instant::now(), Arc::default()).reporting(reporter), listener)
    }

    fn told(listener: &mut Listener) -> Vec<(String, u64)> {
        let line = |event| match event {
            Event::Progress(progress) => {
                let data: Value = serde_json::from_str(progress.data.get()).unwrap();
                (data["stderr"].as_str().unwrap().to_owned(), progress.missed)
            }
            Event::Named(name, _) => panic!("{name}"),
        };
        std::iter::from_fn(|| listener.try_next()).map(line).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_told_plainly_however_they_come_in() {
        let (context, mut listener) = watched();
        let mut lines = Lines::new(&context).unwrap();
        let text = "\x1b[1;32mdone\x1b[0m  \r\n\n 10%\r 20%\x07\r\tcaf\u{e9} \u{9b}31m\x1b]0;title\x07!\nno end";
        for byte in text.as_bytes() {
            lines.push(&[*byte]);
        }
        lines.end();
        let said: Vec<String> = told(&mut listener).into_iter().map(|(line, _)| line).collect();
        assert_eq!(said, ["done", " 10%", " 20%", "\tcaf\u{e9} 31m!", "no end"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_thinned_out_and_its_last_line_is_told() {
        let (context, mut listener) = watched();
        let mut lines = Lines::new(&context).unwrap();
        (0..200).for_each(|n| lines.push(format!("{n}\n").as_bytes()));
        assert_eq!(told(&mut listener).len(), 50);
        assert_eq!(lines.due(), Some(Instant::now() + SPAN));
        tokio::time::advance(SPAN).await;
        lines.release();
        assert_eq!(told(&mut listener), [("199".into(), 149)]);
        assert_eq!(lines.due(), None);
        lines.push(b"200\n");
        assert_eq!(told(&mut listener), [("200".into(), 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_back_at_the_end_is_told_and_a_long_line_is_cut() {
        let (context, mut listener) = watched();
        let mut lines = Lines::new(&context).unwrap();
        (0..52).for_each(|n| lines.push(format!("{n}\n").as_bytes()));
        lines.push("x".repeat(3 * LONGEST).as_bytes());
        lines.end();
        let all = told(&mut listener);
        assert_eq!(all.len(), 51);
        let (last, missed) = all.last().unwrap();
        assert_eq!(*missed, 2);
        assert!(last.ends_with("x[… 12288 bytes left out …]"), "{last}");
    }

    #[tokio::test]
    async fn without_a_listener_nothing_is_looked_at() {
        let (context, listener) = watched();
        drop(listener);
        assert!(Lines::new(&context).is_none());
    }
}
