//! `/mcp`: the tools as an MCP server over streamable HTTP, for versions with sessions and the
//! version without.
//!
//! rmcp implements the protocol. This folder does what rmcp leaves to its host:
//!
//! - `routes`: the handlers, before and after rmcp
//! - `sessions`, `strip_event_ids`: callers, and the owners of sessions
//! - `message`: invalid messages
//! - `accepted`: one JSON body for clients that accept no streams
//! - `streams`: how many streams may be open
//! - `toolbox`: `/mcp/` and `/mcp/{toolset}`, for clients of MCP Toolbox
//! - `stateless`: answers the plain call of 2026-07-28, the most frequent request, without rmcp
//! - `listen`: answers the plain subscription of 2026-07-28, whose streams stay open, without rmcp
//! - `valid_request`: which requests these two may take. All others go to rmcp, which reports what
//!   is wrong with them.

mod accepted;
mod listen;
mod message;
mod routes;
mod sessions;
mod stateless;
pub(super) mod streams;
mod strip_event_ids;
mod toolbox;
mod valid_request;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::response::Response;
use rmcp::model::Extensions;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) use self::routes::{__path_delete, __path_get, __path_post, delete, get, post};
use self::sessions::Sessions;
use self::streams::Streams;
pub(super) use self::toolbox::{find_toolset, post_all, post_toolset};
use crate::catalog::registry::Registry;
use crate::http::problem::with_failure_status;
use crate::manifest::ServerSettings;
use crate::mcp::{Handler, McpPeer};

/// The header with the session's id, in versions 2025-03-26 to 2025-11-25.
const SESSION_HEADER: &str = "mcp-session-id";
/// The header with the protocol version, since 2025-06-18.
const VERSION_HEADER: &str = "mcp-protocol-version";
/// The version without sessions.
const STATELESS_VERSION: &str = "2026-07-28";
/// The method whose answer is a stream without end (2026-07-28).
const LISTEN_METHOD: &str = "subscriptions/listen";

/// The MCP server behind the routes. Clones share it.
#[derive(Clone)]
pub(super) struct McpService {
    handler: Handler,
    sessions: Sessions,
    streams: Streams,
    config: StreamableHttpServerConfig,
    /// For clients of MCP Toolbox, which use no sessions.
    toolbox_config: StreamableHttpServerConfig,
    /// Ends all sessions, and the answers in them, when the last handle on the router is dropped.
    _end_sessions: Arc<DropGuard>,
}

impl McpService {
    /// Makes the server.
    pub(super) fn new(registry: Arc<Registry>, settings: &ServerSettings) -> Self {
        let handler = Handler::for_peers(registry, peer_from_parts);
        let all_ended = CancellationToken::new();
        let sessions = Sessions::new(all_ended.clone());
        // `guard.rs` checks Host and Origin on every route.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            // No stream can be resumed: see `strip_event_ids.rs`.
            .with_sse_retry(None)
            .with_max_request_body_bytes(settings.max_body)
            .with_cancellation_token(all_ended.clone());
        let toolbox_config = config.clone().with_legacy_session_mode(false);
        let what = "MCP streams without a call";
        let streams = Streams::bounded(what, settings.max_connections, usize::MAX);
        let _end_sessions = Arc::new(all_ended.drop_guard());
        Self {
            handler,
            sessions,
            streams,
            config,
            toolbox_config,
            _end_sessions,
        }
    }

    async fn forward_to_rmcp(&self, mut parts: Parts, body: Bytes, peer: McpPeer) -> Response {
        // rmcp's service is no more than these three values, so a new one for each request is
        // cheap. The sessions are in the manager.
        let handler = self.handler.clone().with_caller(peer.caller.clone());
        let config = match peer.is_toolbox {
            false => &self.config,
            true => &self.toolbox_config,
        };
        let rmcp = StreamableHttpService::new(
            move || Ok(handler.clone()),
            self.sessions.rmcp_manager(),
            config.clone(),
        );
        parts.extensions.insert(peer.clone());
        let request = Request::from_parts(parts, Body::from(body));
        let response =
            message::to_json_rpc_error(Box::pin(rmcp.handle(request)).await.map(Body::new)).await;
        match peer.take_failure() {
            // Only a JSON answer can still get another status. A stream has started already.
            Some(failure) if message::is_json(&response) => with_failure_status(&failure, response),
            _ => response,
        }
    }
}

/// Finds the peer in the request's parts, which rmcp puts beside each message.
fn peer_from_parts(extensions: &Extensions) -> Option<McpPeer> {
    extensions
        .get::<Parts>()?
        .extensions
        .get::<McpPeer>()
        .cloned()
}
