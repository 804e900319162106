//! What all streams share.

use tokio_util::sync::CancellationToken;

use super::replicas::ReplicaPolls;

/// What all streams share.
pub(in crate::http) struct EventStreams {
    /// The task that finds the calls of other replicas.
    pub(super) polls: ReplicaPolls,
    /// Ends the streams.
    pub(super) shutdown: CancellationToken,
}

impl EventStreams {
    /// `shutdown` ends the streams.
    pub(in crate::http) fn new(shutdown: &CancellationToken) -> Self {
        Self {
            polls: ReplicaPolls::default(),
            shutdown: shutdown.clone(),
        }
    }
}
