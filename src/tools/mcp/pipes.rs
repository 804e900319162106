//! A server's standard input and output as a transport: one JSON-RPC message per line, in bounded memory.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde::de::IgnoredAny;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::fault::InvalidMessage;
use super::message::{LONGEST, parse, spoilt};
use super::transport_adapter::ConnectionState;
use crate::json_rpc::Scan;
use crate::tools::process::{self, Lines};

/// Size of the read buffer, in bytes.
const CHUNK: usize = 64 << 10;
/// A larger buffer is shrunk to this size after its message.
const KEPT: usize = 256 << 10;
/// After a server's end, its last output is read for this long. A process that it left behind may hold the pipe open.
const GRACE: Duration = Duration::from_millis(250);
/// Consecutive lines that are too long and not whole JSON, before the transport gives up. They may contain the
/// responses, so calls would wait in vain.
const MOST_BABBLE: u32 = 3;
/// Lines per second that are logged because they are not messages.
const SHOWN: u32 = 10;

/// The transport over the pipes of a server's process.
pub(super) struct Pipes {
    from: BufReader<ChildStdout>,
    /// The start of the current line.
    line: Vec<u8>,
    /// Replaces `line` if the current line is too long.
    long: Option<Scan>,
    /// Lines since the last message that were too long and not whole JSON.
    babble: u32,
    to: Arc<Mutex<Option<ChildStdin>>>,
    /// Cancelled when the process has ended.
    gone: CancellationToken,
    odd: Lines<Tell>,
    shared: Arc<ConnectionState>,
}

type Tell = Box<dyn FnMut(process::Line<'_>) + Send>;

enum Read {
    /// A whole line. It is in `line`.
    Line,
    /// A line that was too long, and was scanned instead of kept.
    TooLong(Scan),
    Ended,
}

impl Pipes {
    /// The pipes of the server with this name. `gone` is cancelled when its process has ended.
    pub(super) fn new(
        (to, from): (ChildStdin, ChildStdout),
        gone: CancellationToken,
        server: Arc<str>,
        shared: Arc<ConnectionState>,
    ) -> Self {
        let tell = move |line: process::Line<'_>| {
            let missed = Some(line.missed).filter(|missed| *missed > 0);
            tracing::warn!(target: "toolcrib::mcp", server = &*server, missed, "no message: {}", line.text);
        };
        Self {
            from: BufReader::with_capacity(CHUNK, from),
            line: Vec::new(),
            long: None,
            babble: 0,
            to: Arc::new(Mutex::new(Some(to))),
            gone,
            odd: Lines::new(SHOWN, Box::new(tell)),
            shared,
        }
    }

    /// Reads the next line. Dropping the future loses nothing.
    async fn read(&mut self) -> Read {
        loop {
            let filled = tokio::select! {
                biased;
                filled = self.from.fill_buf() => filled.is_ok_and(|bytes| !bytes.is_empty()),
                () = self.gone.cancelled() => {
                    let rest = timeout(GRACE, self.from.fill_buf()).await;
                    rest.is_ok_and(|filled| filled.is_ok_and(|bytes| !bytes.is_empty()))
                }
            };
            if !filled {
                return Read::Ended;
            }
            let bytes = self.from.buffer();
            let (piece, ends) = match bytes.iter().position(|&byte| byte == b'\n') {
                Some(at) => (&bytes[..at], true),
                None => (bytes, false),
            };
            match &mut self.long {
                Some(scan) => scan.feed(piece),
                None if self.line.len() + piece.len() > LONGEST => {
                    let mut scan = Scan::default();
                    scan.feed(&self.line);
                    scan.feed(piece);
                    self.long = Some(scan);
                    self.line = Vec::new();
                }
                None => self.line.extend_from_slice(piece),
            }
            let read = piece.len() + usize::from(ends);
            self.from.consume(read);
            if ends {
                return match self.long.take() {
                    Some(scan) => Read::TooLong(scan),
                    None => Read::Line,
                };
            }
        }
    }

    /// The message of the line that was read. If the line is not a message, the log gets its size and kind. It does not
    /// get the text, which may be a result.
    fn message(&mut self) -> Option<ServerJsonRpcMessage> {
        let mut message = parse(&self.line);
        if message.is_none() {
            if !self.line.trim_ascii().is_empty() {
                self.odd.push(format!("a line of {} bytes, {}\n", self.line.len(), kind(&self.line)).as_bytes());
            }
            let id = spoilt(&self.line);
            message = id.map(|id| JsonRpcMessage::error(ErrorData::from(InvalidMessage::Unreadable), Some(id)));
        }
        self.line.clear();
        self.line.shrink_to(KEPT);
        message
    }
}

fn kind(line: &[u8]) -> &'static str {
    match serde_json::from_slice::<IgnoredAny>(line) {
        Ok(_) => "JSON but not JSON-RPC",
        Err(_) if std::str::from_utf8(line).is_err() => "not UTF-8",
        Err(_) => "not JSON",
    }
}

impl Transport<RoleClient> for Pipes {
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let to = self.to.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            match &mut *to.lock().await {
                Some(to) => to.write_all(&line).await,
                None => Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.read().await {
                Read::Line => {
                    if let Some(message) = self.message() {
                        self.babble = 0;
                        return Some(message);
                    }
                }
                Read::TooLong(scan) => {
                    self.babble += u32::from(!scan.is_whole());
                    if self.babble == MOST_BABBLE {
                        let _ = self.shared.fault.set("it writes lines without an end again and again");
                        return None;
                    }
                    match scan.answers().and_then(|id| serde_json::from_value(id).ok()) {
                        Some(id) => {
                            return Some(JsonRpcMessage::error(ErrorData::from(InvalidMessage::TooLong), Some(id)));
                        }
                        None => self.odd.push(b"one that is too long and answers no request\n"),
                    }
                }
                Read::Ended => {
                    self.odd.end();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // A server that does not read blocks a writer, which then holds the lock. The end of the server frees the pipe.
        if let Ok(mut to) = self.to.try_lock() {
            to.take();
        }
        Ok(())
    }
}
