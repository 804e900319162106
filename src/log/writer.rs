//! The thread that writes the log.
//!
//! A thread, not a task: writing blocks for as long as nobody reads, and a blocked task would hold one of the runtime's
//! workers. One for all lines, so that they come whole and in order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::ended::Ended;
use super::line::Format;

/// What may wait to be written: lines, or the ends of calls, some hundred bytes each.
pub(super) const QUEUE: usize = 4096;
/// After each write it sleeps so long: under load a call wakes nobody, and one write takes what has collected.
const COLLECT: Duration = Duration::from_millis(10);
/// How long [`LogWriter::flush`] waits for a reader that does not read.
const PATIENCE: Duration = Duration::from_secs(1);

enum Asked {
    Call(Ended),
    /// A line that somebody else has formatted.
    Line(Box<[u8]>),
    Flush(oneshot::Sender<()>),
}

/// The handle on the thread, which ends when nobody holds one any more. As a writer (for tracing-subscriber, say) it
/// takes whole lines, one in each `write`, and never blocks or fails: a line that finds no room is lost, and counted.
#[derive(Clone)]
pub struct LogWriter {
    queue: mpsc::Sender<Asked>,
    lost: Arc<AtomicU64>,
    format: Format,
}

impl LogWriter {
    /// Writes to `out` from a thread of its own; `format` is how calls look.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn spawn(out: impl io::Write + Send + 'static, format: Format) -> io::Result<Self> {
        let (queue, asked) = mpsc::channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || write(asked, out, format, &counted))?;
        Ok(Self { queue, lost, format })
    }

    /// How calls look.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Lines that were lost because nobody read them.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns when everything is written, or after a second if nobody reads it.
    pub async fn flush(&self) {
        let (reply, flushed) = oneshot::channel();
        let flush = async {
            if self.queue.send(Asked::Flush(reply)).await.is_ok() {
                let _ = flushed.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, flush).await;
    }

    pub(super) fn call(&self, ended: Ended) {
        self.ask(Asked::Call(ended));
    }

    fn ask(&self, asked: Asked) {
        if self.queue.try_send(asked).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.ask(Asked::Line(line.into()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until nobody can ask any more.
fn write(mut asked: mpsc::Receiver<Asked>, mut out: impl io::Write, format: Format, lost: &AtomicU64) {
    let (mut batch, mut text, mut told) = (Vec::with_capacity(QUEUE), Vec::new(), 0);
    while asked.blocking_recv_many(&mut batch, QUEUE) > 0 {
        let mut waiting = Vec::new();
        for one in batch.drain(..) {
            match one {
                Asked::Call(ended) => format.call(&mut text, &ended),
                Asked::Line(line) => text.extend_from_slice(&line),
                Asked::Flush(reply) => waiting.push(reply),
            }
        }
        let gone = lost.load(Ordering::Relaxed);
        if gone > told {
            format.lost(&mut text, Timestamp::now(), gone - told);
            told = gone;
        }
        // There is nobody to tell of a failure.
        let _ = out.write_all(&text);
        text.clear();
        for reply in waiting {
            let _ = reply.send(());
        }
        std::thread::sleep(COLLECT);
    }
}
