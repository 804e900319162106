//! Rare changes: an admin's decisions. Each is a transaction on a connection of the pool, which also
//! announces the change to the other replicas.

use std::time::Duration;

use sqlx::{PgPool, Result};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::super::sql::{Fetch as _, Sql};
use super::super::{SharedChange, audit};
use super::announce::announce;
use super::commit::storable;
use super::lease::RECALL_TIME;
use crate::audit::NewEntry;
use crate::call::InvocationId;

/// How often a reset looks whether the free units of its counters are back.
const RECALL_INTERVAL: Duration = Duration::from_millis(20);

/// Deletes the counters of a tool, or only those of a caller. See the trait.
pub(super) async fn reset_counters(
    pool: &PgPool,
    tool: &str,
    caller: Option<&str>,
    entry: Option<NewEntry>,
) -> Result<()> {
    let counters = |sql| {
        sqlx::query_scalar::<_, i64>(sql)
            .bind(storable(tool))
            .bind(caller.map(storable))
    };
    // A replica that keeps silent must not hand out units that were set aside before.
    let until = Instant::now() + RECALL_TIME;
    let recall = || counters("select recall_units_1($1, $2)").fetch_one(pool);
    while recall().await? > 0 && Instant::now() < until {
        sleep(RECALL_INTERVAL).await;
    }
    let mut transaction = pool.begin().await?;
    let reset = counters("select reset_counters_1($1, $2)");
    reset.fetch_one(&mut *transaction).await?;
    audit::execute(&mut *transaction, Sql::default(), entry).await?;
    transaction.commit().await
}

/// Asks the other replicas to cancel a call.
pub(super) async fn request_cancel(
    pool: &PgPool,
    process: Uuid,
    call: InvocationId,
    caller: Option<&str>,
) -> Result<()> {
    let caller = caller.map(str::to_owned);
    let change = SharedChange::Cancel { call, caller };
    let mut connection = pool.acquire().await?;
    announce(&mut connection, process, &change).await
}

/// Runs the statement, records the entry, and announces the change. Returns the number of affected rows.
pub(super) async fn make(
    pool: &PgPool,
    process: Uuid,
    sql: Sql,
    change: Option<&SharedChange>,
    entry: Option<NewEntry>,
) -> Result<u64> {
    if change.is_none() && entry.is_none() {
        return pool.acquire().await?.execute(sql).await;
    }
    let mut transaction = pool.begin().await?;
    let rows = audit::execute(&mut *transaction, sql, entry).await?;
    if let Some(change) = change {
        announce(&mut transaction, process, change).await?;
    }
    transaction.commit().await?;
    Ok(rows)
}
