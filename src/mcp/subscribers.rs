//! Notifies clients when their list of tools has changed.

use std::sync::Arc;

use rmcp::{Peer, RoleServer};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::list::ToolLists;
use super::peer::{ListOwner, McpPeer};
use crate::catalog::registry::Registry;

/// The digest of one caller's list, as of the last check. Only changes that this caller can see
/// count, so it learns nothing about the tools of others.
pub struct ListSnapshot {
    registry: Arc<Registry>,
    lists: Arc<ToolLists>,
    owner: ListOwner,
    changes: watch::Receiver<()>,
    digest: u64,
}

impl ListSnapshot {
    pub(super) fn new(registry: Arc<Registry>, lists: Arc<ToolLists>, peer: &McpPeer) -> Self {
        let owner = peer.list_owner();
        let (changes, catalog) = (registry.watch_changes(), registry.catalog());
        let digest = lists.list_digest(&catalog, &owner.list_tools(&registry, &catalog));
        Self {
            registry,
            lists,
            owner,
            changes,
            digest,
        }
    }

    /// Returns when this caller's list has changed. It never returns when the registry is gone.
    pub async fn wait_for_change(&mut self) {
        loop {
            if self.changes.changed().await.is_err() {
                return std::future::pending().await;
            }
            let catalog = self.registry.catalog();
            let tools = self.owner.list_tools(&self.registry, &catalog);
            let digest = self.lists.list_digest(&catalog, &tools);
            if std::mem::replace(&mut self.digest, digest) != digest {
                return;
            }
        }
    }

    /// Notifies a session of every change, until `session_ended` is tripped or a notification
    /// fails.
    pub(super) async fn notify_session(
        mut self,
        peer: Peer<RoleServer>,
        session_ended: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = session_ended.cancelled() => return,
                () = self.wait_for_change() => {}
            }
            if let Err(error) = peer.notify_tool_list_changed().await {
                tracing::debug!(%error, "a session cannot be notified that its tools have changed");
                return;
            }
        }
    }
}
