//! A server's standard input and output as a transport: one JSON-RPC message per line, in bounded
//! memory.

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
use super::message::{MAX_MESSAGE_BYTES, id_of_broken_response, parse_message};
use super::transport_adapter::SharedConnectionState;
use crate::kinds::process::{self, LineThrottle};
use crate::sources::mcp::json_rpc::IdScanner;

/// Size of the read buffer, in bytes.
const READ_BUFFER_SIZE: usize = 64 << 10;
/// A larger buffer is shrunk to this size after its message.
const MAX_IDLE_BUFFER: usize = 256 << 10;
/// After a server's end, its last output is read for this long. A process that it left behind may
/// hold the pipe open.
const FINAL_READ_TIMEOUT: Duration = Duration::from_millis(250);
/// Consecutive lines that are too long and not whole JSON, before the transport gives up. They may
/// contain the responses, so calls would wait in vain.
const MAX_OVERLONG_LINES: u32 = 3;
/// Lines per second that are logged because they are not messages.
const MAX_LOGGED_PER_SECOND: u32 = 10;

/// The transport over the pipes of a server's process.
pub(super) struct Pipes {
    stdout: BufReader<ChildStdout>,
    /// The start of the current line.
    line: Vec<u8>,
    /// Replaces `line` if the current line is too long.
    long_line: Option<IdScanner>,
    /// Lines since the last message that were too long and not whole JSON.
    overlong_lines: u32,
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    /// Cancelled when the process has ended.
    process_exited: CancellationToken,
    invalid_lines: LineThrottle<LogLineFn>,
    state: Arc<SharedConnectionState>,
}

type LogLineFn = Box<dyn FnMut(process::OutputLine<'_>) + Send>;

enum LineRead {
    /// A whole line. It is in `line`.
    Line,
    /// A line that was too long, and was scanned instead of kept.
    TooLong(IdScanner),
    Ended,
}

impl Pipes {
    /// The pipes of the server with this name. `process_exited` is cancelled when its process has
    /// ended.
    pub(super) fn new(
        (stdin, stdout): (ChildStdin, ChildStdout),
        process_exited: CancellationToken,
        server: Arc<str>,
        state: Arc<SharedConnectionState>,
    ) -> Self {
        let log_line = move |line: process::OutputLine<'_>| {
            let missed = Some(line.skipped).filter(|missed| *missed > 0);
            tracing::warn!(target: "toolcrib::mcp", server = &*server, missed, "not a message: {}", line.text);
        };
        Self {
            stdout: BufReader::with_capacity(READ_BUFFER_SIZE, stdout),
            line: Vec::new(),
            long_line: None,
            overlong_lines: 0,
            stdin: Arc::new(Mutex::new(Some(stdin))),
            process_exited,
            invalid_lines: LineThrottle::new(MAX_LOGGED_PER_SECOND, Box::new(log_line)),
            state,
        }
    }

    /// Reads the next line. Dropping the future loses nothing.
    async fn read_line(&mut self) -> LineRead {
        loop {
            let filled = tokio::select! {
                biased;
                filled = self.stdout.fill_buf() => filled.is_ok_and(|bytes| !bytes.is_empty()),
                () = self.process_exited.cancelled() => {
                    let rest = timeout(FINAL_READ_TIMEOUT, self.stdout.fill_buf()).await;
                    rest.is_ok_and(|filled| filled.is_ok_and(|bytes| !bytes.is_empty()))
                }
            };
            if !filled {
                return LineRead::Ended;
            }
            let bytes = self.stdout.buffer();
            let (piece, ends) = match bytes.iter().position(|&byte| byte == b'\n') {
                Some(at) => (&bytes[..at], true),
                None => (bytes, false),
            };
            match &mut self.long_line {
                Some(scan) => scan.feed(piece),
                None if self.line.len() + piece.len() > MAX_MESSAGE_BYTES => {
                    let mut scan = IdScanner::default();
                    scan.feed(&self.line);
                    scan.feed(piece);
                    self.long_line = Some(scan);
                    self.line = Vec::new();
                }
                None => self.line.extend_from_slice(piece),
            }
            let read = piece.len() + usize::from(ends);
            self.stdout.consume(read);
            if ends {
                return match self.long_line.take() {
                    Some(scan) => LineRead::TooLong(scan),
                    None => LineRead::Line,
                };
            }
        }
    }

    /// The message of the line that was read. If the line is not a message, the log gets its size
    /// and kind. It does not get the text, which may be a result.
    fn take_message(&mut self) -> Option<ServerJsonRpcMessage> {
        let mut message = parse_message(&self.line);
        if message.is_none() {
            if !self.line.trim_ascii().is_empty() {
                self.invalid_lines.push(
                    format!(
                        "a line of {} bytes, {}\n",
                        self.line.len(),
                        describe_line(&self.line)
                    )
                    .as_bytes(),
                );
            }
            let id = id_of_broken_response(&self.line);
            message = id.map(|id| {
                JsonRpcMessage::error(ErrorData::from(InvalidMessage::Unreadable), Some(id))
            });
        }
        self.line.clear();
        self.line.shrink_to(MAX_IDLE_BUFFER);
        message
    }
}

fn describe_line(line: &[u8]) -> &'static str {
    match serde_json::from_slice::<IgnoredAny>(line) {
        Ok(_) => "JSON but not JSON-RPC",
        Err(_) if std::str::from_utf8(line).is_err() => "not UTF-8",
        Err(_) => "not JSON",
    }
}

impl Transport<RoleClient> for Pipes {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let to = self.stdin.clone();
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
            match self.read_line().await {
                LineRead::Line => {
                    if let Some(message) = self.take_message() {
                        self.overlong_lines = 0;
                        return Some(message);
                    }
                }
                LineRead::TooLong(scan) => {
                    self.overlong_lines += u32::from(!scan.is_single_object());
                    if self.overlong_lines == MAX_OVERLONG_LINES {
                        let _ = self
                            .state
                            .fault
                            .set("it repeatedly wrote lines without an end");
                        return None;
                    }
                    match scan
                        .answered_id()
                        .and_then(|id| serde_json::from_value(id).ok())
                    {
                        Some(id) => {
                            return Some(JsonRpcMessage::error(
                                ErrorData::from(InvalidMessage::TooLong),
                                Some(id),
                            ));
                        }
                        None => self
                            .invalid_lines
                            .push(b"a line that is too long and answers no request\n"),
                    }
                }
                LineRead::Ended => {
                    self.invalid_lines.finish();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // A server that does not read blocks a writer, which then holds the lock. The end of the
        // server frees the pipe.
        if let Ok(mut to) = self.stdin.try_lock() {
            to.take();
        }
        Ok(())
    }
}
