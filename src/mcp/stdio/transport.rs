//! The transport of rmcp over standard input and output.
//!
//! rmcp's own transport silently drops messages that are too long or not JSON. Their senders would
//! wait for ever. This transport answers every message that can be answered.

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, GetMeta, ProtocolVersion, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::RoleServer;
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::pending::Pending;
use crate::call::json::parse_foreign;
use crate::mcp::VERSIONS;
use crate::sources::mcp::json_rpc::IdScanner;

/// Most messages that wait to be written.
const QUEUE_LENGTH: usize = 64;
/// How long to wait until the last messages are written.
const FINAL_WRITE_TIME: Duration = Duration::from_secs(1);

pub(super) struct StdioTransport<R> {
    lines: LineReader<R>,
    max_message: usize,
    pending: Pending,
    /// Tripped at the end of the input, or when the output cannot be written.
    disconnected: CancellationToken,
    out: Option<mpsc::Sender<OutgoingLine>>,
    writer: AbortOnDropHandle<()>,
    /// A refusal that the writer does not have yet.
    refusal: Option<OutgoingLine>,
    /// Whether a request has come that opens a session or needs none. Until then, other messages
    /// than requests are dropped, because rmcp would end the connection for them.
    is_initialized: bool,
}

/// Whether rmcp treats its peer as initialized from this request on.
fn initializes_peer(request: &ClientRequest) -> bool {
    let version = request.get_meta().protocol_version();
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        _ => {
            version.is_some_and(|version| VERSIONS.contains(&version))
                && request
                    .get_meta()
                    .missing_required_keys(&ProtocolVersion::V_2026_07_28)
                    .is_empty()
        }
    }
}

/// One line to be written.
#[derive(Default)]
struct OutgoingLine {
    line: Vec<u8>,
    /// The request that this line answers.
    answers: Option<RequestId>,
    /// Dropped when the line is written.
    on_written: Option<oneshot::Sender<()>>,
}

impl OutgoingLine {
    fn new(message: &ServerJsonRpcMessage) -> io::Result<Self> {
        let mut line = match message {
            // Section 5 of JSON-RPC 2.0: an unknown id is null. rmcp omits it, and clients cannot
            // read such an error.
            ServerJsonRpcMessage::Error(error) if error.id.is_none() => {
                serde_json::to_vec(&json!({"jsonrpc": "2.0", "id": null, "error": error.error}))?
            }
            message => serde_json::to_vec(message)?,
        };
        line.push(b'\n');
        let answers = match message {
            ServerJsonRpcMessage::Response(answer) => Some(answer.id.clone()),
            ServerJsonRpcMessage::Error(answer) => answer.id.clone(),
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
        };
        Ok(Self {
            line,
            answers,
            on_written: None,
        })
    }
}

impl<R: AsyncRead + Unpin> StdioTransport<R> {
    pub(super) fn new(
        read: R,
        write: impl AsyncWrite + Send + Unpin + 'static,
        max_message: usize,
        pending: Pending,
        disconnected: CancellationToken,
    ) -> Self {
        let (out, queue) = mpsc::channel(QUEUE_LENGTH);
        let writer = AbortOnDropHandle::new(tokio::spawn(
            write_all(write, queue, pending.clone(), disconnected.clone()).boxed(),
        ));
        let lines = LineReader::new(read, max_message);
        Self {
            lines,
            max_message,
            pending,
            disconnected,
            out: Some(out),
            writer,
            refusal: None,
            is_initialized: false,
        }
    }

    /// Waits until all messages sent so far are written. It queues an empty line and waits until
    /// the writer drops it.
    async fn wait_until_written(&mut self) {
        let (sender, written) = oneshot::channel();
        if let Some(out) = &self.out
            && out
                .send(OutgoingLine {
                    on_written: Some(sender),
                    ..OutgoingLine::default()
                })
                .await
                .is_ok()
        {
            let _ = written.await;
        }
    }

    /// The id for a refusal. `None` if another request with this id is in flight: the client would
    /// take the refusal for its answer.
    fn refusal_id(&self, id: Value) -> Option<RequestId> {
        serde_json::from_value(id)
            .ok()
            .and_then(|id| self.unless_pending(id))
    }

    fn unless_pending(&self, id: RequestId) -> Option<RequestId> {
        Some(id).filter(|id| !self.pending.contains(id))
    }

    /// Parses a line. `Ok(None)`: it is empty.
    ///
    /// # Errors
    /// The refusal to send; `None` if the line needs no answer.
    fn parse_line(
        &self,
        line: &InputLine,
    ) -> Result<Option<ClientJsonRpcMessage>, Option<OutgoingLine>> {
        let line = match line {
            InputLine::Complete(line) if line.trim_ascii().is_empty() => return Ok(None),
            InputLine::Complete(line) => line,
            InputLine::TooLong(id) => {
                let (max, id) = (
                    self.max_message,
                    id.clone().and_then(|id| self.refusal_id(id)),
                );
                return Err(refusal_line(
                    ErrorCode::INVALID_REQUEST,
                    format!("a message may have at most {max} bytes"),
                    id,
                ));
            }
            InputLine::End => return Ok(None),
        };
        let (value, _) = parse_foreign(line).map_err(|error| {
            let mut scan = IdScanner::default();
            scan.feed(line);
            refusal_line(
                ErrorCode::PARSE_ERROR,
                format!("not JSON: {error}"),
                scan.request_id().and_then(|id| self.refusal_id(id)),
            )
        })?;
        if value.is_array() {
            let text = "batches are not supported: send each message on a line of its own";
            return Err(refusal_line(ErrorCode::INVALID_REQUEST, text.into(), None));
        }
        let has = |name: &str| value.get(name).is_some();
        let id = value.get("id").cloned().and_then(|id| self.refusal_id(id));
        // The client expects no answer to a notification, nor to an answer of its own.
        let is_awaited = has("id") && !has("result") && !has("error") || !value.is_object();
        serde_json::from_value(value).map(Some).map_err(|_| {
            let text = "not a JSON-RPC message: it must have `jsonrpc` \"2.0\", an `id` that is a text or a whole number, and a `method`";
            is_awaited.then(|| refusal_line(ErrorCode::INVALID_REQUEST, text.into(), id)).flatten()
        })
    }
}

fn refusal_line(code: ErrorCode, text: String, id: Option<RequestId>) -> Option<OutgoingLine> {
    let line = OutgoingLine::new(&ServerJsonRpcMessage::error(
        ErrorData::new(code, text, None),
        id,
    ))
    .ok()?;
    // A refused message was never added to `pending`. Its id may be that of another request, which
    // must stay there.
    Some(OutgoingLine {
        answers: None,
        ..line
    })
}

impl<R: AsyncRead + Send + Unpin + 'static> Transport<RoleServer> for StdioTransport<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (line, out) = (OutgoingLine::new(&message), self.out.clone());
        async move {
            let closed = || io::Error::from(io::ErrorKind::NotConnected);
            out.ok_or_else(closed)?
                .send(line?)
                .await
                .map_err(|_| closed())
        }
    }

    /// Waits for the next message.
    ///
    /// It never returns `None`, because rmcp would then end the connection, although started calls
    /// still need their answers. At the end of the input it trips `disconnected` and waits for
    /// ever; `serve` ends the connection.
    ///
    /// rmcp may drop this future at any time. So a refusal is stored in `self`, and taken out only
    /// when the writer has room for it.
    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if self.refusal.is_some()
                && let Some(out) = &self.out
                && let Ok(slot) = out.reserve().await
                && let Some(refusal) = self.refusal.take()
            {
                slot.send(refusal);
            }
            let next = async {
                self.pending.wait_for_room().await;
                self.lines.next_line().await
            };
            let line = tokio::select! {
                line = next => line,
                () = self.disconnected.cancelled() => InputLine::End,
            };
            if line == InputLine::End {
                let _ = timeout(FINAL_WRITE_TIME, self.wait_until_written()).await;
                self.disconnected.cancel();
                std::future::pending::<()>().await;
            }
            match self.parse_line(&line) {
                Ok(Some(message)) => {
                    let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
                    self.is_initialized |= matches!(&message, ClientJsonRpcMessage::Request(request) if initializes_peer(&request.request));
                    if !is_request && !self.is_initialized {
                        continue;
                    }
                    let Err(text) = self.pending.record(&message) else {
                        return Some(message);
                    };
                    let id = match message {
                        ClientJsonRpcMessage::Request(request) => self.unless_pending(request.id),
                        _ => None,
                    };
                    self.refusal = refusal_line(ErrorCode::INVALID_REQUEST, text.into(), id);
                }
                Ok(None) => {}
                Err(refusal) => self.refusal = refusal,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out = None;
        // A client that no longer reads its output must not keep the process alive.
        let written = timeout(FINAL_WRITE_TIME, &mut self.writer).await;
        written.map_err(io::Error::from)?.map_err(io::Error::other)
    }
}

/// Writes each line in one piece, until all senders are gone. After a failed write it only empties
/// the queue, so that no request stays pending.
async fn write_all(
    mut write: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<OutgoingLine>,
    pending: Pending,
    disconnected: CancellationToken,
) {
    let mut is_broken = false;
    while let Some(OutgoingLine {
        line,
        answers,
        on_written,
    }) = queue.recv().await
    {
        if !is_broken {
            let written = async {
                write.write_all(&line).await?;
                write.flush().await
            };
            if let Err(error) = written.await {
                // A client that has left needs no answer. Its input may end a moment later.
                if !disconnected.is_cancelled() {
                    tracing::info!(%error, "standard output cannot be written: the client no longer reads it");
                }
                is_broken = true;
                disconnected.cancel();
            }
        }
        answers.iter().for_each(|id| pending.remove(id));
        drop(on_written);
    }
}

/// Reads lines. Reading is cancel-safe: if a read is dropped, its part of the line is kept for the
/// next read.
pub(super) struct LineReader<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    max_length: usize,
    /// Set while the current line is too long. Its bytes are then scanned for an id, and not kept.
    oversized: Option<IdScanner>,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// A line without its line feed.
    Complete(Vec<u8>),
    /// The line was too long. If it was a request, this is its id.
    TooLong(Option<Value>),
    /// The end of the input.
    End,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(read: R, max_length: usize) -> Self {
        Self {
            read: BufReader::new(read),
            line: Vec::new(),
            max_length,
            oversized: None,
        }
    }

    /// Reads the next line. The last one need not have a line feed.
    pub(super) async fn next_line(&mut self) -> InputLine {
        loop {
            let buffer = match self.read.fill_buf().await {
                Ok(buffer) => buffer,
                Err(error) => {
                    tracing::warn!(%error, "standard input cannot be read");
                    return InputLine::End;
                }
            };
            if buffer.is_empty() {
                return if self.line.is_empty() && self.oversized.is_none() {
                    InputLine::End
                } else {
                    self.finish_line()
                };
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            match &mut self.oversized {
                Some(scan) => scan.feed(part),
                None if self.line.len() + part.len() > self.max_length => {
                    let mut scan = IdScanner::default();
                    scan.feed(&std::mem::take(&mut self.line));
                    scan.feed(part);
                    self.oversized = Some(scan);
                }
                None => self.line.extend_from_slice(part),
            }
            let used = part.len() + usize::from(end.is_some());
            self.read.consume(used);
            if end.is_some() {
                return self.finish_line();
            }
        }
    }

    fn finish_line(&mut self) -> InputLine {
        match self.oversized.take() {
            Some(scan) => InputLine::TooLong(scan.request_id()),
            None => InputLine::Complete(std::mem::take(&mut self.line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn read_all(text: &'static [u8], longest: usize) -> Vec<InputLine> {
        let mut lines = LineReader::new(io::Cursor::new(text), longest);
        let mut found = Vec::new();
        loop {
            match lines.next_line().await {
                InputLine::End => return found,
                line => found.push(line),
            }
        }
    }

    fn complete(text: &str) -> InputLine {
        InputLine::Complete(text.into())
    }

    #[tokio::test]
    async fn last_line_needs_no_line_feed() {
        assert_eq!(
            read_all(b"one\n\ntwo\r\nthree", 9).await,
            [
                complete("one"),
                complete(""),
                complete("two\r"),
                complete("three")
            ]
        );
        assert_eq!(read_all(b"", 9).await, []);
    }

    #[tokio::test]
    async fn oversized_line_is_skipped() {
        assert_eq!(
            read_all(b"12345\n123456\n1\n1234567", 5).await,
            [
                complete("12345"),
                InputLine::TooLong(None),
                complete("1"),
                InputLine::TooLong(None)
            ]
        );
    }

    #[tokio::test]
    async fn dropped_read_loses_no_bytes() {
        let (mut write, read) = tokio::io::duplex(64);
        let mut lines = LineReader::new(read, 64);
        write.write_all(b"first ").await.unwrap();
        tokio::select! {
            biased;
            line = lines.next_line() => panic!("{line:?} has no end yet"),
            () = std::future::ready(()) => {}
        }
        write.write_all(b"half\nnext").await.unwrap();
        assert_eq!(lines.next_line().await, complete("first half"));
    }
}
