//! The transport of rmcp over standard input and output.
//!
//! rmcp's own transport silently drops messages that are too long or not JSON. Their senders would wait for ever. This
//! transport answers every message that can be answered.

use std::future::Future;
use std::io;
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, GetMeta, ProtocolVersion, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::RoleServer;
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::lines::{InputLine, LineReader};
use super::pending::Pending;
use crate::call::json::parse_strict;
use crate::json_rpc::Scan;
use crate::mcp::VERSIONS;

/// Most messages that wait to be written.
const WAITING: usize = 64;
/// How long to wait until the last messages are written.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(super) struct StdioTransport<R> {
    lines: LineReader<R>,
    longest: usize,
    pending: Pending,
    /// Tripped at the end of the input, or when the output cannot be written.
    left: CancellationToken,
    out: Option<mpsc::Sender<OutgoingLine>>,
    writer: AbortOnDropHandle<()>,
    /// A refusal that the writer does not have yet.
    refusal: Option<OutgoingLine>,
    /// Whether a request has come that opens a session or needs none. Until then, other messages than requests are
    /// dropped, because rmcp would end the connection for them.
    is_met: bool,
}

/// Whether rmcp treats its peer as initialized from this request on.
fn meets(request: &ClientRequest) -> bool {
    let version = request.get_meta().protocol_version();
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        _ => {
            version.is_some_and(|version| VERSIONS.contains(&version))
                && request.get_meta().missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
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
    told: Option<oneshot::Sender<()>>,
}

impl OutgoingLine {
    fn new(message: &ServerJsonRpcMessage) -> io::Result<Self> {
        let mut line = match message {
            // Section 5 of JSON-RPC 2.0: an unknown id is null. rmcp omits it, and clients cannot read such an error.
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
        Ok(Self { line, answers, told: None })
    }
}

impl<R: AsyncRead + Unpin> StdioTransport<R> {
    pub(super) fn new(
        read: R,
        write: impl AsyncWrite + Send + Unpin + 'static,
        longest: usize,
        pending: Pending,
        left: CancellationToken,
    ) -> Self {
        let (out, said) = mpsc::channel(WAITING);
        let writer = AbortOnDropHandle::new(tokio::spawn(write_all(write, said, pending.clone(), left.clone())));
        let lines = LineReader::new(read, longest);
        Self { lines, longest, pending, left, out: Some(out), writer, refusal: None, is_met: false }
    }

    /// Waits until all messages sent so far are written. It queues an empty line and waits until the writer drops it.
    async fn written(&mut self) {
        let (told, written) = oneshot::channel();
        if let Some(out) = &self.out
            && out.send(OutgoingLine { told: Some(told), ..OutgoingLine::default() }).await.is_ok()
        {
            let _ = written.await;
        }
    }

    /// The id for a refusal. `None` if another request with this id is under way: the client would take the refusal for
    /// its answer.
    fn blamed(&self, id: Value) -> Option<RequestId> {
        serde_json::from_value(id).ok().and_then(|id| self.not_pending(id))
    }

    fn not_pending(&self, id: RequestId) -> Option<RequestId> {
        Some(id).filter(|id| !self.pending.has(id))
    }

    /// Parses a line. `Ok(None)`: it is empty.
    ///
    /// # Errors
    /// The refusal to send; `None` if the line needs no answer.
    fn read(&self, line: &InputLine) -> Result<Option<ClientJsonRpcMessage>, Option<OutgoingLine>> {
        let line = match line {
            InputLine::Whole(line) if line.trim_ascii().is_empty() => return Ok(None),
            InputLine::Whole(line) => line,
            InputLine::TooLong(id) => {
                let (most, id) = (self.longest, id.clone().and_then(|id| self.blamed(id)));
                return Err(refused(ErrorCode::INVALID_REQUEST, format!("a message has {most} bytes at most"), id));
            }
            InputLine::End => return Ok(None),
        };
        let value = parse_strict(line).map_err(|error| {
            let mut scan = Scan::default();
            scan.feed(line);
            refused(ErrorCode::PARSE_ERROR, format!("not JSON: {error}"), scan.asks().and_then(|id| self.blamed(id)))
        })?;
        if value.is_array() {
            let words = "batches are not taken: send each message on a line of its own";
            return Err(refused(ErrorCode::INVALID_REQUEST, words.into(), None));
        }
        let has = |name: &str| value.get(name).is_some();
        let id = value.get("id").cloned().and_then(|id| self.blamed(id));
        // The client expects no answer to a notification, nor to an answer of its own.
        let is_awaited = has("id") && !has("result") && !has("error") || !value.is_object();
        serde_json::from_value(value).map(Some).map_err(|_| {
            let words = "no JSON-RPC message: it has `jsonrpc` \"2.0\", an `id` that is a text or a whole number, and a `method`";
            is_awaited.then(|| refused(ErrorCode::INVALID_REQUEST, words.into(), id)).flatten()
        })
    }
}

fn refused(code: ErrorCode, words: String, id: Option<RequestId>) -> Option<OutgoingLine> {
    let said = OutgoingLine::new(&ServerJsonRpcMessage::error(ErrorData::new(code, words, None), id)).ok()?;
    // A refused message was never added to `pending`. Its id may be that of another request, which must stay there.
    Some(OutgoingLine { answers: None, ..said })
}

impl<R: AsyncRead + Send + Unpin + 'static> Transport<RoleServer> for StdioTransport<R> {
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (said, out) = (OutgoingLine::new(&message), self.out.clone());
        async move {
            let gone = || io::Error::from(io::ErrorKind::NotConnected);
            out.ok_or_else(gone)?.send(said?).await.map_err(|_| gone())
        }
    }

    /// Waits for the next message.
    ///
    /// It never returns `None`, because rmcp would then end the connection, although started calls still need their
    /// answers. At the end of the input it trips `left` and waits for ever; `serve` ends the connection.
    ///
    /// rmcp may drop this future at any time. So a refusal is stored in `self`, and taken out only when the writer has
    /// room for it.
    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if self.refusal.is_some()
                && let Some(out) = &self.out
                && let Ok(place) = out.reserve().await
                && let Some(refusal) = self.refusal.take()
            {
                place.send(refusal);
            }
            let next = async {
                self.pending.room().await;
                self.lines.next().await
            };
            let line = tokio::select! {
                line = next => line,
                () = self.left.cancelled() => InputLine::End,
            };
            if line == InputLine::End {
                let _ = timeout(LAST_WORDS, self.written()).await;
                self.left.cancel();
                std::future::pending::<()>().await;
            }
            match self.read(&line) {
                Ok(Some(message)) => {
                    let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
                    self.is_met |= matches!(&message, ClientJsonRpcMessage::Request(asked) if meets(&asked.request));
                    if !is_request && !self.is_met {
                        continue;
                    }
                    let Err(words) = self.pending.came(&message) else { return Some(message) };
                    let id = match message {
                        ClientJsonRpcMessage::Request(asked) => self.not_pending(asked.id),
                        _ => None,
                    };
                    self.refusal = refused(ErrorCode::INVALID_REQUEST, words.into(), id);
                }
                Ok(None) => {}
                Err(refusal) => self.refusal = refusal,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out = None;
        // A client that no longer reads its output must not keep the process alive.
        let written = timeout(LAST_WORDS, &mut self.writer).await;
        written.map_err(io::Error::from)?.map_err(io::Error::other)
    }
}

/// Writes each line in one piece, until all senders are gone. After a failed write it only empties the queue, so that
/// no request stays pending.
async fn write_all(
    mut write: impl AsyncWrite + Unpin,
    mut said: mpsc::Receiver<OutgoingLine>,
    pending: Pending,
    left: CancellationToken,
) {
    let mut is_broken = false;
    while let Some(OutgoingLine { line, answers, told }) = said.recv().await {
        if !is_broken {
            let written = async {
                write.write_all(&line).await?;
                write.flush().await
            };
            if let Err(error) = written.await {
                tracing::warn!(%error, "standard output cannot be written: nobody reads it");
                is_broken = true;
                left.cancel();
            }
        }
        answers.iter().for_each(|id| pending.gone(id));
        drop(told);
    }
}
