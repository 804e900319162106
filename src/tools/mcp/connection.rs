//! One connection to a server: calls go over it side by side, until it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam, ClientNotification,
    ClientRequest, DiscoverRequest, DiscoverRequestParams, GetExtensions, JsonObject, PingRequest, RequestId,
    RequestMetaObject,
};
use rmcp::service::{Peer, PeerRequestOptions, RunningService};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::child::Child;
use super::client::Client;
use super::fault::{self, Failed};
use super::result;
use super::tap::Line;
use crate::call::{Effect, ToolContext, ToolResult};

/// After a call that was given up, a server that says nothing for so long is taken for stuck.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where the call's own id goes: the same for every try, so that a server can tell a repetition.
const IDEMPOTENCY_KEY: &str = "toolcrib/idempotencyKey";
/// Where those fields of the caller's context go that the tool takes.
const CONTEXT: &str = "toolcrib/context";

/// A connection. Dropped, it ends, with the server if that was started for it.
pub(super) struct Connection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) line: Arc<Line>,
    /// It speaks the version without sessions, and without `ping`.
    pub(super) is_modern: bool,
    pub(super) born: Instant,
    name: Arc<str>,
    has_answered: AtomicBool,
    /// Somebody is finding out whether it still says anything.
    is_watched: AtomicBool,
    /// Others may call over it: what one call leaves behind concerns them.
    is_shared: bool,
    /// It takes no more calls.
    retired: CancellationToken,
    /// Why we have given it up.
    condemned: Mutex<Option<String>>,
    _subscription: Option<AbortOnDropHandle<()>>,
    // In this order: a server ends when its standard input does.
    service: RunningService<RoleClient, Client>,
    child: Option<Child>,
    runtime: Handle,
}

impl Connection {
    /// What came of a handshake. Within the runtime.
    pub(super) fn new(
        name: Arc<str>,
        service: RunningService<RoleClient, Client>,
        line: Arc<Line>,
        child: Option<Child>,
        is_shared: bool,
    ) -> Self {
        let peer = service.peer().clone();
        let is_modern = peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize());
        Self {
            _subscription: super::subscription::follow(&peer, &line, is_modern),
            peer,
            line,
            is_modern,
            born: Instant::now(),
            name,
            has_answered: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            is_shared,
            retired: CancellationToken::new(),
            condemned: Mutex::default(),
            service,
            child,
            runtime: Handle::current(),
        }
    }

    /// Calls a tool. Dropping the future tells the server that nobody waits any more.
    pub(super) async fn call(
        self: &Arc<Self>,
        tool: &str,
        arguments: &JsonObject,
        context: &ToolContext,
    ) -> Result<ToolResult, Failed> {
        if self.is_of_no_use() {
            return Err(Failed::NotBegun("it has just gone".into()));
        }
        let listening = self.line.listen(context);
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = Some(arguments.clone());
        let mut request = CallToolRequest::new(params);
        if let Some(listening) = &listening {
            request.extensions_mut().insert(listening.mark());
        }
        let sent = self.peer.send_request_with_option(ClientRequest::CallToolRequest(request), options(context)).await;
        let Ok(handle) = sent else { return Err(Failed::NotBegun("it has just gone".into())) };
        let asked = Asked { connection: self, id: Some(handle.id) };
        let answer = handle.rx.await;
        asked.answered();
        drop(listening);
        let Ok(answer) = answer else { return Err(Failed::Lost) };
        let answer = answer.map_err(|error| fault::of_call(&self.name, error, context));
        match &answer {
            Err(Failed::Lost) => {}
            // What was sent before may still be answered.
            Err(Failed::NotBegun(why)) => self.retire(why),
            Ok(_) | Err(Failed::Said(_)) => self.has_answered.store(true, Ordering::Relaxed),
        }
        result::of(&self.name, answer?, context).map_err(Failed::Said)
    }

    /// Whether it has answered a call.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Whether it has a process of its own.
    pub(super) fn has_process(&self) -> bool {
        self.child.is_some()
    }

    /// Whether no call should begin on it any more.
    pub(super) fn is_of_no_use(&self) -> bool {
        self.line.over.is_cancelled() || self.retired.is_cancelled()
    }

    /// Ends when that is so.
    pub(super) async fn until_of_no_use(&self) {
        tokio::select! {
            () = self.line.over.cancelled() => {}
            () = self.retired.cancelled() => {}
        }
    }

    /// Takes no more calls. Those on it go on, and the last of them ends it.
    pub(super) fn retire(&self, why: &str) {
        self.condemned().get_or_insert_with(|| why.to_owned());
        self.retired.cancel();
    }

    /// Ends it: all that wait for answers are told at once.
    fn condemn(&self, why: &str) {
        self.retire(why);
        self.service.cancellation_token().cancel();
    }

    /// Why it has ended: a part of a sentence whose subject is the server.
    pub(super) async fn why(&self) -> String {
        let given_up = self.condemned().clone();
        if let Some(why) = given_up.or_else(|| self.line.fault.get().map(ToString::to_string)) {
            return why;
        }
        let ended = match &self.child {
            Some(child) => child.ended().await,
            None => None,
        };
        ended.unwrap_or_else(|| "it closed its connection".into())
    }

    /// Ends it and waits until its process is gone, even if calls still look at why. By URL what was sent goes on.
    pub(super) async fn end(self: Arc<Self>) {
        if let Some(child) = &self.child {
            self.service.cancellation_token().cancel();
            child.end().await;
        }
    }

    fn condemned(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.condemned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the server that nobody waits for this any more. A process that then says nothing at all is stuck, and ends.
    async fn give_up(self: Arc<Self>, id: RequestId) {
        let params = CancelledNotificationParam::new(Some(id), None);
        let told = ClientNotification::CancelledNotification(CancelledNotification::new(params));
        let told = timeout(PATIENCE, self.peer.send_notification(told));
        if self.child.is_none() || self.is_watched.swap(true, Ordering::Relaxed) {
            let _ = told.await;
            return;
        }
        let says_something = async {
            let _ = told.await;
            let question = match self.is_modern {
                true => ClientRequest::DiscoverRequest(DiscoverRequest::new(DiscoverRequestParams {})),
                false => ClientRequest::PingRequest(PingRequest::default()),
            };
            // An error is an answer, too.
            let _ = self.peer.send_request(question).await;
        };
        if timeout(PATIENCE, says_something).await.is_err() {
            self.condemn("it said nothing any more after a call that was given up");
        }
        self.is_watched.store(false, Ordering::Relaxed);
    }
}

/// A call that waits for its answer. Dropped before, it is given up.
struct Asked<'a> {
    connection: &'a Arc<Connection>,
    id: Option<RequestId>,
}

impl Asked<'_> {
    fn answered(mut self) {
        self.id = None;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take().filter(|_| self.connection.is_shared) {
            self.connection.runtime.spawn(self.connection.clone().give_up(id));
        }
    }
}

fn options(context: &ToolContext) -> PeerRequestOptions {
    if context.effect() == Effect::Read && context.trace().is_none() && context.context.is_empty() {
        return PeerRequestOptions::no_options();
    }
    let mut meta = RequestMetaObject::new();
    if context.effect() != Effect::Read {
        meta.0.0.insert(IDEMPOTENCY_KEY.into(), Value::from(context.invocation_id.to_string()));
    }
    if !context.context.is_empty() {
        meta.0.0.insert(CONTEXT.into(), Value::Object(JsonObject::clone(&context.context)));
    }
    if let Some(trace) = context.trace() {
        meta.0.0.insert("traceparent".into(), trace.traceparent().into());
        meta.0.0.extend(trace.tracestate().map(|state| ("tracestate".into(), state.into())));
    }
    PeerRequestOptions::no_options().with_meta(meta)
}
