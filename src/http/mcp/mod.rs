//! `/mcp`: the tools as an MCP server over streamable HTTP, for versions with sessions and the version without.
//!
//! rmcp implements the protocol. This folder does what rmcp leaves to its host:
//!
//! - `routes`: the handlers, before and after rmcp
//! - `sessions`, `unnumbered`: callers, and the owners of sessions
//! - `message`: invalid messages
//! - `streams`: how many streams may be open
//! - `plain`: answers the plain call of 2026-07-28, the most frequent request, without rmcp. All other requests go to
//!   rmcp, which reports what is wrong with them.

mod message;
mod routes;
mod sessions;
mod stateless;
mod streams;
mod strip_event_ids;

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
use crate::http::problem::told;
use crate::mcp::{Handler, McpPeer};
use crate::registry::Registry;

/// The header with the session's id, in versions 2025-03-26 to 2025-11-25.
const SESSION: &str = "mcp-session-id";
/// The header with the protocol version, since 2025-06-18.
const VERSION: &str = "mcp-protocol-version";
/// The version without sessions.
const MODERN: &str = "2026-07-28";

/// The MCP server behind the routes. Clones share it.
#[derive(Clone)]
pub(super) struct McpService {
    handler: Handler,
    sessions: Sessions,
    streams: Streams,
    config: StreamableHttpServerConfig,
    /// Tripped at shutdown, to end the streams without a call.
    ending: CancellationToken,
    /// Ends all sessions, and the answers in them, when the last handle on the router is dropped.
    _over: Arc<DropGuard>,
}

impl McpService {
    /// Makes the server. `ending` ends streams without a call, but no answers: these last as long as their connections.
    pub(super) fn new(registry: Arc<Registry>, max_body: usize, ending: &CancellationToken) -> Self {
        let handler = Handler::for_guests(registry, guest_beside);
        let over = CancellationToken::new();
        let sessions = Sessions::new(over.clone());
        // `guard.rs` checks Host and Origin on every route.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            // No stream can be resumed: see `unnumbered.rs`.
            .with_sse_retry(None)
            .with_max_request_body_bytes(max_body)
            .with_cancellation_token(over.clone());
        let _over = Arc::new(over.drop_guard());
        Self { handler, sessions, streams: Streams::new(), config, ending: ending.clone(), _over }
    }

    async fn ask(&self, mut parts: Parts, body: Bytes, guest: McpPeer) -> Response {
        // rmcp's service is no more than these three values, so a new one for each request is cheap. The sessions are
        // in the manager.
        let handler = self.handler.clone().asked_by(guest.caller.clone());
        let rmcp =
            StreamableHttpService::new(move || Ok(handler.clone()), self.sessions.manager(), self.config.clone());
        parts.extensions.insert(guest.clone());
        let request = Request::from_parts(parts, Body::from(body));
        let response = message::said(Box::pin(rmcp.handle(request)).await.map(Body::new)).await;
        match guest.refused() {
            // Only a JSON answer can still get another status. A stream has started already.
            Some(failure) if message::is_json(&response) => told(&failure, response),
            _ => response,
        }
    }
}

/// Finds the guest in the request's parts, which rmcp puts beside each message.
fn guest_beside(extensions: &Extensions) -> Option<McpPeer> {
    extensions.get::<Parts>()?.extensions.get::<McpPeer>().cloned()
}
