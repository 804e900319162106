//! Writes a new file as a whole, under its exclusive lock.

use std::fs::File;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;
use sqlx::{Connection, SqliteConnection};

use super::super::batch::{WRITE_RESULTS, result_values};
use super::super::commit_marker::{self, HeadFile};
use super::super::fault::statement_error;
use super::super::import::add_ended_rows;
use super::super::quota::SUM_DRIFT;
use super::super::script::Script;
use super::super::{open, wal};
use super::sums;
use crate::call::InvocationId;
use crate::ledger::transfer::{MovedCall, Record, Table, TableSums, Target};
use crate::ledger::{Error, Settings};

const HAS_ROWS: &str = "select exists (select 1 from invocation) or exists (select 1 from quota) or exists (select 1 from stored_result) \
    or exists (select 1 from tool_switch) or exists (select 1 from registered_tool) or exists (select 1 from usage_total) \
    or exists (select 1 from approval)";
/// 1: a guarantee covers the row.
const PROTECT_CALLS: &str =
    "update invocation set reserved = 1 where id in (select unhex(value) from json_each(?))";

/// The statement that writes the columns of a table.
fn insert_columns(table: Table) -> Option<&'static str> {
    Some(match table {
        Table::Calls | Table::Results => return None,
        Table::Attempts => {
            "insert into attempt (invocation, attempt, kind, message, duration_us) \
             select unhex(value->>0), value->>1, value->>2, value->>3, value->>4 from json_each(?)"
        }
        Table::Counters => {
            "insert into quota (tool, caller, run, per, window_start, used, calls, counted_at, lost_units, carried, instance, from_seq, id) \
             select value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7, value->>8, \
             value->>5 - value->>8, random(), (select coalesce(max(seq), 0) + 1 from invocation), \
             iif(value->>3 = 'run', null, (select coalesce(max(id), 0) from quota) + row_number() over ()) from json_each(?)"
        }
        Table::Switches => {
            "insert into tool_switch (tool, enabled) select value->>0, value->>1 from json_each(?)"
        }
        Table::RegisteredTools => {
            "insert into registered_tool (name, definition, registered_by, registered_at) \
             select value->>0, value->>1, value->>2, value->>3 from json_each(?)"
        }
        Table::Totals => {
            "insert into usage_total (caller, tool, calls, succeeded, failed, refused, cache_hits) \
             select value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6 from json_each(?)"
        }
        Table::Latencies => {
            "insert into usage_latency (caller, tool, bucket, calls) select value->>0, value->>1, value->>2, value->>3 from json_each(?)"
        }
        Table::Approvals => {
            "insert into approval (id, tool, caller, state, idempotency_key, approvers, request, call, requested_at, expires_at, \
             decided_at, decided_by, note, changed, runner, done, notified, message) \
             select unhex(value->>0), value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7, value->>8, value->>9, \
             value->>10, value->>11, value->>12, value->>13, value->>14, value->>15, value->>16, value->>17 from json_each(?)"
        }
    })
}

/// A new file.
pub(in crate::ledger) struct SqliteTarget {
    path: PathBuf,
    connection: SqliteConnection,
    head: HeadFile,
    now: Timestamp,
    _lock: File,
}

impl SqliteTarget {
    /// Opens the file, and refuses one with content.
    pub(in crate::ledger) async fn open(
        path: &Path,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let mut opened = open::open_alone(path, now, settings).await?;
        let has_rows = sqlx::query_scalar::<_, bool>(HAS_ROWS)
            .fetch_one(&mut opened.connection)
            .await
            .map_err(|error| statement_error(&error))?;
        if has_rows {
            return Err(Error::NotEmpty(path.display().to_string()));
        }
        Ok(Self {
            path: path.to_owned(),
            connection: opened.connection,
            head: opened.head,
            now,
            _lock: opened.lock,
        })
    }

    async fn run(&mut self, script: Script) -> Result<(), Error> {
        let written = script.run(&mut self.connection).await;
        written.map(drop).map_err(|error| statement_error(&error))
    }
}

#[async_trait]
impl Target for SqliteTarget {
    async fn begin(&mut self, _: Option<InvocationId>) -> Result<(), Error> {
        let mut script = Script::default();
        script.add_statement("begin immediate");
        // Hours that were counted without calls.
        script.add_statement("delete from usage_hour");
        self.run(script).await
    }

    async fn write(&mut self, table: Table, records: Vec<Record>) -> Result<(), Error> {
        let (mut calls, mut results, mut lines) = (Vec::new(), Vec::new(), Vec::<Value>::new());
        for record in records {
            match record {
                Record::Call(call) => calls.push(call),
                Record::Result(result) => results.push(result),
                Record::Columns(columns) => lines.push(columns),
            }
        }
        let mut script = Script::default();
        add_calls(&calls, &mut script);
        let results: Vec<_> = results.iter().map(result_values).collect();
        script.add_with_rows(WRITE_RESULTS, &results);
        if let Some(sql) = insert_columns(table) {
            script.add_with_rows(sql, &lines);
        }
        self.run(script).await
    }

    async fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn drift(&mut self) -> Result<i64, Error> {
        sqlx::query_scalar(SUM_DRIFT)
            .fetch_one(&mut self.connection)
            .await
            .map_err(|error| statement_error(&error))
    }

    async fn sums(&mut self) -> Result<Vec<TableSums>, Error> {
        sums::count(&mut self.connection, self.now.as_millisecond())
            .await
            .map_err(|error| statement_error(&error))
    }

    async fn commit(&mut self) -> Result<(), Error> {
        let committed = async {
            let commits = commit_marker::commit(&mut self.connection).await?;
            self.head.record_commits(commits);
            wal::truncate_log(&mut self.connection).await
        };
        committed.await.map_err(|error| statement_error(&error))
    }

    fn describe(&self) -> String {
        format!("sqlite {}", self.path.display())
    }

    async fn close(self: Box<Self>) {
        let _ = self.connection.close().await;
    }
}

fn add_calls(calls: &[Box<MovedCall>], script: &mut Script) {
    add_ended_rows(calls.iter().map(|call| &call.row), script);
    let protected = calls.iter().filter(|call| call.is_protected);
    let protected: Vec<String> = protected
        .map(|call| hex::encode(call.row.id.as_bytes()))
        .collect();
    script.add_with_rows(PROTECT_CALLS, &protected);
}
