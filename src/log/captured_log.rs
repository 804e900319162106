//! Captures the log of one test.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt::MakeWriter;

/// The lines from `INFO` on that this thread logs while the value lives.
pub(crate) struct CapturedLog {
    lines: LineBuffer,
    _guard: DefaultGuard,
    /// A second subscriber. With only one in the process, `tracing` asks the current thread whether
    /// an event is enabled. Another test's thread would then disable the event for all threads.
    _second: Dispatch,
}

#[derive(Clone, Default)]
struct LineBuffer(Arc<Mutex<Vec<u8>>>);

/// Captures the log of this thread, and so of a `tokio::test` with one thread.
pub(crate) fn capture_log() -> CapturedLog {
    let second = Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish());
    let lines = LineBuffer::default();
    let log = tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_ansi(false)
        .with_writer(lines.clone())
        .finish();
    CapturedLog {
        lines,
        _guard: tracing::subscriber::set_default(log),
        _second: second,
    }
}

impl CapturedLog {
    /// The number of lines with this text.
    pub(crate) fn count_lines(&self, text: &str) -> usize {
        let bytes = self.lines.0.lock().clone();
        String::from_utf8_lossy(&bytes)
            .lines()
            .filter(|line| line.contains(text))
            .count()
    }

    /// Whether a line has this text.
    pub(crate) fn has_line(&self, text: &str) -> bool {
        self.count_lines(text) > 0
    }
}

impl Write for LineBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LineBuffer {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
