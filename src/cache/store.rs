//! The stored results of all tools, and the table of the calls in flight.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use moka::Expiry;
use moka::future::Cache;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::redis::{RedisAddress, RedisResults};
use super::shared_results::{Purge, SharedResults};
use crate::audit::NewEntry;
use crate::call::{Clock, InvocationId, ToolResult};
use crate::ledger::{Error, Ledger, StoredResult};
use crate::metrics::Metrics;
use crate::stack::Outcome;

type Key = [u8; 32];

/// A stored result.
#[derive(Clone)]
pub(super) struct Hit {
    pub(super) result: Arc<ToolResult>,
    /// The call whose row has the result: the call that produced it, or the first of this service
    /// that found it in Redis.
    pub(super) origin: InvocationId,
    tool: Arc<str>,
    bytes: u32,
    expires_at: Timestamp,
    ttl: Duration,
}

/// The stored results of all tools. Clones share them.
#[derive(Clone)]
pub struct ResultCache(Arc<Inner>, Tier);

/// Where results are stored: in memory only, or in the ledger and Redis as well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    Memory,
    Shared,
}

/// The purges before a call. Its result must not be stored after a later purge.
#[derive(Clone, Copy)]
pub(super) struct PurgeMark {
    own: u64,
    /// The newest purge of the tool in Redis. `None`: the result is not for Redis.
    in_redis: Option<u64>,
}

/// The first wait for Redis. A service starts without it after that.
const FIRST_WAIT: Duration = Duration::from_secs(1);

struct Inner {
    memory: Cache<Key, Hit>,
    shared: SharedResults,
    clock: Clock,
    flights: Mutex<HashMap<Key, Flight>>,
    /// Number of purges. A call that started before a purge must not store its result after it.
    purges: AtomicU64,
    /// A store takes the lock for reading, a purge for writing. So no store happens between a purge
    /// of the memory and the purge of the ledger.
    purge_lock: tokio::sync::RwLock<()>,
}

/// Gives a replaced entry its new lifetime. By default, moka keeps the lifetime of the first entry.
struct OwnTtl;

impl Expiry<Key, Hit> for OwnTtl {
    fn expire_after_create(&self, _: &Key, hit: &Hit, _: std::time::Instant) -> Option<Duration> {
        Some(hit.ttl)
    }

    fn expire_after_update(
        &self,
        _: &Key,
        hit: &Hit,
        _: std::time::Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(hit.ttl)
    }
}

impl ResultCache {
    /// Makes a cache with up to `max_bytes` of results in memory. The ledger stores all results, and Redis
    /// too, if there is one.
    pub fn new(
        max_bytes: u64,
        ledger: Arc<dyn Ledger>,
        redis: Option<(&RedisAddress, Metrics)>,
        clock: Clock,
    ) -> Self {
        let redis = redis.and_then(|(redis, metrics)| RedisResults::new(redis, metrics));
        let memory = Cache::builder()
            .max_capacity(max_bytes)
            .weigher(|_, hit: &Hit| hit.bytes)
            .expire_after(OwnTtl)
            .support_invalidation_closures()
            .build();
        let inner = Inner {
            memory,
            shared: SharedResults::new(ledger, redis),
            clock,
            flights: Mutex::default(),
            purges: AtomicU64::new(0),
            purge_lock: tokio::sync::RwLock::new(()),
        };
        Self(Arc::new(inner), Tier::Shared)
    }

    /// The same cache for results that must not be on disk. They are lost when the process ends.
    #[must_use]
    pub fn memory_only(&self) -> Self {
        Self(self.0.clone(), Tier::Memory)
    }

    /// Connects to Redis, and follows the purges of other services until the cache is dropped. Waits
    /// a moment for the first connection.
    pub async fn follow_redis(&self) {
        let Some(redis) = self.0.shared.redis().cloned() else {
            return;
        };
        let inner = Arc::downgrade(&self.0);
        let (tried, first_try) = oneshot::channel();
        let task = async move {
            let mut tried = Some(tried);
            loop {
                let purged = redis.follow().await;
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                let cache = Self(inner, Tier::Shared);
                for tool in &purged {
                    cache.purge_memory(tool.as_deref()).await;
                    cache.0.shared.purge_own_ledger(tool.as_deref()).await;
                }
                drop(cache);
                // The service may have stopped waiting for the first try.
                let _ = tried.take().map(|tried| tried.send(()));
                redis.wait().await;
            }
        };
        tokio::spawn(task.boxed());
        let _ = timeout(FIRST_WAIT, first_try).await;
    }

    /// Deletes the results of one tool, or of all tools, for all services that share them. The ledger records
    /// `entry`.
    ///
    /// # Errors
    /// When the ledger cannot write. The other results are deleted all the same.
    pub async fn purge(&self, tool: Option<&str>, entry: Option<NewEntry>) -> Result<Purge, Error> {
        // Before the lock, for which calls wait. After this, nothing older is read from Redis.
        let redis = self.0.shared.redis();
        let number = match redis {
            Some(redis) => redis.purge(tool).await,
            None => None,
        };
        let _alone = self.0.purge_lock.write().await;
        self.forget(tool);
        let purged = self.0.shared.ledger.purge_results(tool, entry).await;
        // A result that was read from the ledger meanwhile is not kept.
        self.0.purges.fetch_add(1, Ordering::AcqRel);
        let purged = purged?;
        if let (Some(redis), Some(number)) = (redis, number) {
            redis.note_applied(tool, number);
        }
        let is_pending = redis.is_some() && number.is_none();
        Ok(Purge { purged, is_pending })
    }

    /// Deletes results in memory, because another replica has purged the ledger.
    pub async fn purge_memory(&self, tool: Option<&str>) {
        let _alone = self.0.purge_lock.write().await;
        self.forget(tool);
    }

    fn forget(&self, tool: Option<&str>) {
        self.0.purges.fetch_add(1, Ordering::AcqRel);
        match tool {
            None => self.0.memory.invalidate_all(),
            Some(tool) => {
                let tool: Arc<str> = tool.into();
                // It returns an error only without `support_invalidation_closures`, which `new`
                // enables.
                let _ = self
                    .0
                    .memory
                    .invalidate_entries_if(move |_, hit| hit.tool == tool);
            }
        }
    }

    /// Whether results are stored in memory only.
    pub(super) fn is_memory_only(&self) -> bool {
        self.1 == Tier::Memory
    }

    /// The number of results in memory, and their size in bytes.
    pub async fn size(&self) -> (u64, u64) {
        // moka updates its counts in batches. This call applies all pending updates.
        self.0.memory.run_pending_tasks().await;
        (self.0.memory.entry_count(), self.0.memory.weighted_size())
    }

    /// The purges so far, for the call of a tool that starts now.
    pub(super) fn mark_purges(&self, tool: &str) -> PurgeMark {
        PurgeMark {
            own: self.purge_count(),
            in_redis: Some(self.0.shared.newest_purge(tool)),
        }
    }

    /// The same for a result that is not for Redis.
    pub(super) fn mark_own_purges(&self) -> PurgeMark {
        PurgeMark {
            own: self.purge_count(),
            in_redis: None,
        }
    }

    fn purge_count(&self) -> u64 {
        self.0.purges.load(Ordering::Acquire)
    }

    pub(super) fn get(&self, key: &Key) -> Option<Hit> {
        let found = self.0.memory.get(key).now_or_never().flatten()?;
        (found.expires_at > self.0.clock.now()).then_some(found)
    }

    /// Reads Redis and the ledger, and keeps the result in memory. `reader` is the call whose row gets
    /// a result from Redis; without it, such a result is not kept.
    pub(super) async fn read_through(
        &self,
        key: &Key,
        tool: &str,
        reader: Option<InvocationId>,
    ) -> Option<Hit> {
        if self.is_memory_only() {
            return None;
        }
        let now = self.0.clock.now();
        let purges = self.purge_count();
        let (stored, origin) = self.0.shared.find(key, tool, now, reader).await?;
        self.keep(key, stored, origin, now, purges).await
    }

    /// Reads the ledger only, and keeps the result in memory.
    pub(super) async fn read_ledger(&self, key: &Key) -> Option<Hit> {
        if self.is_memory_only() {
            return None;
        }
        let now = self.0.clock.now();
        let purges = self.purge_count();
        let (stored, origin) = self.0.shared.find_in_ledger(key, now).await?;
        self.keep(key, stored, origin, now, purges).await
    }

    /// Keeps a result that was read. A purge since `purges` were counted may concern it. The lock is not
    /// held during the reading: a purge that waited for a slow read would hold up all calls.
    async fn keep(
        &self,
        key: &Key,
        stored: StoredResult,
        origin: Option<InvocationId>,
        now: Timestamp,
        purges: u64,
    ) -> Option<Hit> {
        let _shared = self.0.purge_lock.read().await;
        if self.purge_count() != purges {
            return None;
        }
        let result: ToolResult = serde_json::from_str(&stored.result).ok()?;
        let hit = Hit {
            bytes: entry_weight(stored.result.len()),
            result: Arc::new(result),
            origin: origin.unwrap_or(stored.origin),
            tool: stored.tool.into(),
            expires_at: stored.expires_at,
            ttl: stored.expires_at.duration_since(now).unsigned_abs(),
        };
        if origin.is_some() {
            self.0.memory.insert(*key, hit.clone()).await;
        }
        Some(hit)
    }

    /// Stores a result, unless a purge happened after the mark, or there is the result of a newer call:
    /// a refresh may be faster than the call before it.
    pub(super) async fn store(
        &self,
        key: Key,
        tool: &str,
        origin: InvocationId,
        result: &Arc<ToolResult>,
        ttl: Duration,
        mark: PurgeMark,
    ) {
        let Ok(text) = serde_json::to_string(&**result) else {
            return;
        };
        let now = self.0.clock.now();
        let Ok(expires_at) = now.checked_add(ttl) else {
            return;
        };
        let _shared = self.0.purge_lock.read().await;
        if self.purge_count() != mark.own {
            return;
        }
        let known = self.0.memory.get(&key).await;
        if known.is_some_and(|known| known.origin > origin && known.expires_at > now) {
            return;
        }
        let hit = Hit {
            result: result.clone(),
            origin,
            tool: tool.into(),
            bytes: entry_weight(text.len()),
            expires_at,
            ttl,
        };
        self.0.memory.insert(key, hit).await;
        if self.is_memory_only() {
            return;
        }
        let stored = StoredResult {
            key,
            tool: tool.to_string(),
            origin,
            result: text,
            stored_at: now,
            expires_at,
        };
        self.0.shared.store(stored, mark.in_redis).await;
    }

    /// Makes the call the leader for this key, or joins the call in flight. After a purge, a result of
    /// an earlier call does not count.
    pub(super) fn join_flight(&self, key: Key) -> FlightRole {
        let purges = self.purge_count();
        let mut flights = self.lock_flights();
        if let Some(flight) = flights.get(&key).filter(|flight| flight.purges == purges) {
            return FlightRole::Joining(Follower(flight.outcome.clone()));
        }
        let (sender, outcome) = watch::channel(None);
        flights.insert(key, Flight { outcome, purges });
        FlightRole::Leading(Leader {
            key,
            sender,
            cache: self.clone(),
        })
    }

    fn lock_flights(&self) -> MutexGuard<'_, HashMap<Key, Flight>> {
        self.0.flights.lock()
    }
}

/// The size of an entry in memory: its JSON and some hundred bytes of overhead.
fn entry_weight(len: usize) -> u32 {
    u32::try_from(len.saturating_add(256)).unwrap_or(u32::MAX)
}

/// The part that a call has in a single flight.
pub(super) enum FlightRole {
    /// It runs the tool.
    Leading(Leader),
    /// It waits for the call that runs the tool.
    Joining(Follower),
}

/// A call that runs the tool, as the calls that join it see it.
struct Flight {
    outcome: watch::Receiver<Option<Completed>>,
    /// The number of purges when it began.
    purges: u64,
}

/// The outcome of a flight that all its calls share.
#[derive(Clone)]
pub(super) struct Completed {
    pub(super) outcome: Outcome,
    pub(super) origin: InvocationId,
}

/// The call that runs the tool.
///
/// It stores its result in the cache before it ends the flight with [`Leader::complete`]. So a call
/// that finds no flight afterwards finds the result. A leader that is dropped without `complete`
/// (cancelled, refused) closes the channel: its followers wake up, and the first of them becomes
/// the next leader.
pub(super) struct Leader {
    key: Key,
    sender: watch::Sender<Option<Completed>>,
    cache: ResultCache,
}

impl Leader {
    pub(super) fn complete(self, completed: Completed) {
        self.end_flight();
        self.sender.send_replace(Some(completed));
    }

    fn end_flight(&self) {
        let mut flights = self.cache.lock_flights();
        // Another call may lead this key already. Its entry must stay.
        if flights
            .get(&self.key)
            .is_some_and(|flight| flight.outcome.same_channel(&self.sender.subscribe()))
        {
            flights.remove(&self.key);
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.end_flight();
    }
}

/// A call that waits for the leader.
pub(super) struct Follower(watch::Receiver<Option<Completed>>);

impl Follower {
    /// The shared outcome; `None` if the leader ended without one.
    pub(super) async fn wait_for_outcome(&mut self) -> Option<Completed> {
        let completed = self.0.wait_for(Option::is_some).await.ok()?;
        completed.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::memory::MemoryLedger;

    const HOUR: Duration = Duration::from_secs(3600);

    fn cache(ledger: &Arc<MemoryLedger>) -> ResultCache {
        ResultCache::new(
            1 << 20,
            ledger.clone(),
            None,
            Clock::manual(Timestamp::UNIX_EPOCH).0,
        )
    }

    async fn store(cache: &ResultCache, key: Key) -> usize {
        let result = Arc::new(ToolResult::text("yes"));
        cache
            .store(
                key,
                "t",
                InvocationId::new(),
                &result,
                HOUR,
                cache.mark_purges("t"),
            )
            .await;
        serde_json::to_string(&*result).unwrap().len()
    }

    #[tokio::test]
    async fn cache_entry_weight_includes_overhead() {
        let ledger = Arc::new(MemoryLedger::default());
        let stored = cache(&ledger);
        let length = store(&stored, [1; 32]).await as u64;
        store(&stored, [2; 32]).await;
        assert_eq!(stored.size().await, (2, 2 * (length + 256)));
        let read = cache(&ledger);
        assert!(read.read_ledger(&[1; 32]).await.is_some());
        assert_eq!(
            read.size().await,
            (1, length + 256),
            "also results from the ledger"
        );
        assert_eq!(entry_weight(usize::MAX), u32::MAX);
    }

    #[tokio::test]
    async fn memory_only_results_stay_off_the_ledger() {
        let ledger = Arc::new(MemoryLedger::default());
        let private = cache(&ledger).memory_only();
        assert!(private.is_memory_only() && !cache(&ledger).is_memory_only());
        store(&private, [1; 32]).await;
        assert!(private.get(&[1; 32]).is_some());
        assert!(cache(&ledger).read_ledger(&[1; 32]).await.is_none());
        store(&cache(&ledger), [2; 32]).await;
        assert!(
            private.read_ledger(&[2; 32]).await.is_none(),
            "a memory-only cache does not read the ledger"
        );
        assert!(cache(&ledger).read_ledger(&[2; 32]).await.is_some());
    }

    #[tokio::test]
    async fn replaced_entries_get_their_new_ttl() {
        let hit = Hit {
            result: Arc::new(ToolResult::text("yes")),
            origin: InvocationId::new(),
            tool: "t".into(),
            bytes: 1,
            expires_at: Timestamp::UNIX_EPOCH,
            ttl: HOUR,
        };
        let now = std::time::Instant::now();
        assert_eq!(OwnTtl.expire_after_create(&[0; 32], &hit, now), Some(HOUR));
        assert_eq!(
            OwnTtl.expire_after_update(&[0; 32], &hit, now, Some(Duration::ZERO)),
            Some(HOUR)
        );
    }
}
