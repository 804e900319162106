//! Settles the calls of replicas that have ended: their process crashed, or was frozen or cut off
//! for longer than its lease.

use std::time::{Duration, Instant};

use sqlx::PgPool;
use tokio::time::sleep;
use uuid::Uuid;

use super::fault;
use super::lease::{GRACE, LEASE};
use crate::call::{Clock, KEY_RETENTION};

const SETTLE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a query may take.
const QUERY_TIMEOUT: Duration = Duration::from_secs(12);
/// Replicas that may have ended.
const SUSPECTS: &str = "select boot from replica where ended_at is null \
    and seen_at < clock_timestamp() - make_interval(secs => $1)";

/// Looks for ended replicas, once a second. After the database was away, all replicas seem to have
/// ended. So this replica settles others only after it has had the database for as long as they
/// may take to come back.
pub(super) async fn run(pool: PgPool, clock: Clock) {
    let mut reachable_since = None;
    loop {
        sleep(SETTLE_INTERVAL).await;
        match fault::within(QUERY_TIMEOUT, suspects(&pool)).await {
            Ok(suspects) => {
                let since = *reachable_since.get_or_insert_with(Instant::now);
                for boot in suspects {
                    settle(&pool, &clock, boot, since.elapsed()).await;
                }
            }
            Err(error) => {
                reachable_since = None;
                tracing::debug!(
                    reason = fault::reason(&error),
                    "ended replicas cannot be settled"
                );
            }
        }
    }
}

async fn suspects(pool: &PgPool) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(SUSPECTS)
        .bind(GRACE.as_secs_f64())
        .fetch_all(pool)
        .await
}

async fn settle(pool: &PgPool, clock: &Clock, boot: Uuid, reachable_for: Duration) {
    if reachable_for < GRACE {
        return;
    }
    let lease = (reachable_for >= LEASE).then(|| millis(LEASE));
    let key_until = clock
        .now()
        .checked_add(KEY_RETENTION)
        .map_or(i64::MAX, |until| until.as_millisecond());
    let settled = sqlx::query_scalar::<_, Option<i64>>("select settle_replica_1($1, $2, $3, $4)")
        .bind(boot)
        .bind(lease)
        .bind(millis(GRACE))
        .bind(key_until)
        .fetch_one(pool);
    match fault::within(QUERY_TIMEOUT, settled).await {
        Ok(Some(calls)) => {
            tracing::warn!(replica = %boot, calls, "a replica has ended; its interrupted calls are now `unknown`");
        }
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(replica = %boot, reason = fault::reason(&error), "an ended replica cannot be settled");
        }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
