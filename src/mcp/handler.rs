//! Answers MCP's requests, on any transport and in every version.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, DiscoverResult, ErrorCode,
    Extensions, Implementation, ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion,
    ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::call::{PrepareError, PreparedCall, prepare};
use super::content::{Reply, SERVER_INFO, server_info};
use super::failure::Refused;
use super::list::Lists;
use super::peer::McpPeer;
use super::progress::ProgressForwarder;
use super::subscribers::ListSnapshot;
use crate::call::{Answer, CallError, Caller, Invocation, ProgressSink};
use crate::catalog::{Catalog, Entry};
use crate::registry::Registry;

/// The supported protocol versions, oldest first.
pub const VERSIONS: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];

/// How long clients may keep a list, in milliseconds. Clients that listen are notified sooner.
const LIST_TTL: u64 = 60_000;

/// The params that `initialize` needs, for the error text when they cannot be read.
pub const INITIALIZE: &str = "params has protocolVersion, capabilities and clientInfo with name and version";

const INSTRUCTIONS: &str = "Call the tools that are listed. A result with isError says what to do next.";

/// The tools of one registry as an MCP server. Clones are the same server.
#[derive(Clone)]
pub struct Handler {
    registry: Arc<Registry>,
    lists: Arc<Lists>,
    guest: fn(&Extensions) -> Option<McpPeer>,
    /// The guest for messages without one.
    operator: McpPeer,
    /// The caller of the next message. rmcp calls `get_tool` before it hands over the message, so the message's guest
    /// is not known then.
    asks: Arc<Caller>,
}

type Called = Result<Answer, CallError>;

impl Handler {
    /// Makes a server for one peer at the other end of a pipe. The peer is the operator.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self::for_guests(registry, |_| None)
    }

    /// Makes a server for a transport that knows callers. `guest` finds the guest among the values that the transport
    /// put beside a message.
    pub fn for_guests(registry: Arc<Registry>, guest: fn(&Extensions) -> Option<McpPeer>) -> Self {
        let operator = McpPeer::operator();
        let asks = operator.caller.clone();
        Self { registry, lists: Arc::default(), guest, operator, asks }
    }

    /// The same server, for a message of this caller.
    #[must_use]
    pub fn asked_by(self, caller: Arc<Caller>) -> Self {
        Self { asks: caller, ..self }
    }

    /// Whether clients repeat parameters of this tool in headers. These must then be compared with the arguments.
    pub fn has_parameters_in_header(&self, catalog: &Arc<Catalog>, name: &str, caller: &Caller) -> bool {
        self.lists.in_header(catalog, name, caller).is_some()
    }

    fn guest(&self, extensions: &Extensions) -> McpPeer {
        (self.guest)(extensions).unwrap_or_else(|| self.operator.clone())
    }

    fn seen(&self, caller: &Arc<Caller>) -> ListSnapshot {
        ListSnapshot::now(self.registry.clone(), self.lists.clone(), caller.clone())
    }

    /// Makes the call, and forwards its progress if the client asked for it. Stops waiting if the client disconnects or
    /// cancels.
    async fn call(
        &self,
        entry: &Arc<Entry>,
        mut invocation: Invocation,
        guest: &McpPeer,
        context: &RequestContext<RoleServer>,
    ) -> Called {
        let cancel = invocation.cancel.clone();
        let Some(token) = context.meta.get_progress_token() else {
            let call = self.registry.invoke(entry, invocation);
            return unless_left(call, || cancel.cancel(), guest, context).await;
        };
        let (sink, listener) = ProgressSink::channel();
        invocation.progress = Some(sink);
        let (registry, entry) = (self.registry.clone(), entry.clone());
        let call = AbortOnDropHandle::new(tokio::spawn(async move { registry.invoke(&entry, invocation).await }));
        let mut teller = ProgressForwarder::new(listener, context.peer.clone(), token);
        let told = async {
            let ended = CancellationToken::new();
            let end = async {
                let called = call.await;
                ended.cancel();
                called.unwrap_or_else(|error| {
                    tracing::error!(%error, "the task of a call broke off");
                    Err(CallError::Internal)
                })
            };
            tokio::join!(end, teller.tell(&ended)).0
        };
        unless_left(told, || cancel.cancel(), guest, context).await
    }
}

/// Waits for the call, unless its client disconnects or cancels it first.
///
/// - If the session or the request's stream ends, the call's future is dropped. The tool's `on_disconnect` then decides
///   whether the call continues.
/// - rmcp's token also stands for a cancel notification. That is its only meaning in a session and on standard input,
///   so there the call is always cancelled, and its end is awaited.
async fn unless_left(
    call: impl Future<Output = Called>,
    cancel: impl FnOnce(),
    guest: &McpPeer,
    context: &RequestContext<RoleServer>,
) -> Called {
    tokio::pin!(call);
    tokio::select! {
        biased;
        called = &mut call => called,
        () = guest.left.cancelled() => Err(CallError::Cancelled { started: true }),
        () = context.ct.cancelled() => {
            if !guest.leaves_by_stream {
                cancel();
                return call.await;
            }
            Err(CallError::Cancelled { started: true })
        }
    }
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let server = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(server).with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&VERSIONS)
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        Ok(DiscoverResult::from_server_info(VERSIONS.to_vec(), self.get_info()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.lists.in_header(&self.registry.catalog(), name, &self.asks)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (guest, catalog) = (self.guest(&context.extensions), self.registry.catalog());
        let cursor = request.and_then(|request| request.cursor);
        let modern = is_modern(&context);
        let (tools, next) = self.lists.page(&catalog, &guest.caller, cursor.as_deref(), modern)?;
        let mut result = ListToolsResult::with_all_items(tools);
        result.next_cursor = next;
        if modern {
            let scope = if catalog.callers().is_empty() { CacheScope::Public } else { CacheScope::Private };
            result = result.with_ttl_ms(LIST_TTL).with_cache_scope(scope);
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
        let guest = self.guest(&context.extensions);
        let arguments = request.arguments.unwrap_or_default();
        let asked = {
            let catalog = self.registry.catalog();
            prepare(&self.registry, &catalog, &guest, &request.name, arguments, &context.meta)
        };
        let modern = is_modern(&context);
        let told = |reply: Result<Reply<'_>, Refused>| match reply {
            Ok(reply) => Ok(reply.into_result().into()),
            Err(Refused { error, failure }) => {
                failure.into_iter().for_each(|failure| guest.refuse(failure));
                Err(error)
            }
        };
        let PreparedCall { entry, invocation } = match asked {
            Ok(asked) => asked,
            Err(PrepareError::Wrong(error)) => return Err(error),
            Err(PrepareError::Refused(error)) => return told(Reply::refusal(&error, modern)),
        };
        let id = invocation.id;
        let called = self.call(&entry, invocation, &guest, &context).await;
        told(Reply::of(&self.registry, (&entry, &guest.caller), id, &called, modern))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let guest = self.guest(&context.extensions);
        if !guest.told.swap(true, Ordering::Relaxed) {
            let (peer, McpPeer { caller, left, .. }) = (context.peer, guest);
            // The loop below lasts as long as the session. The extensions hold the guest's use of the session, which
            // would otherwise never become idle.
            drop(context.extensions);
            self.seen(&caller).tell(peer, left).await;
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let guest = self.guest(&context.request_context().extensions);
        let mut seen = self.seen(&guest.caller);
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = seen.changed(), if context.accepted().tools_list_changed == Some(true) => {}
            }
            if context.sink().notify_tool_list_changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// Refuses an unknown method. rmcp also calls this for a known method whose params cannot be read.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let right = match &*request.method {
            "tools/call" => "params has a name, which is a text, and arguments, which is an object",
            "tools/list" => "params has nothing but a cursor, which is a text",
            // 2026-07-28 has no `initialize`.
            "initialize" if !is_modern(&context) => INITIALIZE,
            "subscriptions/listen" => "params has notifications, which is an object",
            method => {
                let shown: String = method.chars().filter(|c| !c.is_control()).take(80).collect();
                return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method `{shown}`"), None));
            }
        };
        Err(ErrorData::invalid_params(format!("{} cannot be read: {right}", request.method), None))
    }
}
