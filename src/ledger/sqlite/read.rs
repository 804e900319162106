//! Questions to the ledger, asked on the readers' pool; they never wait for the writer (WAL).

use jiff::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _, Sqlite, SqlitePool};

use super::super::{
    AttemptRow, Found, LISTED_ARGUMENTS, Query, Registered, Row, State, StoredResult, Switch, UsageRow,
};
use crate::call::{CacheStatus, Charge, Charged, Effect, ErrorKind, InvocationId};

type Result<T> = std::result::Result<T, sqlx::Error>;

const COLUMNS: &str = "select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, \
    duration_us, arguments, result, origin, meta from invocation where true";

/// A list shows no results, and of the arguments only what is short: a page of whole calls could be gigabytes.
const LISTED: [&str; 2] = [
    "select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us, \
     case when length(arguments) <= ",
    " then arguments else 'null' end, null, origin, null from invocation where true",
];

pub(super) async fn get(pool: &SqlitePool, id: InvocationId) -> Result<Option<Found>> {
    let mut query = QueryBuilder::<Sqlite>::new(COLUMNS);
    query.push(" and id = ").push_bind(id.as_bytes().to_vec());
    let Some(row) = query.build().fetch_optional(pool).await? else { return Ok(None) };
    let row = decode(&row)?;
    let sql = "select attempt, kind, message, duration_us from attempt where invocation = ? order by attempt";
    let rows = sqlx::query(sql).bind(id.as_bytes().to_vec()).fetch_all(pool).await?;
    let attempt = |row: &SqliteRow| {
        Ok(AttemptRow {
            invocation: id,
            attempt: row.try_get(0)?,
            kind: kind(row.try_get(1)?).unwrap_or(ErrorKind::Internal),
            message: row.try_get(2)?,
            duration_us: row.try_get(3)?,
        })
    };
    let attempts = rows.iter().map(attempt).collect::<Result<Vec<_>>>()?;
    let origin_result = match row.origin {
        Some(origin) => {
            sqlx::query_scalar("select result from invocation where id = ?")
                .bind(origin.as_bytes().to_vec())
                .fetch_optional(pool)
                .await?
        }
        None => None,
    };
    Ok(Some(Found { row, attempts, origin_result: origin_result.flatten() }))
}

pub(super) async fn list(pool: &SqlitePool, asked: &Query) -> Result<Vec<Row>> {
    let mut query = QueryBuilder::<Sqlite>::new(LISTED[0]);
    query.push_bind(LISTED_ARGUMENTS as i64).push(LISTED[1]);
    if let Some(tool) = &asked.tool {
        query.push(" and tool = ").push_bind(tool);
    }
    if let Some(caller) = &asked.caller {
        query.push(" and caller = ").push_bind(caller);
    }
    if let Some(run) = &asked.run_id {
        query.push(" and run_id = ").push_bind(run);
    }
    if let Some(state) = asked.state {
        query.push(" and state = ").push_bind(state.as_str());
    }
    if let Some(since) = asked.since {
        // Ids begin with the time, so the time filter is a range of the key.
        query.push(" and id >= ").push_bind(InvocationId::floor(since).as_bytes().to_vec());
    }
    if let Some(before) = asked.before {
        query.push(" and id < ").push_bind(before.as_bytes().to_vec());
    }
    query.push(" order by id desc limit ").push_bind(asked.limit);
    query.build().fetch_all(pool).await?.iter().map(decode).collect()
}

pub(super) async fn usage(pool: &SqlitePool, caller: Option<&str>) -> Result<Vec<UsageRow>> {
    let sql = "select tool, caller, count(*), sum(state = 'succeeded'), \
        sum(state in ('failed', 'timed_out', 'cancelled', 'unknown')), sum(state = 'refused'), \
        sum(cache in ('hit', 'joined') and state != 'refused') \
        from invocation where ?1 is null or caller = ?1 group by tool, caller order by tool, caller";
    let rows = sqlx::query(sql).bind(caller).fetch_all(pool).await?;
    let total = |row: &SqliteRow| {
        let count = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
        Ok(UsageRow {
            tool: row.try_get(0)?,
            caller: row.try_get(1)?,
            calls: count(2)?,
            succeeded: count(3)?,
            failed: count(4)?,
            refused: count(5)?,
            cache_hits: count(6)?,
            p50_ms: None,
            p99_ms: None,
        })
    };
    let mut totals = rows.iter().map(total).collect::<Result<Vec<_>>>()?;
    // Nearest-rank quantiles, exact.
    let sql = "select tool, caller, min(duration_us) filter (where rank * 100 >= n * 50), \
        min(duration_us) filter (where rank * 100 >= n * 99) from (select tool, caller, duration_us, \
        row_number() over (partition by tool, caller order by duration_us) as rank, \
        count(*) over (partition by tool, caller) as n from invocation \
        where duration_us is not null and state != 'refused' and (?1 is null or caller = ?1)) group by tool, caller";
    for row in sqlx::query(sql).bind(caller).fetch_all(pool).await? {
        let (tool, caller): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(total) = totals.iter_mut().find(|total| total.tool == tool && total.caller == caller) {
            let millis = |at: usize| row.try_get::<Option<i64>, _>(at).map(|us| us.map(|us| us as f64 / 1000.0));
            (total.p50_ms, total.p99_ms) = (millis(2)?, millis(3)?);
        }
    }
    Ok(totals)
}

pub(super) async fn used(pool: &SqlitePool, charges: &[Charge], now: Timestamp) -> Result<Vec<Charged>> {
    let mut counted = Vec::with_capacity(charges.len());
    for charge in charges {
        let sql = "select window_start, used from quota where tool = ? and caller = ? and run = ? and per = ?";
        let query = sqlx::query_as::<_, (i64, i64)>(sql).bind(&charge.tool).bind(&charge.caller);
        let stored = query.bind(&charge.run).bind(charge.per.as_str()).fetch_optional(pool).await?;
        let stored = stored.map(|(start, used)| (start, used.unsigned_abs()));
        counted.push(Charged::at(charge.clone(), stored, now));
    }
    Ok(counted)
}

pub(super) async fn stored(pool: &SqlitePool, key: &[u8; 32], now: Timestamp) -> Result<Option<StoredResult>> {
    let sql = "select tool, origin, result, stored_at, expires_at from stored_result where key = ? and expires_at > ?";
    let query = sqlx::query(sql).bind(key.to_vec()).bind(now.as_millisecond());
    let Some(row) = query.fetch_optional(pool).await? else { return Ok(None) };
    Ok(Some(StoredResult {
        key: *key,
        tool: row.try_get(0)?,
        origin: id(row.try_get(1)?)?,
        result: row.try_get(2)?,
        stored_at: time(row.try_get(3)?)?,
        expires_at: time(row.try_get(4)?)?,
    }))
}

pub(super) async fn switches(pool: &SqlitePool) -> Result<Vec<Switch>> {
    let rows = sqlx::query_as::<_, (String, bool)>("select tool, enabled from tool_switch where tool != ''");
    Ok(rows.fetch_all(pool).await?.into_iter().map(|(tool, enabled)| Switch { tool, enabled }).collect())
}

pub(super) async fn registered(pool: &SqlitePool) -> Result<Vec<Registered>> {
    let sql = "select name, definition, registered_by, registered_at from registered_tool order by name";
    let rows = sqlx::query(sql).fetch_all(pool).await?;
    let read = |row: &SqliteRow| {
        let (name, definition, by) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Registered { name, definition, by, at: time(row.try_get(3)?)? })
    };
    rows.iter().map(read).collect()
}

fn decode(row: &SqliteRow) -> Result<Row> {
    Ok(Row {
        id: id(row.try_get(0)?)?,
        tool: row.try_get(1)?,
        caller: row.try_get(2)?,
        run_id: row.try_get(3)?,
        tool_use_id: row.try_get(4)?,
        state: State::from_word(row.try_get(5)?).ok_or_else(|| sqlx::Error::Decode("unknown state".into()))?,
        kind: row.try_get::<Option<&str>, _>(6)?.and_then(kind),
        effect: effect(row.try_get(7)?),
        cache: CacheStatus::from_word(row.try_get(8)?),
        attempts: row.try_get(9)?,
        started_at: time(row.try_get(10)?)?,
        duration_us: row.try_get(11)?,
        arguments: row.try_get(12)?,
        result: row.try_get(13)?,
        origin: row.try_get::<Option<Vec<u8>>, _>(14)?.map(id).transpose()?,
        meta: row.try_get(15)?,
    })
}

fn id(bytes: Vec<u8>) -> Result<InvocationId> {
    let bytes = <[u8; 16]>::try_from(bytes).map_err(|_| sqlx::Error::Decode("an id has 16 bytes".into()))?;
    Ok(InvocationId::from_bytes(bytes))
}

fn time(millis: i64) -> Result<Timestamp> {
    Timestamp::from_millisecond(millis).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn kind(word: &str) -> Option<ErrorKind> {
    ErrorKind::ALL.into_iter().find(|kind| kind.as_str() == word)
}

fn effect(word: &str) -> Effect {
    let all = [Effect::Read, Effect::Idempotent, Effect::Write];
    all.into_iter().find(|effect| effect.as_str() == word).unwrap_or_default()
}
