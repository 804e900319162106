//! Tells the other replicas of changes, and follows their changes. A notification only says that
//! there is something to read, so a lost one delays a change until the next look.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::postgres::PgListener;
use sqlx::{PgConnection, PgPool, Result};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::super::{AnsweredCall, SharedChange};
use super::fault::QUERY_TIMEOUT;
use super::open::open_listener_pool;
use super::queue::UnitSignal;
use super::servers::Servers;
use super::{answered, fault};

/// The channel of the notifications.
const CHANNEL: &str = "toolcrib";
/// The channel of messages about units that are set aside.
const UNITS_CHANNEL: &str = "toolcrib_units";
/// How often a replica looks without a notification.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Pause after a failed look.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long `announce_1` keeps a change.
const KEPT: Duration = Duration::from_secs(3600);
/// Changes that a slow receiver may be behind.
pub(super) const CAPACITY: usize = 256;

const NEWEST: &str = "select coalesce(max(seq), 0) from announcement";
const READ: &str =
    "select seq, change::text, sender = $2 from announcement where seq > $1 order by seq";

/// How far the changes have been read.
struct LastSeen {
    seq: i64,
    seen_at: Instant,
}

/// Those that wait for news of other replicas.
pub(super) struct Receivers {
    pub(super) changes: broadcast::Sender<SharedChange>,
    pub(super) signals: mpsc::Sender<UnitSignal>,
    pub(super) answered: broadcast::Sender<Vec<AnsweredCall>>,
}

/// Announces a change in the transaction of the connection.
pub(super) async fn announce(
    connection: &mut PgConnection,
    sender: Uuid,
    change: &SharedChange,
) -> Result<()> {
    let change = serde_json::to_string(change).unwrap_or_default();
    sqlx::query("select announce_1($1, $2::jsonb)")
        .bind(sender)
        .bind(change)
        .execute(connection)
        .await
        .map(drop)
}

/// The number of the newest change.
pub(super) async fn newest(pool: &PgPool) -> Result<i64> {
    sqlx::query_scalar(NEWEST).fetch_one(pool).await
}

/// Sends the changes of other replicas after the one with the number `last`.
pub(super) async fn follow(servers: Arc<Servers>, own: Uuid, last: i64, receivers: Receivers) {
    let mut last = LastSeen {
        seq: last,
        seen_at: Instant::now(),
    };
    loop {
        if let Err(error) = follow_connected(&servers, own, &mut last, &receivers).await {
            tracing::debug!(
                reason = fault::reason(&error),
                "changes of other replicas cannot be read"
            );
        }
        sleep(RETRY_PAUSE).await;
    }
}

async fn follow_connected(
    servers: &Servers,
    own: Uuid,
    last: &mut LastSeen,
    receivers: &Receivers,
) -> Result<()> {
    let changes = &receivers.changes;
    let connected = Instant::now();
    let listening = async {
        let mut listener = PgListener::connect_with(&open_listener_pool(servers)).await?;
        let channels = [CHANNEL, UNITS_CHANNEL, answered::CHANNEL];
        listener.listen_all(channels).await?;
        Ok(listener)
    };
    let mut listener = fault::within(QUERY_TIMEOUT, listening).await?;
    if last.seen_at.elapsed() > KEPT / 2 {
        // Some of the changes meanwhile may have been deleted.
        let _ = changes.send(SharedChange::Purged(None));
        let _ = changes.send(SharedChange::Tools);
    }
    // After a failover, the connection may still lead to a server that is no longer the primary.
    while servers.is_current(connected.elapsed()) {
        let found = sqlx::query_as::<_, (i64, String, bool)>(READ)
            .bind(last.seq)
            .bind(own)
            .fetch_all(&mut listener);
        let found = fault::within(QUERY_TIMEOUT, found).await?;
        for (seq, change, is_own) in found {
            last.seq = seq;
            // A newer replica may announce what this one does not know.
            if !is_own && let Ok(change) = serde_json::from_str(&change) {
                // Without a receiver, the service does not run yet.
                let _ = changes.send(change);
            }
        }
        last.seen_at = Instant::now();
        // The end of the time is a look without a notification.
        let waiting = wait_for_change(&mut listener, own, receivers);
        timeout(LOOK_INTERVAL, waiting).await.unwrap_or(Ok(()))?;
    }
    Ok(())
}

/// Passes on messages about units and runs, until there is a change to read.
async fn wait_for_change(
    listener: &mut PgListener,
    own: Uuid,
    receivers: &Receivers,
) -> Result<()> {
    loop {
        let received = listener.recv().await?;
        match received.channel() {
            UNITS_CHANNEL => {
                // The writer also looks with each heartbeat, so a message may be lost.
                if let Some(signal) = UnitSignal::parse(received.payload()) {
                    let _ = receivers.signals.try_send(signal);
                }
            }
            answered::CHANNEL => {
                if let Some(calls) = answered::parse(received.payload(), own) {
                    let _ = receivers.answered.send(calls);
                }
            }
            _ => return Ok(()),
        }
    }
}
