//! Answers MCP's requests, on any transport and in every version.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult,
    DiscoverResult, ErrorCode, Extensions, Implementation, InputResponses, ListToolsResult,
    MetaObject, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
    SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::approval::{Way, ask_in_session, takes_forms};
use super::approval_rounds::{Asked, Round};
use super::call::{PrepareError, PreparedCall, prepare_call};
use super::content::{Reply, SERVER_INFO, server_info};
use super::failure::JsonRpcFailure;
use super::list::ToolLists;
use super::peer::McpPeer;
use super::progress::ProgressForwarder;
use super::questions;
use super::request_state::StateScope;
use super::subscribers::ListSnapshot;
use crate::call::Selection;
use crate::call::{Answer, CallError, Caller, Invocation, ProgressSink, QuestionSink};
use crate::catalog::registry::Registry;
use crate::catalog::{Catalog, Entry};
use crate::tracking::questions::AskingCall;

/// The supported protocol versions, oldest first.
pub const VERSIONS: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];

/// How long clients may keep a list, in milliseconds. Clients that listen are notified sooner.
const LIST_TTL_MS: u64 = 60_000;

/// The params that `initialize` needs, for the error text when they cannot be read.
pub const INITIALIZE_PARAMS: &str =
    "params must have protocolVersion, capabilities, and clientInfo with name and version";

const INSTRUCTIONS: &str =
    "Call the tools that are listed. A result with isError says what to do next.";

/// The tools of one registry as an MCP server. Clones are the same server.
#[derive(Clone)]
pub struct Handler {
    registry: Arc<Registry>,
    lists: Arc<ToolLists>,
    find_peer: fn(&Extensions) -> Option<McpPeer>,
    /// The peer for messages without one.
    operator: McpPeer,
    /// The caller of the next message. rmcp calls `get_tool` before it hands over the message, so
    /// the message's peer is not known then.
    next_caller: Arc<Caller>,
}

type InvokeResult = Result<Answer, CallError>;

impl Handler {
    /// Makes a server for one peer at the other end of a pipe. The peer is the operator, and has the
    /// tools of the selection.
    pub fn for_operator(registry: Arc<Registry>, selection: Selection) -> Self {
        let mut handler = Self::for_peers(registry, |_| None);
        handler.operator.selection = selection;
        handler
    }

    /// Makes a server for a transport that knows callers. `find_peer` finds the peer among the
    /// values that the transport put beside a message.
    pub fn for_peers(
        registry: Arc<Registry>,
        find_peer: fn(&Extensions) -> Option<McpPeer>,
    ) -> Self {
        let operator = McpPeer::operator();
        let next_caller = operator.caller.clone();
        Self {
            registry,
            lists: Arc::default(),
            find_peer,
            operator,
            next_caller,
        }
    }

    /// The same server, for a message of this caller.
    #[must_use]
    pub fn with_caller(self, caller: Arc<Caller>) -> Self {
        Self {
            next_caller: caller,
            ..self
        }
    }

    /// Whether clients repeat parameters of this tool in headers. These must then be compared with
    /// the arguments.
    pub fn has_header_parameters(
        &self,
        catalog: &Arc<Catalog>,
        name: &str,
        caller: &Caller,
    ) -> bool {
        self.lists
            .tool_with_header_parameters(catalog, name, caller)
            .is_some()
    }

    fn peer_of(&self, extensions: &Extensions) -> McpPeer {
        (self.find_peer)(extensions).unwrap_or_else(|| self.operator.clone())
    }

    /// The list of this peer, to wait for its changes.
    pub fn list_snapshot(&self, peer: &McpPeer) -> ListSnapshot {
        ListSnapshot::new(self.registry.clone(), self.lists.clone(), peer)
    }

    /// Makes the call, and forwards its progress if the client requested it. Stops waiting if the
    /// client disconnects or cancels.
    async fn run_call(
        &self,
        entry: &Arc<Entry>,
        mut invocation: Box<Invocation>,
        mcp_peer: &McpPeer,
        context: &RequestContext<RoleServer>,
        (way, asks): (Option<Way>, bool),
    ) -> InvokeResult {
        let cancel = invocation.signals.call_cancelled.clone();
        let token = context.meta.get_progress_token();
        if token.is_none() && way.is_none() && !asks {
            let call = self.registry.invoke(entry, invocation);
            return unless_disconnected(call, || cancel.cancel(), mcp_peer, context).await;
        }
        let (waits, wait_ends) = (CancellationToken::new(), CancellationToken::new());
        let id = invocation.id;
        if way == Some(Way::Form) {
            invocation.delivery.waits_for_decision = true;
            invocation.delivery.wait_ends = Some(wait_ends.clone());
        }
        let (sink, listener) = ProgressSink::channel();
        invocation.delivery.progress = Some(sink);
        let (questions, asked_questions) = asks.then(QuestionSink::channel).unzip();
        invocation.delivery.questions = questions;
        let (registry, entry) = (self.registry.clone(), entry.clone());
        let call = AbortOnDropHandle::new(tokio::spawn(async move {
            registry.invoke(&entry, invocation).await
        }));
        let mut forwarder =
            ProgressForwarder::new(listener, context.peer.clone(), token, waits.clone());
        let call = async {
            let ended = CancellationToken::new();
            let end = async {
                let outcome = call.await;
                ended.cancel();
                joined_outcome(outcome)
            };
            tokio::join!(end, forwarder.forward_until(&ended)).0
        };
        // In this task: rmcp sends the question on the stream of the request that the task handles.
        let asked = async {
            if let Some(way) = way {
                waits.cancelled().await;
                let asked = (way, id, &*mcp_peer.caller);
                Box::pin(ask_in_session(
                    &self.registry,
                    asked,
                    &context.peer,
                    &wait_ends,
                ))
                .await;
            }
            std::future::pending::<Infallible>().await
        };
        let asked_by_tool = async {
            match asked_questions {
                Some(listener) => questions::ask_in_session(listener, &context.peer).await,
                None => std::future::pending().await,
            }
        };
        let call = async {
            tokio::select! {
                biased;
                outcome = call => outcome,
                never = asked => match never {},
                never = asked_by_tool => match never {},
            }
        };
        unless_disconnected(Box::pin(call), || cancel.cancel(), mcp_peer, context).await
    }

    /// Makes the call, or answers a question about it (2026-07-28).
    async fn run_round(
        &self,
        entry: &Arc<Entry>,
        mut invocation: Box<Invocation>,
        (mcp_peer, context): (&McpPeer, &RequestContext<RoleServer>),
        way: Option<Way>,
        (state, answers): (Option<String>, Option<InputResponses>),
    ) -> Result<Round, ErrorData> {
        let arguments = invocation.input.arguments.clone();
        let asked = Asked {
            registry: &self.registry,
            entry,
            caller: &mcp_peer.caller,
            arguments: &arguments,
        };
        if let Some(state) = state {
            if StateScope::is_of_question(&state) {
                return asked.answer_question(&state, answers.as_ref()).await;
            }
            return asked
                .answer(way, &state, answers.as_ref(), &invocation)
                .await;
        }
        let Some(way) = way else {
            let answers = answers.as_ref();
            return Ok(self
                .run_until_question(asked, entry, invocation, (mcp_peer, context), answers)
                .await);
        };
        // The question is the answer, so the request does not wait for a decision.
        let wait_ends = CancellationToken::new();
        wait_ends.cancel();
        invocation.delivery.wait_ends = Some(wait_ends);
        let id = invocation.id;
        let outcome = self
            .run_call(entry, invocation, mcp_peer, context, (None, false))
            .await;
        Ok(asked.ask(way, id, outcome).await)
    }

    /// Makes the call. At a question of its tool, the call goes on without this request
    /// (2026-07-28). `answers`: a client may bring answers to questions that it expects.
    async fn run_until_question(
        &self,
        asked: Asked<'_>,
        entry: &Arc<Entry>,
        mut invocation: Box<Invocation>,
        (mcp_peer, context): (&McpPeer, &RequestContext<RoleServer>),
        answers: Option<&InputResponses>,
    ) -> Round {
        let (id, caller) = (invocation.id, invocation.caller.name.clone());
        let signals = invocation.signals.clone();
        let (sink, mut questions) = QuestionSink::channel();
        invocation.delivery.questions = Some(sink);
        let (sink, listener) = ProgressSink::channel();
        let token = context.meta.get_progress_token();
        let mut forwarder = token.map(|token| {
            invocation.delivery.progress = Some(sink);
            let peer = context.peer.clone();
            ProgressForwarder::new(listener, peer, Some(token), CancellationToken::new())
        });
        let (registry, entry) = (self.registry.clone(), entry.clone());
        let task = tokio::spawn(async move { registry.invoke(&entry, invocation).await });
        let mut call = AbortOnDropHandle::new(task).map(joined_outcome);
        let (running, ended) = (CancellationToken::new(), CancellationToken::new());
        ended.cancel();
        loop {
            let forward = async {
                if let Some(forwarder) = &mut forwarder {
                    forwarder.forward_until(&running).await;
                }
                std::future::pending::<Infallible>().await
            };
            tokio::select! {
                biased;
                outcome = &mut call => {
                    if let Some(forwarder) = &mut forwarder {
                        forwarder.forward_until(&ended).await;
                    }
                    return Round::Ends(id, outcome);
                }
                Some(open) = questions.next() => {
                    if let Some(answer) = questions::brought_answer(&open.question, answers) {
                        open.answer(answer);
                        continue;
                    }
                    // Without a form the question is dropped: the tool cannot ask this client.
                    if let Some(result) = asked.question_result(id, 1, &open.question) {
                        let call = AskingCall { id, caller, listener: questions, call };
                        self.registry.shared().questions.detach(call, open);
                        return Round::Asks(Box::new(result));
                    }
                }
                () = mcp_peer.session_ended.cancelled() => break,
                () = context.ct.cancelled() => {
                    if !mcp_peer.stream_end_disconnects {
                        signals.call_cancelled.cancel();
                        return Round::Ends(id, call.await);
                    }
                    break;
                }
                never = forward => match never {},
            }
        }
        Round::Ends(id, Err(CallError::Cancelled { started: true }))
    }

    /// Whether a call of this tool may be answered with a question.
    pub fn may_ask(&self, catalog: &Catalog, name: &str, caller: &Caller) -> bool {
        let found = catalog.resolve(name, caller);
        found.is_ok_and(|(entry, _)| {
            entry.policy.approval.is_some() || entry.rules.runner.traits().may_ask
        })
    }
}

fn joined_outcome(joined: Result<InvokeResult, JoinError>) -> InvokeResult {
    joined.unwrap_or_else(|error| {
        tracing::error!(%error, "the task of a call ended unexpectedly");
        Err(CallError::Internal)
    })
}

/// Waits for the call, unless its client disconnects or cancels it first.
///
/// - If the session or the request's stream ends, the call's future is dropped. The tool's
///   `on_disconnect` then decides whether the call continues.
/// - rmcp's token also stands for a cancel notification. That is its only meaning in a session and
///   on standard input, so there the call is always cancelled, and its end is awaited.
async fn unless_disconnected(
    call: impl Future<Output = InvokeResult>,
    cancel: impl FnOnce(),
    mcp_peer: &McpPeer,
    context: &RequestContext<RoleServer>,
) -> InvokeResult {
    tokio::pin!(call);
    tokio::select! {
        biased;
        outcome = &mut call => outcome,
        () = mcp_peer.session_ended.cancelled() => Err(CallError::Cancelled { started: true }),
        () = context.ct.cancelled() => {
            if !mcp_peer.stream_end_disconnects {
                cancel();
                return call.await;
            }
            Err(CallError::Cancelled { started: true })
        }
    }
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let server = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities)
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&VERSIONS)
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        Ok(DiscoverResult::from_server_info(
            VERSIONS.to_vec(),
            self.get_info(),
        ))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.lists
            .tool_with_header_parameters(&self.registry.catalog(), name, &self.next_caller)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (mcp_peer, catalog) = (self.peer_of(&context.extensions), self.registry.catalog());
        let cursor = request.and_then(|request| request.cursor);
        let modern = is_modern(&context);
        let (tools, next) = if mcp_peer.is_toolbox {
            (self.lists.list_toolset(&catalog, &mcp_peer)?, None)
        } else {
            let cursor = cursor.as_deref();
            let tools = mcp_peer.list_owner().list_tools(&self.registry, &catalog);
            self.lists.list_page(&catalog, &tools, cursor, modern)?
        };
        let mut result = ListToolsResult::with_all_items(tools);
        result.next_cursor = next;
        if modern {
            let scope = if catalog.callers().is_empty() {
                CacheScope::Public
            } else {
                CacheScope::Private
            };
            result = result.with_ttl_ms(LIST_TTL_MS).with_cache_scope(scope);
            let mut meta = MetaObject::new();
            meta.insert(SERVER_INFO.into(), server_info());
            result.meta = Some(meta);
        }
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mcp_peer = self.peer_of(&context.extensions);
        let arguments = request.arguments.unwrap_or_default();
        let prepared = {
            let catalog = self.registry.catalog();
            prepare_call(
                &self.registry,
                &catalog,
                &mcp_peer,
                &request.name,
                arguments,
                &context.meta,
            )
        };
        let modern = is_modern(&context);
        let respond = |reply: Result<Reply<'_>, JsonRpcFailure>| match reply {
            Ok(reply) => Ok(reply.into_tool_result().into()),
            Err(JsonRpcFailure { error, failure }) => {
                failure
                    .into_iter()
                    .for_each(|failure| mcp_peer.record_failure(failure));
                Err(error)
            }
        };
        let PreparedCall { entry, invocation } = match prepared {
            Ok(prepared) => {
                prepared.with_request(&self.registry, &mcp_peer, || context.id.to_string())
            }
            Err(PrepareError::Protocol(error)) => return Err(error),
            Err(PrepareError::Unavailable(error)) => {
                return respond(Reply::from_error(&error, modern));
            }
        };
        let way = Way::for_call(&self.registry, &entry, &mcp_peer.caller, || {
            context.client_capabilities()
        });
        let asks =
            entry.rules.runner.traits().may_ask && takes_forms(context.client_capabilities());
        let has_rounds = way.is_some() || asks || request.request_state.is_some();
        let (id, outcome) = if modern && has_rounds {
            let answers = (request.request_state, request.input_responses);
            let round = self.run_round(&entry, invocation, (&mcp_peer, &context), way, answers);
            match Box::pin(round).await? {
                Round::Asks(question) => return Ok((*question).into()),
                Round::Ends(id, outcome) => (id, outcome),
            }
        } else {
            let id = invocation.id;
            let call = self.run_call(&entry, invocation, &mcp_peer, &context, (way, asks));
            (id, call.await)
        };
        respond(Reply::from_call(
            &self.registry,
            (&entry, &mcp_peer.caller),
            id,
            &outcome,
            modern,
        ))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mcp_peer = self.peer_of(&context.extensions);
        if !mcp_peer.notifies.swap(true, Ordering::Relaxed) {
            let snapshot = self.list_snapshot(&mcp_peer);
            let (peer, session_ended) = (context.peer, mcp_peer.session_ended.clone());
            drop(mcp_peer);
            // The loop below lasts as long as the session. The extensions hold the peer's use of
            // the session, which would otherwise never become idle.
            drop(context.extensions);
            snapshot.notify_session(peer, session_ended).await;
        }
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mcp_peer = self.peer_of(&context.request_context().extensions);
        let mut snapshot = self.list_snapshot(&mcp_peer);
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = snapshot.wait_for_change(), if context.accepted().tools_list_changed == Some(true) => {}
            }
            if context.sink().notify_tool_list_changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// Refuses an unknown method. rmcp also calls this for a known method whose params cannot be
    /// read.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let expected = match &*request.method {
            "tools/call" => "params must have a name, a text, and arguments, an object",
            "tools/list" => "params may only have a cursor, a text",
            // 2026-07-28 has no `initialize`.
            "initialize" if !is_modern(&context) => INITIALIZE_PARAMS,
            "subscriptions/listen" => "params must have notifications, an object",
            method => {
                let shown: String = method
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(80)
                    .collect();
                return Err(ErrorData::new(
                    ErrorCode::METHOD_NOT_FOUND,
                    format!("there is no method `{shown}`"),
                    None,
                ));
            }
        };
        Err(ErrorData::invalid_params(
            format!("{} cannot be read: {expected}", request.method),
            None,
        ))
    }
}
