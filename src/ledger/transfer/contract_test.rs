//! The requirements on a move, for each pair of engines.

use std::sync::Arc;

use jiff::ToSpan;
use tempfile::TempDir;

use super::super::contract::{approval, charge, ended_row, limited_read, now, record_call_at, row};
use super::super::postgres::test_server::TestServer;
use super::super::sql::Sql;
use super::super::*;
use super::migrate;
use crate::call::{CacheStatus, Charge, ErrorKind, Per};

/// Where new ledgers are made.
struct Places {
    folder: TempDir,
    server: Option<Arc<TestServer>>,
}

#[derive(Clone, Copy)]
enum Engine {
    Sqlite,
    Postgres,
}

impl Places {
    /// `None` if a server is needed and none is installed.
    fn new(engines: [Engine; 2]) -> Option<Self> {
        let needs_server = engines.iter().any(|one| matches!(one, Engine::Postgres));
        let server = match needs_server {
            true => Some(TestServer::shared()?),
            false => None,
        };
        let folder = tempfile::tempdir().unwrap();
        Some(Self { folder, server })
    }

    async fn settings(&self, engine: Engine, name: &str) -> Settings {
        let url = match (engine, &self.server) {
            (Engine::Postgres, Some(server)) => server.create_ledger_database().await,
            _ => self.folder.path().join(name).display().to_string(),
        };
        Settings {
            url,
            ..contract::sqlite::settings()
        }
    }
}

fn limit(per: Per) -> Charge {
    Charge {
        caller: "a".into(),
        run: if per == Per::Run {
            "r1".into()
        } else {
            String::new()
        },
        ..charge(5, per)
    }
}

fn stored_result(key: u8, expires_at: jiff::Timestamp) -> StoredResult {
    StoredResult {
        key: [key; 32],
        tool: "t".into(),
        origin: crate::call::InvocationId::new(),
        result: r#"{"content":[],"is_error":false}"#.into(),
        stored_at: now(),
        expires_at,
    }
}

/// A ledger with something in each table.
async fn fill(settings: &Settings) -> Row {
    let ledger = open(settings, now()).await.unwrap();
    let limits = || vec![limit(Per::Lifetime), limit(Per::Day), limit(Per::Run)];
    let keyed = Row {
        idempotency_key: Some("k".into()),
        fingerprint: Some("f".into()),
        key_until: Some(Row::FOREVER),
        ..row("t", "a", now())
    };
    ledger.reserve(keyed.clone(), limits()).await.unwrap();
    let ended = Row {
        key_until: Some(now() + 24.hours()),
        meta: Some(r#"{"z":1,"a":2}"#.into()),
        ..(*ended_row(&keyed, State::Succeeded)).clone()
    };
    ledger
        .settle(Arc::new(ended.clone()), vec![])
        .await
        .unwrap();
    let expired = Row {
        idempotency_key: Some("old".into()),
        ..keyed.clone()
    };
    let expired = Row {
        id: crate::call::InvocationId::new(),
        ..expired
    };
    ledger.reserve(expired.clone(), limits()).await.unwrap();
    let expired = Row {
        key_until: Some(now()),
        ..(*ended_row(&expired, State::Failed)).clone()
    };
    ledger.settle(Arc::new(expired), vec![]).await.unwrap();
    let read = limited_read(&*ledger, now(), limits()).await;
    assert!(read.is_ok());

    let old = record_call_at(&*ledger, now() - 72.hours()).await;
    let hit = Row {
        origin: Some(old),
        result: None,
        cache: CacheStatus::Hit,
        parent: Some(keyed.id),
        detail: Some("a sentence".into()),
        ..(*ended_row(&row("u", "b", now()), State::Succeeded)).clone()
    };
    ledger.record(Arc::new(hit.clone())).await.unwrap();
    let attempt = AttemptRow {
        invocation: hit.id,
        attempt: 1,
        kind: ErrorKind::UpstreamFailed,
        message: "it's \"503\" ☃".into(),
        duration_us: 7,
    };
    ledger.record_attempt(attempt).await.unwrap();
    for _ in 0..120 {
        let refused = ended_row(&row("t", "a", now()), State::Refused);
        ledger.record(refused).await.unwrap();
    }
    ledger
        .store_result(stored_result(1, now() + 1.hour()))
        .await
        .unwrap();
    ledger.store_result(stored_result(2, now())).await.unwrap();
    for (tool, enabled) in [("t", false), ("u", true)] {
        let tool = tool.into();
        ledger
            .set_switch(Switch { tool, enabled }, None)
            .await
            .unwrap();
    }
    let tool = RegisteredTool {
        name: "r".into(),
        definition: r#"{"kind":"http"}"#.into(),
        registered_by: "root".into(),
        registered_at: now(),
    };
    ledger.register_tool(tool).await.unwrap();
    let waiting = approval("t", "a", Some("w"));
    ledger.request_approval(waiting.clone()).await.unwrap();
    let message = ApprovalMark::Message(r#"{"m":1}"#.into());
    ledger
        .mark_approval(waiting.invocation, message)
        .await
        .unwrap();
    ledger.flush().await.unwrap();
    ledger.close().await;
    ended
}

/// Everything that a ledger shows, as text.
async fn show(ledger: &dyn Ledger) -> String {
    let query = ExportQuery {
        limit: 1000,
        ..ExportQuery::default()
    };
    let mut calls = ledger.export_calls(&query).await.unwrap();
    for call in &mut calls {
        (call.row.replica, call.row.fingerprint) = (None, None);
        call.row.key_until = call.row.key_until.filter(|until| *until > now());
    }
    let approvals = ApprovalQuery {
        limit: 10,
        ..ApprovalQuery::default()
    };
    let approvals = ledger.list_approvals(&approvals).await.unwrap();
    let message = ledger
        .approval_message(approvals[0].invocation)
        .await
        .unwrap();
    let audit = AuditQuery {
        limit: 10,
        ..AuditQuery::default()
    };
    let audit = ledger.list_audit(&audit).await.unwrap();
    assert_eq!(audit.len(), 1, "a registered tool");
    let mut switches = ledger.list_switches().await.unwrap();
    switches.sort_by(|one, other| one.tool.cmp(&other.tool));
    let used = ledger
        .units_used(
            &[limit(Per::Lifetime), limit(Per::Day), limit(Per::Run)],
            now(),
        )
        .await
        .unwrap();
    format!(
        "{calls:#?}\n{approvals:#?}\n{message:?}\n{switches:?}\n{audit:?}\n{used:#?}\n{:?}\n{:#?}\n{:?}",
        ledger.registered_tools().await.unwrap(),
        ledger.usage_totals(None).await.unwrap(),
        ledger.find_result(&[1; 32], now()).await.unwrap(),
    )
}

/// The replica that wrote a call.
async fn replica_of(ledger: &dyn Ledger, id: crate::call::InvocationId) -> Option<Arc<str>> {
    ledger.get(id).await.unwrap().unwrap().row.replica
}

async fn everything_goes_on_in_the_target(from: Engine, to: Engine) {
    let Some(places) = Places::new([from, to]) else {
        return;
    };
    let (source, target) = (
        places.settings(from, "source.db").await,
        places.settings(to, "target.db").await,
    );
    let keyed = fill(&source).await;
    let before = open(&source, now()).await.unwrap();
    let shown = show(&*before).await;
    let writer = replica_of(&*before, keyed.id).await;
    before.close().await;
    // The lock of a file lasts as long as the ledger.
    drop(before);

    let moved = migrate(&source, &target, now()).await.unwrap();
    let rows = |table: &str| {
        moved
            .tables
            .iter()
            .find(|sums| sums.table == table)
            .unwrap()
            .rows
    };
    assert_eq!(
        (
            rows("held keys"),
            rows("counters of limits"),
            rows("approvals")
        ),
        (1, 3, 1)
    );
    assert_eq!((rows("stored results"), rows("failed attempts")), (1, 1));

    let ledger = open(&target, now()).await.unwrap();
    assert_eq!(show(&*ledger).await, shown);
    if let (Engine::Postgres, Engine::Postgres) = (from, to) {
        assert!(writer.is_some());
        assert_eq!(replica_of(&*ledger, keyed.id).await, writer);
    }
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    let holder = ledger
        .find_key_holder("a", "t", "k", now())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            holder.id,
            holder.result,
            holder.meta,
            holder.fingerprint,
            holder.key_until
        ),
        (
            keyed.id,
            keyed.result,
            keyed.meta,
            keyed.fingerprint,
            keyed.key_until
        )
    );
    let expired = ledger
        .find_key_holder("a", "t", "old", now())
        .await
        .unwrap();
    assert!(expired.is_none());

    // Three of five units are used.
    let charges = || vec![limit(Per::Lifetime)];
    for at in [4, 5] {
        let next = ledger
            .reserve(row("t", "a", now()), charges())
            .await
            .unwrap();
        assert_eq!(next.charged[0].used, at);
    }
    let refused = ledger.reserve(row("t", "a", now()), charges()).await;
    assert!(
        matches!(refused, Err(ReserveError::LimitReached(_))),
        "{refused:?}"
    );
    let again = Row {
        idempotency_key: Some("k".into()),
        fingerprint: Some("f".into()),
        key_until: Some(Row::FOREVER),
        ..row("t", "a", now())
    };
    let taken = ledger.reserve(again, vec![]).await;
    assert!(
        matches!(taken, Err(ReserveError::KeyClaimed(id)) if id == keyed.id),
        "{taken:?}"
    );
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    ledger.close().await;
}

async fn ledgers_in_use_and_with_content_are_refused(from: Engine, to: Engine) {
    let Some(places) = Places::new([from, to]) else {
        return;
    };
    let (source, target) = (
        places.settings(from, "source.db").await,
        places.settings(to, "target.db").await,
    );
    fill(&source).await;
    let reason = async || migrate(&source, &target, now()).await.unwrap_err();
    for used in [&source, &target] {
        let ledger = open(used, now()).await.unwrap();
        let error = reason().await;
        assert!(matches!(error, Error::InUse { .. }), "{error}");
        ledger.close().await;
    }
    let ledger = open(&target, now()).await.unwrap();
    let switch = Switch {
        tool: "t".into(),
        enabled: false,
    };
    ledger.set_switch(switch, None).await.unwrap();
    ledger.close().await;
    drop(ledger);
    let error = reason().await;
    assert!(matches!(error, Error::NotEmpty(_)), "{error}");
}

async fn interrupted_move_begins_again(from: Engine, to: Engine) {
    let Some(places) = Places::new([from, to]) else {
        return;
    };
    let (source, target) = (
        places.settings(from, "source.db").await,
        places.settings(to, "target.db").await,
    );
    fill(&source).await;
    let mut half = super::open::open_end(&target, now()).await.unwrap();
    half.begin(None, now()).await.unwrap();
    let switch = "insert into tool_switch (tool, enabled) values ('t', false)";
    half.connection().execute(Sql::new(switch)).await.unwrap();
    // As in a crash, nothing is committed.
    drop(half);
    let moved = migrate(&source, &target, now()).await.unwrap();
    assert_eq!(moved.tables[0].table, "calls");
    let error = migrate(&source, &target, now()).await.unwrap_err();
    assert!(matches!(error, Error::NotEmpty(_)), "{error}");
}

macro_rules! moves {
    ($name:ident, $from:ident, $to:ident) => {
        mod $name {
            use super::Engine::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn everything_goes_on_in_the_target() {
                super::everything_goes_on_in_the_target($from, $to).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn ledgers_in_use_and_with_content_are_refused() {
                super::ledgers_in_use_and_with_content_are_refused($from, $to).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn interrupted_move_begins_again() {
                super::interrupted_move_begins_again($from, $to).await;
            }
        }
    };
}

moves!(sqlite_to_postgres, Sqlite, Postgres);
moves!(postgres_to_sqlite, Postgres, Sqlite);
moves!(sqlite_to_sqlite, Sqlite, Sqlite);
moves!(postgres_to_postgres, Postgres, Postgres);
