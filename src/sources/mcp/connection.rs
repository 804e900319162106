//! One connection to a server. It carries calls side by side, until it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientCapabilities, ClientConfig, ClientNotification, ClientRequest, DiscoverRequest,
    DiscoverRequestParams, ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability,
    GetExtensions, Implementation, JsonObject, MetaObject, PingRequest, ProtocolVersion, RequestId,
    RequestMetaObject, ServerResult, SubscriptionFilter,
};
use rmcp::service::{Peer, PeerRequestOptions, RunningService};
use rmcp::{ClientHandler, RoleClient, ServiceError};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::child::Child;
use super::direct::{CallRequest, CalledTool, DirectCalls};
use super::fault::{self, CallFailure};
use super::remote::Remote;
use super::transport_adapter::{AskMark, SharedConnectionState};
use super::{message, result};
use crate::call::{Effect, ToolContext, ToolError, ToolResult};

/// After an abandoned call, a server that sends nothing for this long counts as stuck.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests of one call, whose tool may ask between them.
const MAX_ROUNDS: usize = 10;
/// `_meta` key of the call's id. It is the same for each attempt, so that a server can recognize a
/// repetition.
const IDEMPOTENCY_KEY: &str = "toolcrib/idempotencyKey";
/// `_meta` key of the caller's context, with the fields that the tool takes.
const CONTEXT_KEY: &str = "toolcrib/context";

/// A connection. Dropping it ends it, together with a server process that was started for it.
pub(super) struct Connection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) state: Arc<SharedConnectionState>,
    /// Whether it uses a protocol version without sessions and without `ping`.
    pub(super) is_sessionless: bool,
    pub(super) created_at: Instant,
    name: Arc<str>,
    /// Whether it has answered a call.
    pub(super) has_answered: AtomicBool,
    /// A task is checking whether the server or its session still answers.
    is_probing: AtomicBool,
    /// Whether several calls use it, so that an abandoned call can affect others.
    is_shared: bool,
    /// Tripped when the connection takes no more calls, as when no more messages can come.
    pub(super) draining: CancellationToken,
    /// Why we stopped using it.
    close_reason: Mutex<Option<String>>,
    _subscription: Option<AbortOnDropHandle<()>>,
    // The order of these fields matters: the service is dropped first and closes the server's
    // standard input. A server ends when its standard input is closed.
    service: RunningService<RoleClient, Client>,
    /// Makes the calls of a server with a URL.
    direct: Option<DirectCalls>,
    /// The server's own process.
    pub(super) child: Option<Child>,
    runtime: Handle,
}

impl Connection {
    /// Wraps a finished handshake. Call it within the runtime.
    pub(super) fn new(
        name: Arc<str>,
        service: RunningService<RoleClient, Client>,
        state: Arc<SharedConnectionState>,
        child: Option<Child>,
        remote: Option<Remote>,
        is_shared: bool,
    ) -> Self {
        let peer = service.peer().clone();
        let version = peer.peer_info().map(|info| info.protocol_version.clone());
        let is_sessionless = version
            .as_ref()
            .is_some_and(|version| !version.has_initialize());
        let direct = remote.zip(version).map(|(remote, version)| {
            let session = state.session.lock().clone();
            DirectCalls::new(remote, service.service().get_info(), &version, session)
        });
        Self {
            _subscription: keep_subscribed(&peer, &state, is_sessionless),
            draining: state.closed.child_token(),
            peer,
            state,
            is_sessionless,
            created_at: Instant::now(),
            name,
            has_answered: AtomicBool::new(false),
            is_probing: AtomicBool::new(false),
            is_shared,
            close_reason: Mutex::default(),
            service,
            direct,
            child,
            runtime: Handle::current(),
        }
    }

    /// Calls a tool, and passes its questions on to the caller. Dropping the future tells the server
    /// that the call was cancelled.
    pub(super) async fn call(
        self: &Arc<Self>,
        tool: &CalledTool,
        arguments: &JsonObject,
        context: &ToolContext,
    ) -> Result<ToolResult, CallFailure> {
        let mut request = CallRequest {
            tool,
            arguments,
            answers: None,
            state: None,
            meta: &own_meta(context),
        };
        for _ in 0..MAX_ROUNDS {
            match self.request(&request, context).await? {
                ServerResult::InputRequiredResult(asked) if message::are_forms(&asked) => {
                    request.answers = Some(message::ask(&asked, context).await);
                    request.state = asked.request_state;
                }
                response => {
                    return result::read_response(&self.name, response, context)
                        .map_err(CallFailure::Reported);
                }
            }
        }
        let text = format!("The tool asked for input {MAX_ROUNDS} times, which is the limit.");
        Ok(ToolResult::error(text))
    }

    /// One request of a call, and its response.
    async fn request(
        self: &Arc<Self>,
        request: &CallRequest<'_>,
        context: &ToolContext,
    ) -> Result<ServerResult, CallFailure> {
        if self.is_unusable() {
            return Err(just_closed());
        }
        let response = match &self.direct {
            Some(direct) if direct.can_carry(request.tool, context) => {
                self.request_directly(direct, request, context).await
            }
            _ => Box::pin(self.request_by_sdk(request, context)).await,
        };
        match &response {
            Err(CallFailure::ConnectionLost) => {
                self.runtime.spawn(self.clone().check_session().boxed());
            }
            // Only drain the connection: calls that were sent before may still be answered.
            Err(CallFailure::NotDelivered(reason)) => self.drain(reason),
            Ok(_) | Err(CallFailure::Reported(_)) => {
                self.has_answered.store(true, Ordering::Relaxed);
            }
        }
        response
    }

    async fn request_directly(
        self: &Arc<Self>,
        direct: &DirectCalls,
        request: &CallRequest<'_>,
        context: &ToolContext,
    ) -> Result<ServerResult, CallFailure> {
        let id = direct.next_id();
        // Without sessions, the closed request says that the call was cancelled.
        let mut pending = PendingCall {
            connection: self,
            id: direct.in_session.then(|| id.clone()),
        };
        let response = direct.send(id, request, &self.state, context).await;
        pending.id = None;
        response?.map_err(|error| self.failure(ServiceError::McpError(error), context))
    }

    async fn request_by_sdk(
        self: &Arc<Self>,
        request: &CallRequest<'_>,
        context: &ToolContext,
    ) -> Result<ServerResult, CallFailure> {
        let mut params = CallToolRequestParams::new(request.tool.name.clone());
        params.arguments = Some(request.arguments.clone());
        params.input_responses.clone_from(&request.answers);
        params.request_state.clone_from(&request.state);
        let (in_session, listens) = (!self.is_sessionless, context.has_listener());
        let running =
            (in_session || listens).then(|| self.state.register_call(context, in_session));
        let mut message = CallToolRequest::new(params);
        if context.can_ask() {
            message.extensions_mut().insert(AskMark);
        }
        if let Some(running) = running.as_ref().filter(|_| listens) {
            message.extensions_mut().insert(running.mark());
        }
        let mut options = PeerRequestOptions::no_options();
        if !request.meta.is_empty() {
            options = options.with_meta(RequestMetaObject(MetaObject(request.meta.clone())));
        }
        let message = ClientRequest::CallToolRequest(message);
        let sent = self.peer.send_request_with_option(message, options).await;
        // An error here means that the SDK did not take the request, so the server did not get it.
        // If `handle.rx` fails later, the request may have been sent, and the call may have run.
        let handle = sent.map_err(|_| just_closed())?;
        let mut pending = PendingCall {
            connection: self,
            id: Some(handle.id),
        };
        let response = handle.rx.await;
        pending.id = None;
        drop(running);
        let response = response.map_err(|_| CallFailure::ConnectionLost)?;
        response.map_err(|error| self.failure(error, context))
    }

    fn failure(&self, error: ServiceError, context: &ToolContext) -> CallFailure {
        // A lost session is replaced. This call is not repeated, because its error may be the
        // tool's own.
        if let ServiceError::McpError(error) = &error
            && self.child.is_none()
            && fault::is_session_loss(error)
        {
            self.drain("its session has ended");
        }
        fault::call_failure(&self.name, error, context)
    }

    /// Whether no new call may use it.
    pub(super) fn is_unusable(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Takes no more calls. Running calls go on, and the last of them drops the connection.
    pub(super) fn drain(&self, reason: &str) {
        self.close_reason
            .lock()
            .get_or_insert_with(|| reason.to_owned());
        self.draining.cancel();
    }

    /// Closes the connection. All calls that wait for a response fail at once.
    fn close(&self, reason: &str) {
        self.drain(reason);
        self.service.cancellation_token().cancel();
    }

    /// Why it has ended, as a part of a sentence with the server as subject. Output of the server
    /// from before `since` belongs to other calls, and is left out.
    pub(super) async fn end_reason(&self, since: Option<Instant>) -> String {
        let given_up = self.close_reason.lock().clone();
        if let Some(reason) = given_up.or_else(|| self.state.fault.get().map(ToString::to_string)) {
            return reason;
        }
        let ended = match &self.child {
            Some(child) => child.exit_reason(since).await,
            None => None,
        };
        ended.unwrap_or_else(|| "it closed its connection".into())
    }

    /// The failure of a call that was sent and has no answer. `since` is as for
    /// [`Self::end_reason`].
    pub(super) async fn lost_error(&self, since: Option<Instant>) -> ToolError {
        let (name, reason) = (&self.name, self.end_reason(since).await);
        ToolError::unavailable(format!("the MCP server {name} did not answer: {reason}"))
    }

    /// Ends the connection and waits until its process is gone, even if calls still hold it to read
    /// the reason. With a URL it does nothing, so requests that were sent go on.
    pub(super) async fn terminate(self: Arc<Self>) {
        if let Some(child) = &self.child {
            self.service.cancellation_token().cancel();
            child.terminate().await;
        }
    }

    /// Reports a cancelled call to the server. Then checks that a process still answers, and closes
    /// the connection if not.
    async fn cancel_call(self: Arc<Self>, id: RequestId) {
        let params = CancelledNotificationParam::new(Some(id), None);
        let notified =
            ClientNotification::CancelledNotification(CancelledNotification::new(params));
        let notified = timeout(PROBE_TIMEOUT, self.peer.send_notification(notified));
        if self.child.is_none() {
            let _ = notified.await;
            return self.check_session().await;
        }
        // One check at a time is enough: a single answer proves that the process is not stuck.
        if self.is_probing.swap(true, Ordering::Relaxed) {
            let _ = notified.await;
            return;
        }
        let probe = async {
            let _ = notified.await;
            let request = match self.is_sessionless {
                true => {
                    ClientRequest::DiscoverRequest(DiscoverRequest::new(DiscoverRequestParams {}))
                }
                false => ClientRequest::PingRequest(PingRequest::default()),
            };
            // An error response also proves that the server answers.
            let _ = self.peer.send_request(request).await;
        };
        if timeout(PROBE_TIMEOUT, probe).await.is_err() {
            self.close("it did not respond after a call was cancelled");
        }
        self.is_probing.store(false, Ordering::Relaxed);
    }

    /// Replaces a session that takes requests, and ends their streams without an answer. At some
    /// servers, a cancelled call ends the session like that. A server that is only slow keeps its
    /// session, because other calls use requests of their own.
    async fn check_session(self: Arc<Self>) {
        let is_session = self.child.is_none() && !self.is_sessionless && !self.is_unusable();
        if !is_session || self.is_probing.swap(true, Ordering::Relaxed) {
            return;
        }
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let answer = timeout(PROBE_TIMEOUT, self.peer.send_request(ping)).await;
        if let Ok(Err(ServiceError::TransportClosed | ServiceError::TransportSend(_))) = answer {
            self.drain("its session answers no requests any more");
        }
        self.is_probing.store(false, Ordering::Relaxed);
    }
}

/// A call that waits for its response. Dropping it earlier cancels the call at the server, if the
/// connection is shared. A connection for one call just ends.
struct PendingCall<'a> {
    connection: &'a Arc<Connection>,
    id: Option<RequestId>,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take().filter(|_| self.connection.is_shared) {
            self.connection
                .runtime
                .spawn(self.connection.clone().cancel_call(id).boxed());
        }
    }
}

/// Our own members of `_meta`.
fn own_meta(context: &ToolContext) -> JsonObject {
    let mut meta = JsonObject::new();
    if context.effect() != Effect::Read {
        let key = context.invocation_id.to_string();
        meta.insert(IDEMPOTENCY_KEY.into(), key.into());
    }
    if !context.context.is_empty() {
        let fields = JsonObject::clone(&context.context);
        meta.insert(CONTEXT_KEY.into(), fields.into());
    }
    if let Some(trace) = context.trace() {
        meta.insert("traceparent".into(), trace.traceparent().into());
        let state = trace.tracestate();
        meta.extend(state.map(|state| ("tracestate".into(), state.into())));
    }
    meta
}

fn just_closed() -> CallFailure {
    CallFailure::NotDelivered("its connection has just closed".into())
}

/// The SDK's handler for messages of a server.
pub(super) struct Client {
    /// The version that `initialize` offers. Without `initialize`, each request names its own
    /// version.
    pub version: ProtocolVersion,
}

/// The requests of a server do not come here: `transport_adapter` answers them before.
impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let forms = ElicitationCapability::new().with_form(FormElicitationCapability::default());
        let capabilities = ClientCapabilities::builder()
            .enable_elicitation_with(forms)
            .build();
        ClientConfig::new(capabilities, us).with_protocol_version(self.version.clone())
    }
}

/// Pause before a subscription that has ended is requested again.
const MIN_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause. It doubles with each failed request.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Keeps a subscription, if the server offers one. `transport_adapter` sees its notifications as
/// they come in.
fn keep_subscribed(
    peer: &Peer<RoleClient>,
    state: &Arc<SharedConnectionState>,
    is_sessionless: bool,
) -> Option<AbortOnDropHandle<()>> {
    let tools = peer.peer_info()?.capabilities.tools.clone();
    if !is_sessionless || tools.and_then(|tools| tools.list_changed) != Some(true) {
        return None;
    }
    let (peer, state) = (peer.clone(), state.clone());
    let task = async move {
        let (mut pause, mut was_unsubscribed) = (MIN_PAUSE, false);
        while !state.closed.is_cancelled() {
            match peer
                .listen(SubscriptionFilter::builder().tools_list_changed().build())
                .await
            {
                Ok(mut changes) => {
                    if was_unsubscribed {
                        // Changes during the pause were not reported, so count one.
                        state.note_change();
                    }
                    pause = MIN_PAUSE;
                    while let Ok(Some(_)) = changes.next().await {}
                    // Changes from now on are not reported, so count one.
                    state.note_change();
                }
                Err(error) if is_unsupported(&error) => return,
                Err(_) => {}
            }
            was_unsubscribed = true;
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    };
    Some(AbortOnDropHandle::new(tokio::spawn(task.boxed())))
}

/// Whether the server does not really support subscriptions. Any other failure may pass.
fn is_unsupported(error: &ServiceError) -> bool {
    let ServiceError::McpError(ErrorData { code, .. }) = error else {
        return false;
    };
    [
        ErrorCode::METHOD_NOT_FOUND,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::INVALID_PARAMS,
    ]
    .contains(code)
}
