//! `/mcp`: the tools as an MCP server over streamable HTTP, in both of its eras.
//!
//! rmcp speaks the protocol. Here is what it leaves to its host: who asks and who owns a session (`sessions`, `unnumbered`), messages that are
//! none (`message`), how many streams may be open (`streams`), and the end of the service. The plain call of 2026-07-28, which most calls are, is
//! answered without it (`plain`), by the same code below; whatever else comes goes to rmcp, which says what is wrong with it.

mod message;
mod plain;
mod routes;
mod sessions;
mod streams;
mod unnumbered;

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
use crate::mcp::{Guest, Handler};
use crate::registry::Registry;

/// Names a session, since 2025-03-26 and until 2025-11-25.
const SESSION: &str = "mcp-session-id";
/// Names the version, since 2025-06-18.
const VERSION: &str = "mcp-protocol-version";
/// The version without sessions.
const MODERN: &str = "2026-07-28";

/// The MCP server behind the routes. Clones are the same.
#[derive(Clone)]
pub(super) struct Face {
    handler: Handler,
    sessions: Sessions,
    streams: Streams,
    config: StreamableHttpServerConfig,
    /// Tripped when streams without a call end.
    ending: CancellationToken,
    /// Sessions end, and what is answered in them, when nobody can ask any more.
    _over: Arc<DropGuard>,
}

impl Face {
    /// Its streams without a call end with `ending`. Answers are given all the time that their connections have.
    pub(super) fn new(registry: Arc<Registry>, max_body: usize, ending: &CancellationToken) -> Self {
        let handler = Handler::for_guests(registry, guest_beside);
        let over = CancellationToken::new();
        let sessions = Sessions::new(over.clone());
        // Host and Origin are looked at on every route (`guard.rs`).
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            // Nothing is taken up again: `unnumbered.rs`.
            .with_sse_retry(None)
            .with_max_request_body_bytes(max_body)
            .with_cancellation_token(over.clone());
        let _over = Arc::new(over.drop_guard());
        Self { handler, sessions, streams: Streams::new(), config, ending: ending.clone(), _over }
    }

    async fn ask(&self, mut parts: Parts, body: Bytes, guest: Guest) -> Response {
        // rmcp's service is nothing but these three; its sessions are in the manager.
        let handler = self.handler.clone().asked_by(guest.caller.clone());
        let rmcp =
            StreamableHttpService::new(move || Ok(handler.clone()), self.sessions.manager(), self.config.clone());
        parts.extensions.insert(guest.clone());
        let request = Request::from_parts(parts, Body::from(body));
        let response = message::said(Box::pin(rmcp.handle(request)).await.map(Body::new)).await;
        match guest.refused() {
            // A stream has begun as what it is.
            Some(failure) if message::is_json(&response) => told(&failure, response),
            _ => response,
        }
    }
}

/// rmcp puts the request's own parts beside each message.
fn guest_beside(extensions: &Extensions) -> Option<Guest> {
    extensions.get::<Parts>()?.extensions.get::<Guest>().cloned()
}
