//! Stands between the SDK's client and a transport, and does what the SDK leaves open.
//!
//! - Progress is handed on in the order it came in, and before the answer that follows it: the SDK starts a task for each
//!   notification. A request carries a progress token only if somebody listens; the SDK puts one on each.
//! - What the server asks of us is answered here, a few answers at a time: the SDK starts a task for each request, and a
//!   server that reads none of the answers would fill the memory with them.
//! - The SDK gives up on `server/discover` after ten seconds and goes on with `initialize`. A server that was slow to start
//!   then answers both, and the first answer would be taken for a wrong one to the second.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ClientResult, ErrorCode, ErrorData, GetExtensions, GetMeta, JsonRpcMessage,
    NumberOrString, ProgressNotificationParam, ProgressToken, RequestId, RequestMetaObject, ServerJsonRpcMessage,
    ServerNotification, ServerRequest, ServerResult,
};
use rmcp::transport::Transport;
use serde_json::json;
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::said::SaidOf;
use crate::call::{JsonObject, ToolContext};

/// Answers to what a server asks that may be on their way at once. Until one has arrived nothing more is heard.
const MOST_ANSWERS: usize = 64;
/// A server that reads none of them for so long reads nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest id of a server's own request that is repeated in an answer, in bytes.
const LONGEST_ID: usize = 256;

/// What a connection and its transport share.
#[derive(Default)]
pub(super) struct Line {
    listeners: Mutex<HashMap<i64, ToolContext>>,
    last: AtomicI64,
    /// The server says that its tools are others, or may have said it.
    pub changed: Notify,
    /// What it has said that they are.
    pub said: SaidOf,
    /// Nothing will be said any more.
    pub over: CancellationToken,
    /// Why that is so, if the transport has had enough: a part of a sentence whose subject is the server.
    pub fault: OnceCell<&'static str>,
    /// It has answered `server/discover`, perhaps too late.
    pub is_modern: AtomicBool,
}

/// On a request whose progress somebody wants to hear: the token.
#[derive(Clone)]
pub(super) struct Watched(i64);

/// A listener; dropped, it hears no more.
pub(super) struct Listening<'a> {
    line: &'a Line,
    token: i64,
}

impl Line {
    /// Its tools are others, or may be: from here on no call is judged by what it has said before.
    pub(super) fn has_changed(&self) {
        self.said.has_changed();
        self.changed.notify_one();
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<i64, ToolContext>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the call's listener, if it has one, what the server says of its progress.
    pub(super) fn listen(&self, context: &ToolContext) -> Option<Listening<'_>> {
        if !context.is_watched() {
            return None;
        }
        let token = self.last.fetch_add(1, Ordering::Relaxed);
        self.listeners().insert(token, context.clone());
        Some(Listening { line: self, token })
    }

    fn heard(&self, progress: ProgressNotificationParam) {
        let NumberOrString::Number(token) = progress.progress_token.0 else { return };
        let context = self.listeners().get(&token).cloned();
        if let Some(context) = context {
            let mut data = JsonObject::from_iter([("progress".into(), json!(progress.progress))]);
            data.extend(progress.total.map(|total| ("total".into(), json!(total))));
            data.extend(progress.message.map(|message| ("message".into(), json!(message))));
            context.progress(data);
        }
    }
}

impl Listening<'_> {
    /// What is to be put on the request.
    pub(super) fn mark(&self) -> Watched {
        Watched(self.token)
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.line.listeners().remove(&self.token);
    }
}

/// See the module.
pub(super) struct Tap<T> {
    inner: T,
    line: std::sync::Arc<Line>,
    /// The request `server/discover`, when it was sent.
    discover: Option<RequestId>,
    /// It is not waited for any more.
    given_up: bool,
    /// Answers on their way.
    answers: JoinSet<()>,
    /// When one of them must have arrived, while they are as many as may be.
    due: Option<Instant>,
    _over: DropGuard,
}

impl<T: Transport<RoleClient>> Tap<T> {
    /// Around this transport.
    pub(super) fn new(inner: T, line: &std::sync::Arc<Line>) -> Self {
        let over = line.over.clone().drop_guard();
        let answers = JoinSet::new();
        Self { inner, line: line.clone(), discover: None, given_up: false, answers, due: None, _over: over }
    }

    fn outgoing(&mut self, message: &mut ClientJsonRpcMessage) {
        let JsonRpcMessage::Request(message) = message else { return };
        match &message.request {
            ClientRequest::DiscoverRequest(_) => self.discover = Some(message.id.clone()),
            ClientRequest::InitializeRequest(_) => self.given_up = true,
            _ => {}
        }
        let extensions = message.request.extensions_mut();
        let watched = extensions.remove::<Watched>();
        let Some(meta) = extensions.get_mut::<RequestMetaObject>() else { return };
        match watched {
            Some(Watched(token)) => meta.set_progress_token(ProgressToken(NumberOrString::Number(token))),
            None => {
                meta.0.0.remove("progressToken");
            }
        }
        if message.request.get_meta().0.0.is_empty() {
            message.request.extensions_mut().remove::<RequestMetaObject>();
        }
    }

    /// What the SDK is to hear.
    fn incoming(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        match message {
            JsonRpcMessage::Notification(notification) => match notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    self.line.heard(progress.params);
                    None
                }
                // What it logs it says on its standard error as well, or to its own operator.
                ServerNotification::LoggingMessageNotification(_) => None,
                ServerNotification::ToolListChangedNotification(_) => {
                    self.line.has_changed();
                    Some(JsonRpcMessage::Notification(notification))
                }
                _ => Some(JsonRpcMessage::Notification(notification)),
            },
            JsonRpcMessage::Response(response) => {
                if matches!(response.result, ServerResult::DiscoverResult(_)) {
                    self.line.is_modern.store(true, Ordering::Relaxed);
                }
                (!self.is_late(Some(&response.id))).then_some(JsonRpcMessage::Response(response))
            }
            JsonRpcMessage::Error(error) => (!self.is_late(error.id.as_ref())).then_some(JsonRpcMessage::Error(error)),
            JsonRpcMessage::Request(asked) => {
                self.answer(&asked.request, asked.id);
                None
            }
        }
    }

    /// Answers a ping. For sampling, elicitation and roots a server must not ask, since we offer none of them.
    fn answer(&mut self, asked: &ServerRequest, id: RequestId) {
        if matches!(&id, NumberOrString::String(id) if id.len() > LONGEST_ID) {
            return;
        }
        let sent = self.inner.send(match asked {
            ServerRequest::PingRequest(_) => JsonRpcMessage::response(ClientResult::empty(()), id),
            _ => {
                let no = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client answers nothing but ping", None);
                JsonRpcMessage::error(no, Some(id))
            }
        });
        self.answers.spawn(async move {
            // Who is gone needs none.
            let _ = sent.await;
        });
    }

    /// Waits until one more answer may be on its way; false if the server does not read. Dropping the future loses
    /// nothing.
    async fn has_room(&mut self) -> bool {
        while self.answers.try_join_next().is_some() {}
        if self.answers.len() >= MOST_ANSWERS {
            let due = *self.due.get_or_insert_with(|| Instant::now() + PATIENCE);
            if timeout_at(due, self.answers.join_next()).await.is_err() {
                return false;
            }
        }
        self.due = None;
        true
    }

    fn is_late(&self, id: Option<&RequestId>) -> bool {
        self.given_up && id.is_some() && id == self.discover.as_ref()
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.outgoing(&mut message);
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if !self.has_room().await {
                let _ = self.line.fault.set("it asks again and again and reads no answer");
                return None;
            }
            let message = self.inner.receive().await?;
            if let Some(message) = self.incoming(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
