//! Settles the calls of replicas that have ended: their process crashed, or was frozen or cut off
//! for longer than its lease.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use sqlx::{PgExecutor, PgPool};
use tokio::time::sleep;
use uuid::Uuid;

use super::fault::{self, QUERY_TIMEOUT};
use super::lease::{GRACE, LEASE};
use crate::call::{Clock, KEY_RETENTION};

const SETTLE_INTERVAL: Duration = Duration::from_secs(1);
/// Replicas that may have ended.
const SUSPECTS: &str = "select boot from replica where ended_at is null \
    and seen_at < clock_timestamp() - make_interval(secs => $1)";

/// Settles a replica, and names the units that it had set aside. Both parts see the database as it
/// was before.
const SETTLE: &str = "select settled.calls, lost.tool, lost.caller, lost.per, lost.units \
    from (select settle_replica_1($1, $2, $3, $4) as calls) as settled left join \
    (select q.tool, q.caller, q.per, sum(b.units)::bigint as units from unit_block as b \
    join quota as q on q.id = b.counter and q.window_start = b.window_start \
    where b.replica = $1 and b.units > 0 group by q.tool, q.caller, q.per) as lost on true";

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

/// The calls that are now `unknown`, and for one limit its tool, caller, period and lost units.
type SettledRow = (
    Option<i64>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<i64>,
);

/// What a replica has left.
pub(super) struct Settled {
    /// The number of calls that are now `unknown`.
    pub(super) calls: i64,
    /// Units of limits that stay used, although no call has them: tool, caller, period, number.
    pub(super) lost: Vec<(String, String, String, i64)>,
}

pub(super) async fn suspects(pool: &PgPool) -> Result<Vec<Uuid>, sqlx::Error> {
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
    let settled = settle_replica(pool, boot, lease, clock.now());
    match fault::within(QUERY_TIMEOUT, settled).await {
        Ok(Some(settled)) => log_settled(boot, &settled),
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(replica = %boot, reason = fault::reason(&error), "an ended replica cannot be settled");
        }
    }
}

/// Settles a replica that was not seen for `lease`, in milliseconds; without a lease, only if its
/// lock is free. `None`: it has not ended, or another replica settles it.
pub(super) async fn settle_replica(
    database: impl PgExecutor<'_>,
    boot: Uuid,
    lease: Option<i64>,
    now: Timestamp,
) -> Result<Option<Settled>, sqlx::Error> {
    let key_until = now
        .checked_add(KEY_RETENTION)
        .map_or(i64::MAX, |until| until.as_millisecond());
    let rows: Vec<SettledRow> = sqlx::query_as(SETTLE)
        .bind(boot)
        .bind(lease)
        .bind(millis(GRACE))
        .bind(key_until)
        .fetch_all(database)
        .await?;
    let calls = rows.first().and_then(|(calls, ..)| *calls);
    let lost = rows
        .into_iter()
        .filter_map(|(_, tool, caller, per, units)| Some((tool?, caller?, per?, units?)));
    Ok(calls.map(|calls| Settled {
        calls,
        lost: lost.collect(),
    }))
}

fn log_settled(boot: Uuid, settled: &Settled) {
    tracing::warn!(
        replica = %boot,
        calls = settled.calls,
        "a replica has ended; its interrupted calls are now `unknown`"
    );
    for (tool, caller, per, lost_units) in &settled.lost {
        tracing::warn!(
            replica = %boot,
            tool,
            caller,
            per,
            lost_units,
            "units of a limit that an ended replica had set aside stay used"
        );
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
