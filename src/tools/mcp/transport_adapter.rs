//! A layer between the SDK's client and a transport. It does four things that the SDK leaves open:
//!
//! - It delivers progress in order, and before the response that follows it. The SDK would start a
//!   task for each notification. It sets a progress token only on calls with a listener. The SDK
//!   would set one on each request.
//! - It answers the server's own requests, a few at a time. The SDK would start a task for each
//!   request. A server that reads no responses could then fill the memory with them.
//! - It offers to answer forms only in calls whose caller can be asked, and in no session.
//! - It drops late responses to `server/discover`. After ten seconds the SDK gives up on that
//!   request and sends `initialize`. A slow server then answers both, and the SDK would take the
//!   first response for a wrong second one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientRequest, ClientResult, ErrorCode, ErrorData,
    GetExtensions, GetMeta, JsonRpcMessage, NumberOrString, ProgressNotificationParam,
    ProgressToken, RequestId, RequestMetaObject, ServerJsonRpcMessage, ServerNotification,
    ServerRequest, ServerResult,
};
use rmcp::transport::Transport;
use serde_json::json;
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::verified_listing::VerifiedListing;
use crate::call::{JsonObject, ToolContext};

/// Most responses to the server's own requests that are being sent at once. Until one has been
/// sent, nothing is read.
const MAX_PENDING_RESPONSES: usize = 64;
/// A server that reads none of these responses for this long does not read at all.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest id of a server's own request that is answered, in bytes.
const MAX_ID_BYTES: usize = 256;

/// The state that a connection and its transport share.
#[derive(Default)]
pub(super) struct SharedConnectionState {
    listeners: Mutex<HashMap<i64, ToolContext>>,
    next_token: AtomicI64,
    /// Signals that the server's tools have changed, or may have.
    pub tools_changed: Notify,
    /// The definitions that the server has listed over this connection.
    pub verified: VerifiedListing,
    /// Tripped when no more messages can come.
    pub closed: CancellationToken,
    /// Why the transport gave up: a part of a sentence with the server as subject.
    pub fault: OnceCell<&'static str>,
    /// The server has answered `server/discover`, perhaps too late.
    pub is_sessionless: AtomicBool,
}

/// Marks a request whose progress has a listener. It holds the progress token.
#[derive(Clone)]
pub(super) struct ProgressMark(i64);

/// Marks a call whose caller can be asked.
#[derive(Clone)]
pub(super) struct AskMark;

/// The registration of a listener. Dropping it ends the registration.
pub(super) struct ProgressListener<'a> {
    state: &'a SharedConnectionState,
    token: i64,
}

impl SharedConnectionState {
    /// Notes that the server's tools may have changed. Earlier listings no longer permit a pinned
    /// call.
    pub(super) fn note_change(&self) {
        self.verified.note_change();
        self.tools_changed.notify_one();
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<i64, ToolContext>> {
        self.listeners.lock()
    }

    /// Registers the call for progress of the server. `None`: the call has no listener.
    pub(super) fn register_listener(&self, context: &ToolContext) -> Option<ProgressListener<'_>> {
        if !context.has_listener() {
            return None;
        }
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        self.listeners().insert(token, context.clone());
        Some(ProgressListener { state: self, token })
    }

    fn forward_progress(&self, progress: ProgressNotificationParam) {
        let NumberOrString::Number(token) = progress.progress_token.0 else {
            return;
        };
        let context = self.listeners().get(&token).cloned();
        if let Some(context) = context {
            let mut data = JsonObject::from_iter([("progress".into(), json!(progress.progress))]);
            data.extend(progress.total.map(|total| ("total".into(), json!(total))));
            data.extend(
                progress
                    .message
                    .map(|message| ("message".into(), json!(message))),
            );
            context.progress(data);
        }
    }
}

impl ProgressListener<'_> {
    /// The mark for the request.
    pub(super) fn mark(&self) -> ProgressMark {
        ProgressMark(self.token)
    }
}

impl Drop for ProgressListener<'_> {
    fn drop(&mut self) {
        self.state.listeners().remove(&self.token);
    }
}

/// The transport, with what this layer adds.
pub(super) struct TransportAdapter<T> {
    inner: T,
    state: std::sync::Arc<SharedConnectionState>,
    /// The id of the `server/discover` request, after it was sent.
    discover_id: Option<RequestId>,
    /// The SDK has given up on that request.
    discover_abandoned: bool,
    /// Responses that are being sent.
    pending_responses: JoinSet<()>,
    /// When one of them must have been sent, while their number is at its limit.
    send_deadline: Option<Instant>,
    _close_on_drop: DropGuard,
}

impl<T: Transport<RoleClient>> TransportAdapter<T> {
    /// Wraps this transport.
    pub(super) fn new(inner: T, state: &std::sync::Arc<SharedConnectionState>) -> Self {
        let close_on_drop = state.closed.clone().drop_guard();
        let pending_responses = JoinSet::new();
        Self {
            inner,
            state: state.clone(),
            discover_id: None,
            discover_abandoned: false,
            pending_responses,
            send_deadline: None,
            _close_on_drop: close_on_drop,
        }
    }

    fn prepare_outgoing(&mut self, message: &mut ClientJsonRpcMessage) {
        let JsonRpcMessage::Request(message) = message else {
            return;
        };
        match &mut message.request {
            ClientRequest::DiscoverRequest(_) => self.discover_id = Some(message.id.clone()),
            ClientRequest::InitializeRequest(request) => {
                self.discover_abandoned = true;
                // A question in a session does not name its call.
                request.params.capabilities = ClientCapabilities::default();
            }
            _ => {}
        }
        let extensions = message.request.extensions_mut();
        let mark = extensions.remove::<ProgressMark>();
        let can_ask = extensions.remove::<AskMark>().is_some();
        let Some(meta) = extensions.get_mut::<RequestMetaObject>() else {
            return;
        };
        if !can_ask && meta.client_capabilities().is_some() {
            meta.set_client_capabilities(ClientCapabilities::default());
        }
        match mark {
            Some(ProgressMark(token)) => {
                meta.set_progress_token(ProgressToken(NumberOrString::Number(token)));
            }
            None => {
                meta.0.0.remove("progressToken");
            }
        }
        if message.request.get_meta().0.0.is_empty() {
            message
                .request
                .extensions_mut()
                .remove::<RequestMetaObject>();
        }
    }

    /// Returns the message if the SDK is to get it.
    fn filter_incoming(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        match message {
            JsonRpcMessage::Notification(notification) => match notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    self.state.forward_progress(progress.params);
                    None
                }
                // Drop log messages. A server also logs to its standard error, or to its own
                // operator.
                ServerNotification::LoggingMessageNotification(_) => None,
                ServerNotification::ToolListChangedNotification(_) => {
                    self.state.note_change();
                    Some(JsonRpcMessage::Notification(notification))
                }
                _ => Some(JsonRpcMessage::Notification(notification)),
            },
            JsonRpcMessage::Response(response) => {
                if matches!(response.result, ServerResult::DiscoverResult(_)) {
                    self.state.is_sessionless.store(true, Ordering::Relaxed);
                }
                (!self.is_late_discover_response(Some(&response.id)))
                    .then_some(JsonRpcMessage::Response(response))
            }
            JsonRpcMessage::Error(error) => (!self.is_late_discover_response(error.id.as_ref()))
                .then_some(JsonRpcMessage::Error(error)),
            JsonRpcMessage::Request(message) => {
                self.respond(&message.request, message.id);
                None
            }
        }
    }

    /// Answers a request of the server. Only `ping` is permitted: we offer no sampling, elicitation
    /// or roots.
    fn respond(&mut self, request: &ServerRequest, id: RequestId) {
        if matches!(&id, NumberOrString::String(id) if id.len() > MAX_ID_BYTES) {
            return;
        }
        let sent = self.inner.send(match request {
            ServerRequest::PingRequest(_) => JsonRpcMessage::response(ClientResult::empty(()), id),
            _ => {
                let error = ErrorData::new(
                    ErrorCode::METHOD_NOT_FOUND,
                    "this client answers only `ping`",
                    None,
                );
                JsonRpcMessage::error(error, Some(id))
            }
        });
        self.pending_responses.spawn(async move {
            // If the server is gone, it needs no response.
            let _ = sent.await;
        });
    }

    /// Waits until one more response may be sent. False if the server does not read. Dropping the
    /// future loses nothing.
    async fn wait_for_room(&mut self) -> bool {
        while self.pending_responses.try_join_next().is_some() {}
        if self.pending_responses.len() >= MAX_PENDING_RESPONSES {
            let deadline = *self
                .send_deadline
                .get_or_insert_with(|| Instant::now() + SEND_TIMEOUT);
            if timeout_at(deadline, self.pending_responses.join_next())
                .await
                .is_err()
            {
                return false;
            }
        }
        self.send_deadline = None;
        true
    }

    fn is_late_discover_response(&self, id: Option<&RequestId>) -> bool {
        self.discover_abandoned && id.is_some() && id == self.discover_id.as_ref()
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for TransportAdapter<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.prepare_outgoing(&mut message);
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            // Wait for room before reading the next message. So a server that sends requests
            // without reading responses cannot make this service queue more than
            // `MAX_PENDING_RESPONSES` of them.
            if !self.wait_for_room().await {
                let _ = self
                    .state
                    .fault
                    .set("it sent requests and read no responses");
                return None;
            }
            let message = self.inner.receive().await?;
            if let Some(message) = self.filter_incoming(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
