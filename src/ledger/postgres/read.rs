//! Queries on the pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Row as _};
use uuid::Uuid;

use super::super::columns::{parse_effect, parse_kind, parse_time};
use super::super::latency::Latencies;
use super::super::{
    AttemptRow, RecordedCall, RegisteredTool, ReplicaRow, Row, State, StoredResult, Switch,
    UsageRow,
};
use super::commit::{storable, to_uuid};
use crate::call::{CacheStatus, Charge, Charged, ErrorKind, InvocationId};

/// How long a query may take: longer than the server's own limit, which gives the better message.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(12);

pub(super) type Result<T> = std::result::Result<T, sqlx::Error>;

/// The replica of calls that were recorded in a file of one machine, and imported.
pub(super) const NO_REPLICA: Uuid = Uuid::nil();

/// The columns of [`decode_row`] before the arguments.
macro_rules! first_columns {
    () => {
        "select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us, \
         origin, idempotency_key, fingerprint, key_until, parent, count, detail, replica, "
    };
}
pub(super) use first_columns;

const FIND_CALL: &str = concat!(
    first_columns!(),
    "arguments, result, meta from invocation where id = $1"
);

pub(super) async fn find_call(pool: &PgPool, id: InvocationId) -> Result<Option<RecordedCall>> {
    let Some(row) = find_row(pool, id).await? else {
        return Ok(None);
    };
    let sql = "select attempt, kind, message, duration_us from attempt where invocation = $1 order by attempt";
    let rows = sqlx::query(sql).bind(to_uuid(&id)).fetch_all(pool).await?;
    let attempts = rows.iter().map(|row| decode_attempt(id, row));
    let attempts = attempts.collect::<Result<Vec<_>>>()?;
    let origin = match row.origin {
        Some(origin) => find_row(pool, origin).await?,
        None => None,
    };
    Ok(Some(RecordedCall {
        row,
        attempts,
        origin_result: origin.and_then(|row| row.result),
    }))
}

/// Decodes a failed attempt of this call: its number, kind, message and duration.
pub(super) fn decode_attempt(invocation: InvocationId, row: &PgRow) -> Result<AttemptRow> {
    Ok(AttemptRow {
        invocation,
        attempt: row.try_get::<i32, _>(0)?.unsigned_abs(),
        kind: parse_kind(row.try_get(1)?).unwrap_or(ErrorKind::Internal),
        message: row.try_get(2)?,
        duration_us: row.try_get(3)?,
    })
}

async fn find_row(pool: &PgPool, id: InvocationId) -> Result<Option<Row>> {
    let found = sqlx::query(FIND_CALL).bind(to_uuid(&id));
    let found = found.fetch_optional(pool).await?;
    found.as_ref().map(decode_row).transpose()
}

/// Totals per caller and tool over all replicas, with quantiles from their sketches.
pub(super) async fn usage_totals(pool: &PgPool, caller: Option<&str>) -> Result<Vec<UsageRow>> {
    let caller = caller.map(storable);
    let sql = "select caller, tool, jsonb_object_agg(bucket, calls)::text from (select caller, tool, bucket, sum(calls) as calls \
        from usage_latency where $1::text is null or caller = $1 group by caller, tool, bucket) as one group by caller, tool";
    let mut latencies: HashMap<(String, String), Latencies> = HashMap::new();
    for row in sqlx::query(sql).bind(&caller).fetch_all(pool).await? {
        let sketch = serde_json::from_str(row.try_get(2)?)
            .map_err(|error| sqlx::Error::Decode(error.into()))?;
        latencies.insert((row.try_get(0)?, row.try_get(1)?), sketch);
    }
    let sql = "select caller, tool, sum(calls)::bigint, sum(succeeded)::bigint, sum(failed)::bigint, sum(refused)::bigint, \
        sum(cache_hits)::bigint from usage_total where $1::text is null or caller = $1 group by caller, tool \
        order by tool collate \"C\", caller collate \"C\"";
    let rows = sqlx::query(sql).bind(&caller).fetch_all(pool).await?;
    let total = |row: &PgRow| {
        let count = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
        let key: (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let quantile = |percent| latencies.get(&key).and_then(|all| all.quantile_ms(percent));
        Ok(UsageRow {
            calls: count(2)?,
            succeeded: count(3)?,
            failed: count(4)?,
            refused: count(5)?,
            cache_hits: count(6)?,
            p50_ms: quantile(50),
            p99_ms: quantile(99),
            caller: key.0,
            tool: key.1,
        })
    };
    rows.iter().map(total).collect()
}

pub(super) async fn counter_drift(pool: &PgPool) -> Result<u64> {
    let units = sqlx::query_scalar::<_, Option<i64>>("select verify_counters_1()");
    // Without a number, another replica reports the difference.
    let units = units.fetch_one(pool).await?.unwrap_or_default();
    Ok(units.unsigned_abs())
}

pub(super) async fn units_used(
    pool: &PgPool,
    charges: &[Charge],
    now: Timestamp,
) -> Result<Vec<Charged>> {
    let sql = "select q.window_start, q.used from unnest($1::text[], $2::text[], $3::text[], $4::text[]) \
        with ordinality as c (tool, caller, run, per, n) left join quota q on q.tool = c.tool and q.caller = c.caller \
        and q.run = c.run and q.per = c.per order by n";
    let column = |part: fn(&Charge) -> &str| {
        let texts = charges.iter().map(part).map(storable);
        texts.map(String::from).collect::<Vec<String>>()
    };
    let rows = sqlx::query_as::<_, (Option<i64>, Option<i64>)>(sql)
        .bind(column(|charge| &charge.tool))
        .bind(column(|charge| &charge.caller))
        .bind(column(|charge| &charge.run))
        .bind(column(|charge| charge.per.as_str()))
        .fetch_all(pool)
        .await?;
    let charged = |(charge, (start, used)): (&Charge, (Option<i64>, Option<i64>))| {
        let stored = start.zip(used.map(i64::unsigned_abs));
        Charged::from_counter(charge.clone(), stored, now)
    };
    Ok(charges.iter().zip(rows).map(charged).collect())
}

pub(super) async fn find_result(
    pool: &PgPool,
    key: &[u8; 32],
    now: Timestamp,
) -> Result<Option<StoredResult>> {
    let sql = "select tool, origin, result, stored_at, expires_at from stored_result where key = $1 and expires_at > $2";
    let query = sqlx::query(sql).bind(&key[..]).bind(now.as_millisecond());
    let Some(row) = query.fetch_optional(pool).await? else {
        return Ok(None);
    };
    Ok(Some(StoredResult {
        key: *key,
        tool: row.try_get(0)?,
        origin: from_uuid(row.try_get(1)?),
        result: row.try_get(2)?,
        stored_at: parse_time(row.try_get(3)?)?,
        expires_at: parse_time(row.try_get(4)?)?,
    }))
}

/// The replicas that have not ended, the oldest first.
pub(super) async fn replicas(pool: &PgPool) -> Result<Vec<ReplicaRow>> {
    let sql = "select boot, version, started_at, (extract(epoch from seen_at) * 1000)::bigint, running from replica \
        where ended_at is null order by started_at, boot";
    let rows = sqlx::query_as::<_, (Uuid, String, i64, i64, i32)>(sql)
        .fetch_all(pool)
        .await?;
    let replica = |(boot, version, started_at, seen_at, running): (Uuid, String, i64, i64, i32)| {
        Ok(ReplicaRow {
            replica: boot.to_string().into(),
            version,
            started_at: parse_time(started_at)?,
            seen_at: parse_time(seen_at)?,
            running: running.unsigned_abs(),
        })
    };
    rows.into_iter().map(replica).collect()
}

pub(super) async fn list_switches(pool: &PgPool) -> Result<Vec<Switch>> {
    let rows = sqlx::query_as::<_, (String, bool)>(
        "select tool, enabled from tool_switch order by tool collate \"C\"",
    );
    let switches = rows.fetch_all(pool).await?.into_iter();
    Ok(switches
        .map(|(tool, enabled)| Switch { tool, enabled })
        .collect())
}

pub(super) async fn registered_tools(pool: &PgPool) -> Result<Vec<RegisteredTool>> {
    let sql = "select name, definition, registered_by, registered_at from registered_tool order by name collate \"C\"";
    let rows = sqlx::query(sql).fetch_all(pool).await?;
    let read = |row: &PgRow| {
        Ok(RegisteredTool {
            name: row.try_get(0)?,
            definition: row.try_get(1)?,
            registered_by: row.try_get(2)?,
            registered_at: parse_time(row.try_get(3)?)?,
        })
    };
    rows.iter().map(read).collect()
}

pub(super) fn decode_row(row: &PgRow) -> Result<Row> {
    let text = |column: &str| {
        row.try_get::<Option<&str>, _>(column)
            .map(|text| text.map(Arc::<str>::from))
    };
    let id = |column: &str| {
        let id = row.try_get::<Option<Uuid>, _>(column)?;
        Ok::<_, sqlx::Error>(id.map(from_uuid))
    };
    Ok(Row {
        id: from_uuid(row.try_get("id")?),
        tool: row.try_get::<&str, _>("tool")?.into(),
        caller: row.try_get::<&str, _>("caller")?.into(),
        run_id: text("run_id")?,
        tool_use_id: text("tool_use_id")?,
        state: State::from_name(row.try_get("state")?)
            .ok_or_else(|| sqlx::Error::Decode("unknown state".into()))?,
        kind: row.try_get::<Option<&str>, _>("kind")?.and_then(parse_kind),
        effect: parse_effect(row.try_get("effect")?),
        cache: CacheStatus::from_name(row.try_get("cache")?),
        attempts: row.try_get::<i32, _>("attempts")?.unsigned_abs(),
        started_at: parse_time(row.try_get("started_at")?)?,
        duration_us: row.try_get("duration_us")?,
        arguments: row.try_get::<&str, _>("arguments")?.into(),
        result: text("result")?,
        origin: id("origin")?,
        meta: text("meta")?,
        idempotency_key: text("idempotency_key")?,
        fingerprint: text("fingerprint")?,
        key_until: row
            .try_get::<Option<i64>, _>("key_until")?
            .map(parse_time)
            .transpose()?,
        parent: id("parent")?,
        count: row.try_get::<i64, _>("count")?.unsigned_abs(),
        detail: text("detail")?,
        replica: Some(row.try_get::<Uuid, _>("replica")?)
            .filter(|replica| *replica != NO_REPLICA)
            .map(|replica| replica.to_string().into()),
    })
}

pub(super) fn from_uuid(id: Uuid) -> InvocationId {
    InvocationId::from_bytes(id.into_bytes())
}
