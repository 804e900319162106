//! Tests: the content of one commit, and deletion when the file is full.

use parking_lot::Mutex;
use std::time::Duration;

use futures_util::future::join_all;

use super::super::trim::{self, Cursor, TrimStep};
use super::*;
use crate::log::captured_log::capture_log;

/// The number of rows in each commit.
#[derive(Default)]
struct CommitSizes(Mutex<Vec<usize>>);

impl LedgerObserver for CommitSizes {
    fn on_commit(&self, rows: usize, _: Duration) {
        self.0.lock().push(rows);
    }
    fn on_commit_failure(&self) {}
    fn on_backlog(&self, _: usize) {}
    fn on_drift(&self, _: u64) {}
    fn on_clock_jump(&self) {}
}

/// Number of operations of 200 KB each that are sent together: 4.8 MB.
const SENT: usize = 24;

async fn largest_commit(send: impl AsyncFn(&dyn Ledger)) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let sizes = Arc::new(CommitSizes::default());
    let ledger = open_with_observer(&settings, now(), sizes.clone())
        .await
        .unwrap();
    send(&*ledger).await;
    ledger.flush().await.unwrap();
    let sizes = std::mem::take(&mut *sizes.0.lock());
    assert!(sizes.iter().sum::<usize>() >= SENT);
    sizes.into_iter().max().unwrap()
}

#[tokio::test]
async fn commits_are_split_at_four_mebibytes() {
    let text: Arc<str> = format!("\"{}\"", "x".repeat(200_000)).into();
    let short = || row("t", "a", now());
    let with_result = |row: &Row| {
        Arc::new(Row {
            result: Some(text.clone()),
            ..(*ended_row(row, State::Succeeded)).clone()
        })
    };
    let reserves = async |ledger: &dyn Ledger| {
        let sent = (0..SENT).map(|_| {
            ledger.reserve(
                Row {
                    arguments: text.clone(),
                    ..short()
                },
                vec![],
            )
        });
        assert!(join_all(sent).await.iter().all(Result::is_ok));
    };
    let arguments = async |ledger: &dyn Ledger| {
        let row = || Row {
            arguments: text.clone(),
            result: None,
            ..(*ended_row(&short(), State::Succeeded)).clone()
        };
        assert!(
            join_all((0..SENT).map(|_| ledger.record(Arc::new(row()))))
                .await
                .iter()
                .all(Result::is_ok)
        );
    };
    let results = async |ledger: &dyn Ledger| {
        assert!(
            join_all((0..SENT).map(|_| ledger.record(with_result(&short()))))
                .await
                .iter()
                .all(Result::is_ok)
        );
    };
    let settles = async |ledger: &dyn Ledger| {
        let rows: Vec<Row> = (0..SENT).map(|_| short()).collect();
        for row in &rows {
            ledger.reserve(row.clone(), vec![]).await.unwrap();
        }
        let sent = rows
            .iter()
            .map(|row| ledger.settle(with_result(row), vec![]));
        assert!(join_all(sent).await.iter().all(Result::is_ok));
    };
    let stores = async |ledger: &dyn Ledger| {
        for key in 0..SENT {
            let stored = StoredResult {
                key: [u8::try_from(key).unwrap(); 32],
                tool: "t".into(),
                origin: InvocationId::new(),
                result: text.to_string(),
                stored_at: now(),
                expires_at: now() + 1.hour(),
            };
            ledger.store_result(stored).await.unwrap();
        }
    };
    for (largest, what) in [
        (largest_commit(reserves).await, "reserves"),
        (largest_commit(arguments).await, "arguments"),
        (largest_commit(results).await, "results"),
        (largest_commit(settles).await, "settles"),
        (largest_commit(stores).await, "stores"),
    ] {
        assert!(
            (18..=21).contains(&largest),
            "{what}: {largest} rows in one commit"
        );
    }
}

/// A refused call, which may be deleted, or a write, which may not, of exactly this many bytes.
fn row_of_size(state: State, bytes: usize) -> Arc<Row> {
    let end = ended_row(&row("t", "a", now()), state);
    let arguments = "x".repeat(bytes - 2 - end.result.as_ref().map_or(0, |text| text.len()));
    Arc::new(Row {
        arguments: format!("\"{arguments}\"").into(),
        ..(*end).clone()
    })
}

async fn delete_step(
    other: &mut sqlx::SqliteConnection,
    cursor: &mut Cursor,
    at_most: u32,
) -> Result<u64, TrimStep> {
    match trim::trim_step(other, cursor, Some(now()), at_most)
        .await
        .unwrap()
    {
        TrimStep::Deleted { rows, .. } => Ok(rows),
        step => Err(step),
    }
}

#[tokio::test]
async fn trim_step_deletes_about_four_mebibytes() {
    let (ledger, folder) = open().await;
    for _ in 0..12 {
        ledger
            .record(row_of_size(State::Refused, 1 << 20))
            .await
            .unwrap();
    }
    let (mut other, mut cursor) = (connect(folder.path()).await, Cursor::default());
    for expected in [Ok(5), Ok(5), Ok(1), Err(TrimStep::Exhausted)] {
        assert_eq!(
            delete_step(&mut other, &mut cursor, 256).await,
            expected,
            "one over four, and never the newest"
        );
    }
}

#[tokio::test]
async fn trim_steps_skip_protected_rows() {
    let (ledger, folder) = open().await;
    let kept = row("w", "a", now());
    for _ in 0..3 {
        ledger
            .record(row_of_size(State::Refused, 100))
            .await
            .unwrap();
    }
    ledger.reserve(kept.clone(), vec![]).await.unwrap();
    ledger.reserve(row("w", "a", now()), vec![]).await.unwrap();
    let (mut other, mut cursor) = (connect(folder.path()).await, Cursor::default());
    for expected in [Ok(2), Ok(1), Err(TrimStep::Exhausted)] {
        assert_eq!(delete_step(&mut other, &mut cursor, 2).await, expected);
    }
    assert!(ledger.get(kept.id).await.unwrap().is_some());
}

#[tokio::test]
async fn long_row_frees_the_space_it_needs() {
    let (ledger, folder) = open_bounded().await;
    for _ in 0..60 {
        ledger
            .record(row_of_size(State::Refused, 200_000))
            .await
            .unwrap();
    }
    let long = Row {
        arguments: row_of_size(State::Succeeded, 8 << 20).arguments.clone(),
        ..row("w", "a", now())
    };
    ledger.reserve(long.clone(), vec![]).await.unwrap();
    assert!(ledger.get(long.id).await.unwrap().is_some() && ledger.check_health().is_ok());
    assert!(
        std::fs::metadata(folder.path().join("test.db"))
            .unwrap()
            .len()
            <= MIN_SIZE_BOUND
    );
    let remaining = ledger
        .list_calls(&Query {
            tool: Some("t".into()),
            limit: 100,
            ..Query::default()
        })
        .await
        .unwrap()
        .len();
    assert!(
        (15..40).contains(&remaining),
        "{remaining} of 60: only as many as necessary are deleted"
    );
}

#[tokio::test]
async fn close_logs_unwritten_rows() {
    let (ledger, folder) = open().await;
    let call = row("t", "a", now());
    ledger.reserve(call.clone(), vec![]).await.unwrap();
    let mut other = connect(folder.path()).await;
    let full = "create trigger full before update on invocation begin select abs(-9223372036854775808); end";
    sqlx::query(full).execute(&mut other).await.unwrap();
    let log = capture_log();
    ledger
        .settle(ended_row(&call, State::Succeeded), vec![])
        .await
        .unwrap_err();
    ledger.close().await;
    assert_eq!(
        log.count_lines("rows of finished calls could not be written"),
        1
    );
    assert!(!log.has_line("rows are lost"));
    drop(ledger);
    drop(log);

    let log = capture_log();
    let (ledger, _folder) = open().await;
    record_call_at(&*ledger, now()).await;
    ledger.close().await;
    assert!(
        !log.has_line("ERROR") && !log.has_line("WARN"),
        "all is well"
    );
}

#[tokio::test]
async fn reservations_resume_when_the_disk_recovers() {
    let (ledger, folder) = open().await;
    let call = row("t", "a", now());
    ledger.reserve(call.clone(), vec![]).await.unwrap();
    let mut other = connect(folder.path()).await;
    let full = "create trigger full before update on invocation begin select abs(-9223372036854775808); end";
    sqlx::query(full).execute(&mut other).await.unwrap();
    let log = capture_log();
    ledger
        .settle(ended_row(&call, State::Succeeded), vec![])
        .await
        .unwrap_err();
    assert!(ledger.check_health().is_err());
    sqlx::query("drop trigger full")
        .execute(&mut other)
        .await
        .unwrap();
    // The backlog is written first, without waiting for the next probe.
    ledger.reserve(row("t", "a", now()), vec![]).await.unwrap();
    assert_eq!(
        ledger.get(call.id).await.unwrap().unwrap().row.state,
        State::Succeeded
    );
    assert!(ledger.check_health().is_ok());
    assert_eq!(log.count_lines("the ledger can write again"), 1);
}

#[tokio::test]
async fn prune_counts_all_deleted_rows() {
    let (ledger, _folder) = open().await;
    for _ in 0..2 {
        let id = record_call_at(&*ledger, now()).await;
        let (kind, message) = (crate::call::ErrorKind::UpstreamFailed, "x".to_owned());
        ledger
            .record_attempt(AttemptRow {
                invocation: id,
                attempt: 1,
                kind,
                message,
                duration_us: 7,
            })
            .await
            .unwrap();
    }
    let charged = Row {
        id: InvocationId::lower_bound(now()),
        ..row("t", "a", now())
    };
    ledger
        .reserve(charged.clone(), vec![charge(9, Per::Run)])
        .await
        .unwrap();
    ledger
        .settle(ended_row(&charged, State::Succeeded), vec![])
        .await
        .unwrap();
    record_call_at(&*ledger, now() + 1.hour()).await;
    let later = now() + 30.minutes();
    // Three calls, two attempts, one counter.
    assert_eq!(ledger.prune(later, later, 100).await.unwrap(), 6);
    assert_eq!(ledger.prune(later, later, 100).await.unwrap(), 0);
}

/// A ledger that has just committed, and the sizes of its later commits. Pauses the time: the
/// connections have opened by then, which happens on other threads.
async fn open_after_commit(folder: &Path) -> (Arc<dyn Ledger>, Arc<CommitSizes>) {
    let settings = Settings {
        base: folder.to_owned(),
        ..settings()
    };
    let sizes = Arc::new(CommitSizes::default());
    let ledger = open_with_observer(&settings, now(), sizes.clone())
        .await
        .unwrap();
    ledger.flush().await.unwrap();
    sizes.0.lock().clear();
    tokio::time::pause();
    (ledger, sizes)
}

fn read() -> Arc<Row> {
    ended_row(&row("t", "a", now()), State::Succeeded)
}

#[tokio::test]
async fn rows_without_a_waiting_caller_share_a_commit() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, sizes) = open_after_commit(folder.path()).await;
    for _ in 0..4 {
        ledger.record_in_background(read(), Box::new(()));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ledger.flush().await.unwrap();
    assert_eq!(*sizes.0.lock(), [4]);
}

#[tokio::test]
async fn waiting_caller_ends_the_collection() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, sizes) = open_after_commit(folder.path()).await;
    // While a blocking task runs, the paused time does not advance.
    let (end, ended) = std::sync::mpsc::sync_channel::<()>(1);
    let blocking = tokio::task::spawn_blocking(move || ended.recv_timeout(Duration::from_secs(60)));
    let started = tokio::time::Instant::now();
    for _ in 0..2 {
        ledger.record_in_background(read(), Box::new(()));
        // Now the writer waits for more.
        tokio::task::yield_now().await;
    }
    ledger.record(read()).await.unwrap();
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(*sizes.0.lock(), [3]);
    drop(end);
    let _ = blocking.await.unwrap();
}
