//! Queries on the pool of readers. They never wait for the writer (WAL).

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _, Sqlite, SqlitePool};

use super::super::columns::{parse_effect, parse_kind, parse_time};
use super::super::latency::Latencies;
use super::super::{
    AttemptRow, RecordedCall, RegisteredTool, Row, State, StoredResult, Switch, UsageRow,
};
use super::checksum::{self, DamagedRow};
use super::quota::SUM_DRIFT;
use crate::call::{CacheStatus, Charge, Charged, ErrorKind, InvocationId};

pub(super) type Result<T> = std::result::Result<T, sqlx::Error>;

pub(super) const SELECT_ROW: &str = "select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, \
    duration_us, arguments, result, origin, meta, idempotency_key, fingerprint, key_until, sum, parent, count, detail \
    from invocation where true";

pub(super) async fn find_call(pool: &SqlitePool, id: InvocationId) -> Result<Option<RecordedCall>> {
    let Some(row) = find_row(pool, id).await? else {
        return Ok(None);
    };
    let sql = "select attempt, kind, message, duration_us from attempt where invocation = ? order by attempt";
    let rows = sqlx::query(sql)
        .bind(id.as_bytes().to_vec())
        .fetch_all(pool)
        .await?;
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
pub(super) fn decode_attempt(invocation: InvocationId, row: &SqliteRow) -> Result<AttemptRow> {
    Ok(AttemptRow {
        invocation,
        attempt: row.try_get(0)?,
        kind: parse_kind(row.try_get(1)?).unwrap_or(ErrorKind::Internal),
        message: row.try_get(2)?,
        duration_us: row.try_get(3)?,
    })
}

async fn find_row(pool: &SqlitePool, id: InvocationId) -> Result<Option<Row>> {
    let mut query = QueryBuilder::<Sqlite>::new(SELECT_ROW);
    query.push(" and id = ").push_bind(id.as_bytes().to_vec());
    query
        .build()
        .fetch_optional(pool)
        .await?
        .as_ref()
        .map(decode_verified)
        .transpose()
}

/// Decodes a row and checks its checksum, because a caller may act on its content.
pub(super) fn decode_verified(row: &SqliteRow) -> Result<Row> {
    let id = parse_id(row.try_get(0)?)?;
    // The column of the checksum may itself be damaged.
    let read = || Ok::<_, sqlx::Error>((decode_row(row)?, row.try_get::<Option<u32>, _>(19)?));
    match read() {
        Ok((row, stored_sum))
            if stored_sum.is_none_or(|sum| sum == checksum::row_checksum(&row)) =>
        {
            Ok(row)
        }
        read => {
            let error = read.err();
            tracing::error!(%id, error = error.map(tracing::field::display), "a row of the ledger is damaged: it is not returned");
            Err(sqlx::Error::Decode(DamagedRow(id).into()))
        }
    }
}

pub(super) async fn find_key_holder(
    pool: &SqlitePool,
    caller: &str,
    tool: &str,
    key: &str,
    now: Timestamp,
) -> Result<Option<Row>> {
    let mut query = QueryBuilder::<Sqlite>::new(SELECT_ROW);
    query
        .push(" and idempotency_key = ")
        .push_bind(key)
        .push(" and caller = ")
        .push_bind(caller);
    query
        .push(" and tool = ")
        .push_bind(tool)
        .push(" and key_until > ")
        .push_bind(now.as_millisecond());
    query
        .build()
        .fetch_optional(pool)
        .await?
        .as_ref()
        .map(decode_verified)
        .transpose()
}

/// Totals per caller and tool, with quantiles from their sketches. Totals are maintained with each
/// commit, so the number of rows does not matter.
pub(super) async fn usage_totals(pool: &SqlitePool, caller: Option<&str>) -> Result<Vec<UsageRow>> {
    // One row for each sketch, not for each bucket, because every row costs a change of threads.
    let sql = "select caller, tool, json_group_object(bucket, calls) from usage_latency \
        where ?1 is null or caller = ?1 group by caller, tool";
    let mut latencies: HashMap<(String, String), Latencies> = HashMap::new();
    for row in sqlx::query(sql).bind(caller).fetch_all(pool).await? {
        let sketch = serde_json::from_str(row.try_get(2)?)
            .map_err(|error| sqlx::Error::Decode(error.into()))?;
        latencies.insert((row.try_get(0)?, row.try_get(1)?), sketch);
    }
    let sql = "select caller, tool, calls, succeeded, failed, refused, cache_hits from usage_total \
        where ?1 is null or caller = ?1 order by tool, caller";
    let rows = sqlx::query(sql).bind(caller).fetch_all(pool).await?;
    let total = |row: &SqliteRow| {
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

pub(super) async fn counter_drift(pool: &SqlitePool) -> Result<u64> {
    let units: i64 = sqlx::query_scalar(SUM_DRIFT).fetch_one(pool).await?;
    Ok(units.unsigned_abs())
}

pub(super) async fn units_used(
    pool: &SqlitePool,
    charges: &[Charge],
    now: Timestamp,
) -> Result<Vec<Charged>> {
    let mut counted = Vec::with_capacity(charges.len());
    for charge in charges {
        let sql = "select window_start, used from quota where tool = ? and caller = ? and run = ? and per = ?";
        let query = sqlx::query_as::<_, (i64, i64)>(sql)
            .bind(&charge.tool)
            .bind(&charge.caller);
        let stored = query
            .bind(&charge.run)
            .bind(charge.per.as_str())
            .fetch_optional(pool)
            .await?;
        let stored = stored.map(|(start, used)| (start, used.unsigned_abs()));
        counted.push(Charged::from_counter(charge.clone(), stored, now));
    }
    Ok(counted)
}

pub(super) async fn find_result(
    pool: &SqlitePool,
    key: &[u8; 32],
    now: Timestamp,
) -> Result<Option<StoredResult>> {
    let sql = "select tool, origin, result, stored_at, expires_at, sum from stored_result \
        where key = ? and expires_at > ?";
    let query = sqlx::query(sql)
        .bind(key.to_vec())
        .bind(now.as_millisecond());
    let Some(row) = query.fetch_optional(pool).await? else {
        return Ok(None);
    };
    let stored = decode_result(*key, &row);
    if stored.is_none() {
        tracing::warn!(
            key = hex::encode(key),
            "a stored result is damaged: the tool is called instead"
        );
    }
    Ok(stored)
}

/// Decodes a stored result: tool, origin, result, times and checksum. `None` if it is damaged.
pub(super) fn decode_result(key: [u8; 32], row: &SqliteRow) -> Option<StoredResult> {
    let read = || {
        let stored = StoredResult {
            key,
            tool: row.try_get(0)?,
            origin: parse_id(row.try_get(1)?)?,
            result: row.try_get(2)?,
            stored_at: parse_time(row.try_get(3)?)?,
            expires_at: parse_time(row.try_get(4)?)?,
        };
        Ok::<_, sqlx::Error>((stored, row.try_get::<Option<u32>, _>(5)?))
    };
    let (stored, sum) = read().ok()?;
    sum.is_none_or(|sum| sum == checksum::result_checksum(&stored))
        .then_some(stored)
}

pub(super) async fn list_switches(pool: &SqlitePool) -> Result<Vec<Switch>> {
    let rows = sqlx::query_as::<_, (String, bool)>(
        "select tool, enabled from tool_switch where tool != ''",
    );
    Ok(rows
        .fetch_all(pool)
        .await?
        .into_iter()
        .map(|(tool, enabled)| Switch { tool, enabled })
        .collect())
}

pub(super) async fn registered_tools(pool: &SqlitePool) -> Result<Vec<RegisteredTool>> {
    let sql =
        "select name, definition, registered_by, registered_at from registered_tool order by name";
    let rows = sqlx::query(sql).fetch_all(pool).await?;
    let read = |row: &SqliteRow| {
        let (name, definition, by) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(RegisteredTool {
            name,
            definition,
            registered_by: by,
            registered_at: parse_time(row.try_get(3)?)?,
        })
    };
    rows.iter().map(read).collect()
}

pub(super) fn decode_row(row: &SqliteRow) -> Result<Row> {
    let text = |at: usize| {
        row.try_get::<Option<&str>, _>(at)
            .map(|text| text.map(Arc::<str>::from))
    };
    Ok(Row {
        id: parse_id(row.try_get(0)?)?,
        tool: row.try_get::<&str, _>(1)?.into(),
        caller: row.try_get::<&str, _>(2)?.into(),
        run_id: text(3)?,
        tool_use_id: text(4)?,
        state: State::from_name(row.try_get(5)?)
            .ok_or_else(|| sqlx::Error::Decode("unknown state".into()))?,
        kind: row.try_get::<Option<&str>, _>(6)?.and_then(parse_kind),
        effect: parse_effect(row.try_get(7)?),
        cache: CacheStatus::from_name(row.try_get(8)?),
        attempts: row.try_get(9)?,
        started_at: parse_time(row.try_get(10)?)?,
        duration_us: row.try_get(11)?,
        arguments: row.try_get::<&str, _>(12)?.into(),
        result: text(13)?,
        origin: row
            .try_get::<Option<Vec<u8>>, _>(14)?
            .map(parse_id)
            .transpose()?,
        meta: text(15)?,
        idempotency_key: text(16)?,
        fingerprint: text(17)?,
        key_until: row
            .try_get::<Option<i64>, _>(18)?
            .map(parse_time)
            .transpose()?,
        parent: row
            .try_get::<Option<Vec<u8>>, _>(20)?
            .map(parse_id)
            .transpose()?,
        count: row.try_get::<i64, _>(21)?.unsigned_abs(),
        detail: text(22)?,
        replica: None,
    })
}

pub(super) fn parse_id(bytes: Vec<u8>) -> Result<InvocationId> {
    let bytes = <[u8; 16]>::try_from(bytes)
        .map_err(|_| sqlx::Error::Decode("an id has 16 bytes".into()))?;
    Ok(InvocationId::from_bytes(bytes))
}
