//! Reads a file as a whole, under its exclusive lock.

use std::fs::File;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row as _, SqliteConnection};

use super::super::fault::statement_error;
use super::super::read::{decode_result, decode_verified, parse_id};
use super::super::{open, read};
use super::sums;
use crate::call::InvocationId;
use crate::ledger::transfer::{MovedCall, Record, Source, Table, TableSums};
use crate::ledger::{Error, Settings, StoredResult};

/// Whether a guarantee covers a row, as `trim.rs` judges it: the last column after those of a row.
const SELECT_CALLS: &str = "select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, \
    duration_us, arguments, result, origin, meta, idempotency_key, fingerprint, key_until, sum, parent, count, detail, \
    charged is not null or iif(reserved is null, idempotency_key is not null, reserved != 0) from invocation \
    where ?1 is not null order by id";
const SELECT_RESULTS: &str = "select tool, origin, result, stored_at, expires_at, sum, key from stored_result where expires_at > ?1";

/// The columns of the other tables, each row as a JSON array.
fn select_columns(table: Table) -> &'static str {
    match table {
        Table::Calls => SELECT_CALLS,
        Table::Results => SELECT_RESULTS,
        Table::Attempts => {
            "select json_array(lower(hex(invocation)), attempt, kind, message, duration_us) from attempt where ?1 is not null"
        }
        Table::Counters => {
            "select json_array(tool, caller, run, per, window_start, used, calls, counted_at, lost_units) from quota \
             where ?1 is not null"
        }
        Table::Switches => {
            "select json_array(tool, enabled) from tool_switch where tool != '' and ?1 is not null"
        }
        Table::RegisteredTools => {
            "select json_array(name, definition, registered_by, registered_at) from registered_tool where ?1 is not null"
        }
        Table::Totals => {
            "select json_array(caller, tool, calls, succeeded, failed, refused, cache_hits) from usage_total where ?1 is not null"
        }
        Table::Latencies => {
            "select json_array(caller, tool, bucket, calls) from usage_latency where ?1 is not null"
        }
        Table::Approvals => {
            "select json_array(lower(hex(id)), tool, caller, state, idempotency_key, approvers, request, call, requested_at, expires_at, \
             decided_at, decided_by, note, changed, runner, done, notified, message) from approval where ?1 is not null"
        }
    }
}

/// A file that no process uses.
pub(in crate::ledger) struct SqliteSource {
    path: PathBuf,
    connection: SqliteConnection,
    now: Timestamp,
    _lock: File,
}

impl SqliteSource {
    /// Opens the file. As at any start, calls that a crash has interrupted become `unknown`.
    pub(in crate::ledger) async fn open(
        path: &Path,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let opened = open::open_alone(path, now, settings).await?;
        Ok(Self {
            path: path.to_owned(),
            connection: opened.connection,
            now,
            _lock: opened.lock,
        })
    }
}

fn decode(table: Table, row: &SqliteRow, now: Timestamp) -> read::Result<Record> {
    Ok(match table {
        Table::Calls => {
            let mut call = decode_verified(row)?;
            call.key_until = call.key_until.filter(|until| *until > now);
            Record::Call(Box::new(MovedCall {
                row: call,
                is_protected: row.try_get(23)?,
            }))
        }
        Table::Results => {
            let key = row.try_get::<Vec<u8>, _>(6)?;
            let key = <[u8; 32]>::try_from(key)
                .map_err(|_| sqlx::Error::Decode("a key has 32 bytes".into()))?;
            let result: Option<StoredResult> = decode_result(key, row);
            Record::Result(result.ok_or_else(|| {
                sqlx::Error::Decode(
                    "a stored result is damaged: purge the stored results first".into(),
                )
            })?)
        }
        _ => Record::Columns(
            serde_json::from_str(row.try_get(0)?)
                .map_err(|error| sqlx::Error::Decode(error.into()))?,
        ),
    })
}

#[async_trait]
impl Source for SqliteSource {
    async fn oldest_call(&mut self) -> Result<Option<InvocationId>, Error> {
        let oldest =
            sqlx::query_scalar::<_, Vec<u8>>("select id from invocation order by id limit 1");
        let oldest = oldest.fetch_optional(&mut self.connection).await;
        let oldest = oldest.and_then(|id| id.map(parse_id).transpose());
        oldest.map_err(|error| statement_error(&error))
    }

    fn read(&mut self, table: Table) -> BoxStream<'_, Result<Record, Error>> {
        let now = self.now;
        let rows = sqlx::query(select_columns(table)).bind(now.as_millisecond());
        let rows = rows.fetch(&mut self.connection);
        rows.map(move |row| {
            row.and_then(|row| decode(table, &row, now))
                .map_err(|error| statement_error(&error))
        })
        .boxed()
    }

    async fn sums(&mut self) -> Result<Vec<TableSums>, Error> {
        sums::count(&mut self.connection, self.now.as_millisecond())
            .await
            .map_err(|error| statement_error(&error))
    }

    fn describe(&self) -> String {
        format!("sqlite {}", self.path.display())
    }

    async fn close(self: Box<Self>) {
        let _ = self.connection.close().await;
    }
}
