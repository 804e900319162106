//! Queries that both engines run.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

use super::latency::Latencies;
use super::sql::{Dialect, Sql, SqlRow, SqlValue, Store, Unreadable};
use super::{
    AttemptRow, Error, ExportQuery, RecordedCall, RegisteredTool, Row, State, StoredResult, Switch,
    UsageRow, checksum,
};
use crate::call::{CacheStatus, Charge, Charged, ErrorKind, InvocationId};

/// The replica of calls that were recorded in a file of one machine.
pub(super) const NO_REPLICA: Uuid = Uuid::nil();

/// Columns that both engines have, in the order of [`decode_row`].
pub(super) const CALL_COLUMNS: &str = "id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, \
    started_at, duration_us, origin, idempotency_key, fingerprint, key_until, parent, detail, count";

/// The values of [`CALL_COLUMNS`] without the count.
pub(super) fn call_values(row: &Row) -> [SqlValue; 18] {
    [
        row.id.into(),
        row.tool.clone().into(),
        row.caller.clone().into(),
        row.run_id.clone().into(),
        row.tool_use_id.clone().into(),
        SqlValue::Word(row.state.as_str()),
        row.kind.map(|kind| kind.as_str()).into(),
        SqlValue::Word(row.effect.as_str()),
        SqlValue::Word(row.cache.as_str()),
        row.attempts.into(),
        row.started_at.into(),
        row.duration_us.into(),
        row.origin.into(),
        row.idempotency_key.clone().into(),
        row.fingerprint.clone().into(),
        row.key_until.into(),
        row.parent.into(),
        row.detail.clone().into(),
    ]
}

/// The columns of whole calls.
pub(super) fn whole_columns(dialect: Dialect) -> String {
    let others = dialect.pick("null, sum", "replica, null");
    format!("{CALL_COLUMNS}, {others}, arguments, result, meta")
}

/// Selects whole calls.
pub(super) fn select_calls(dialect: Dialect) -> Sql {
    let columns = whole_columns(dialect);
    Sql::new(format!("select {columns} from invocation where true"))
}

/// Selects calls for a list: without results, and only with short arguments. A page of whole calls could be
/// gigabytes.
pub(super) fn select_listed(dialect: Dialect, max_arguments: u32) -> Sql {
    let replica = dialect.pick("null", "replica");
    let mut sql = Sql::new(format!(
        "select {CALL_COLUMNS}, {replica}, null, case when octet_length(arguments) <= "
    ));
    sql.bind(max_arguments)
        .push(" then arguments else 'null' end, null, null from invocation where true");
    sql.is_planned_anew = true;
    sql
}

/// Decodes a call, and does not look at its checksum.
pub(super) fn decode_row(row: &SqlRow) -> Result<Row, Unreadable> {
    let word = |at| row.get::<Arc<str>>(at);
    let replica = row.get::<Option<InvocationId>>(19)?;
    let replica = replica.map(|id| Uuid::from_bytes(*id.as_bytes()));
    Ok(Row {
        id: row.get(0)?,
        tool: row.get(1)?,
        caller: row.get(2)?,
        run_id: row.get(3)?,
        tool_use_id: row.get(4)?,
        state: State::from_name(&word(5)?).ok_or(Unreadable(5))?,
        // None for a kind of a newer version.
        kind: row
            .get::<Option<Arc<str>>>(6)?
            .and_then(|word| word.parse().ok()),
        effect: word(7)?.parse().unwrap_or_default(),
        cache: CacheStatus::from_name(&word(8)?),
        attempts: row.get(9)?,
        started_at: row.get(10)?,
        duration_us: row.get(11)?,
        origin: row.get(12)?,
        idempotency_key: row.get(13)?,
        fingerprint: row.get(14)?,
        key_until: row.get(15)?,
        parent: row.get(16)?,
        detail: row.get(17)?,
        count: row.get(18)?,
        replica: replica
            .filter(|replica| *replica != NO_REPLICA)
            .map(|replica| replica.to_string().into()),
        arguments: row.get(21)?,
        result: row.get(22)?,
        meta: row.get(23)?,
    })
}

/// Decodes a whole call and checks its checksum, because a caller may act on its content.
pub(super) fn decode_verified(row: &SqlRow) -> Result<Row, Error> {
    let id = row.get(0)?;
    // The column of the checksum may itself be damaged.
    let read = || Ok::<_, Unreadable>((decode_row(row)?, row.get::<Option<u32>>(20)?));
    match read() {
        Ok((row, sum)) if sum.is_none_or(|sum| sum == checksum::row_checksum(&row)) => Ok(row),
        read => {
            let error = read.err();
            tracing::error!(%id, error = error.map(tracing::field::display), "a row of the ledger is damaged: it is not returned");
            Err(Error::DamagedRow(id))
        }
    }
}

/// Whole calls, verified.
pub(super) async fn fetch_rows(store: &dyn Store, sql: Sql) -> Result<Vec<Row>, Error> {
    let rows = store.fetch(sql).await?;
    rows.iter().map(decode_verified).collect()
}

pub(super) async fn find_call(
    store: &dyn Store,
    id: InvocationId,
) -> Result<Option<RecordedCall>, Error> {
    let mut sql = select_calls(store.dialect());
    sql.and("id =", Some(id));
    let rows = fetch_rows(store, sql).await?;
    Ok(complete(store, rows).await?.pop())
}

/// Calls that have ended, the oldest first.
pub(super) async fn export_calls(
    store: &dyn Store,
    wanted: &ExportQuery,
) -> Result<Vec<RecordedCall>, Error> {
    let (first, end) = wanted.id_range();
    let mut sql = select_calls(store.dialect());
    sql.push(" and state <> 'reserved'")
        .and("id >=", Some(first))
        .and("id <", end)
        .and("id >", wanted.after)
        .and("tool =", wanted.tool.as_deref())
        .push(" order by id limit ")
        .bind(wanted.limit);
    let rows = fetch_rows(store, sql).await?;
    complete(store, rows).await
}

/// Gives each row its failed attempts, and the result of its origin.
async fn complete(store: &dyn Store, rows: Vec<Row>) -> Result<Vec<RecordedCall>, Error> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut sql = Sql::new(
        "select invocation, attempt, kind, message, duration_us from attempt where invocation in ",
    );
    sql.bind_list(rows.iter().map(|row| row.id))
        .push(" order by invocation, attempt");
    let mut attempts: HashMap<InvocationId, Vec<AttemptRow>> = HashMap::new();
    for row in store.fetch(sql).await? {
        let attempt = AttemptRow {
            invocation: row.get(0)?,
            attempt: row.get(1)?,
            kind: row
                .get::<Arc<str>>(2)?
                .parse()
                .unwrap_or(ErrorKind::Internal),
            message: row.get(3)?,
            duration_us: row.get(4)?,
        };
        attempts
            .entry(attempt.invocation)
            .or_default()
            .push(attempt);
    }
    let answered = rows.iter().filter(|row| row.result.is_none());
    let origins: Vec<InvocationId> = answered.filter_map(|row| row.origin).collect();
    let mut results = HashMap::new();
    if !origins.is_empty() {
        let mut sql = select_calls(store.dialect());
        sql.push(" and id in ").bind_list(origins);
        let rows = fetch_rows(store, sql).await?.into_iter();
        results = rows.map(|row| (row.id, row.result)).collect();
    }
    let complete = |row: Row| RecordedCall {
        attempts: attempts.remove(&row.id).unwrap_or_default(),
        origin_result: row.origin.and_then(|origin| results.get(&origin).cloned()?),
        row,
    };
    Ok(rows.into_iter().map(complete).collect())
}

/// Totals per caller and tool, with quantiles from their sketches. Totals are maintained with each
/// commit, so the number of rows does not matter.
pub(super) async fn usage_totals(
    store: &dyn Store,
    caller: Option<&str>,
) -> Result<Vec<UsageRow>, Error> {
    // One row for each sketch, not for each bucket, because every row costs SQLite a change of threads.
    let object = store.dialect().pick("json_group_object", "json_object_agg");
    let mut sql = Sql::new(format!(
        "select caller, tool, cast({object}(bucket, calls) as text) from (select caller, tool, bucket, \
         cast(sum(calls) as bigint) as calls from usage_latency where true"
    ));
    sql.and("caller =", caller)
        .push(" group by caller, tool, bucket) as one group by caller, tool");
    let mut latencies: HashMap<(String, String), Latencies> = HashMap::new();
    for row in store.fetch(sql).await? {
        let sketch = serde_json::from_str(&row.get::<Arc<str>>(2)?).map_err(|_| Unreadable(2))?;
        latencies.insert((row.get(0)?, row.get(1)?), sketch);
    }
    let columns = ["calls", "succeeded", "failed", "refused", "cache_hits"];
    let sums = columns.map(|column| format!("cast(sum({column}) as bigint)"));
    let mut sql = Sql::new(format!(
        "select caller, tool, {} from usage_total where true",
        sums.join(", ")
    ));
    let by_bytes = store.dialect().pick("", " collate \"C\"");
    sql.and("caller =", caller)
        .push(" group by caller, tool order by tool")
        .push(by_bytes)
        .push(", caller")
        .push(by_bytes);
    let total = |row: &SqlRow| {
        let key: (String, String) = (row.get(0)?, row.get(1)?);
        let quantile = |percent| latencies.get(&key).and_then(|all| all.quantile_ms(percent));
        Ok(UsageRow {
            calls: row.get(2)?,
            succeeded: row.get(3)?,
            failed: row.get(4)?,
            refused: row.get(5)?,
            cache_hits: row.get(6)?,
            p50_ms: quantile(50),
            p99_ms: quantile(99),
            caller: key.0,
            tool: key.1,
        })
    };
    store.fetch(sql).await?.iter().map(total).collect()
}

/// The units of counters, without those that no call has taken.
pub(super) async fn units_used(
    store: &dyn Store,
    charges: &[Charge],
    now: Timestamp,
) -> Result<Vec<Charged>, Error> {
    let mut counted = Vec::with_capacity(charges.len());
    for charge in charges {
        let mut sql = Sql::new("select window_start, used from quota where true");
        sql.and("tool =", Some(&*charge.tool))
            .and("caller =", Some(&*charge.caller))
            .and("run =", Some(&*charge.run))
            .and("per =", Some(charge.per.as_str()));
        let rows = store.fetch(sql).await?;
        let counter = |row: &SqlRow| Ok::<_, Unreadable>((row.get(0)?, row.get(1)?));
        let stored = rows.first().map(counter).transpose()?;
        let mut charged = Charged::from_counter(charge.clone(), stored, now);
        charged.used = charged.used.saturating_sub(store.free_units(&charged));
        counted.push(charged);
    }
    Ok(counted)
}

pub(super) async fn find_result(
    store: &dyn Store,
    key: &[u8; 32],
    now: Timestamp,
) -> Result<Option<StoredResult>, Error> {
    let sum = store.dialect().pick("sum", "null");
    let mut sql = Sql::new(format!(
        "select key, tool, origin, result, stored_at, expires_at, {sum} from stored_result where true"
    ));
    sql.and("key =", Some(&key[..]))
        .and("expires_at >", Some(now));
    let rows = store.fetch(sql).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let stored = decode_result(row);
    if stored.is_none() {
        tracing::warn!(
            key = hex::encode(key),
            "a stored result is damaged: the tool is called instead"
        );
    }
    Ok(stored)
}

/// Decodes a stored result with its checksum. `None` if it is damaged.
pub(super) fn decode_result(row: &SqlRow) -> Option<StoredResult> {
    let read = || {
        let stored = StoredResult {
            key: row.get(0)?,
            tool: row.get(1)?,
            origin: row.get(2)?,
            result: row.get(3)?,
            stored_at: row.get(4)?,
            expires_at: row.get(5)?,
        };
        Ok::<_, Unreadable>((stored, row.get::<Option<u32>>(6)?))
    };
    let (stored, sum) = read().ok()?;
    sum.is_none_or(|sum| sum == checksum::result_checksum(&stored))
        .then_some(stored)
}

pub(super) async fn list_switches(store: &dyn Store) -> Result<Vec<Switch>, Error> {
    let sql = Sql::new("select tool, enabled from tool_switch where tool <> '' order by tool");
    let switch = |row: &SqlRow| {
        Ok(Switch {
            tool: row.get(0)?,
            enabled: row.get(1)?,
        })
    };
    store.fetch(sql).await?.iter().map(switch).collect()
}

pub(super) async fn registered_tools(store: &dyn Store) -> Result<Vec<RegisteredTool>, Error> {
    let by_bytes = store.dialect().pick("", " collate \"C\"");
    let mut sql = Sql::new(
        "select name, definition, registered_by, registered_at from registered_tool order by name",
    );
    sql.push(by_bytes);
    let tool = |row: &SqlRow| {
        Ok(RegisteredTool {
            name: row.get(0)?,
            definition: row.get(1)?,
            registered_by: row.get(2)?,
            registered_at: row.get(3)?,
        })
    };
    store.fetch(sql).await?.iter().map(tool).collect()
}
