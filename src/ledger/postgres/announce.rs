//! Tells the other replicas of changes, and follows their changes. A notification only says that
//! there is something to read, so a lost one delays a change until the next look.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use sqlx::postgres::PgListener;
use sqlx::{PgConnection, PgPool, Result};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::super::{AnsweredCall, SharedChange};
use super::fault::{self, QUERY_TIMEOUT};
use super::open::open_listener_pool;
use super::servers::Servers;
use super::writer::UnitSignal;
use crate::call::InvocationId;

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
        let channels = [CHANNEL, UNITS_CHANNEL, ANSWERED_CHANNEL];
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
            ANSWERED_CHANNEL => {
                if let Some(calls) = parse_answered(received.payload(), own) {
                    let _ = receivers.answered.send(calls);
                }
            }
            _ => return Ok(()),
        }
    }
}

/// The channel of the last answered calls of runs.
const ANSWERED_CHANNEL: &str = "toolcrib_runs";
/// Notifications of answered calls that a slow receiver may be behind.
pub(super) const ANSWERED_CAPACITY: usize = 64;
/// Calls in one notification, whose text has less than 8000 bytes.
const MAX_CALLS: usize = 64;
/// Bytes of one call: the hashes of run and call, the id, and the age in milliseconds.
const CALL_BYTES: usize = 32 + 32 + 16 + 4;
/// Does nothing while there is no other replica.
const TELL: &str = "select pg_notify($1, text) from unnest($2::text[]) as text \
    where (select count(*) from replica where ended_at is null) > 1";

/// Sends the last answered calls of runs to all replicas. A lost notification only lets a repeated
/// call pass.
pub(super) async fn tell_answered(pool: &PgPool, own: Uuid, calls: &[AnsweredCall]) -> Result<()> {
    let texts: Vec<String> = calls
        .chunks(MAX_CALLS)
        .map(|calls| format_text(own, calls))
        .collect();
    sqlx::query(TELL)
        .bind(ANSWERED_CHANNEL)
        .bind(texts)
        .execute(pool)
        .await
        .map(drop)
}

pub(super) fn format_text(own: Uuid, calls: &[AnsweredCall]) -> String {
    let mut bytes = Vec::with_capacity(calls.len() * CALL_BYTES);
    for call in calls {
        let age = u32::try_from(call.age.as_millis()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&call.run);
        bytes.extend_from_slice(&call.call);
        bytes.extend_from_slice(call.invocation.as_bytes());
        bytes.extend_from_slice(&age.to_be_bytes());
    }
    format!("{own} {}", BASE64.encode(bytes))
}

/// Reads the text of a notification. `None` if it is of this process, or of a form that only a newer
/// version knows.
pub(super) fn parse_answered(text: &str, own: Uuid) -> Option<Vec<AnsweredCall>> {
    let (sender, calls) = text.split_once(' ')?;
    if sender.parse::<Uuid>().ok()? == own {
        return None;
    }
    let bytes = BASE64.decode(calls).ok()?;
    let (calls, rest) = bytes.as_chunks::<CALL_BYTES>();
    rest.is_empty()
        .then(|| calls.iter().map(parse_call).collect::<Option<Vec<_>>>())?
}

fn parse_call(bytes: &[u8; CALL_BYTES]) -> Option<AnsweredCall> {
    let (run, rest) = bytes.split_first_chunk()?;
    let (call, rest) = rest.split_first_chunk()?;
    let (id, rest) = rest.split_first_chunk()?;
    let (age, _) = rest.split_first_chunk()?;
    Some(AnsweredCall {
        run: *run,
        call: *call,
        invocation: InvocationId::from_bytes(*id),
        age: Duration::from_millis(u32::from_be_bytes(*age).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_has_calls_of_other_replicas() {
        let calls: Vec<AnsweredCall> = (0..MAX_CALLS)
            .map(|n| AnsweredCall {
                run: [n as u8; 32],
                call: [255; 32],
                invocation: InvocationId::new(),
                age: Duration::from_millis(n as u64 * 1000),
            })
            .collect();
        let (sender, other) = (Uuid::now_v7(), Uuid::now_v7());
        let text = format_text(sender, &calls);
        assert!(text.len() < 8000, "{}", text.len());
        assert_eq!(parse_answered(&text, other), Some(calls));
        assert_eq!(parse_answered(&text, sender), None);
        for unknown in ["", "x", &text[1..], &text[..text.len() - 8]] {
            assert_eq!(parse_answered(unknown, other), None, "{unknown}");
        }
    }
}
