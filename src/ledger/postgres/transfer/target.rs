//! Writes an empty database as a whole.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sqlx::{Connection, Executor as _, PgConnection};

use super::super::commit::{ResultColumns, storable, to_json};
use super::super::fault::query_error;
use super::super::import::{IMPORT_SLOT, add_rows};
use super::exclusive::Exclusive;
use super::sums;
use crate::call::InvocationId;
use crate::ledger::transfer::{Record, Table, TableSums, Target};
use crate::ledger::{Error, Row, Settings};

const HAS_ROWS: &str = "select exists (select 1 from invocation) or exists (select 1 from quota) or exists (select 1 from stored_result) \
    or exists (select 1 from tool_switch) or exists (select 1 from registered_tool) or exists (select 1 from usage_total) \
    or exists (select 1 from approval)";
/// Partitions for the days of the calls. Older calls share one, because a transaction holds a lock for
/// each partition and each of its indexes.
const MAX_PARTITIONS: i64 = 100;
const ADD_PARTITION: &str =
    "select add_partitions_1((to_timestamp($1::bigint / 1000.0) at time zone 'utc')::date, 1)";
const ADD_KEYS: &str = "insert into key_holder select idempotency_key, caller, tool, id, key_until from invocation where key_until is not null";
const ADD_RESULTS: &str = "insert into stored_result select decode(key, 'hex'), tool, origin, result, stored_at, expires_at \
    from jsonb_to_recordset($1::jsonb) as r (key text, tool text, origin uuid, result text, stored_at bigint, expires_at bigint)";

/// The statement that writes the columns of a table. `$2` is the slot of the totals.
fn insert_columns(table: Table) -> Option<&'static str> {
    Some(match table {
        Table::Calls | Table::Results => return None,
        Table::Attempts => {
            "insert into attempt (invocation, attempt, kind, message, duration_us) \
             select (c->>0)::uuid, (c->>1)::integer, c->>2, c->>3, (c->>4)::bigint from jsonb_array_elements($1::jsonb) as c \
             where $2::integer is not null"
        }
        Table::Counters => {
            "insert into quota (tool, caller, run, per, window_start, used, calls, counted_at, lost_units, carried) \
             select c->>0, c->>1, c->>2, c->>3, (c->>4)::bigint, (c->>5)::bigint, (c->>6)::bigint, (c->>7)::bigint, (c->>8)::bigint, \
             (c->>5)::bigint - (c->>8)::bigint from jsonb_array_elements($1::jsonb) as c where $2::integer is not null"
        }
        Table::Switches => {
            "insert into tool_switch (tool, enabled) select c->>0, (c->>1)::integer::boolean from jsonb_array_elements($1::jsonb) as c \
             where $2::integer is not null"
        }
        Table::RegisteredTools => {
            "insert into registered_tool (name, definition, registered_by, registered_at) \
             select c->>0, c->>1, c->>2, (c->>3)::bigint from jsonb_array_elements($1::jsonb) as c where $2::integer is not null"
        }
        Table::Totals => {
            "insert into usage_total (caller, tool, slot, calls, succeeded, failed, refused, cache_hits) \
             select c->>0, c->>1, $2, (c->>2)::bigint, (c->>3)::bigint, (c->>4)::bigint, (c->>5)::bigint, (c->>6)::bigint \
             from jsonb_array_elements($1::jsonb) as c"
        }
        Table::Latencies => {
            "insert into usage_latency (caller, tool, slot, bucket, calls) select c->>0, c->>1, $2, (c->>2)::bigint, (c->>3)::bigint \
             from jsonb_array_elements($1::jsonb) as c"
        }
        Table::Approvals => {
            "insert into approval (id, tool, caller, state, idempotency_key, approvers, request, call, requested_at, expires_at, \
             decided_at, decided_by, note, changed, runner, done, notified, message) \
             select (c->>0)::uuid, c->>1, c->>2, c->>3, c->>4, c->>5, c->>6, c->>7, (c->>8)::bigint, (c->>9)::bigint, \
             (c->>10)::bigint, c->>11, c->>12, c->>13, c->>14, (c->>15)::integer::boolean, (c->>16)::integer::boolean, c->>17 \
             from jsonb_array_elements($1::jsonb) as c where $2::integer is not null"
        }
    })
}

/// A database that no replica uses, and that has only the schema.
pub(in crate::ledger) struct PostgresTarget {
    database: Exclusive,
    now: Timestamp,
}

impl PostgresTarget {
    /// Opens the database, and refuses one with content.
    pub(in crate::ledger) async fn open(
        settings: &Settings,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let mut database = Exclusive::open(settings, now).await?;
        let has_rows: bool = sqlx::query_scalar(HAS_ROWS)
            .fetch_one(&mut database.connection)
            .await
            .map_err(|error| query_error(&error))?;
        if has_rows {
            return Err(Error::NotEmpty(database.place));
        }
        Ok(Self { database, now })
    }

    fn connection(&mut self) -> &mut PgConnection {
        &mut self.database.connection
    }

    async fn write_records(&mut self, table: Table, records: Vec<Record>) -> sqlx::Result<()> {
        let (mut calls, mut results, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        for record in records {
            match record {
                Record::Call(call) => calls.push(call),
                Record::Result(result) => results.push(result),
                Record::Columns(columns) => lines.push(to_storable(columns)),
            }
        }
        let rows: Vec<(&Row, bool)> = calls
            .iter()
            .map(|call| (&call.row, call.is_protected))
            .collect();
        if !rows.is_empty() {
            add_rows(self.connection(), &rows).await?;
        }
        if let Some(results) = to_json(results.iter().map(ResultColumns::of)) {
            let add = sqlx::query(ADD_RESULTS).bind(results);
            add.execute(self.connection()).await?;
        }
        if let Some((sql, lines)) = insert_columns(table).zip(to_json(lines.iter())) {
            let add = sqlx::query(sql).bind(lines).bind(IMPORT_SLOT);
            add.execute(self.connection()).await?;
        }
        Ok(())
    }

    /// Adds partitions from the day of the oldest call on. They stay if the move fails.
    async fn add_partitions(&mut self, oldest: Option<InvocationId>) -> sqlx::Result<()> {
        let Some(oldest) = oldest.and_then(|id| id.created_at()) else {
            return Ok(());
        };
        let day = SignedDuration::from_hours(24);
        let days = (self.now.duration_since(oldest).as_hours() / 24 + 1).clamp(0, MAX_PARTITIONS);
        for before in (0..=days).rev() {
            let at = self.now.as_millisecond() - before * day.as_millis() as i64;
            let add = sqlx::query(ADD_PARTITION).bind(at);
            add.execute(self.connection()).await?;
        }
        Ok(())
    }
}

/// The columns as PostgreSQL can store them.
fn to_storable(columns: Value) -> Value {
    match columns {
        Value::Array(columns) => columns.into_iter().map(to_storable).collect(),
        Value::String(text) => storable(&text).into(),
        other => other,
    }
}

#[async_trait]
impl Target for PostgresTarget {
    async fn begin(&mut self, oldest: Option<InvocationId>) -> Result<(), Error> {
        let begun = async {
            self.add_partitions(oldest).await?;
            // Hours that were counted without calls.
            let begin = "begin; delete from usage_hour";
            self.connection().execute(begin).await
        };
        begun.await.map(drop).map_err(|error| query_error(&error))
    }

    async fn write(&mut self, table: Table, records: Vec<Record>) -> Result<(), Error> {
        self.write_records(table, records)
            .await
            .map_err(|error| query_error(&error))
    }

    async fn finish(&mut self) -> Result<(), Error> {
        let keys = self.connection().execute(ADD_KEYS).await;
        keys.map(drop).map_err(|error| query_error(&error))
    }

    async fn drift(&mut self) -> Result<i64, Error> {
        let drift = sqlx::query_scalar::<_, Option<i64>>("select verify_counters_1()");
        let drift = drift.fetch_one(self.connection()).await;
        drift
            .map(Option::unwrap_or_default)
            .map_err(|error| query_error(&error))
    }

    async fn sums(&mut self) -> Result<Vec<TableSums>, Error> {
        let now = self.now.as_millisecond();
        sums::count(self.connection(), now)
            .await
            .map_err(|error| query_error(&error))
    }

    async fn commit(&mut self) -> Result<(), Error> {
        let committed = self.connection().execute("commit").await;
        committed.map(drop).map_err(|error| query_error(&error))
    }

    fn describe(&self) -> String {
        format!("postgres {}", self.database.place)
    }

    async fn close(self: Box<Self>) {
        let _ = self.database.connection.close().await;
    }
}
