//! The state of the handlers: handles, and no configuration.

use std::sync::Arc;

use axum::extract::FromRef;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::api::event_feed::replicas::ReplicaPolls;
use super::api::usage::buckets::CountSlots;
use super::edge::memory::MemoryBudget;
use super::mcp::McpService;
use super::mcp::streams::Streams;
use crate::call::InvocationId;
use crate::catalog::registry::Registry;
use crate::manifest::ServerSettings;
use crate::sources::live::LiveTools;
use crate::tracking::events::MAX_SUBSCRIBERS;

/// Shared by all handlers. The router clones it several times for each request, so it is one
/// pointer.
#[derive(Clone, derive_more::Deref)]
pub(super) struct AppState(Arc<Handles>);

/// The content of [`AppState`].
pub(super) struct Handles {
    /// The tools, and the parts of the service that all calls share.
    pub registry: Arc<Registry>,
    /// Reload and registration of tools.
    pub live: Arc<LiveTools>,
    /// The MCP server.
    pub mcp: McpService,
    /// The task that finds the calls of other replicas, for the streams of `GET /events`.
    pub event_polls: ReplicaPolls,
    /// How many of them may be open.
    pub event_slots: Streams,
    /// Tripped at shutdown, to end the streams that clients keep open without a call.
    pub shutdown: CancellationToken,
    /// Largest request body, in bytes.
    pub max_body: usize,
    /// Memory for the values of all requests.
    pub memory: MemoryBudget,
    /// The requests of `GET /usage` that count by time.
    pub count_slots: CountSlots,
    /// This process, for a ledger without replicas.
    pub process: ProcessId,
}

/// Distinguishes this process from others.
pub(super) struct ProcessId {
    pub id: Arc<str>,
    pub started_at: Timestamp,
}

impl AppState {
    /// Makes the state. `shutdown` ends the streams that clients keep open without a call.
    pub(super) fn new(
        live: Arc<LiveTools>,
        settings: &ServerSettings,
        shutdown: &CancellationToken,
    ) -> Self {
        let max_body = settings.max_body;
        let registry = live.registry().clone();
        let mcp = McpService::new(registry.clone(), settings);
        let event_slots =
            Streams::bounded("event streams", settings.max_connections, MAX_SUBSCRIBERS);
        let memory = MemoryBudget::new(max_body);
        let process = ProcessId {
            id: InvocationId::new().to_string().into(),
            started_at: registry.shared().clock.now(),
        };
        Self(Arc::new(Handles {
            registry,
            live,
            mcp,
            event_polls: ReplicaPolls::default(),
            shutdown: shutdown.clone(),
            event_slots,
            max_body,
            memory,
            count_slots: CountSlots::default(),
            process,
        }))
    }
}

impl FromRef<AppState> for Arc<Registry> {
    fn from_ref(state: &AppState) -> Self {
        state.registry.clone()
    }
}

impl FromRef<AppState> for Arc<LiveTools> {
    fn from_ref(state: &AppState) -> Self {
        state.live.clone()
    }
}
