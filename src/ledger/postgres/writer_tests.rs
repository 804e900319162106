//! Tests: what the writer commits together, and what it does after a commit that failed or has no
//! answer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::lease::RECALL_TIME;
use super::*;
use crate::ledger::{LedgerObserver, StoredResult};
use crate::log::captured_log::capture_log;

/// What the writer reports.
#[derive(Default)]
struct Reports {
    /// Rows of each commit.
    commits: Mutex<Vec<usize>>,
    failures: AtomicUsize,
    backlog: AtomicUsize,
}

impl LedgerObserver for Reports {
    fn on_commit(&self, rows: usize, _: Duration) {
        self.commits.lock().push(rows);
    }

    fn on_commit_failure(&self) {
        self.failures.fetch_add(1, Ordering::SeqCst);
    }

    fn on_backlog(&self, rows: usize) {
        self.backlog.store(rows, Ordering::SeqCst);
    }
}

impl Fixture {
    async fn observed_replica(&self) -> (Arc<PostgresLedger>, Arc<Reports>) {
        let reports = Arc::<Reports>::default();
        let opened = PostgresLedger::open(&self.settings, reports.clone()).await;
        (Arc::new(opened.unwrap()), reports)
    }

    /// Lets a trigger before each new call do this.
    async fn before_each_call(&mut self, body: &str) {
        let sql = format!(
            "create sequence tries; create function before_call() returns trigger language plpgsql as $$ begin {body} return new; end $$; \
             create trigger before_call before insert on invocation for each row execute function before_call()"
        );
        self.run(&sql).await;
    }
}

#[tokio::test]
async fn commits_are_split_at_four_mebibytes() {
    /// Operations of 1 MB each, sent together.
    const SENT: u8 = 9;
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let (ledger, reports) = fixture.observed_replica().await;
    let text: Arc<str> = format!("\"{}\"", "x".repeat(1 << 20)).into();
    let with_arguments = || Row {
        arguments: text.clone(),
        ..row("t", "a", now())
    };
    let largest = || {
        std::mem::take(&mut *reports.commits.lock())
            .into_iter()
            .max()
    };

    let calls: Vec<Row> = (0..SENT).map(|_| with_arguments()).collect();
    let reserved = calls
        .iter()
        .map(|call| ledger.reserve(call.clone(), vec![]));
    assert!(join_all(reserved).await.iter().all(Result::is_ok));
    assert_eq!(largest(), Some(4), "reservations");

    let ends = calls.iter().map(|call| ended_row(call, State::Succeeded));
    let settled = ends.map(|end| ledger.settle(end, vec![]));
    assert!(join_all(settled).await.iter().all(Result::is_ok));
    assert_eq!(largest(), Some(4), "ends of reserved calls");

    let ends = (0..SENT).map(|_| ended_row(&with_arguments(), State::Succeeded));
    let recorded = ends.map(|end| ledger.record(end));
    assert!(join_all(recorded).await.iter().all(Result::is_ok));
    assert_eq!(largest(), Some(4), "ends of other calls");

    let stored = (0..SENT).map(|key| {
        ledger.store_result(StoredResult {
            key: [key; 32],
            tool: "t".into(),
            origin: InvocationId::new(),
            result: text.to_string(),
            stored_at: now(),
            expires_at: now() + 1.hour(),
        })
    });
    assert!(join_all(stored).await.iter().all(Result::is_ok));
    ledger.flush().await.unwrap();
    assert_eq!(largest(), Some(4), "results");
}

#[tokio::test]
async fn rows_without_a_waiting_caller_share_a_commit() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let (ledger, reports) = fixture.observed_replica().await;
    let round = async || {
        ledger.flush().await.unwrap();
        reports.commits.lock().clear();
        // The writer collects for a few milliseconds after a commit. No query is under way then.
        tokio::time::pause();
        for _ in 0..4 {
            let end = ended_row(&row("t", "a", now()), State::Succeeded);
            ledger.record_in_background(end, Box::new(()));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::resume();
        ledger.flush().await.unwrap();
        std::mem::take(&mut *reports.commits.lock())
    };
    // On a busy machine, these milliseconds may be over before the first row.
    for _ in 0..50 {
        if round().await == [4] {
            return;
        }
    }
    panic!("each row has a commit of its own");
}

#[tokio::test]
async fn transaction_is_repeated_five_times_and_then_later() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let (ledger, reports) = fixture.observed_replica().await;
    // Twelve tries fail: six of the commit, and six of the first retry.
    fixture
        .before_each_call(
            "if nextval('tries') <= 12 then raise exception using errcode = '40001'; end if;",
        )
        .await;
    let call = row("t", "a", now());
    let recorded = ledger.record(ended_row(&call, State::Succeeded)).await;
    assert!(recorded.is_err());
    assert_eq!(reports.backlog.load(Ordering::SeqCst), 1);
    wait_until_healthy(&ledger).await;
    assert_eq!(reports.backlog.load(Ordering::SeqCst), 0);
    assert_eq!(fixture.number("select last_value from tries").await, 13);
    assert_eq!(reports.failures.load(Ordering::SeqCst), 2);
    assert!(ledger.get(call.id).await.unwrap().is_some());
    assert_eq!(ledger.usage_totals(None).await.unwrap()[0].calls, 1);
}

#[tokio::test]
async fn row_that_the_database_refuses_holds_up_no_other() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let (ledger, reports) = fixture.observed_replica().await;
    fixture
        .before_each_call(
            "if new.tool = 'bad' then raise exception using errcode = '23514'; end if;",
        )
        .await;
    let log = capture_log();
    let rows = ["good", "bad", "good"].map(|tool| row(tool, "a", now()));
    let ends = rows.iter().map(|call| ended_row(call, State::Succeeded));
    // One batch, which cannot be written as a whole.
    let recorded = join_all(ends.map(|end| ledger.record(end))).await;
    assert!(recorded.iter().all(Result::is_err));
    assert_eq!(reports.backlog.load(Ordering::SeqCst), 3);
    wait_until_healthy(&ledger).await;
    for call in &rows {
        let found = ledger.get(call.id).await.unwrap();
        assert_eq!(found.is_some(), &*call.tool == "good");
    }
    assert_eq!(log.count_lines("cannot be written and is discarded"), 1);
    assert_eq!(reports.backlog.load(Ordering::SeqCst), 0);
    ledger.close().await;
    assert!(!log.has_line("is not recorded"));
}

#[tokio::test]
async fn oldest_rows_are_lost_with_a_log_line_if_too_many_wait() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let (ledger, reports) = fixture.observed_replica().await;
    let log = capture_log();
    fixture
        .run("alter function commit_batch_1 rename to away")
        .await;
    let record = || {
        let end = ended_row(&row("t", "a", now()), State::Succeeded);
        ledger.record_in_background(end, Box::new(()));
    };
    // As many at a time as the queue has room for.
    for _ in 0..20 {
        (0..500).for_each(|_| record());
        assert!(ledger.flush().await.is_err());
    }
    assert_eq!(reports.backlog.load(Ordering::SeqCst), 10_000);
    assert!(!log.has_line("rows are lost"));
    record();
    assert!(ledger.flush().await.is_err());
    assert_eq!(reports.backlog.load(Ordering::SeqCst), 10_000);
    assert_eq!(log.count_lines("rows are lost rows=1"), 1);
}

#[tokio::test]
async fn reset_waits_for_the_free_units_of_a_silent_replica() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let ledger = Arc::new(fixture.replica().await);
    let counters = "select count(*) from quota";
    let charges = || vec![charge(9, Per::Lifetime)];
    let set_aside =
        "insert into unit_block select gen_random_uuid(), id, window_start, 5, true from quota";
    let begin = || {
        let ledger = ledger.clone();
        tokio::spawn(async move { ledger.reset_counters("t", None, None).await })
    };
    // The reset has recalled the units this often.
    let wait_until_recalled = async |fixture: &mut Fixture, times: usize| {
        let recall =
            "select coalesce(max(extract(epoch from recalled_at) * 1000000), 0)::bigint from quota";
        for _ in 0..times {
            let before = fixture.number(recall).await;
            while fixture.number(recall).await == before {}
        }
        assert_eq!(fixture.number(counters).await, 1);
    };
    // The units come back.
    let call = row("t", "a", now());
    ledger.reserve(call, charges()).await.unwrap();
    fixture.run(set_aside).await;
    let reset = begin();
    wait_until_recalled(&mut fixture, 2).await;
    fixture.run("delete from unit_block").await;
    let ended = tokio::time::timeout(RECALL_TIME / 2, reset).await;
    ended
        .expect("nothing is left to wait for")
        .unwrap()
        .unwrap();
    assert_eq!(fixture.number(counters).await, 0);
    // They do not come back in time.
    let call = row("t", "a", now());
    ledger.reserve(call, charges()).await.unwrap();
    fixture.run(set_aside).await;
    let reset = begin();
    wait_until_recalled(&mut fixture, 1).await;
    tokio::time::pause();
    tokio::time::advance(RECALL_TIME).await;
    tokio::time::resume();
    let ended = tokio::time::timeout(RECALL_TIME / 2, reset).await;
    ended
        .expect("no replica may use them now")
        .unwrap()
        .unwrap();
    assert_eq!(fixture.number(counters).await, 0);
    assert_eq!(fixture.number("select count(*) from unit_block").await, 0);
}

/// A network between the replica and the server that can lose answers: while `loses`, it closes a
/// connection instead of passing on what the server sends.
async fn losing_network(server_port: u16) -> (u16, Arc<AtomicBool>) {
    let loses = Arc::new(AtomicBool::new(false));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let is_losing = loses.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let is_losing = is_losing.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", server_port))
                    .await
                    .unwrap();
                let (mut from_client, mut to_client) = client.split();
                let (mut from_server, mut to_server) = server.split();
                let answers = async {
                    let mut answer = vec![0; 1 << 16];
                    while let Ok(read @ 1..) = from_server.read(&mut answer).await
                        && !is_losing.load(Ordering::SeqCst)
                        && to_client.write_all(&answer[..read]).await.is_ok()
                    {}
                };
                tokio::select! {
                    () = answers => {}
                    _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                }
            });
        }
    });
    (port, loses)
}

#[tokio::test]
async fn commit_whose_answer_is_lost_counts_except_for_starting_calls() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let (port, loses) = losing_network(fixture.server.port).await;
    let direct = format!(":{}/", fixture.server.port);
    fixture.settings.url = fixture.settings.url.replace(&direct, &format!(":{port}/"));
    let (ledger, reports) = fixture.observed_replica().await;
    let charges = || vec![charge(40, Per::Lifetime)];
    let mut ended = 0;
    loop {
        let (running, starting) = (row("t", "a", now()), row("t", "a", now()));
        ledger.reserve(running.clone(), charges()).await.unwrap();
        loses.store(true, Ordering::SeqCst);
        let (settled, reserved, taken) = tokio::join!(
            ledger.settle(ended_row(&running, State::Succeeded), vec![]),
            ledger.reserve(starting.clone(), charges()),
            ledger.take_units(InvocationId::new(), now(), charges()),
        );
        assert!(settled.is_err() && reserved.is_err() && taken.is_err());
        ended += 1;
        let sql = format!(
            "select count(*) from invocation where id = '{}'",
            starting.id
        );
        let is_committed = fixture.number(&sql).await == 1;
        assert_eq!(reports.backlog.load(Ordering::SeqCst), 1);
        loses.store(false, Ordering::SeqCst);
        wait_until_healthy(&ledger).await;
        assert_eq!(reports.backlog.load(Ordering::SeqCst), 0);
        let found = ledger.get(running.id).await.unwrap().unwrap().row;
        assert_eq!(found.state, State::Succeeded);
        assert!(ledger.get(starting.id).await.unwrap().is_none());
        // The connection may have been lost before the commit.
        if is_committed {
            break;
        }
    }
    let usage = ledger.usage_totals(None).await.unwrap();
    assert_eq!((usage[0].calls, usage[0].succeeded), (ended, ended));
    assert_eq!(used(&ledger, charge(40, Per::Lifetime)).await, ended);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}
