//! What rmcp reads messages from and writes answers to.
//!
//! rmcp's own transport over a pair of streams passes over in silence what is no JSON or too long, so that its sender waits for ever;
//! here all that can be answered is.

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

use super::lines::{Line, LineReader};
use super::pending::Pending;
use crate::call::json::parse_strict;
use crate::json_rpc::Scan;
use crate::mcp::VERSIONS;

/// Answers that wait for the one before them to be written.
const WAITING: usize = 64;
/// For the last of them to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Lines<R> {
    lines: LineReader<R>,
    longest: usize,
    pending: Pending,
    /// Tripped when there is no more to read, or nobody who reads.
    left: CancellationToken,
    out: Option<mpsc::Sender<Said>>,
    writer: AbortOnDropHandle<()>,
    /// Not yet handed to the writer.
    refusal: Option<Said>,
    /// A request has come that begins a session, or does without one. What is no request is passed over until then: rmcp would
    /// end the connection.
    is_met: bool,
}

/// Whether rmcp takes its peer for met from this request on.
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
struct Said {
    line: Vec<u8>,
    /// The request that it answers.
    answers: Option<RequestId>,
    /// Dropped when it is written.
    told: Option<oneshot::Sender<()>>,
}

impl Said {
    fn new(message: &ServerJsonRpcMessage) -> io::Result<Self> {
        let mut line = match message {
            // Section 5 of JSON-RPC 2.0: null where it is not known. rmcp leaves it out, and clients cannot read that.
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

impl<R: AsyncRead + Unpin> Lines<R> {
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

    /// Returns when all that was said so far is written.
    async fn written(&mut self) {
        let (told, written) = oneshot::channel();
        if let Some(out) = &self.out
            && out.send(Said { told: Some(told), ..Said::default() }).await.is_ok()
        {
            let _ = written.await;
        }
    }

    /// The id that a refusal bears; none if it is that of another request, whose answer it would be taken for.
    fn blamed(&self, id: Value) -> Option<RequestId> {
        serde_json::from_value(id).ok().and_then(|id| self.not_pending(id))
    }

    fn not_pending(&self, id: RequestId) -> Option<RequestId> {
        Some(id).filter(|id| !self.pending.has(id))
    }

    /// What a line says, or what is to be answered to it.
    fn read(&self, line: &Line) -> Result<Option<ClientJsonRpcMessage>, Option<Said>> {
        let line = match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => return Ok(None),
            Line::Whole(line) => line,
            Line::TooLong(id) => {
                let (most, id) = (self.longest, id.clone().and_then(|id| self.blamed(id)));
                return Err(refused(ErrorCode::INVALID_REQUEST, format!("a message has {most} bytes at most"), id));
            }
            Line::End => return Ok(None),
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
        // Nobody waits for an answer to a notification, or to an answer.
        let is_awaited = has("id") && !has("result") && !has("error") || !value.is_object();
        serde_json::from_value(value).map(Some).map_err(|_| {
            let words = "no JSON-RPC message: it has `jsonrpc` \"2.0\", an `id` that is a text or a whole number, and a `method`";
            is_awaited.then(|| refused(ErrorCode::INVALID_REQUEST, words.into(), id)).flatten()
        })
    }
}

fn refused(code: ErrorCode, words: String, id: Option<RequestId>) -> Option<Said> {
    let said = Said::new(&ServerJsonRpcMessage::error(ErrorData::new(code, words, None), id)).ok()?;
    // What is refused was never asked; its id may be that of another request.
    Some(Said { answers: None, ..said })
}

impl<R: AsyncRead + Send + Unpin + 'static> Transport<RoleServer> for Lines<R> {
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (said, out) = (Said::new(&message), self.out.clone());
        async move {
            let gone = || io::Error::from(io::ErrorKind::NotConnected);
            out.ok_or_else(gone)?.send(said?).await.map_err(|_| gone())
        }
    }

    /// Never `None`: the one who serves says when all is over, since calls that were begun are still to be answered.
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
                () = self.left.cancelled() => Line::End,
            };
            if line == Line::End {
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
        // A client that reads no more must not keep the process.
        let written = timeout(LAST_WORDS, &mut self.writer).await;
        written.map_err(io::Error::from)?.map_err(io::Error::other)
    }
}

/// Writes what is said, each line in one piece, until nobody can say any more.
async fn write_all(
    mut write: impl AsyncWrite + Unpin,
    mut said: mpsc::Receiver<Said>,
    pending: Pending,
    left: CancellationToken,
) {
    let mut is_broken = false;
    while let Some(Said { line, answers, told }) = said.recv().await {
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
