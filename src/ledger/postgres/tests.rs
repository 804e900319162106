//! What the shared ledger promises beyond the contract of all engines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use jiff::{Timestamp, ToSpan};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::PostgresLedger;
use super::open::START_TIMEOUT;
use super::settle::{settle_replica, suspects};
use super::test_server::TestServer;
use crate::call::{Charge, Effect, InvocationId, Per};
use crate::ledger::contract::sqlite::settings;
use crate::ledger::contract::{charge, ended_row, limited_read, now, record_call_at, row};
use crate::ledger::list::push_filters;
use crate::ledger::read::select_listed;
use crate::ledger::sql::{Dialect, Fetch};
use crate::ledger::{
    AnsweredCall, Error, Ledger, Query, ReserveError, Row, Settings, SharedChange, State, Switch,
    WhenDown,
};

#[path = "replicas_tests.rs"]
mod replicas;
#[path = "writer_tests.rs"]
mod writing;

/// A database, with a connection that looks into it.
struct Fixture {
    server: Arc<TestServer>,
    settings: Settings,
    database: PgConnection,
    /// Units that settled replicas had set aside, for each limit.
    lost_units: Vec<i64>,
}

impl Fixture {
    async fn new() -> Option<Self> {
        let server = TestServer::shared()?;
        let url = server.create_ledger_database().await;
        let mut database = PgConnection::connect(&url).await.unwrap();
        run(&mut database, "set search_path to toolcrib").await;
        Some(Self {
            settings: Settings { url, ..settings() },
            database,
            lost_units: Vec::new(),
            server,
        })
    }

    async fn replica(&self) -> PostgresLedger {
        let opened = PostgresLedger::open(&self.settings, Arc::new(())).await;
        opened.unwrap()
    }

    async fn run(&mut self, sql: &str) {
        run(&mut self.database, sql).await;
    }

    async fn number(&mut self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(&mut self.database)
            .await
            .unwrap()
    }

    /// Ends all connections of writers, as a failing network does.
    async fn cut_writers(&mut self) {
        let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() \
            and pid <> pg_backend_pid() and query like '%commit_batch_1%'";
        assert!(self.number(sql).await > 0);
    }

    /// Lets all replicas seem to have been silent for this long.
    async fn age_replicas(&mut self, seconds: u32) {
        let sql = format!(
            "update replica set seen_at = seen_at - interval '{seconds} seconds' where ended_at is null"
        );
        self.run(&sql).await;
    }

    /// Settles all replicas that have ended, as other replicas do.
    async fn settle(&mut self, reachable: bool) -> i64 {
        let boots: Vec<Uuid> = sqlx::query_scalar("select boot from replica")
            .fetch_all(&mut self.database)
            .await
            .unwrap();
        let lease = reachable.then_some(15_000);
        let mut calls = None;
        for boot in boots {
            let settled = settle_replica(&mut self.database, boot, lease, now()).await;
            if let Some(settled) = settled.unwrap() {
                *calls.get_or_insert(0) += settled.calls;
                self.lost_units
                    .extend(settled.lost.iter().map(|(.., units)| units));
            }
        }
        calls.unwrap_or(-1)
    }
}

async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await
        .unwrap();
}

/// Waits until the writer of a replica works again.
async fn wait_until_healthy(ledger: &PostgresLedger) {
    while ledger.flush().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn used(ledger: &PostgresLedger, charge: Charge) -> u64 {
    ledger.units_used(&[charge], now()).await.unwrap()[0].used
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_a_limit_to_the_unit() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let mut replicas = Vec::new();
    for _ in 0..4 {
        replicas.push(Arc::new(fixture.replica().await));
    }
    let mut calls = JoinSet::new();
    for call in 0..400 {
        let ledger = replicas[call % 4].clone();
        calls.spawn(async move {
            let charges = vec![charge(100, Per::Day), charge(1000, Per::Lifetime)];
            match call % 2 {
                0 => limited_read(&*ledger, now(), charges).await.is_ok(),
                _ => ledger.reserve(row("t", "a", now()), charges).await.is_ok(),
            }
        });
    }
    let admitted = calls.join_all().await.into_iter().filter(|ok| *ok).count();
    assert_eq!(admitted, 100);
    assert_eq!(used(&replicas[0], charge(100, Per::Day)).await, 100);
    assert_eq!(replicas[1].counter_drift().await.unwrap(), 0);
    let slots = "select count(distinct slot) from replica where ended_at is null";
    assert_eq!(fixture.number(slots).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_claimed_by_one_replica() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let replicas = [
        Arc::new(fixture.replica().await),
        Arc::new(fixture.replica().await),
    ];
    let mut calls = JoinSet::new();
    for call in 0..100_usize {
        let ledger = replicas[call % 2].clone();
        let row = Row {
            idempotency_key: Some(format!("key {}", call / 10).into()),
            fingerprint: Some("f".into()),
            key_until: Some(Row::FOREVER),
            ..row("t", "a", now())
        };
        calls.spawn(async move {
            match ledger.reserve(row, vec![]).await {
                Ok(_) => 1,
                Err(ReserveError::KeyClaimed(_)) => 0,
                Err(other) => panic!("{other}"),
            }
        });
    }
    assert_eq!(calls.join_all().await.into_iter().sum::<i32>(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_lookups_finds_its_own_holder() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let ledger = Arc::new(fixture.replica().await);
    let mut holders = Vec::new();
    for number in 0..20 {
        let row = Row {
            idempotency_key: Some(format!("key {number}").into()),
            fingerprint: Some("f".into()),
            key_until: Some(Row::FOREVER),
            ..row("t", "a", now())
        };
        holders.push(row.id);
        ledger.reserve(row, vec![]).await.unwrap();
    }
    // Far more at once than there are connections, half of them for keys that no call holds.
    let mut lookups = JoinSet::new();
    for number in 0..400_usize {
        let (ledger, holder) = (ledger.clone(), holders[number % 20]);
        lookups.spawn(async move {
            let is_held = number % 2 == 0;
            let caller = if is_held { "a" } else { "b" };
            let key = format!("key {}", number % 20);
            let found = ledger.find_key_holder(caller, "t", &key, now()).await;
            let expected = is_held.then_some(holder);
            assert_eq!(found.unwrap().map(|row| row.id), expected, "{key}");
        });
    }
    lookups.join_all().await;
}

#[tokio::test]
async fn calls_of_a_silent_replica_become_unknown() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    let write = |effect| Row {
        effect,
        idempotency_key: Some(effect.as_str().into()),
        fingerprint: Some("f".into()),
        key_until: Some(Row::FOREVER),
        ..row("t", "a", now())
    };
    let (write, read) = (write(Effect::Write), write(Effect::Read));
    for row in [&write, &read] {
        let charges = vec![charge(4, Per::Lifetime)];
        ledger.reserve(row.clone(), charges).await.unwrap();
    }
    // So near the limit, no free unit is set aside with it.
    let unrecorded = InvocationId::new();
    let charges = vec![charge(4, Per::Lifetime)];
    ledger.take_units(unrecorded, now(), charges).await.unwrap();

    fixture.age_replicas(11).await;
    assert_eq!(fixture.settle(true).await, -1, "its lock is held");
    fixture.age_replicas(16).await;
    assert_eq!(fixture.settle(false).await, -1, "the database was away");
    assert_eq!(fixture.settle(true).await, 2);

    for row in [&write, &read] {
        let found = ledger.get(row.id).await.unwrap().unwrap().row;
        assert_eq!(found.state, State::Unknown);
    }
    let holder = async |key: &str| ledger.find_key_holder("a", "t", key, now()).await.unwrap();
    assert_eq!(holder("write").await.unwrap().id, write.id);
    assert!(holder("read").await.is_none(), "a read may run again");
    assert_eq!(used(&ledger, charge(4, Per::Lifetime)).await, 3);
    assert_eq!(fixture.number("select lost_units from quota").await, 1);
    assert_eq!(fixture.lost_units, [1], "and the log names them");
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);

    // The settled replica comes back: its ends change nothing, and it goes on under a new id.
    let settled = ledger
        .settle(ended_row(&write, State::Succeeded), vec![])
        .await;
    assert!(
        settled.is_err(),
        "its caller must not get a result that is not on record"
    );
    ledger.flush().await.unwrap();
    let found = ledger.get(write.id).await.unwrap().unwrap().row;
    assert_eq!(found.state, State::Unknown);
    let usage = ledger.usage_totals(None).await.unwrap();
    assert_eq!(
        (usage[0].calls, usage[0].failed, usage[0].succeeded),
        (2, 2, 0)
    );
    let replicas = "select count(*) from replica where ended_at is null";
    assert_eq!(fixture.number(replicas).await, 1);
    ledger.reserve(row("t", "a", now()), vec![]).await.unwrap();
    assert_eq!(fixture.settle(true).await, -1);
}

#[tokio::test]
async fn replica_without_lock_is_settled_after_the_grace() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    let call = row("t", "a", now());
    ledger.reserve(call.clone(), vec![]).await.unwrap();
    // The process ends without closing its ledger.
    fixture.cut_writers().await;
    drop(ledger);
    assert_eq!(fixture.settle(false).await, -1, "it may come back");
    let schema = [("search_path", "toolcrib")];
    let options: PgConnectOptions = fixture.settings.url.parse().unwrap();
    let pool = PgPool::connect_with(options.options(schema)).await.unwrap();
    assert!(suspects(&pool).await.unwrap().is_empty());
    fixture.age_replicas(11).await;
    let boots = sqlx::query_scalar::<_, Uuid>("select boot from replica");
    let boots = boots.fetch_all(&mut fixture.database).await.unwrap();
    assert_eq!(suspects(&pool).await.unwrap(), boots);
    assert_eq!(fixture.settle(false).await, 1);
    assert!(suspects(&pool).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_calls_are_written_after_the_connection_is_back() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    let charges = || vec![charge(9, Per::Lifetime)];
    let running = row("t", "a", now());
    ledger.reserve(running.clone(), charges()).await.unwrap();
    for _ in 0..5 {
        fixture.cut_writers().await;
        // The first operation after the cut may find the connection closed.
        let refused = row("t", "a", now());
        if ledger.reserve(refused.clone(), charges()).await.is_ok() {
            let end = ended_row(&refused, State::Cancelled);
            let refund = ledger.units_used(&charges(), now()).await.unwrap();
            ledger.settle(end, refund).await.unwrap();
        }
        wait_until_healthy(&ledger).await;
    }
    fixture.cut_writers().await;
    let _ = ledger
        .settle(ended_row(&running, State::Succeeded), vec![])
        .await;
    wait_until_healthy(&ledger).await;
    let found = ledger.get(running.id).await.unwrap().unwrap().row;
    assert_eq!(found.state, State::Succeeded);
    assert_eq!(used(&ledger, charge(9, Per::Lifetime)).await, 1);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    assert_eq!(
        fixture
            .number("select count(*) from invocation where state = 'reserved'")
            .await,
        0
    );
}

#[tokio::test]
async fn unacknowledged_reservation_is_undone() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = Arc::new(fixture.replica().await);
    // A trigger holds the commit up until its caller has gone.
    fixture
        .run(
            "create function hold() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(7); return new; end $$; \
             create trigger hold before insert on invocation_other for each row execute function hold(); select pg_advisory_lock(7)",
        )
        .await;
    let mut call = row("t", "a", now());
    call.id = InvocationId::lower_bound(now());
    let (other, reserved) = (ledger.clone(), call.clone());
    let waiting = tokio::spawn(async move {
        let charges = vec![charge(9, Per::Lifetime)];
        other.reserve(reserved, charges).await
    });
    let blocked = "select count(*) from pg_locks where locktype = 'advisory' and not granted \
        and database = (select oid from pg_database where datname = current_database())";
    while fixture.number(blocked).await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    fixture.run("select pg_advisory_unlock(7)").await;
    ledger.flush().await.unwrap();
    assert!(ledger.get(call.id).await.unwrap().is_none());
    assert_eq!(used(&ledger, charge(9, Per::Lifetime)).await, 0);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    assert_eq!(ledger.usage_totals(None).await.unwrap()[0].calls, 0);
}

#[tokio::test]
async fn retention_drops_whole_days() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    let day = |days: i64| Timestamp::now() - (24 * days).hours();
    fixture
        .run("select add_partitions_1((now() at time zone 'utc')::date - 40, 39)")
        .await;
    for days in [39, 38, 3] {
        record_call_at(&ledger, day(days)).await;
    }
    let mut charged = row("t", "a", day(38));
    charged.id = InvocationId::lower_bound(day(38));
    let charges = vec![charge(9, Per::Lifetime)];
    ledger.reserve(charged.clone(), charges).await.unwrap();
    ledger.flush().await.unwrap();
    let all = Query {
        limit: 10,
        ..Query::default()
    };
    let remaining = async || ledger.list_calls(&all).await.unwrap().len();
    while ledger.prune(day(30), Timestamp::now(), 100).await.unwrap() > 0 {}
    assert_eq!(remaining().await, 3, "a reserved call keeps its day");
    let end = ended_row(&charged, State::Succeeded);
    ledger.settle(end, vec![]).await.unwrap();
    while ledger.prune(day(30), Timestamp::now(), 100).await.unwrap() > 0 {}
    assert_eq!(remaining().await, 1);
    assert_eq!(used(&ledger, charge(9, Per::Lifetime)).await, 1);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

#[tokio::test]
async fn short_retention_deletes_calls_before_their_day_is_over() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    fixture
        .run("select add_partitions_1((now() at time zone 'utc')::date - 5, 4)")
        .await;
    let calls = "select count(*) from invocation";
    for (hours, remaining) in [(2, 0), (50, 1)] {
        fixture.run("delete from invocation").await;
        let before = Timestamp::now() - hours.hours();
        // Almost surely on the same day, which is not over.
        record_call_at(&ledger, before - 1.millisecond()).await;
        ledger.flush().await.unwrap();
        let in_partitions =
            "select count(*) from invocation where tableoid <> 'invocation_other'::regclass";
        assert_eq!(fixture.number(in_partitions).await, 1);
        ledger.prune(before, Timestamp::now(), 100).await.unwrap();
        assert_eq!(fixture.number(calls).await, remaining, "{hours} h");
    }
}

#[tokio::test]
async fn locked_day_is_dropped_later() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    fixture
        .run("select add_partitions_1((now() at time zone 'utc')::date - 40, 39)")
        .await;
    record_call_at(&ledger, Timestamp::now() - (24 * 39).hours()).await;
    ledger.flush().await.unwrap();
    let before = Timestamp::now() - (24 * 30).hours();
    let prune = async || ledger.prune(before, Timestamp::now(), 100).await;
    let calls = "select count(*) from invocation";
    fixture
        .run("begin; lock table invocation in access share mode")
        .await;
    assert_eq!(prune().await.unwrap(), 0);
    assert_eq!(fixture.number(calls).await, 1);
    fixture.run("commit").await;
    while prune().await.unwrap() > 0 {}
    assert_eq!(fixture.number(calls).await, 0);
    // Another failure is not passed over.
    fixture
        .run("alter function drop_partition_1 rename to away")
        .await;
    assert!(prune().await.is_err());
}

#[tokio::test]
async fn key_that_is_used_again_during_retention_stays_held() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = Arc::new(fixture.replica().await);
    fixture
        .run("insert into key_holder values ('k', 'a', 't', gen_random_uuid(), 1)")
        .await;
    // The commit of the new holder is under way while retention finds the old one.
    fixture
        .run("begin; update key_holder set held_until = 9000000000000")
        .await;
    let other = ledger.clone();
    let pruning = tokio::spawn(async move {
        let before = Timestamp::now() - 24.hours();
        other.prune(before, Timestamp::now(), 100).await
    });
    let blocked = "select count(*) from pg_locks where not granted and transactionid = pg_current_xact_id()::xid";
    while fixture.number(blocked).await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.run("commit").await;
    pruning.await.unwrap().unwrap();
    let holders = "select count(*) from key_holder";
    assert_eq!(fixture.number(holders).await, 1);
}

#[tokio::test]
async fn partitions_get_the_indexes_of_a_newer_version() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let missing =
        "select count(*) from pg_index where indrelid = 'invocation'::regclass and not indisvalid";
    let ledger = fixture.replica().await;
    // The replica does it by itself.
    while fixture.number(missing).await > 0 {}
    ledger.close().await;
    fixture
        .run(
            "drop index invocation_pair; create index invocation_pair on only invocation (caller, tool, id)",
        )
        .await;
    assert_eq!(fixture.number(missing).await, 1);
    let mut added = 0;
    while fixture
        .number("select index_partition_1()::integer::bigint")
        .await
        > 0
    {
        added += 1;
    }
    let partitions = "select count(*) from pg_inherits where inhparent = 'invocation'::regclass";
    assert_eq!(added, fixture.number(partitions).await);
    assert_eq!(fixture.number(missing).await, 0);
}

#[tokio::test]
async fn zero_characters_are_replaced() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    let call = Row {
        run_id: Some("a\0b".into()),
        ..row("t", "a", now())
    };
    ledger
        .record(ended_row(&call, State::Succeeded))
        .await
        .unwrap();
    let query = Query {
        run_id: Some("a\0b".into()),
        limit: 10,
        ..Query::default()
    };
    let found = ledger.list_calls(&query).await.unwrap();
    assert_eq!(found[0].run_id.as_deref(), Some("a\u{fffd}b"));
}

#[tokio::test]
async fn newer_schema_is_refused() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    fixture.replica().await.close().await;
    fixture
        .run("insert into _sqlx_migrations (version, description, success, checksum, execution_time) values (99, 'x', true, '', 0)")
        .await;
    let opened = PostgresLedger::open(&fixture.settings, Arc::new(())).await;
    assert!(matches!(
        opened.err(),
        Some(Error::NewerSchema { found: 99, .. })
    ));
}

#[tokio::test]
async fn unusable_database_is_named_with_what_would_be_right() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let server = fixture.server.clone();
    fixture
        .run("create database latin encoding 'LATIN1' template template0")
        .await;
    fixture.run("create role stranger login").await;
    for (role, rest, wanted) in [
        (
            "postgres",
            "latin",
            "the encoding of the database is LATIN1, the ledger needs UTF8",
        ),
        (
            "stranger",
            "postgres",
            "the role must own the schema `toolcrib`, or be able to create it",
        ),
        (
            "postgres",
            "postgres?sslmode=require",
            "does not support TLS",
        ),
        // No server says whether there is such a role.
        (
            "locked:wrong",
            "postgres",
            "the password of the URL is missing or wrong",
        ),
    ] {
        let url = format!("postgres://{role}@127.0.0.1:{}/{rest}", server.port);
        let settings = Settings { url, ..settings() };
        let started = Instant::now();
        let refused = PostgresLedger::open(&settings, Arc::new(())).await;
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains(wanted), "{refused}");
        assert!(
            started.elapsed() < START_TIMEOUT,
            "a final error is not repeated"
        );
    }
}

#[tokio::test]
async fn closed_replica_leaves_nothing_running() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    ledger.reserve(row("t", "a", now()), vec![]).await.unwrap();
    ledger.close().await;
    let open = "select count(*) from replica where ended_at is null";
    assert_eq!(fixture.number(open).await, 0);
    let reserved = "select count(*) from invocation where state = 'reserved'";
    assert_eq!(fixture.number(reserved).await, 0);
}

#[tokio::test]
async fn lists_are_not_prepared_for_any_value() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let _schema = fixture.replica().await;
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect(&fixture.settings.url).await.unwrap();
    let run = async |sql: &'static str| sqlx::query(sql).execute(&pool).await.unwrap();
    run("set search_path to toolcrib").await;
    let query = Query {
        tool: Some("t".into()),
        states: vec![State::Unknown],
        limit: 10,
        ..Query::default()
    };
    let mut sql = select_listed(Dialect::Postgres, 9);
    push_filters(&mut sql, &query, Dialect::Postgres);
    let mut connection = pool.acquire().await.unwrap();
    Fetch::fetch(&mut *connection, sql).await.unwrap();
    drop(connection);
    let kept = sqlx::query_scalar::<_, String>("select statement from pg_prepared_statements");
    let kept = kept.fetch_all(&pool).await.unwrap();
    let lists = kept.iter().filter(|one| one.contains("from invocation"));
    assert_eq!(lists.count(), 0, "{kept:?}");
}

#[tokio::test]
async fn reads_are_accepted_while_the_database_is_away() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    fixture.settings.when_down = WhenDown::ServeReads;
    let serving = fixture.replica().await;
    fixture.settings.when_down = WhenDown::Refuse;
    let refusing = fixture.replica().await;
    fixture
        .run("alter function commit_batch_1 rename to away")
        .await;
    for ledger in [&serving, &refusing] {
        assert!(ledger.reserve(row("t", "a", now()), vec![]).await.is_err());
        assert!(ledger.check_health().is_err());
    }
    assert!(serving.accepts_calls().is_ok() && refusing.accepts_calls().is_err());
    let read = row("t", "a", now());
    serving.record_in_background(ended_row(&read, State::Succeeded), Box::new(()));
    fixture
        .run("alter function away rename to commit_batch_1")
        .await;
    wait_until_healthy(&serving).await;
    assert!(serving.get(read.id).await.unwrap().is_some());
}

#[tokio::test]
async fn refused_call_gives_back_what_it_did_not_know_of() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    let charges = || vec![charge(9, Per::Lifetime)];
    let (write, read) = (row("t", "a", now()), row("t", "a", now()));
    ledger.reserve(write.clone(), charges()).await.unwrap();
    ledger.take_units(read.id, now(), charges()).await.unwrap();
    assert_eq!(used(&ledger, charge(9, Per::Lifetime)).await, 2);
    // Their callers did not get the answer in time, and record a refusal.
    for call in [&write, &read] {
        ledger
            .record(ended_row(call, State::Refused))
            .await
            .unwrap();
    }
    assert_eq!(used(&ledger, charge(9, Per::Lifetime)).await, 0);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

#[tokio::test]
async fn counter_that_is_reset_meanwhile_counts_from_zero() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = Arc::new(fixture.replica().await);
    let charges = || vec![charge(9, Per::Lifetime), charge(9, Per::Day)];
    ledger
        .reserve(row("t", "a", now()), charges())
        .await
        .unwrap();
    fixture
        .run("begin; delete from quota where per = 'lifetime'")
        .await;
    let other = ledger.clone();
    let waiting = tokio::spawn(async move { other.reserve(row("t", "a", now()), charges()).await });
    let blocked = "select count(*) from pg_locks where not granted and transactionid = pg_current_xact_id()::xid";
    while fixture.number(blocked).await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.run("commit").await;
    let charged = waiting.await.unwrap().unwrap().charged;
    let used: Vec<u64> = charged.iter().map(|charged| charged.used).collect();
    assert_eq!(used, [1, 2]);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

#[tokio::test]
async fn drift_is_found_and_compared_rows_are_not_read_again() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    let call = row("t", "a", now());
    let charges = vec![charge(100_000, Per::Lifetime)];
    ledger.reserve(call.clone(), charges).await.unwrap();
    ledger
        .settle(ended_row(&call, State::Succeeded), vec![])
        .await
        .unwrap();
    fixture
        .run(
            "insert into invocation (id, tool, caller, state, effect, cache, attempts, started_at, arguments, reserved, charged, seq, replica) \
             select gen_random_uuid(), tool, caller, state, effect, cache, attempts, started_at, arguments, reserved, charged, \
             nextval('charge_seq'), replica from invocation, generate_series(1, 10000); update quota set used = used + 10000",
        )
        .await;
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    assert_eq!(fixture.number("select carried from quota").await, 10_001);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    let other = Charge {
        tool: "other".into(),
        ..charge(9, Per::Lifetime)
    };
    ledger
        .reserve(row("other", "a", now()), vec![other])
        .await
        .unwrap();
    let old = fixture
        .number("select count(*) from invocation where seq >= (select min(from_seq) from quota)")
        .await;
    assert_eq!(old, 1, "for a new counter, no rows of others are read");
    fixture
        .run("update quota set used = used - 3 where tool = 't'")
        .await;
    assert_eq!(ledger.counter_drift().await.unwrap(), 3);
}

#[tokio::test]
async fn settled_call_is_not_undone() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    let call = Row {
        idempotency_key: Some("k".into()),
        fingerprint: Some("f".into()),
        key_until: Some(Row::FOREVER),
        ..row("t", "a", now())
    };
    ledger.reserve(call.clone(), vec![]).await.unwrap();
    fixture.age_replicas(16).await;
    assert_eq!(fixture.settle(true).await, 1);
    let _other = fixture.replica().await;
    let undo = format!(
        "select commit_batch_1(boot, attachment, last_batch + 1, 0, null, null, null, null, array['{}']::uuid[], \
         null, null, null, null, null, false, false) from replica where ended_at is null",
        call.id
    );
    fixture.run(&undo).await;
    let holder = ledger.find_key_holder("a", "t", "k", now()).await.unwrap();
    assert_eq!(holder.unwrap().state, State::Unknown);
}

#[tokio::test]
async fn refusal_in_the_batch_of_its_reservation_keeps_no_unit() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    let charges = || vec![charge(9, Per::Lifetime)];
    let (write, read) = (row("t", "a", now()), row("t", "a", now()));
    // The first poll hands the operation over. Then the caller gives up.
    let reserved = ledger.reserve(write.clone(), charges()).now_or_never();
    let taken = ledger.take_units(read.id, now(), charges()).now_or_never();
    assert!(reserved.is_none() && taken.is_none());
    let refused = [&write, &read].map(|call| ledger.record(ended_row(call, State::Refused)));
    for recorded in futures_util::future::join_all(refused).await {
        recorded.unwrap();
    }
    ledger.flush().await.unwrap();
    assert_eq!(used(&ledger, charge(9, Per::Lifetime)).await, 0);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    let usage = ledger.usage_totals(None).await.unwrap();
    assert_eq!((usage[0].calls, usage[0].refused), (2, 2));
}

#[tokio::test]
async fn call_that_starts_in_the_commit_of_the_last_end_keeps_its_unit() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = fixture.replica().await;
    // So near the limit, a replica sets no free units aside.
    let charges = || vec![charge(3, Per::Lifetime)];
    let (first, second) = (row("t", "a", now()), row("t", "a", now()));
    ledger.take_units(first.id, now(), charges()).await.unwrap();
    // One batch: the writer does not run before both wait for it.
    let (ended, taken) = tokio::join!(
        ledger.settle(ended_row(&first, State::Succeeded), vec![]),
        ledger.take_units(second.id, now(), charges()),
    );
    ended.unwrap();
    assert_eq!(taken.unwrap().charged[0].used, 2);
    let end = ended_row(&second, State::Succeeded);
    ledger.settle(end, vec![]).await.unwrap();
    ledger.flush().await.unwrap();
    assert_eq!(used(&ledger, charge(3, Per::Lifetime)).await, 2);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    let charged = "select count(*) from invocation where cardinality(charged) = 1";
    assert_eq!(fixture.number(charged).await, 2);
    assert_eq!(fixture.number("select count(*) from unit_block").await, 0);
}

#[tokio::test]
async fn schema_of_an_unreleased_build_is_refused() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    fixture.replica().await.close().await;
    fixture
        .run("update _sqlx_migrations set checksum = '\\x00' where version = 1")
        .await;
    let refused = PostgresLedger::open(&fixture.settings, Arc::new(())).await;
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("migration 1 differs"), "{refused}");
}
