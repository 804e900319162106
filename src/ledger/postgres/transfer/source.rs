//! Reads a database as a whole.

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, Row as _};
use uuid::Uuid;

use super::super::fault::query_error;
use super::super::read::{Result as QueryResult, decode_row, first_columns, from_uuid};
use super::exclusive::Exclusive;
use super::sums;
use crate::call::InvocationId;
use crate::ledger::columns::parse_time;
use crate::ledger::transfer::{MovedCall, Record, Source, Table, TableSums};
use crate::ledger::{Error, Settings, StoredResult};

const SELECT_CALLS: &str = concat!(
    first_columns!(),
    "arguments, result, meta, reserved or charged is not null as is_protected from invocation where $1::bigint is not null order by id"
);
const SELECT_RESULTS: &str = "select key, tool, origin, result, stored_at, expires_at from stored_result where expires_at > $1";

/// The columns of the other tables, each row as a JSON array.
fn select_columns(table: Table) -> &'static str {
    match table {
        Table::Calls => SELECT_CALLS,
        Table::Results => SELECT_RESULTS,
        Table::Attempts => {
            "select jsonb_build_array(replace(invocation::text, '-', ''), attempt, kind, message, duration_us)::text from attempt \
             where $1::bigint is not null"
        }
        Table::Counters => {
            "select jsonb_build_array(tool, caller, run, per, window_start, used, calls, counted_at, lost_units)::text from quota \
             where $1::bigint is not null"
        }
        Table::Switches => {
            "select jsonb_build_array(tool, enabled::integer)::text from tool_switch where $1::bigint is not null"
        }
        Table::RegisteredTools => {
            "select jsonb_build_array(name, definition, registered_by, registered_at)::text from registered_tool \
             where $1::bigint is not null"
        }
        Table::Totals => {
            "select jsonb_build_array(caller, tool, sum(calls), sum(succeeded), sum(failed), sum(refused), sum(cache_hits))::text \
             from usage_total where $1::bigint is not null group by caller, tool"
        }
        Table::Latencies => {
            "select jsonb_build_array(caller, tool, bucket, sum(calls))::text from usage_latency where $1::bigint is not null \
             group by caller, tool, bucket"
        }
        Table::Approvals => {
            "select jsonb_build_array(replace(id::text, '-', ''), tool, caller, state, idempotency_key, approvers, request, call, \
             requested_at, expires_at, decided_at, decided_by, note, changed, runner, done::integer, notified::integer, message)::text \
             from approval where $1::bigint is not null"
        }
    }
}

/// A database that no replica uses.
pub(in crate::ledger) struct PostgresSource {
    database: Exclusive,
    now: Timestamp,
}

impl PostgresSource {
    /// Opens the database. Calls of crashed replicas become `unknown`.
    pub(in crate::ledger) async fn open(
        settings: &Settings,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let database = Exclusive::open(settings, now).await?;
        Ok(Self { database, now })
    }
}

fn decode(table: Table, row: &PgRow, now: Timestamp) -> QueryResult<Record> {
    Ok(match table {
        Table::Calls => {
            let mut call = decode_row(row)?;
            call.key_until = call.key_until.filter(|until| *until > now);
            Record::Call(Box::new(MovedCall {
                row: call,
                is_protected: row.try_get("is_protected")?,
            }))
        }
        Table::Results => {
            let key = <[u8; 32]>::try_from(row.try_get::<&[u8], _>(0)?)
                .map_err(|_| sqlx::Error::Decode("a key has 32 bytes".into()))?;
            Record::Result(StoredResult {
                key,
                tool: row.try_get(1)?,
                origin: from_uuid(row.try_get(2)?),
                result: row.try_get(3)?,
                stored_at: parse_time(row.try_get(4)?)?,
                expires_at: parse_time(row.try_get(5)?)?,
            })
        }
        _ => Record::Columns(
            serde_json::from_str(row.try_get(0)?)
                .map_err(|error| sqlx::Error::Decode(error.into()))?,
        ),
    })
}

#[async_trait]
impl Source for PostgresSource {
    async fn oldest_call(&mut self) -> Result<Option<InvocationId>, Error> {
        let oldest = sqlx::query_scalar::<_, Uuid>("select id from invocation order by id limit 1");
        let oldest = oldest.fetch_optional(&mut self.database.connection).await;
        let oldest = oldest.map_err(|error| query_error(&error))?;
        Ok(oldest.map(from_uuid))
    }

    fn read(&mut self, table: Table) -> BoxStream<'_, Result<Record, Error>> {
        let now = self.now;
        let rows = sqlx::query(select_columns(table)).bind(now.as_millisecond());
        let rows = rows.fetch(&mut self.database.connection);
        rows.map(move |row| {
            row.and_then(|row| decode(table, &row, now))
                .map_err(|error| query_error(&error))
        })
        .boxed()
    }

    async fn sums(&mut self) -> Result<Vec<TableSums>, Error> {
        sums::count(&mut self.database.connection, self.now.as_millisecond())
            .await
            .map_err(|error| query_error(&error))
    }

    fn describe(&self) -> String {
        format!("postgres {}", self.database.place)
    }

    async fn close(self: Box<Self>) {
        let _ = self.database.connection.close().await;
    }
}
