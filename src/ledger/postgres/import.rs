//! Adds calls that another ledger has recorded.

use std::collections::HashSet;

use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::super::imported_counts::ImportedCounts;
use super::super::{RecordedCall, Row};
use super::commit::{AttemptColumns, RowColumns, Text, to_json};
use super::read::{NO_REPLICA, Result, from_uuid};
use crate::call::InvocationId;

/// The slot of totals that no replica has counted. Slots of replicas start at 0.
pub(super) const IMPORT_SLOT: i32 = -1;

const ADD_CALLS: &str = "insert into invocation (id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, \
    started_at, duration_us, arguments, result, origin, meta, idempotency_key, fingerprint, key_until, parent, count, detail, reserved, replica) \
    select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us, arguments, result, \
    origin, meta, idempotency_key, fingerprint, key_until, parent, count, detail, reserved, replica \
    from jsonb_to_recordset($1::jsonb) as r (id uuid, tool text, caller text, run_id text, tool_use_id text, state text, kind text, \
    effect text, cache text, attempts integer, started_at bigint, duration_us bigint, arguments text, result text, origin uuid, \
    meta text, idempotency_key text, fingerprint text, key_until bigint, parent uuid, count bigint, detail text, reserved boolean, \
    replica uuid) on conflict (id) do nothing returning id";
const ADD_ATTEMPTS: &str = "insert into attempt select * from jsonb_to_recordset($1::jsonb) \
    as a (invocation uuid, attempt integer, kind text, message text, duration_us bigint) on conflict do nothing";
/// In one order in all processes, so that two of them do not wait for each other in a circle.
const ADD_TOTALS: &str = "insert into usage_total as t select c->>0, c->>1, $2, (c->>2)::bigint, (c->>3)::bigint, (c->>4)::bigint, \
    (c->>5)::bigint, (c->>6)::bigint from jsonb_array_elements($1::jsonb) as c order by 1, 2 \
    on conflict (caller, tool, slot) do update set calls = t.calls + excluded.calls, succeeded = t.succeeded + excluded.succeeded, \
    failed = t.failed + excluded.failed, refused = t.refused + excluded.refused, cache_hits = t.cache_hits + excluded.cache_hits";
const ADD_LATENCIES: &str = "insert into usage_latency as l select c->>0, c->>1, (c->>2)::bigint, $2, (c->>3)::bigint \
    from jsonb_array_elements($1::jsonb) as c order by 1, 2, 3 \
    on conflict (caller, tool, bucket, slot) do update set calls = l.calls + excluded.calls";

/// A row with what only this engine has.
#[derive(Serialize)]
struct AddedRow<'a> {
    #[serde(flatten)]
    row: RowColumns<'a>,
    reserved: bool,
    replica: Uuid,
}

/// Adds the calls whose ids are new. Returns their number.
pub(super) async fn import_calls(pool: &PgPool, calls: &[RecordedCall]) -> Result<u64> {
    let mut transaction = pool.begin().await?;
    let rows: Vec<(&Row, bool)> = calls.iter().map(|call| (&call.row, false)).collect();
    let mut added = add_rows(&mut transaction, &rows).await?;
    // Of two calls with one id, the first was added.
    let new: Vec<&RecordedCall> = calls
        .iter()
        .filter(|call| added.remove(&call.row.id))
        .collect();
    let attempts: Vec<AttemptColumns<'_>> = new
        .iter()
        .flat_map(|call| &call.attempts)
        .map(AttemptColumns::of)
        .collect();
    sqlx::query(ADD_ATTEMPTS)
        .bind(to_json(attempts.iter()))
        .execute(&mut *transaction)
        .await?;
    let counts = ImportedCounts::of(new.iter().map(|call| &call.row));
    let (totals, latencies) = (counts.totals(), counts.latencies());
    let totals = totals.iter().map(|line| {
        let (caller, tool) = (Text(&line.0), Text(&line.1));
        (caller, tool, line.2, line.3, line.4, line.5, line.6)
    });
    let latencies = latencies
        .iter()
        .map(|line| (Text(&line.0), Text(&line.1), line.2, line.3));
    for (sql, lines) in [
        (ADD_TOTALS, to_json(totals)),
        (ADD_LATENCIES, to_json(latencies)),
    ] {
        sqlx::query(sql)
            .bind(lines)
            .bind(IMPORT_SLOT)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(new.len() as u64)
}

/// Adds rows, each with whether it was committed before its tool ran. Returns the ids of those that
/// are new.
pub(super) async fn add_rows(
    connection: &mut PgConnection,
    rows: &[(&Row, bool)],
) -> Result<HashSet<InvocationId>> {
    let rows = rows.iter().map(|(row, reserved)| AddedRow {
        row: RowColumns::of(row),
        reserved: *reserved,
        replica: replica_of(row),
    });
    let added = sqlx::query_scalar::<_, Uuid>(ADD_CALLS).bind(to_json(rows));
    let added = added.fetch_all(connection).await?;
    Ok(added.into_iter().map(from_uuid).collect())
}

/// A row from a file of one machine has no replica.
fn replica_of(row: &Row) -> Uuid {
    let replica = row.replica.as_deref().map(str::parse);
    replica
        .and_then(std::result::Result::ok)
        .unwrap_or(NO_REPLICA)
}
