//! PostgreSQL: two replicas that share one database.

use std::sync::Arc;

use jiff::{Timestamp, ToSpan};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::super::contract::sqlite::settings;
use super::super::test_server::TestServer;
use super::super::{Ledger, Settings, open};
use super::harness::{Harness, Rules};

/// Some of the days of the calls get partitions. Calls of other days share one.
const ADD_PARTITIONS: &str = "select add_partitions_1('2026-06-13', 3)";
/// Ends the connections that earlier cases have left.
const END_CONNECTIONS: &str = "select pg_terminate_backend(pid, 10000) from pg_stat_activity \
    where datname = current_database() and pid <> pg_backend_pid()";
const NAME_TABLES: &str = "select string_agg(format('%I', tablename), ', ') from pg_tables \
    where schemaname = 'toolcrib' and tablename <> '_sqlx_migrations'";
/// Ends the connection that holds the lock of a replica.
const END_WRITER: &str = "select pg_terminate_backend(pid, 10000) from pg_locks where locktype = 'advisory' \
    and objsubid = 1 and database = (select oid from pg_database where datname = current_database()) \
    and (classid::bigint << 32 | objid::bigint) = hashtextextended($1, 1413698114)";
/// Settles a replica at once, if its lock is free.
const SETTLE: &str = "select settle_replica_1($1::text::uuid, null, 0, $2)";

/// A database, with a connection that looks into it.
pub(super) struct Postgres {
    settings: Settings,
    database: PgConnection,
}

impl Postgres {
    /// Creates a database on the server, for any number of cases.
    pub(super) async fn create(server: &TestServer) -> String {
        let url = server.create_ledger_database().await;
        let settings = Settings {
            url: url.clone(),
            ..settings()
        };
        let ledger = open(&settings, Timestamp::now()).await.unwrap();
        ledger.close().await;
        url
    }

    /// Empties the database.
    pub(super) async fn new(url: String) -> Self {
        let mut database = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("set search_path to toolcrib")
            .execute(&mut database)
            .await
            .unwrap();
        sqlx::raw_sql(END_CONNECTIONS)
            .execute(&mut database)
            .await
            .unwrap();
        let tables: String = sqlx::query_scalar(NAME_TABLES)
            .fetch_one(&mut database)
            .await
            .unwrap();
        let empty = AssertSqlSafe(format!("truncate {tables}; {ADD_PARTITIONS}"));
        sqlx::raw_sql(empty).execute(&mut database).await.unwrap();
        Self {
            settings: Settings { url, ..settings() },
            database,
        }
    }
}

impl Harness for Postgres {
    const RULES: Rules = Rules {
        replicas: 2,
        // The free units of the block of the crashed replica.
        max_lost_units: 19,
        trims_by_id: true,
        prune_keeps_newest: false,
        names_run_counters: true,
        counts_later_ends: false,
        refuses_interrupted: true,
        undoes_unknown: true,
    };

    async fn open(&mut self, at: Timestamp) -> Arc<dyn Ledger> {
        open(&self.settings, at).await.unwrap()
    }

    async fn crash(&mut self, ledger: Arc<dyn Ledger>, at: Timestamp) {
        let boot = ledger.replica().unwrap();
        self.disconnect(&*ledger).await;
        drop(ledger);
        let settled: Option<i64> = sqlx::query_scalar(SETTLE)
            .bind(&*boot)
            .bind((at + 24.hours()).as_millisecond())
            .fetch_one(&mut self.database)
            .await
            .unwrap();
        assert!(settled.is_some(), "the replica seems to live");
    }

    async fn disconnect(&mut self, ledger: &dyn Ledger) {
        sqlx::query(END_WRITER)
            .bind(ledger.replica().as_deref())
            .execute(&mut self.database)
            .await
            .unwrap();
    }
}
