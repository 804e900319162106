//! The connection to Redis, and the requests for results.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError};
use rustls::crypto::{CryptoProvider, ring};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::address::RedisAddress;
use super::entry;
use super::purges::{ALL_TOOLS, KnownPurges, PURGE_SCRIPT};
use crate::ledger::StoredResult;
use crate::metrics::Metrics;
use crate::runtime::backoff::Backoff;

/// Longest wait of a call for an answer.
const REQUEST_LIMIT: Duration = Duration::from_millis(50);
/// Longest wait of a purge, and of the task in the background.
const PURGE_LIMIT: Duration = Duration::from_secs(1);
/// Longest time in which a connection must stand.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How often the purges of other services are read.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time between two lines of the log that say that Redis is away.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Largest result in Redis, in bytes of JSON. A larger one would keep other calls waiting on the same
/// connection.
const LARGEST_RESULT: usize = 1 << 20;
/// The wait before a new connection.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(250),
    longest: Duration::from_secs(5),
};
const SHORTEST_WAIT: Duration = Duration::from_millis(50);

/// Results in Redis. Clones share the connection.
#[derive(Clone)]
pub(in crate::cache) struct RedisResults(Arc<Inner>);

struct Inner {
    client: Client,
    /// The address for log lines and metrics.
    shown: String,
    /// `None` while Redis is away.
    connection: ArcSwapOption<MultiplexedConnection>,
    purges: KnownPurges,
    /// Failures since the last answer to a request of a call.
    failures: AtomicU32,
    /// Whether Redis is known to be away.
    is_away: AtomicBool,
    /// When the log said so the last time.
    reported_at: Mutex<Option<Instant>>,
    /// Whether the log must say that the next connection works.
    says_up: AtomicBool,
    /// Whether the log says that Redis has no memory for results.
    is_full: AtomicBool,
    /// Notified when the connection is lost.
    lost: Notify,
    metrics: Metrics,
}

/// Why there is no answer.
enum NoAnswer {
    /// Redis is away, so nothing was sent.
    Skipped,
    /// The request failed.
    Failed,
}

impl NoAnswer {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

impl RedisResults {
    /// Makes the client, without a connection. `None` if the address cannot be used.
    pub(in crate::cache) fn new(address: &RedisAddress, metrics: Metrics) -> Option<Self> {
        if CryptoProvider::get_default().is_none() {
            // It fails only if another thread has installed one at the same time.
            let _ = ring::default_provider().install_default();
        }
        Some(Self(Arc::new(Inner {
            client: Client::open(address.connection_info()?).ok()?,
            shown: address.to_string(),
            connection: ArcSwapOption::empty(),
            purges: KnownPurges::default(),
            failures: AtomicU32::new(0),
            is_away: AtomicBool::new(false),
            reported_at: Mutex::new(None),
            says_up: AtomicBool::new(true),
            lost: Notify::new(),
            is_full: AtomicBool::new(false),
            metrics,
        })))
    }

    /// The stored result of a tool.
    pub(in crate::cache) async fn find(
        &self,
        key: &[u8; 32],
        tool: &str,
        now: Timestamp,
    ) -> Option<StoredResult> {
        let request = redis::cmd("GET").arg(entry::result_key(key)).take();
        let found = self.send::<Option<String>>(&request, REQUEST_LIMIT).await;
        let found = found.map(|text| {
            let purge = self.0.purges.newest(tool);
            entry::decode(*key, &text?, (tool, purge), now)
        });
        self.count(
            "read",
            match &found {
                Ok(Some(_)) => "hit",
                Ok(None) => "miss",
                Err(missing) => missing.outcome(),
            },
        );
        found.ok().flatten()
    }

    /// Stores a result of a call that started when `purge` was the newest purge of its tool.
    pub(in crate::cache) async fn store(&self, stored: &StoredResult, purge: u64) {
        let life = stored
            .expires_at
            .duration_since(stored.stored_at)
            .as_millis();
        if life < 1 || self.0.purges.newest(&stored.tool) != purge {
            return;
        }
        if stored.result.len() > LARGEST_RESULT {
            return self.count("store", "too_large");
        }
        let Some(text) = entry::encode(stored, purge) else {
            return;
        };
        let key = entry::result_key(&stored.key);
        let request = redis::cmd("SET")
            .arg(key)
            .arg(text)
            .arg("PX")
            .arg(life as u64)
            .take();
        let outcome = match self.send::<()>(&request, REQUEST_LIMIT).await {
            Ok(()) => {
                self.0.is_full.store(false, Ordering::Relaxed);
                "stored"
            }
            Err(missing) => missing.outcome(),
        };
        self.count("store", outcome);
    }

    /// Purges the results of one tool, or of all tools, for every service. Returns the number of the
    /// purge. `None` if Redis does not answer: Redis gets the purge before this service sends the next request.
    pub(in crate::cache) async fn purge(&self, tool: Option<&str>) -> Option<u64> {
        let field = tool.unwrap_or(ALL_TOOLS);
        // Noted first: a purge must not be lost with a caller that disconnects.
        self.0.purges.note_unsent(field);
        let sent = self.send_purge(field).await.ok();
        if sent.is_none() {
            // The purge is in memory only: a restart would lose it.
            let redis = self.0.shown.as_str();
            tracing::warn!(
                redis,
                tool,
                "Redis does not know of a purge yet: purge again if this service ends before Redis is back"
            );
        }
        sent
    }

    async fn send_purge(&self, field: &str) -> Result<u64, NoAnswer> {
        let sent = self.send::<u64>(&purge_request(field), PURGE_LIMIT).await;
        self.count(
            "purge",
            match &sent {
                Ok(_) => "done",
                Err(missing) => missing.outcome(),
            },
        );
        sent.inspect(|number| self.0.purges.note_sent(field, *number))
    }

    /// Notes that this service has deleted its own results for a purge.
    pub(in crate::cache) fn note_applied(&self, tool: Option<&str>, number: u64) {
        self.0
            .purges
            .note_applied(tool.unwrap_or(ALL_TOOLS), number);
    }

    /// The number of the newest purge that concerns a tool.
    pub(in crate::cache) fn newest_purge(&self, tool: &str) -> u64 {
        self.0.purges.newest(tool)
    }

    /// Reads the purges of other services, or makes a new connection. Returns the tools that others
    /// have purged (`None`: all).
    pub(in crate::cache) async fn follow(&self) -> Vec<Option<String>> {
        let read = match self.0.connection.load_full() {
            Some(_) => self.read_purges().await,
            None => self.connect().await,
        };
        let fields = read.unwrap_or_default().into_iter();
        fields
            .map(|field| (field != ALL_TOOLS).then_some(field))
            .collect()
    }

    /// Waits until [`RedisResults::follow`] is due again.
    pub(in crate::cache) async fn wait(&self) {
        if self.0.connection.load().is_some() {
            tokio::select! {
                () = sleep(READ_INTERVAL) => return,
                () = self.0.lost.notified() => {}
            }
        }
        let failures = self.0.failures.load(Ordering::Relaxed);
        sleep(
            BACKOFF
                .wait_after(failures, fastrand::f64())
                .max(SHORTEST_WAIT),
        )
        .await;
    }

    async fn read_purges(&self) -> Result<Vec<String>, NoAnswer> {
        for field in self.0.purges.unsent() {
            self.send_purge(&field).await?;
        }
        self.0.purges.begin_reading();
        let numbers = self.send(&purges_request(), PURGE_LIMIT).await?;
        Ok(self.0.purges.replace(numbers))
    }

    /// Makes a connection. No call uses it before Redis knows the purges of this service, and this
    /// service those of others.
    async fn connect(&self) -> Result<Vec<String>, NoAnswer> {
        let opened = timeout(CONNECT_LIMIT, self.open()).await;
        let opened = opened.unwrap_or_else(|_| Err(timed_out()));
        let (connection, numbers) = opened.map_err(|error| {
            self.0.failures.fetch_add(1, Ordering::Relaxed);
            self.report(&error);
            NoAnswer::Failed
        })?;
        let changed = self.0.purges.replace(numbers);
        self.0.connection.store(Some(Arc::new(connection)));
        self.0
            .metrics
            .service_counters()
            .set_redis_up(&self.0.shown, true);
        self.0.is_away.store(false, Ordering::Relaxed);
        if self.0.says_up.swap(false, Ordering::Relaxed) {
            let redis = self.0.shown.as_str();
            tracing::info!(redis, "cached results are shared through Redis");
        }
        Ok(changed)
    }

    async fn open(&self) -> Result<(MultiplexedConnection, HashMap<String, u64>), RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(Some(PURGE_LIMIT));
        let mut connection = self
            .0
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        for field in self.0.purges.unsent() {
            let number = purge_request(&field).query_async(&mut connection).await?;
            self.0.purges.note_sent(&field, number);
            self.count("purge", "done");
        }
        self.0.purges.begin_reading();
        let numbers = purges_request().query_async(&mut connection).await?;
        Ok((connection, numbers))
    }

    async fn send<T: FromRedisValue>(&self, request: &Cmd, limit: Duration) -> Result<T, NoAnswer> {
        let connection = self.0.connection.load_full().ok_or(NoAnswer::Skipped)?;
        let mut own = MultiplexedConnection::clone(&connection);
        let answer = timeout(limit, request.query_async(&mut own)).await;
        match answer.unwrap_or_else(|_| Err(timed_out())) {
            Ok(answer) => {
                // The task in the background may get answers while calls get none in time.
                if limit == REQUEST_LIMIT {
                    self.0.failures.store(0, Ordering::Relaxed);
                }
                Ok(answer)
            }
            // The stored results can still be read. A purge that fails must stop that.
            Err(error) if error.code() == Some("OOM") && limit == REQUEST_LIMIT => {
                if !self.0.is_full.swap(true, Ordering::Relaxed) {
                    tracing::warn!(redis = self.0.shown, %error, "Redis has no memory for results");
                }
                Err(NoAnswer::Failed)
            }
            Err(error) => {
                self.give_up(&connection, &error);
                Err(NoAnswer::Failed)
            }
        }
    }

    /// Sends no more requests over this connection.
    fn give_up(&self, connection: &Arc<MultiplexedConnection>, error: &RedisError) {
        let inner = &self.0;
        let current = inner.connection.compare_and_swap(connection, None);
        if !current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, connection))
        {
            // Another request has failed before.
            return;
        }
        inner.failures.fetch_add(1, Ordering::Relaxed);
        self.report(error);
        inner.lost.notify_one();
    }

    /// Says once that Redis is away, and not more often than once a minute.
    fn report(&self, error: &RedisError) {
        let inner = &self.0;
        inner
            .metrics
            .service_counters()
            .set_redis_up(&inner.shown, false);
        if inner.is_away.swap(true, Ordering::Relaxed) {
            return;
        }
        // A server that comes and goes must not fill the log.
        let now = Instant::now();
        let mut reported_at = inner.reported_at.lock();
        if reported_at.is_some_and(|at| now.duration_since(at) < REPORT_INTERVAL) {
            return;
        }
        *reported_at = Some(now);
        drop(reported_at);
        inner.says_up.store(true, Ordering::Relaxed);
        let redis = inner.shown.as_str();
        if is_refused_login(error) {
            tracing::error!(
                redis,
                %error,
                "Redis refuses the user or the password of cache.redis: calls go on without it"
            );
        } else {
            tracing::warn!(redis, %error, "Redis cannot be used: calls go on without it");
        }
    }

    fn count(&self, operation: &str, outcome: &str) {
        let counters = self.0.metrics.service_counters();
        counters.count_redis_request(operation, outcome);
    }
}

fn purges_request() -> Cmd {
    redis::cmd("HGETALL").arg(entry::purges_key()).take()
}

fn purge_request(field: &str) -> Cmd {
    let mut request = redis::cmd("EVAL");
    request
        .arg(PURGE_SCRIPT)
        .arg(1)
        .arg(entry::purges_key())
        .arg(field);
    request
}

fn timed_out() -> RedisError {
    RedisError::from((ErrorKind::Io, "no answer within the time limit"))
}

/// Whether the server refuses the user, the password, or a command to this user.
fn is_refused_login(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || ["NOAUTH", "WRONGPASS", "NOPERM"].contains(&error.code().unwrap_or_default())
}
