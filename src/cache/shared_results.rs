//! The results beyond the memory of this process: in Redis, if there is one, then in the ledger.

use std::sync::Arc;

use jiff::Timestamp;

use super::redis::RedisResults;
use crate::call::InvocationId;
use crate::ledger::{Ledger, StoredResult};

/// Stored results that other processes, or a later start, may read.
pub(super) struct SharedResults {
    pub(super) ledger: Arc<dyn Ledger>,
    redis: Option<RedisResults>,
}

/// What a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purge {
    /// How many results the ledger held.
    pub purged: u64,
    /// Whether Redis did not answer. It gets the purge later.
    pub is_pending: bool,
}

impl SharedResults {
    pub(super) fn new(ledger: Arc<dyn Ledger>, redis: Option<RedisResults>) -> Self {
        Self { ledger, redis }
    }

    pub(super) fn redis(&self) -> Option<&RedisResults> {
        self.redis.as_ref()
    }

    /// The stored result of a tool that is valid at `now`, and the call whose row has it: the one that
    /// produced it, if the result was in the ledger, or else `reader`.
    pub(super) async fn find(
        &self,
        key: &[u8; 32],
        tool: &str,
        now: Timestamp,
        reader: Option<InvocationId>,
    ) -> Option<(StoredResult, Option<InvocationId>)> {
        // The row of the call that stored a result in Redis may be in the ledger of another service.
        if let Some(redis) = &self.redis
            && let Some(stored) = redis.find(key, tool, now).await
        {
            return Some((stored, reader));
        }
        self.find_in_ledger(key, now).await
    }

    /// The same, without Redis.
    pub(super) async fn find_in_ledger(
        &self,
        key: &[u8; 32],
        now: Timestamp,
    ) -> Option<(StoredResult, Option<InvocationId>)> {
        let stored = match self.ledger.find_result(key, now).await {
            Ok(stored) => stored?,
            Err(error) => {
                tracing::warn!(%error, "stored results cannot be read");
                return None;
            }
        };
        // Another service may have purged the tool while this one was not running.
        let stored_at = u64::try_from(stored.stored_at.as_millisecond()).unwrap_or_default();
        let is_current = stored_at > self.newest_purge(&stored.tool) || self.redis.is_none();
        let origin = Some(stored.origin);
        is_current.then_some((stored, origin))
    }

    /// Stores a result. `purge` is the newest purge of its tool when its call started; without it,
    /// the result is not stored in Redis.
    pub(super) async fn store(&self, stored: StoredResult, purge: Option<u64>) {
        let in_redis = async {
            if let (Some(redis), Some(purge)) = (&self.redis, purge) {
                redis.store(&stored, purge).await;
            }
        };
        let in_ledger = async {
            if let Err(error) = self.ledger.store_result(stored.clone()).await {
                tracing::warn!(%error, "a result could not be stored");
            }
        };
        tokio::join!(in_redis, in_ledger);
    }

    /// Deletes the ledger's results, because another service has purged Redis. Replicas of one ledger
    /// leave that to the one that purges.
    pub(super) async fn purge_own_ledger(&self, tool: Option<&str>) {
        if self.ledger.replica().is_some() {
            return;
        }
        if let Err(error) = self.ledger.purge_results(tool, None).await {
            tracing::warn!(%error, "stored results cannot be purged");
        }
    }

    /// The newest purge of a tool in Redis.
    pub(super) fn newest_purge(&self, tool: &str) -> u64 {
        self.redis
            .as_ref()
            .map_or(0, |redis| redis.newest_purge(tool))
    }
}
