//! Tests: how this engine reacts when the disk fails, or another program changes its files.

use super::super::contract::sqlite::{open, settings};
use super::super::contract::{charge, ended_row, limited_read, now, row};
use super::super::*;
use super::tests::connect;
use crate::call::Per;

async fn run(connection: &mut sqlx::SqliteConnection, sql: &'static str) {
    sqlx::query(sql).execute(connection).await.unwrap();
}

async fn wait_until_healthy(ledger: &dyn Ledger) {
    for _ in 0..100 {
        if ledger.check_health().is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn backlog_is_written_when_the_disk_recovers() {
    let (ledger, folder) = open().await;
    let rows: Vec<Row> = (0..1100).map(|_| row("t", "a", now())).collect();
    for row in &rows {
        ledger.reserve(row.clone(), vec![]).await.unwrap();
    }
    let mut other = connect(folder.path()).await;
    // No write succeeds until the trigger is dropped, as on a full disk.
    let full = "create trigger full before update on invocation begin select abs(-9223372036854775808); end";
    run(&mut other, full).await;
    let ends = rows
        .iter()
        .map(|row| ledger.settle(ended_row(row, State::Succeeded), vec![]));
    assert!(
        futures_util::future::join_all(ends)
            .await
            .iter()
            .all(Result::is_err)
    );
    run(&mut other, "drop trigger full").await;
    wait_until_healthy(&*ledger).await;
    let running = Query {
        states: vec![State::Reserved],
        limit: 10,
        ..Query::default()
    };
    assert_eq!(ledger.list_calls(&running).await.unwrap().len(), 0);
}

#[tokio::test]
async fn units_of_a_failed_commit_are_given_back_later() {
    let (ledger, folder) = open().await;
    for _ in 0..9 {
        limited_read(&*ledger, now(), vec![charge(99, Per::Day)])
            .await
            .unwrap();
    }
    let mut other = connect(folder.path()).await;
    let full =
        "create trigger full before update on quota begin select abs(-9223372036854775808); end";
    run(&mut other, full).await;
    for _ in 0..3 {
        assert!(ledger.flush().await.is_err());
    }
    run(&mut other, "drop trigger full").await;
    wait_until_healthy(&*ledger).await;
    ledger.close().await;
    let counter: (i64, i64, i64) = sqlx::query_as("select used, set_aside, lost_units from quota")
        .fetch_one(&mut other)
        .await
        .unwrap();
    assert_eq!(counter, (9, 0, 0), "nothing is set aside or lost");
}

#[tokio::test]
async fn removed_log_refuses_reservations() {
    let (ledger, folder) = open().await;
    ledger.reserve(row("t", "a", now()), vec![]).await.unwrap();
    std::fs::remove_file(folder.path().join("test.db-wal")).unwrap();
    let reservation = ledger.reserve(row("t", "a", now()), vec![]).await;
    assert!(
        matches!(reservation, Err(ReserveError::Ledger(_))),
        "{reservation:?}"
    );
    assert!(ledger.check_health().is_err());
}

#[tokio::test]
async fn log_without_its_database_is_kept() {
    let (ledger, folder) = open().await;
    ledger.reserve(row("t", "a", now()), vec![]).await.unwrap();
    let (file, log) = (
        folder.path().join("test.db"),
        folder.path().join("test.db-wal"),
    );
    let log_bytes = std::fs::read(&log).unwrap();
    ledger.close().await;
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&log, &log_bytes).unwrap();
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let Err(error) = super::super::open(&settings, now()).await else {
        panic!("a log was thrown away")
    };
    assert!(error.to_string().contains("-wal"), "{error}");
    assert_eq!(
        (std::fs::read(&log).unwrap(), file.exists()),
        (log_bytes, false)
    );
}

#[tokio::test]
async fn unreadable_file_stops_the_ledger() {
    let (ledger, folder) = open().await;
    let first = row("t", "a", now());
    ledger.reserve(first.clone(), vec![]).await.unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(folder.path().join("test.db-wal"))
        .unwrap()
        .set_len(0)
        .unwrap();
    assert!(ledger.get(first.id).await.is_err());
    let stopped =
        tokio::time::timeout(std::time::Duration::from_secs(5), ledger.wait_for_failure()).await;
    assert!(matches!(stopped, Ok(Error::Stopped(_))), "{stopped:?}");
    assert!(ledger.check_health().is_err());
}
