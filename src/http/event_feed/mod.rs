//! `GET /events`: what happens in the service, for operators.
//!
//! - `route.rs`: the handler
//! - `stream.rs`: the events of one subscriber
//! - `resume.rs`: the ended calls that a subscriber has missed, from the ledger
//! - `changes.rs`: notices changed tools and sources
//! - `replicas.rs`: calls that other replicas have ended

mod changes;
mod replicas;
mod resume;
mod route;
mod stream;

use tokio_util::sync::CancellationToken;

use self::replicas::ReplicaPolls;
pub(super) use self::route::{__path_get_events, get_events};
use super::mcp::streams::Streams;
use crate::tracking::events::MAX_SUBSCRIBERS;

/// What all streams share.
pub(super) struct EventStreams {
    slots: Streams,
    polls: ReplicaPolls,
    shutdown: CancellationToken,
}

impl EventStreams {
    /// Bounds the streams of a service with this many connections. `shutdown` ends them.
    pub(super) fn new(max_connections: usize, shutdown: &CancellationToken) -> Self {
        Self {
            slots: Streams::bounded("event streams", max_connections, MAX_SUBSCRIBERS),
            polls: ReplicaPolls::default(),
            shutdown: shutdown.clone(),
        }
    }
}
