//! The thread that writes the log.
//!
//! It is a thread, not a task: writing blocks while nothing reads the output, and a blocked task
//! would hold one of the runtime's workers. One thread writes all lines, so lines stay whole and in
//! order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::ended_call::EndedCall;
use super::forward::{ForwardLayer, Forwarding, LineSink};
use super::line::Format;

/// Maximum number of entries that wait to be written: lines, or ends of calls, some hundred bytes
/// each.
pub(super) const QUEUE_CAPACITY: usize = 4096;
/// The thread sleeps this long after each write. So under load a call does not wake the thread, and
/// one write takes everything that has collected.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum time that [`LogWriter::flush`] waits while nothing reads the output.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

enum WriterRequest {
    Call(EndedCall),
    /// A line that is already formatted.
    Line(Box<[u8]>),
    Flush(oneshot::Sender<()>),
}

/// The handle of the thread, which ends when no handle remains. As a writer (for example of
/// tracing-subscriber) it takes one whole line in each `write`. It never blocks or fails: if the
/// queue is full, the line is lost and counted.
#[derive(Clone)]
pub struct LogWriter {
    queue: mpsc::Sender<WriterRequest>,
    lost: Arc<AtomicU64>,
    format: Format,
    forwarding: Forwarding,
}

impl LogWriter {
    /// Writes to `out` from a new thread. `format` is the format of calls.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn(out: impl io::Write + Send + 'static, format: Format) -> io::Result<Self> {
        let (queue, requests) = mpsc::channel(QUEUE_CAPACITY);
        let lost = Arc::new(AtomicU64::new(0));
        let (counted, forwarding) = (lost.clone(), Forwarding::default());
        let forward = forwarding.clone();
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || run_writer(requests, out, format, &counted, &forward))?;
        Ok(Self {
            queue,
            lost,
            format,
            forwarding,
        })
    }

    /// The format of calls.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Passes all later lines on to `sink`, too. The thread of the log passes on the ends of calls,
    /// [`LogWriter::forward_layer`] all other lines.
    pub fn forward_to(&self, sink: Arc<dyn LineSink>) {
        self.forwarding.start(sink);
    }

    /// The layer for the program's subscriber that passes its lines on.
    pub fn forward_layer(&self) -> ForwardLayer {
        ForwardLayer(self.forwarding.clone())
    }

    /// The number of lines that were lost because nothing read the output.
    pub fn lost_lines(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns when everything is written, or after a second if nothing reads the output.
    pub async fn flush(&self) {
        let (reply, flushed) = oneshot::channel();
        let flush = async {
            if self.queue.send(WriterRequest::Flush(reply)).await.is_ok() {
                let _ = flushed.await;
            }
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, flush).await;
    }

    pub(super) fn log_call(&self, ended: EndedCall) {
        self.enqueue(WriterRequest::Call(ended));
    }

    fn enqueue(&self, request: WriterRequest) {
        if self.queue.try_send(request).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.enqueue(WriterRequest::Line(line.into()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until no sender remains.
fn run_writer(
    mut requests: mpsc::Receiver<WriterRequest>,
    mut out: impl io::Write,
    format: Format,
    lost: &AtomicU64,
    forwarding: &Forwarding,
) {
    let (mut batch, mut text, mut reported) = (Vec::with_capacity(QUEUE_CAPACITY), Vec::new(), 0);
    while requests.blocking_recv_many(&mut batch, QUEUE_CAPACITY) > 0 {
        let mut waiting = Vec::new();
        for request in batch.drain(..) {
            match request {
                WriterRequest::Call(ended) => {
                    format.append_call(&mut text, &ended);
                    forwarding.forward_call(&ended);
                }
                WriterRequest::Line(line) => text.extend_from_slice(&line),
                WriterRequest::Flush(reply) => waiting.push(reply),
            }
        }
        let lost_now = lost.load(Ordering::Relaxed);
        if lost_now > reported {
            format.append_lost(&mut text, Timestamp::now(), lost_now - reported);
            reported = lost_now;
        }
        // A failure cannot be reported anywhere.
        let _ = out.write_all(&text);
        text.clear();
        for reply in waiting {
            let _ = reply.send(());
        }
        std::thread::sleep(BATCH_INTERVAL);
    }
}
