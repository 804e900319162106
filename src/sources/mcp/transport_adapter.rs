//! A layer between the SDK's client and a transport. It does six things that the SDK leaves open:
//!
//! - It delivers progress in order, and before the response that follows it. The SDK would start a
//!   task for each notification. It sets a progress token only on calls with a listener. The SDK
//!   would set one on each request.
//! - It answers the server's own requests, a few at a time. The SDK would start a task for each
//!   request. A server that reads no responses could then fill the memory with them.
//! - It offers to answer forms in calls whose caller can be asked. In a session a question does not
//!   name its call, so it asks the caller of the only running call.
//! - It reads the answer to `server/discover`: if the answer cannot be used, the SDK gets an error,
//!   so it goes on with `initialize`.
//! - It sends `initialize` early to a process (`early_initialize.rs`).
//! - It drops late responses to `server/discover`. After ten seconds the SDK gives up on that
//!   request and sends `initialize`. A slow server then answers both, and the SDK would take the
//!   first response for a wrong second one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientRequest, ClientResult, CustomResult, ErrorCode,
    ErrorData, GetExtensions, GetMeta, JsonRpcMessage, NumberOrString, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, RequestId, RequestMetaObject, ServerJsonRpcMessage,
    ServerNotification, ServerRequest, ServerResult,
};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::early_initialize::{EarlyInitialize, Step, is_answer};
use super::message::{self, offered_versions};
use super::verified_listing::VerifiedListing;
use crate::call::{JsonObject, QuestionAnswer, ToolContext};

/// Most responses to the server's own requests that are being sent at once. Until one has been
/// sent, nothing is read.
const MAX_PENDING_RESPONSES: usize = 64;
/// A server that reads none of these responses for this long does not read at all.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Most questions of a server that wait for their answers.
pub(super) const MAX_QUESTIONS: usize = 16;
/// A list of tools is not asked for more often than this because of its `ttlMs`. Many servers send
/// 0, which means "do not keep".
const MIN_FRESH: Duration = Duration::from_secs(60);
/// Longest id of a server's own request that is answered, in bytes.
const MAX_ID_BYTES: usize = 256;

/// The state that a connection and its transport share.
#[derive(Default)]
pub(super) struct SharedConnectionState {
    next_token: AtomicI64,
    /// Whether a session offers to answer forms.
    pub offers_forms: bool,
    /// The calls that wait for their response, by their progress tokens.
    running_calls: Mutex<HashMap<i64, RunningCall>>,
    /// Signals that the server's tools have changed, or may have.
    pub tools_changed: Notify,
    /// How long the last list of tools is fresh, if the server says so.
    fresh_for: Mutex<Option<Duration>>,
    /// The definitions that the server has listed over this connection.
    pub verified: VerifiedListing,
    /// Tripped when no more messages can come.
    pub closed: CancellationToken,
    /// Why the transport gave up: a part of a sentence with the server as subject.
    pub fault: OnceCell<&'static str>,
    /// The server has answered `server/discover`, perhaps too late.
    pub is_sessionless: AtomicBool,
    /// The id of the session, if the server has given one.
    pub session: Mutex<Option<Arc<str>>>,
}

/// Marks a request whose progress has a listener. It holds the progress token.
#[derive(Clone)]
pub(super) struct ProgressMark(i64);

/// Marks a call whose caller can be asked.
#[derive(Clone)]
pub(super) struct AskMark;

struct RunningCall {
    context: ToolContext,
    /// Tripped at the end.
    ended: CancellationToken,
    /// Only the server of a session asks with requests of its own.
    in_session: bool,
}

/// The registration of a running call. Dropping it ends the registration.
pub(super) struct CallRegistration<'a> {
    state: &'a SharedConnectionState,
    token: i64,
    _ended: DropGuard,
}

impl SharedConnectionState {
    /// The state of a new connection.
    pub(super) fn new(offers_forms: bool) -> Self {
        Self {
            offers_forms,
            ..Self::default()
        }
    }

    /// Registers a call, so that the server can report progress, and ask its caller in a session.
    pub(super) fn register_call(
        &self,
        context: &ToolContext,
        in_session: bool,
    ) -> CallRegistration<'_> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let ended = CancellationToken::new();
        let call = RunningCall {
            context: context.clone(),
            ended: ended.clone(),
            in_session,
        };
        self.running_calls.lock().insert(token, call);
        CallRegistration {
            state: self,
            token,
            _ended: ended.drop_guard(),
        }
    }

    /// The call to which a question belongs, because it is the only running one, and its caller can
    /// be asked.
    fn only_call(&self) -> Option<(ToolContext, CancellationToken)> {
        let running = self.running_calls.lock();
        let mut calls = running.values().filter(|call| call.in_session);
        match (calls.next(), calls.next()) {
            (Some(call), None) if call.context.can_ask() => {
                Some((call.context.clone(), call.ended.clone()))
            }
            _ => None,
        }
    }

    /// Notes that the server's tools may have changed. Earlier listings no longer permit a pinned
    /// call.
    pub(super) fn note_change(&self) {
        self.verified.note_change();
        self.tools_changed.notify_one();
    }

    /// Notes how long the list is fresh that the server has just sent.
    pub(super) fn set_fresh_for(&self, fresh_for: Option<Duration>) {
        *self.fresh_for.lock() = fresh_for.map(|time| time.max(MIN_FRESH));
    }

    /// Waits until the last list of tools is no longer fresh. Waits forever if the server does not
    /// say how long that is.
    pub(super) async fn wait_until_stale(&self) {
        let fresh_for = *self.fresh_for.lock();
        match fresh_for {
            Some(time) => sleep(time).await,
            None => std::future::pending().await,
        }
    }

    fn forward_progress(&self, progress: ProgressNotificationParam) {
        let NumberOrString::Number(token) = progress.progress_token.0 else {
            return;
        };
        let running = self.running_calls.lock();
        let call = running.get(&token);
        let context = call.map(|call| call.context.clone());
        drop(running);
        if let Some(context) = context.filter(ToolContext::has_listener) {
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

impl CallRegistration<'_> {
    /// The mark for a request whose progress has a listener.
    pub(super) fn mark(&self) -> ProgressMark {
        ProgressMark(self.token)
    }
}

impl Drop for CallRegistration<'_> {
    fn drop(&mut self) {
        self.state.running_calls.lock().remove(&self.token);
    }
}

/// The transport, with what this layer adds.
pub(super) struct TransportAdapter<T> {
    inner: T,
    state: Arc<SharedConnectionState>,
    /// The id of the `server/discover` request, after it was sent.
    discover_id: Option<RequestId>,
    /// The SDK has given up on that request.
    discover_abandoned: bool,
    early: Box<EarlyInitialize>,
    /// Questions of the server that wait for their answers.
    questions: JoinSet<ClientJsonRpcMessage>,
    /// Responses that are being sent.
    pending_responses: JoinSet<()>,
    /// When one of them must have been sent, while their number is at its limit.
    send_deadline: Option<Instant>,
    _close_on_drop: DropGuard,
}

impl<T: Transport<RoleClient>> TransportAdapter<T> {
    /// Wraps this transport.
    pub(super) fn new(
        inner: T,
        state: &Arc<SharedConnectionState>,
        early: Box<EarlyInitialize>,
    ) -> Self {
        let close_on_drop = state.closed.clone().drop_guard();
        Self {
            inner,
            state: state.clone(),
            discover_id: None,
            discover_abandoned: false,
            early,
            questions: JoinSet::new(),
            pending_responses: JoinSet::new(),
            send_deadline: None,
            _close_on_drop: close_on_drop,
        }
    }

    fn prepare_outgoing(&mut self, message: &mut ClientJsonRpcMessage) {
        let JsonRpcMessage::Request(message) = message else {
            return;
        };
        match &mut message.request {
            ClientRequest::DiscoverRequest(_) => {
                self.discover_id = Some(message.id.clone());
                self.early.note_discovery();
            }
            ClientRequest::InitializeRequest(request) => {
                self.discover_abandoned = true;
                if !self.state.offers_forms {
                    request.params.capabilities = ClientCapabilities::default();
                }
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
                let found = match &response.result {
                    ServerResult::DiscoverResult(found) => Ok(&*found.supported_versions),
                    _ => Err("its answer to server/discover is not one"),
                };
                let refusal = found.and_then(check_versions).err();
                if refusal.is_none() {
                    self.state.is_sessionless.store(true, Ordering::Relaxed);
                }
                let id = Some(&response.id);
                if self.is_late_discover_response(id) {
                    return None;
                }
                let refusal = refusal.filter(|_| self.answers_discover(id));
                Some(match refusal {
                    Some(reason) => not_discovered(reason.into(), Some(response.id)),
                    None => JsonRpcMessage::Response(response),
                })
            }
            JsonRpcMessage::Error(error) => {
                let id = error.id.as_ref();
                if self.is_late_discover_response(id) {
                    return None;
                }
                let is_refusal = self.answers_discover(id)
                    && (error.error.code != ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
                        || check_versions(&offered_versions(&error.error)).is_err());
                Some(if is_refusal {
                    not_discovered(error.error.message, error.id)
                } else {
                    JsonRpcMessage::Error(error)
                })
            }
            JsonRpcMessage::Request(message) => {
                self.respond(&message.request, message.id);
                None
            }
        }
    }

    /// Answers a request of the server. `ping` is permitted, and a form if the session offers that.
    /// We offer no sampling, no roots and no URLs.
    fn respond(&mut self, request: &ServerRequest, id: RequestId) {
        match ServerQuestion::read(request, id, self.state.offers_forms) {
            ServerQuestion::Form(form) => {
                let call = self.state.only_call();
                let call = call.filter(|_| self.questions.len() < MAX_QUESTIONS);
                self.questions.spawn(form.answer(call));
            }
            ServerQuestion::Other(answer) => self.send_ourselves(*answer),
            ServerQuestion::Ignored => {}
        }
    }

    /// Sends a message that the SDK does not send.
    fn send_ourselves(&mut self, response: ClientJsonRpcMessage) {
        let sent = self.inner.send(response);
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

    /// Whether this is the id of the `server/discover` request of the handshake.
    fn answers_discover(&self, id: Option<&RequestId>) -> bool {
        self.discover_id
            .as_ref()
            .is_some_and(|own| is_answer(own, id))
    }

    fn is_late_discover_response(&self, id: Option<&RequestId>) -> bool {
        self.discover_abandoned && self.answers_discover(id)
    }
}

/// A request of a server, as far as it is answered.
pub(super) enum ServerQuestion {
    /// A form for the caller of a call.
    Form(Form),
    /// Any other request, which has this answer.
    Other(Box<ClientJsonRpcMessage>),
    /// A request with an id that is too long.
    Ignored,
}

/// A form that a server asks for.
pub(super) struct Form {
    id: RequestId,
    message: String,
    schema: Option<Value>,
}

impl ServerQuestion {
    /// Reads a request. Only a session may offer to answer forms.
    pub(super) fn read(request: &ServerRequest, id: RequestId, offers_forms: bool) -> Self {
        if matches!(&id, NumberOrString::String(id) if id.len() > MAX_ID_BYTES) {
            return Self::Ignored;
        }
        if offers_forms && let Some((message, schema)) = read_form(request) {
            return Self::Form(Form {
                id,
                message,
                schema,
            });
        }
        if matches!(request, ServerRequest::PingRequest(_)) {
            let answer = JsonRpcMessage::response(ClientResult::empty(()), id);
            return Self::Other(Box::new(answer));
        }
        let text = "this client answers only `ping`";
        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None);
        Self::Other(Box::new(JsonRpcMessage::error(error, Some(id))))
    }
}

impl Form {
    /// The answer of the caller of `call`, until the call has ended. Without a call, the question
    /// is cancelled.
    pub(super) async fn answer(
        self,
        call: Option<(ToolContext, CancellationToken)>,
    ) -> ClientJsonRpcMessage {
        let name = self.id.to_string();
        let answer = match call {
            Some((context, ended)) => tokio::select! {
                answer = message::ask_form(&self.message, self.schema, &name, &context) => answer,
                () = ended.cancelled() => QuestionAnswer::Cancel,
            },
            None => QuestionAnswer::Cancel,
        };
        let result = ClientResult::CustomResult(CustomResult(json!(answer)));
        JsonRpcMessage::response(result, self.id)
    }
}

/// The message and the schema of a form that a server asks for. It is read leniently: the SDK's type
/// refuses schemas that the caller's client may know.
fn read_form(request: &ServerRequest) -> Option<(String, Option<Value>)> {
    let mut request = serde_json::to_value(request).ok()?;
    let mode = request.pointer("/params/mode");
    let is_form =
        request["method"] == "elicitation/create" && mode.is_none_or(|mode| mode == "form");
    let params = request.get_mut("params").filter(|_| is_form)?;
    let message = params["message"].as_str()?.to_owned();
    Some((message, params.get_mut("requestedSchema").map(Value::take)))
}

/// Checks whether a server with these versions needs no `initialize`. Versions that this service
/// does not know at all pass too, because the SDK explains them.
///
/// # Errors
/// A part of a sentence with the server as subject.
fn check_versions(supported: &[ProtocolVersion]) -> Result<(), &'static str> {
    let is_known = |version: &ProtocolVersion| ProtocolVersion::KNOWN_VERSIONS.contains(version);
    let is_usable = supported.contains(&ProtocolVersion::LATEST)
        || !(supported.is_empty() || supported.iter().any(is_known));
    is_usable
        .then_some(())
        .ok_or("it supports only versions with `initialize`")
}

/// The error on which the SDK goes on with `initialize`.
fn not_discovered(reason: Cow<'static, str>, id: Option<RequestId>) -> ServerJsonRpcMessage {
    JsonRpcMessage::error(
        ErrorData::new(ErrorCode::METHOD_NOT_FOUND, reason, None),
        id,
    )
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for TransportAdapter<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.prepare_outgoing(&mut message);
        let is_sent = self.early.replaces(&message);
        let sending = (!is_sent).then(|| self.inner.send(message));
        async move {
            match sending {
                Some(sending) => sending.await,
                None => Ok(()),
            }
        }
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
            if let Some(answer) = self.early.take_answer() {
                return Some(answer);
            }
            let awaits_discovery = self.discover_id.is_some()
                && !self.discover_abandoned
                && !self.state.is_sessionless.load(Ordering::Relaxed);
            let message = tokio::select! {
                message = self.inner.receive() => message?,
                Some(Ok(answer)) = self.questions.join_next() => {
                    self.send_ourselves(answer);
                    continue;
                }
                step = self.early.next_step(), if awaits_discovery => match step {
                    Step::Send(request) => {
                        self.send_ourselves(*request);
                        continue;
                    }
                    Step::GiveUp => {
                        self.discover_abandoned = true;
                        let reason = "it does not answer server/discover".into();
                        return Some(not_discovered(reason, self.discover_id.clone()));
                    }
                },
            };
            let message = self.early.keep_answer(message);
            if let Some(message) = message.and_then(|message| self.filter_incoming(message)) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
